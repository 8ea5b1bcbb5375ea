"""Find what the operators of a run wait for: the CTI or watermark that releases their rows, and the sources that lack it.

An operator waits for a CTI of its input. The CTI rules of docs/language.md, "Progress, finality, state, cost", give the progress
that each source needs for it, through all operators in between.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streamq.choices import RunState
from streamq.compiler.staged_plan import INGRESS
from streamq.policies import MIDDLE
from streamq.run.idle import ctis_for_silent, silent_sources
from streamq.run.instant_text import instant_text, iso
from streamq.run.micro_batches import RunHistory
from streamq.run.source_status import (
    SourceStatus,
    allowed_silence,
    ctis_in,
    followers,
    kernels,
    progress_of_sources,
    source_statuses,
)
from streamq.run.titles import title
from streamq.run.wait import DEPENDS, EMPTIED, ENDS, MOVING, Wait, missing_rows
from streamq.runtime.consistency import AlignAt
from streamq.runtime.event import WEIGHT
from streamq.runtime.progress_map import ProgressShift, map_progress
from streamq.runtime.progress_rule import Cti
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, saturating_add

if TYPE_CHECKING:
    from streamq.compiler.staged_plan import StagedPlan
    from streamq.runtime.hosted_kernel import Channel, HostedKernel

Needed = Mapping[str, int | None]
"""The progress that sources need, by relation; None if it depends on the rows."""


class WaitAnalysis:
    """The operators of a run that hold rows, and the sources that they wait for, computed from the run's history."""

    def __init__(self, program: StagedPlan, history: RunHistory, state: RunState, now: dt.datetime):
        self.program, self.history, self.state = program, history, state
        self.axis = program.axis
        self.readings = history.readings
        self.sources: dict[str, SourceStatus] = source_statuses(program, history)
        self.kernels: dict[str, HostedKernel] = kernels(program)
        self.progress = progress_of_sources(program, self.readings)
        self.level = program.stages[0].consistency if program.stages else MIDDLE
        self.follows = followers(program)
        self.silent, self.silent_ctis = self._passed_over(int(now.timestamp() * 1_000))

    def _passed_over(self, now: int) -> tuple[set[str], Mapping[str, int]]:
        """Return the sources that have been silent for their ``idle_after``, and the CTIs that they get for that."""
        if self.state != RunState.RUNNING:
            return set(), {}
        # for a source that has brought nothing, the time since which it is silent is not known here
        allowed = {n: most for n, most in allowed_silence(self.program).items() if self.sources[n].heard_at is not None}
        silent = silent_sources({n: self.sources[n] for n in self._speaking()}, allowed, 0, now)
        return silent, ctis_for_silent(self.sources, allowed, 0, now, self.follows)

    def waits(self) -> Iterator[Wait]:
        """Yield a wait for each operator that holds rows until progress reaches an instant, in the order of the stages."""
        for hosted in self.kernels.values():
            readings = self.readings.kernel(hosted.name)
            rows, held = readings.state_rows or 0, readings.held_rows or 0
            if held and hosted.aligns and self._least_c() != INFINITY:
                yield self._blocked(hosted, held)
            rows = held if hosted.kernel.progress_rule.sorts else rows - held
            if rows and self._holds(hosted) and min(self._ctis(hosted).values()) != INFINITY:
                yield self._wait(hosted, rows)

    def _holds(self, hosted: HostedKernel) -> bool:
        """Return True if a kernel holds rows back; other state is for rows that are still to come."""
        return hosted.kernel.progress_rule.wanted is not None or self._due(hosted) is not None

    def _due(self, hosted: HostedKernel) -> int | None:
        """Return the progress that releases a kernel's next rows if no others come; None if no row waits."""
        if hosted.kernel.progress_rule.sorts:
            return self._held_from(hosted) + 1
        return self.readings.kernel(hosted.name).due

    def _blocked(self, hosted: HostedKernel, held: int) -> Wait:
        """Return the wait for rows that the level of consistency holds until all sources have progressed far enough."""
        first = self._held_from(hosted)
        lag = max(self.sources[s].progress.lag for s in self._speaking())
        sooner = self.level.block is not None and self.level.block < lag
        least = min(self._speaking(), key=lambda s: self._reach(s) if sooner else self.sources[s].cti)
        release = self._released(self._together(first if sooner else first + 1, sooner), not sooner)
        place = "before" if hosted.aligns == AlignAt.INPUT else "behind"
        operator = f"consistency: rows held back {place} {self.title(hosted)}"
        source, proviso = self.sources[least], DEPENDS if self._taken_back() else ""
        onward = (
            hosted if hosted.aligns == AlignAt.INPUT and hosted.kernel.progress_rule.holds else self._onward(hosted)
        )
        return Wait(
            operator=operator,
            rows=held,
            cti=source.cti,
            least=source.name,
            goal=first + 1,
            source=source,
            release=release,
            by_start=True,
            beyond=True,
            proviso=proviso or self._goes_on(onward),
        )

    def _taken_back(self) -> bool:
        """Return True if any row was taken back; a row that waits with its retraction is released by the end that moves."""
        return any(self.readings.kernel(kernel).retracted for kernel in self.kernels)

    def _together(self, goal: int, early: bool) -> Needed:
        """Return the sources that are behind the goal if rows of all sources are released together; by watermark if ``early``."""
        come = saturating_add(goal, self.level.block or 0)
        return {s: goal for s in self._speaking() if (self._reach(s) < come if early else self.sources[s].cti < goal)}

    def _reach(self, source: str) -> int:
        """Return the progress of a source for a joint release of several sources: its CTI or watermark."""
        return max(self.sources[source].cti, self.sources[source].watermark)

    def _speaking(self) -> list[str]:
        """Return the sources that make progress of their own."""
        return [s for s in self.sources if s not in self.follows]

    def _least_c(self) -> int:
        return min(source.cti for source in self.sources.values())

    def _held_from(self, hosted: HostedKernel) -> int:
        first = self.readings.kernel(hosted.name).held_from
        assert first is not None, "a kernel that holds rows says from which start on"
        return first

    def _output_cti(self, hosted: HostedKernel) -> int:
        cti = self.readings.kernel(hosted.name).output_cti
        return MINUS_INFINITY if cti is None else cti

    def _ctis(self, hosted: HostedKernel) -> dict[int, int]:
        return ctis_in(self.program, hosted, self.readings)

    def _wait(self, hosted: HostedKernel, rows: int) -> Wait:
        """Return the wait of a kernel that holds ``rows`` until its input's CTI, or watermark, is far enough."""
        rule, c, due = hosted.kernel.progress_rule, min(self._ctis(hosted).values()), self._due(hosted)
        early = rule.early is not None and self.level.block is not None
        if due is None:
            return self._endless_wait(hosted, rows, (missing_rows(rule.wanted),))
        if due == INFINITY:
            return self._endless_wait(hosted, rows, (ENDS[rule.endless], self._end()))
        window = None if rule.grid is None else (due - rule.grid.size, due)
        if due <= (max(c, self._watermark(hosted)) if early else c):
            # the instant is reached, but the rows are not final
            parts = ("members" if window else "rows") + " whose ends no longer move"
            return self._endless_wait(hosted, rows, (parts, self._end()), window)
        needed = self._needed(hosted, due, not early)
        lacking = self._lacking(needed, early)
        source = None
        if lacking and (not early or len(lacking) == 1):
            least = min(lacking, key=lambda s: self.progress[s].cti - (lacking[s] or 0))
            source = self.sources[self.follows.get(least, least)]
        ways, passed_over = self._released_by(lacking, not early) if lacking else (self._held_below(hosted), "")
        release = rule.early if early else rule.final
        by_start, beyond = (release.by_start, release.past) if release is not None else (False, False)
        proviso = passed_over or self._proviso(hosted, needed, early) or self._goes_on(self._onward(hosted))
        return Wait(
            operator=self.title(hosted),
            rows=rows,
            cti=c,
            least=self._least_input(hosted),
            goal=due,
            window=window,
            source=source,
            release=ways,
            early=early,
            by_start=by_start,
            beyond=beyond,
            proviso=proviso,
        )

    def _endless_wait(
        self, hosted: HostedKernel, rows: int, release: tuple[str, ...], window: tuple[int, int] | None = None
    ) -> Wait:
        """Return the wait of a kernel whose rows no progress of its sources alone releases."""
        return Wait(
            operator=self.title(hosted),
            rows=rows,
            cti=min(self._ctis(hosted).values()),
            least=self._least_input(hosted),
            window=window,
            release=release,
        )

    def _proviso(self, hosted: HostedKernel, needed: Needed, early: bool) -> str:
        """Return a text on what a kernel's rows need besides the progress of sources, "" for nothing."""
        rule, below = hosted.kernel.progress_rule, self._below(hosted)
        if None in needed.values() or not (early or all(k.kernel.progress_rule.follows_input for k in below)):
            return DEPENDS
        if rule.waits_for_members and rule.early is None:
            return MOVING
        if rule.may_be_empty and any(WEIGHT in channel.columns for channel in hosted.channels):
            return EMPTIED
        if rule.may_be_none is not None:
            return str(rule.may_be_none)
        if rule.sorts:
            return DEPENDS if self._taken_back() or rule.cti is Cti.OPEN_END else ""
        # rows that this progress releases below may change the waiting rows; on a grid they lie after these
        coming = any(self._due(k) is not None or self.readings.kernel(k.name).held_rows for k in below)
        if rule.grid is None and (
            coming or (hosted.aligns == AlignAt.INPUT and self.readings.kernel(hosted.name).held_rows)
        ):
            return DEPENDS
        return ""

    def _below(self, hosted: HostedKernel) -> list[HostedKernel]:
        """Return the kernels whose rows reach this one, the nearest first."""
        inputs, below = set(hosted.inputs), []
        for candidate in reversed(self.kernels.values()):
            if candidate.name in inputs:
                inputs.update(candidate.inputs)
                below.append(candidate)
        return below

    def _onward(self, hosted: HostedKernel) -> HostedKernel | None:
        """Return the next kernel that holds this one's rows; None if they reach the result."""
        if any(feed.path.relation == hosted.name for feed in self.program.result_feeds):
            return None
        above = [k for k in self.kernels.values() if hosted.name in k.inputs]
        holders = [k if k.kernel.progress_rule.holds else self._onward(k) for k in above]
        return None if None in holders else holders[0]

    def _goes_on(self, onward: HostedKernel | None) -> str:
        return "" if onward is None else f"what that releases goes on to {self.title(onward)}"

    def _least_input(self, hosted: HostedKernel) -> str:
        """Return the name of the input with the least CTI."""
        ctis = self._ctis(hosted)
        return self.shown(min(hosted.channels, key=lambda channel: ctis[channel.number]).relation)

    # the progress that sources need

    def _watermark(self, hosted: HostedKernel) -> int:
        return max(map_progress(self._w(channel.relation), channel.progress_maps) for channel in hosted.channels)

    def _w(self, relation: str) -> int:
        return (
            self.progress[relation].watermark if relation in self.progress else self._watermark(self.kernels[relation])
        )

    def _needed(self, hosted: HostedKernel, goal: int, until_final: bool) -> Needed:
        """Return the progress that each source needs for a kernel's input to reach the goal."""
        needed: dict[str, int | None] = {}
        for channel in hosted.channels:
            for source, t in self._before(channel, goal, until_final).items():
                other = needed.get(source, t)
                needed[source] = None if t is None or other is None else max(t, other)
        return needed

    def _before(self, channel: Channel, goal: int, until_final: bool) -> Needed:
        """Return the progress that each source needs for a channel to reach the goal; None if a step depends on the rows."""
        shifts = [step.by for step in channel.progress_maps if isinstance(step, ProgressShift)]
        is_fixed = len(shifts) == len(channel.progress_maps)
        t = goal - sum(shifts)
        if channel.relation in self.sources:
            return {channel.relation: t if is_fixed else None}
        below = self.kernels[channel.relation]
        if not is_fixed:
            return dict.fromkeys(self.behind(below))
        rule = below.kernel.progress_rule
        if until_final and rule.sends_window_start and rule.grid is not None:
            # its CTI is the start of its earliest window that is not final
            t = rule.grid.end(rule.grid.last_starting_before(t))
        return self._needed(below, t, until_final)

    def _lacking(self, needed: Needed, early: bool) -> Needed:
        """Return the sources that lack the needed progress, by the relation of the source that makes it.

        If ``early``, return all needed sources, as any of them can move the watermark.
        """
        goals = [t for t in needed.values() if t is not None]
        if self.level.block != 0 and len(goals) == len(needed):
            return self._together(max(goals), early)
        c = {s: self.progress[s].cti for s in needed}
        behind = {s: t for s, t in needed.items() if early or (c[s] == min(c.values()) if t is None else c[s] < t)}
        return behind if early else {self.follows.get(s, s): t for s, t in behind.items()}

    # conditions that release rows

    def _released_by(self, lacking: Needed, until_final: bool) -> tuple[tuple[str, ...], str]:
        """Return conditions that release rows, without those of silent sources, and a note on these, "" if there are none."""
        silent = [s for s in lacking if s in self.silent]
        names = " and ".join(self.sources[s].name for s in silent)
        left = {s: t for s, t in lacking.items() if t is None or self.silent_ctis.get(s, self.sources[s].cti) < t}
        speaking = {s: t for s, t in left.items() if s not in silent}
        if not silent or (left and not speaking):
            return self._released(lacking, until_final), ""
        note = f"{names}, silent, has by itself the CTI that the others had a micro-batch before"
        if not left:
            return (f"the next micro-batch, which passes {names} over", self._end()), note
        return self._released(speaking, until_final), note

    def _released(self, lacking: Needed, until_final: bool) -> tuple[str, ...]:
        """Return conditions, any one of which gives the sources the progress that they lack."""
        rows = [self._row(self.sources[s], t, until_final) for s, t in lacking.items()]
        # any source's row moves the watermark, unless sources are released together
        ways = [" and ".join(rows)] if until_final or self.level.block != 0 else rows
        if not until_final and self.level.block == 0:
            ways += [way for s, t in lacking.items() if s in self.follows for way in self._promised(self.follows[s], t)]
        goals = [t for t in lacking.values() if t is not None]
        if len(goals) == len(lacking) and until_final and (at := self._argument(max(goals))) is not None:
            alone = len(lacking) == 1 and len(self.sources) > 1
            only = f", source={self.sources[next(iter(lacking))].name!r}" if alone else ""
            ways.append(f"run.advance({at}{only})")
        elif not goals:
            ways.append("run.advance(...)")
        return (*ways, self._end())

    def _promised(self, leader: str, t: int | None) -> Iterator[str]:
        """Yield conditions that move a leader's CTI so far that its follower has the progress ``t``."""
        yield self._row(self.sources[leader], t, True)
        if t is not None and (at := self._argument(t)) is not None:
            yield f"run.advance({at}, source={self.sources[leader].name!r})"

    def _held_below(self, hosted: HostedKernel) -> tuple[str, ...]:
        """Return what an operator below waits for if the sources have enough progress; its own CTI rule explains it."""
        below = [self.kernels[ch.relation] for ch in hosted.channels if ch.relation in self.kernels]
        if not below:
            return ("members whose ends no longer move", self._end())
        least = min(below, key=lambda k: self._output_cti(k))
        cti = least.kernel.progress_rule.cti.shown(len({channel.port for channel in least.channels}))
        return (f"progress of {self.title(least)}, whose CTI: {cti}", self._end())

    def _row(self, source: SourceStatus, t: int | None, until_final: bool) -> str:
        """Return a text on the row of a source that gives it the progress ``t``, with the policy that makes it so."""
        starts: list[int] = []
        policy = place = ""
        if t is not None and not until_final:
            starts = [t + (self.level.block or 0)]
        elif t is not None:
            reached = [self._reach(s) for s in self._speaking() if self.sources[s] is not source]
            if self.level.remember is not None and t + self.level.remember <= min(reached, default=INFINITY):
                starts.append(t + self.level.remember)
            if (start := source.progress.start_for(t)) is not None:
                starts.append(start)
                lengths = source.progress.lengths(self.axis)
                policy = f" ({lengths})" if lengths and start == min(starts) else ""
                if source.straggler is not None and start == min(starts):
                    place = f" in {source.straggler}, and in any other partition that is behind"
        if starts:
            return f"a {source.moved_by} of {source.name} {self._from(min(starts))}{policy}{place}"
        if source.progress.lag == INFINITY and until_final:
            return f"a CTI of {source.name}" + ("" if t is None else f" at {instant_text(t, self.axis)} or later")
        return f"a {source.moved_by} of {source.name}"

    def _from(self, t: int) -> str:
        """Return "at or after" an instant as text, or "after" the microsecond before if that is a whole millisecond."""
        past = self.axis == TIMESTAMP and t % 1_000 == 1
        return f"after {instant_text(t - 1, self.axis)}" if past else f"at or after {instant_text(t, self.axis)}"

    def _end(self) -> str:
        match self.state:
            case RunState.RUNNING:
                return "run.finish(), if the input has ended"
            case RunState.ENDED:
                return "a run on the checkpoint with finish=True, if the input has ended"
        return "a run on the checkpoint"

    def _argument(self, t: int) -> str | None:
        """Return an instant as an argument of ``run.advance``; None for an instant outside the calendar's range."""
        if self.axis != TIMESTAMP:
            return str(t)
        text = iso(t)
        return None if text is None else repr(dt.datetime.fromisoformat(text).replace(tzinfo=None))

    # names and numbers

    def behind(self, hosted: HostedKernel) -> list[str]:
        """Return the source relations that feed a kernel, directly or through other kernels."""
        return list(dict.fromkeys(s for channel in hosted.channels for s in self.feeding(channel.relation)))

    def feeding(self, relation: str) -> list[str]:
        """Return the source relations that feed a relation; a source's relation itself."""
        return [relation] if relation in self.sources else self.behind(self.kernels[relation])

    def arrived(self, hosted: HostedKernel) -> dict[int, int]:
        """Return the number of deltas that have reached each port of a kernel so far."""
        arrived = self.readings.kernel(hosted.name).arrived
        return {channel.port: arrived.get(channel.port, 0) for channel in hosted.channels}

    def handed_on(self, relation: str) -> int:
        """Return the number of rows that a source or a kernel has brought so far."""
        source = self.sources.get(relation)
        return source.events if source is not None else self.readings.kernel(relation).inserted or 0

    def title(self, hosted: HostedKernel) -> str:
        """Return a kernel's name for the user."""
        return title(self.program, hosted)

    def shown(self, relation: str) -> str:
        """Return the name, for the user, of a relation's source or kernel."""
        hosted = self.kernels.get(relation)
        if hosted is not None and relation.startswith(INGRESS):
            (relation,) = hosted.inputs
        source = self.sources.get(relation)
        return source.name if source is not None else self.title(self.kernels[relation])
