"""Why is there no output? A verdict on a run, what is held back and what would release it, what is odd; from readings alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from streamq.choices import RunState, Verdict
from streamq.run.instants import instant_fields, iso_time_of_day, moment_of, shown
from streamq.run.metrics import VERSION
from streamq.run.micro_batches import RunHistory
from streamq.run.oddities import Oddity, oddities
from streamq.run.source_status import SourceStatus
from streamq.run.waiting import Wait, Waiting
from streamq.time import MINUS_INFINITY, TIMESTAMP, show_duration

if TYPE_CHECKING:
    from streamq.compiler.program import Program


@dataclass(frozen=True)
class Why:
    """The answer of ``run.why()``: prints as text, shows itself in a notebook, and is plain values by ``to_dict()``.

    verdict: "flowing" (the last micro-batch gave rows), "waiting" (rows are held until time has passed something),
    "idle_input" (so, and one input brings nothing and is not passed over), "no_cti" (so, and a source has promised
    nothing yet), "no_rows" (none has come), "filtered" (all that came was filtered out), "no_match" (no two rows of a join
    met), "late" (all came late), "nothing_held", "finished", "stopped", "failed".
    """

    state: RunState
    verdict: Verdict
    summary: str
    waits: tuple[Wait, ...]
    warnings: tuple[Oddity, ...]
    axis: str
    now: dt.datetime

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as ``docs/operations.md`` has them."""
        return {
            "version": VERSION,
            "state": self.state,
            "verdict": self.verdict,
            "summary": self.summary,
            "waits": [self._plain(wait) for wait in self.waits],
            "warnings": [
                {"kind": oddity.kind, "source": oddity.source, "text": oddity.text} for oddity in self.warnings
            ],
        }

    def _plain(self, wait: Wait) -> dict[str, Any]:
        start, end = wait.window or (None, None)
        return {
            "operator": wait.operator,
            "state_rows": wait.rows,
            **instant_fields("cti", wait.cti, self.axis),
            "least_input": wait.least,
            **instant_fields("needs", wait.goal, self.axis),
            **instant_fields("window_start", start, self.axis),
            **instant_fields("window_end", end, self.axis),
            "exact": wait.exact,
            "proviso": wait.proviso or None,
            "source": None if wait.source is None else wait.source.name,
            "since": None if wait.source is None else iso_time_of_day(wait.source.moved_at),
            "release": list(wait.release),
        }

    def _lines(self) -> Iterator[str]:
        yield self.summary
        for wait in self.waits:
            yield wait.operator
            yield from (f"  {line}" for line in self._held(wait))
        for oddity in self.warnings:
            yield f"! {oddity.text}"

    def _held(self, wait: Wait) -> Iterator[str]:
        cti = "no CTI yet" if wait.cti == MINUS_INFINITY else f"CTI {shown(wait.cti, self.axis)}"
        least = f" (from {wait.least})" if wait.source is None or wait.least != wait.source.name else ""
        yield f"{wait.rows:,} row(s) in its state; its input: {cti}{least}"
        if wait.window is not None:
            start, end = (shown(t, self.axis) for t in wait.window)
            yield f"next window: [{start}, {end})"
        elif wait.goal is not None:
            at = shown(wait.goal - 1 if wait.beyond else wait.goal, self.axis)
            yield f"next: what {'starts' if wait.by_start else 'ends'} at {at}"
        if wait.source is not None:
            yield self._stands(wait.source)
        for i, release in enumerate(wait.release):
            yield f"{'or' if i else 'waits for'} {release}"
        if wait.proviso:
            yield wait.proviso

    def _stands(self, source: SourceStatus) -> str:
        if source.cti == MINUS_INFINITY:
            return f"{source.name}: no CTI yet, {source.rows:,} rows"
        moved = ""
        if source.moved_at is not None:
            at = moment_of(source.moved_at)
            moved = f"; moved {_ago(self.now - at)} (at {at:%Y-%m-%d %H:%M:%S} UTC)"
        return f"{source.name}: CTI {shown(source.cti, self.axis)}, greatest start {shown(source.watermark, self.axis)}{moved}"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *rest = self._lines()
        below = f"<pre>{escape(chr(10).join(rest))}</pre>" if rest else ""
        return f"<div><b>{escape(first)}</b>{below}</div>"


