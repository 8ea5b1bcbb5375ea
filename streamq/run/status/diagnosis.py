"""The diagnosis of a run: why there is no output, from the readings of its stages alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamq.choices import CountReason, RunState, Verdict
from streamq.run.status.run_status import RunStatus, SourceStatus, moment_of
from streamq.run.status.wait_analysis import WaitAnalysis, input_title
from streamq.run.status.why import Wait, Why, oddities
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_duration


def why(status: RunStatus) -> Why:
    """Return the diagnosis of a run."""
    state, now = status.state, status.now
    case = WaitAnalysis(status)
    has_ended = state in (RunState.FAILED, RunState.FINISHED)
    waits = () if has_ended else tuple(case.waits())
    answer = (
        _ended(state, status.reason)
        or _in_first_micro_batch(status.busy_since)
        or _sources_over(case, waits)
        or _no_rows_or_flowing(case)
        or _filtered_at_the_end(case)
        or _waiting(case, waits, now)
        or _nothing_waits(case)
    )
    if answer.verdict == Verdict.IDLE_INPUT and not waits:
        waits = tuple(_without_partners(case))
    warnings = oddities(list(status.sources.values()), status.axis)
    return Why(
        state=state,
        verdict=answer.verdict,
        summary=answer.summary,
        waits=waits,
        warnings=warnings,
        axis=status.axis,
        now=now,
    )


START_AGAIN = "Start it again: with a checkpoint it goes on there, without one it begins anew."
"""The advice for a run that has been stopped."""


@dataclass(frozen=True)
class Answer:
    """A verdict, and the sentence that explains it."""

    verdict: Verdict
    summary: str


def _ended(state: RunState, reason: str) -> Answer | None:
    """Answer for a run that has failed, has finished or was stopped, with the reason; None for any other."""
    match state:
        case RunState.FAILED:
            return Answer(Verdict.FAILED, f"The query has failed: {reason}")
        case RunState.FINISHED:
            return Answer(Verdict.FINISHED, f"The run is over: {reason}, and all its rows are out.")
        case RunState.STOPPED:
            return Answer(Verdict.STOPPED, f"The query does not run: {reason}. {START_AGAIN}")
    return None


def _in_first_micro_batch(since: dt.datetime | None) -> Answer | None:
    """Answer for a run whose first micro-batch began at ``since``; None if none is being processed."""
    if since is None:
        return None
    # not for how long: a log that shows the answer would get a line every second
    begun = f"{since.astimezone(dt.UTC):%H:%M:%S} UTC"
    text = f"The first micro-batch is running, since {begun}; what it reads is counted once it is done."
    return Answer(Verdict.FIRST_BATCH, text)


def _sources_over(case: WaitAnalysis, waits: Sequence[Wait]) -> Answer | None:
    """Answer for a run that goes on though each of its sources has said that it has ended; None for any other."""
    if waits or any(source.cti != INFINITY for source in case.statuses.values()):
        return None
    names = " and ".join(source.name for source in case.statuses.values())
    text = f"The input has ended, by {names}, and all its rows are out. Nothing more comes: call stop()."
    return Answer(Verdict.NOTHING_HELD, text)


def _no_rows_or_flowing(case: WaitAnalysis) -> Answer | None:
    """Answer for a run into which no event has come, or whose last micro-batch wrote rows; None for any other."""
    last, every = case.history.last, case.statuses.values()
    rows = sum(s.events for s in every)
    refused = [f"{n:,} of {s.name}" for s in every if (n := s.late.get(CountReason.INVALID))]
    if not rows and refused:
        return Answer(Verdict.NO_ROWS, f"No event has come: all rows so far are invalid ({', '.join(refused)}).")
    if not rows:
        return Answer(Verdict.NO_ROWS, f"No row has come yet, from {' or '.join(s.name for s in every)}.")
    if last is not None and (last.inserted or last.retracted):
        back = f", and {last.retracted:,} were taken back" if last.retracted else ""
        return Answer(Verdict.FLOWING, f"Rows come out: {last.inserted:,} did in the last micro-batch{back}.")
    return None


def _waiting(case: WaitAnalysis, waits: Sequence[Wait], now: dt.datetime) -> Answer | None:
    """Answer for a run whose operators hold rows; None if there are no ``waits``.

    It names the last wait, nearest to the result, which depends on the others.
    """
    if not waits:
        return None
    wait = waits[-1]
    # a source that follows the clock needs no row for progress
    source = None if wait.source is None or wait.source.progress.clock else wait.source
    has_no_cti = source is not None and source.cti == MINUS_INFINITY and source.straggler is None
    if source is not None and not wait.early and has_no_cti and source.events:
        text = f"Rows are held back: {source.name} has sent no CTI yet, and nobody else speaks for it"
        return Answer(Verdict.NO_CTI, f"{text}; progress=sq.generate(...) makes CTIs of its rows.")
    if source is not None and not wait.early and _idle(case, source):
        is_passed_over = any(case.statuses[name] is source for name in case.silent)
        verdict = Verdict.WAITING if is_passed_over else Verdict.IDLE_INPUT
        return Answer(verdict, f"Rows are held back: {source.name} {_silent(source, now)}.")
    text = f"Rows are held back, waiting for {wait.release[0]}"
    return Answer(Verdict.WAITING, f"{text}; {wait.proviso}." if wait.proviso else f"{text}.")


def _silent(source: SourceStatus, now: dt.datetime) -> str:
    """Return a text on how long a source has been silent, and what lets the others proceed without it."""
    allowed_silence = source.progress.idle_after
    if allowed_silence is None:
        silence = "brings no rows any more, and others do" if source.events else "has brought no row yet"
        return f"{silence}; idle_after in sq.generate lets it pass"
    allowed = f"idle_after, {show_duration(allowed_silence, TIMESTAMP)}"
    if source.heard_at is None:
        return f"has brought no row yet; {allowed} from the start of the run, lets it pass"
    since = moment_of(source.heard_at)
    passed_at = since + dt.timedelta(microseconds=allowed_silence)
    silence = f"has brought no rows since {since:%Y-%m-%d %H:%M:%S} UTC"
    if now < passed_at:
        return f"{silence}; {allowed}, lets it pass at {passed_at:%Y-%m-%d %H:%M:%S}"
    return f"{silence}; {allowed}, is over: it goes by the CTI that the others had a micro-batch before"


def _idle(case: WaitAnalysis, source: SourceStatus) -> bool:
    """Return True if other sources have brought rows since this source did, by the clock or in the last micro-batch."""
    others = [s for s in case.statuses.values() if s is not source and s.events]
    since = max((s.heard_at or 0 for s in others), default=0) > (source.heard_at or 0)
    return bool(others) and (not source.events or since or (not source.new_rows and any(s.new_rows for s in others)))


def _nothing_waits(case: WaitAnalysis) -> Answer:
    """Answer for a run that has read rows, holds none, and wrote none in the last micro-batch."""
    for hosted in case.kernels.values():
        arrived = case.arrived(hosted)
        if case.handed_on(hosted.name):
            continue
        for channel in (ch for ch in hosted.channels if not arrived[ch.port]):
            came = case.handed_on(channel.relation)
            if came and any(arrived.values()):
                first = f"a first row {input_title(case.program, hosted, channel.port)}"
                filtered = (
                    f"{came:,} rows of {case.shown(channel.relation)} came, and none passed the filters on that side"
                )
                return Answer(
                    Verdict.NO_MATCH,
                    f"No row came to one side: {filtered}; {first} is missing, in {case.title(hosted)}.",
                )
            if came:
                text = f"{came:,} rows of {case.shown(channel.relation)} came, and none passed the filters before"
                return Answer(Verdict.FILTERED, f"{text} {case.title(hosted)}.")
        if len(arrived) > 1 and all(arrived.values()):
            if hosted.kernel.progress_rule.subtracts:
                text = f"Nothing is left of the rows that came to {case.title(hosted)}: those of its other input cover them."
                return Answer(Verdict.NOTHING_HELD, text)
            return Answer(Verdict.NO_MATCH, f"Rows came on both sides of {case.title(hosted)}, and no two of them met.")
    silent = [wait.least for wait in _without_partners(case)]
    if silent:
        return Answer(Verdict.IDLE_INPUT, f"A join has no partners for its rows: {silent[0]} has brought no row yet.")
    return _all_done(case)


def _all_done(case: WaitAnalysis) -> Answer:
    """Answer for a run whose rows have all been written, were all late, or gave no results."""
    if case.history.last_with_results is not None:
        return Answer(
            Verdict.NOTHING_HELD,
            f"Nothing is held: the last rows came out in micro-batch {case.history.last_with_results.number}.",
        )
    late = [s for s in case.statuses.values() if 0 < s.events <= s.late_rows]
    if late:
        return Answer(Verdict.LATE, f"All {late[0].events:,} rows of {late[0].name} came behind its CTI.")
    return Answer(Verdict.NOTHING_HELD, "Nothing is held, and no row has come out of this run.")


def _filtered_at_the_end(case: WaitAnalysis) -> Answer | None:
    """Answer for a run in which rows reached the last filters, and none passed them; None for any other."""
    for relation in dict.fromkeys(feed.path.relation for feed in case.program.result_feeds):
        inserted = (case.readings.kernel(relation).inserted or 0) - case.history.inserted_before.get(relation, 0)
        if case.history.last_with_results is None and inserted > 0:
            hosted = case.kernels.get(relation)
            rule = None if hosted is None else hosted.kernel.progress_rule
            if rule is not None and rule.windows and rule.may_be_none is not None:
                left = "no row of theirs is there: the module gave none, or the filters behind it leave them out"
                return Answer(Verdict.FILTERED, f"{inserted:,} windows of {case.shown(relation)} are over, and {left}.")
            text = f"{inserted:,} rows came out of {case.shown(relation)}, and none passed the filters behind it."
            return Answer(Verdict.FILTERED, text)
    return None


def _without_partners(case: WaitAnalysis) -> Iterator[Wait]:
    """Yield a wait for each join that has got rows on one side, and none yet from the sources of the other."""
    for hosted in case.kernels.values():
        arrived = case.arrived(hosted)
        for channel in hosted.channels:
            silent = [case.statuses[r] for r in case.feeding(channel.relation)]
            if any(arrived.values()) and not arrived[channel.port] and not any(s.events for s in silent):
                rows, source = case.readings.kernel(hosted.name).state_rows or 0, silent[0]
                release = (f"a row of {source.name} that matches",)
                yield Wait(
                    operator=case.title(hosted),
                    rows=rows,
                    cti=source.cti,
                    least=source.name,
                    source=source,
                    release=release,
                )