def why(
    program: Program,
    history: RunHistory,
    state: RunState = RunState.RUNNING,
    now: dt.datetime | None = None,
    *,
    reason: str = "",
) -> Why:
    """Return the diagnosis of a run; ``reason`` is the error it failed with, or the reason why it no longer runs."""
    now = now or dt.datetime.now(dt.UTC)
    case = Waiting(program, history, state, now)
    has_ended = state in (RunState.FAILED, RunState.FINISHED)
    waits = () if has_ended else tuple(case.waits())
    answer = _ended(state, reason) or _came(case) or _left_out_last(case) or _held(case, waits, now) or _left_out(case)
    if answer.verdict == Verdict.IDLE_INPUT and not waits:
        waits = tuple(_without_partners(case))
    warnings = oddities(list(case.sources.values()), case.axis)
    return Why(state, answer.verdict, answer.summary, waits, warnings, case.axis, now)


@dataclass(frozen=True)
class Answer:
    """A verdict, and the sentence that says it of this run."""

    verdict: Verdict
    summary: str


def _ended(state: RunState, reason: str) -> Answer | None:
    match state:
        case RunState.FAILED:
            return Answer(Verdict.FAILED, f"The query has failed: {reason}")
        case RunState.FINISHED:
            return Answer(Verdict.FINISHED, f"The run is over: {reason}, and all its rows are out.")
        case RunState.STOPPED:
            return Answer(Verdict.STOPPED, f"The query does not run: {reason}. Run it on its checkpoint again.")
    return None


def _came(case: Waiting) -> Answer | None:
    """Nothing has come in, or something has just gone out."""
    last, every = case.history.last, case.sources.values()
    # without a stage nobody counts by source
    rows = sum(s.events for s in every) if case.program.stages else 0 if last is None else last.rows
    refused = [f"{n:,} of {s.name}" for s in every if (n := s.late.get("invalid"))]
    if not rows and refused:
        return Answer(Verdict.NO_ROWS, f"No event has come: all rows so far are none ({', '.join(refused)}).")
    if not rows:
        return Answer(Verdict.NO_ROWS, f"No row has come yet, from {' or '.join(s.name for s in every)}.")
    if last is not None and (last.inserted or last.retracted):
        back = f", and {last.retracted:,} were taken back" if last.retracted else ""
        return Answer(Verdict.FLOWING, f"Rows come out: {last.inserted:,} did in the last micro-batch{back}.")
    return None


def _held(case: Waiting, waits: Sequence[Wait], now: dt.datetime) -> Answer | None:
    """Rows wait; what is nearest to the result is named, for the others have it wait."""
    if not waits:
        return None
    wait = waits[-1]
    source = wait.source
    if source is not None and not wait.early and source.cti == MINUS_INFINITY and source.events:
        text = f"Rows are held back: {source.name} has sent no CTI yet, and nobody else speaks for it"
        return Answer(Verdict.NO_CTI, f"{text}; progress=sq.generate(...) makes CTIs of its rows.")
    if source is not None and not wait.early and _idle(case, source):
        is_passed_over = any(case.sources[name] is source for name in case.silent)
        verdict = Verdict.WAITING if is_passed_over else Verdict.IDLE_INPUT
        return Answer(verdict, f"Rows are held back: {source.name} {_silent(source, now)}.")
    text = f"Rows are held back, waiting for {wait.release[0]}"
    return Answer(Verdict.WAITING, f"{text}; {wait.proviso}." if wait.proviso else f"{text}.")


def _silent(source: SourceStatus, now: dt.datetime) -> str:
    """Since when nothing has come of a source, and who lets the others go on without it."""
    if source.idle_after is None:
        so = "brings no rows any more, and others do" if source.events else "has brought no row yet"
        return f"{so}; idle_after in sq.generate lets it pass"
    allowed = f"idle_after, {show_duration(source.idle_after, TIMESTAMP)}"
    if source.heard_at is None:
        return f"has brought no row yet; {allowed} from the start of the run, lets it pass"
    since = moment_of(source.heard_at)
    passed = since + dt.timedelta(microseconds=source.idle_after)
    so = f"has brought no rows since {since:%Y-%m-%d %H:%M:%S} UTC"
    if now < passed:
        return f"{so}; {allowed}, lets it pass at {passed:%Y-%m-%d %H:%M:%S}"
    return f"{so}; {allowed}, is over: it goes by the CTI that the others had a micro-batch before"


def _idle(case: Waiting, source: SourceStatus) -> bool:
    """Whether others have brought rows since it did, by the time of day or in the last micro-batch."""
    others = [s for s in case.sources.values() if s is not source and s.events]
    since = max((s.heard_at or 0 for s in others), default=0) > (source.heard_at or 0)
    return bool(others) and (not source.events or since or (not source.new_rows and any(s.new_rows for s in others)))


def _left_out(case: Waiting) -> Answer:
    """Rows came, nothing is held, nothing came out in the last micro-batch."""
    for hosted in case.kernels.values():
        taken = case.arrived(hosted)
        for channel in (ch for ch in hosted.channels if not taken[ch.port]):
            came = case.handed_on(channel.relation)
            if came:
                text = f"{came:,} rows of {case.shown(channel.relation)} came, and none passed the filters before"
                return Answer(Verdict.FILTERED, f"{text} {case.title(hosted)}.")
        if len(taken) > 1 and all(taken.values()) and not case.handed_on(hosted.name):
            if hosted.kernel.progress_rule.subtracts:
                text = f"Nothing is left of the rows that came to {case.title(hosted)}: those of its other input cover them."
                return Answer(Verdict.NOTHING_HELD, text)
            return Answer(Verdict.NO_MATCH, f"Rows came on both sides of {case.title(hosted)}, and no two of them met.")
    silent = [wait.least for wait in _without_partners(case)]
    if silent:
        return Answer(Verdict.IDLE_INPUT, f"A join has no partners for its rows: {silent[0]} has brought no row yet.")
    return _gone(case)


def _gone(case: Waiting) -> Answer:
    if case.history.last_with_results is not None:
        return Answer(
            Verdict.NOTHING_HELD,
            f"Nothing is held: the last rows came out in micro-batch {case.history.last_with_results.number}.",
        )
    late = [s for s in case.sources.values() if 0 < s.events <= s.late_rows]
    if late:
        return Answer(Verdict.LATE, f"All {late[0].events:,} rows of {late[0].name} came behind its CTI.")
    if not case.program.stages:
        return Answer(Verdict.FILTERED, "Rows came, and none passed the filters.")
    return Answer(Verdict.NOTHING_HELD, "Nothing is held, and no row has come out of this run.")


def _left_out_last(case: Waiting) -> Answer | None:
    """Rows reached the last filters in this run, and none came out."""
    for relation in dict.fromkeys(feed.path.relation for feed in case.program.result):
        made = (case.readings.kernel(relation).inserted or 0) - case.history.inserted_before.get(relation, 0)
        if case.history.last_with_results is None and made > 0:
            text = f"{made:,} rows came out of {case.shown(relation)}, and none passed the filters behind it."
            return Answer(Verdict.FILTERED, text)
    return None


def _without_partners(case: Waiting) -> Iterator[Wait]:
    """Joins of which one side has brought rows, and the sources of the other none."""
    for hosted in case.kernels.values():
        taken = case.arrived(hosted)
        for channel in hosted.channels:
            silent = [case.sources[r] for r in case.feeding(channel.relation)]
            if any(taken.values()) and not taken[channel.port] and not any(s.events for s in silent):
                rows, source = case.readings.kernel(hosted.name).state_rows or 0, silent[0]
                release = (f"a row of {source.name} that matches",)
                yield Wait(case.title(hosted), rows, source.cti, source.name, None, None, source, release)


def _ago(span: dt.timedelta) -> str:
    for name, unit in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if span.total_seconds() >= 2 * unit:
            return f"{span.total_seconds() // unit:.0f} {name} ago"
    return f"{max(0, span.total_seconds()):.0f} seconds ago"
