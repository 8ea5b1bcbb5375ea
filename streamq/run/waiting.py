"""What the operators of a run wait for: until which CTI or watermark they hold rows, and which source has not come so far.

An operator waits for a CTI of its input; that is traced back through what lies between to how far each source must come, by
the CTI rules of SEMANTICS section 6.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streamq.choices import RunState
from streamq.policies import MIDDLE
from streamq.run.idle import ctis_for_silent, silent_sources
from streamq.run.instants import iso, shown
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
from streamq.run.wait import DEPENDS, EMPTIED, ENDS, MOVING, Wait, missing_rows
from streamq.runtime.carried import Carried, carry
from streamq.runtime.consistency import AlignAt
from streamq.runtime.event import WEIGHT
from streamq.runtime.progress_rule import Cti
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, saturating_add, show_duration

if TYPE_CHECKING:
    from streamq.compiler.program import Program
    from streamq.runtime.stage import Channel, Hosted

Needed = Mapping[str, int | None]
"""How far sources, by relation, must come; None where that cannot be told."""


class Waiting:
    """The operators of a run that hold rows, and the sources that they wait for, from the run's history."""

    def __init__(self, program: Program, history: RunHistory, state: RunState, now: dt.datetime):
        self.program, self.history, self.state = program, history, state
        self.axis = program.plan.schema.axis
        self.readings = history.readings
        self.sources: dict[str, SourceStatus] = source_statuses(program, history)
        self.kernels: dict[str, Hosted] = kernels(program)
        self.progress = progress_of_sources(program, self.readings)
        self.level = program.stages[0].consistency if program.stages else MIDDLE
        self.follows = followers(program)
        self.silent, self.given = self._passed_over(int(now.timestamp() * 1_000))

    def _passed_over(self, now: int) -> tuple[set[str], Mapping[str, int]]:
        """Sources that have been silent for their ``idle_after``, and the CTIs that they get by themselves for that."""
        if self.state != RunState.RUNNING:
            return set(), {}
        # of one that has never been heard nobody here knows since when it is listened to
        allowed = {n: most for n, most in allowed_silence(self.program).items() if self.sources[n].heard_at is not None}
        silent = silent_sources({n: self.sources[n] for n in self._speaking()}, allowed, 0, now)
        return silent, ctis_for_silent(self.sources, allowed, 0, now, self.follows)

    def waits(self) -> Iterator[Wait]:
        """The operators that hold rows until time has passed something, in the order of the stages."""
        for hosted in self.kernels.values():
            readings = self.readings.kernel(hosted.name)
            rows, held = readings.state_rows or 0, readings.held_rows or 0
            if held and hosted.aligns and self._least_c() != INFINITY:
                yield self._blocked(hosted, held)
            rows = held if hosted.kernel.progress_rule.sorts else rows - held
            if rows and self._holds(hosted) and min(self._ctis(hosted).values()) != INFINITY:
                yield self._wait(hosted, rows)

    def _holds(self, hosted: Hosted) -> bool:
        """Whether a kernel holds rows back; what else it keeps is for rows that are still to come."""
        return hosted.kernel.progress_rule.wanted is not None or self._due(hosted) is not None

    def _due(self, hosted: Hosted) -> int | None:
        """The progress that lets the next of its rows go, if no others come; None: none waits."""
        if hosted.kernel.progress_rule.sorts:
            return self._held_from(hosted) + 1
        return self.readings.kernel(hosted.name).due

    def _blocked(self, hosted: Hosted, held: int) -> Wait:
        """Rows that the level of consistency holds back: until all sources have promised, or come, far enough."""
        first = self._held_from(hosted)
        sooner = self.level.block is not None and self.level.block < max(self._delay(s) for s in self._speaking())
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
        """Whether something was; rows that wait with their retractions go by the end that moves."""
        return any(self.readings.kernel(kernel).retracted for kernel in self.kernels)

    def _together(self, goal: int, early: bool) -> Needed:
        """Where sources are released together: those that are not there yet, by their watermarks if ``early``."""
        come = saturating_add(goal, self.level.block or 0)
        return {s: goal for s in self._speaking() if (self._reach(s) < come if early else self.sources[s].cti < goal)}

    def _reach(self, source: str) -> int:
        """How far a source counts as having come, where several are looked at together."""
        return max(self.sources[source].cti, self.sources[source].watermark)

    def _speaking(self) -> list[str]:
        """The sources that make progress of their own."""
        return [s for s in self.sources if s not in self.follows]

    def _delay(self, source: str) -> int:
        delay = self.sources[source].delay
        return INFINITY if delay is None else delay

    def _least_c(self) -> int:
        return min(source.cti for source in self.sources.values())

    def _held_from(self, hosted: Hosted) -> int:
        first = self.readings.kernel(hosted.name).held_from
        assert first is not None, "a kernel that holds rows says from which start on"
        return first

    def _output_cti(self, hosted: Hosted) -> int:
        cti = self.readings.kernel(hosted.name).output_cti
        return MINUS_INFINITY if cti is None else cti

    def _ctis(self, hosted: Hosted) -> dict[int, int]:
        return ctis_in(self.program, hosted, self.readings)

    def _wait(self, hosted: Hosted, rows: int) -> Wait:
        rule, c, due = hosted.kernel.progress_rule, min(self._ctis(hosted).values()), self._due(hosted)
        early = rule.early is not None and self.level.block is not None
        if due is None:
            return self._endless_wait(hosted, rows, (missing_rows(rule.wanted),))
        if due == INFINITY:
            return self._endless_wait(hosted, rows, (ENDS[rule.endless], self._end()))
        window = None if rule.grid is None else (due - rule.grid.size, due)
        if due <= (max(c, self._watermark(hosted)) if early else c):
            # reached, but not final
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
        self, hosted: Hosted, rows: int, release: tuple[str, ...], window: tuple[int, int] | None = None
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

    def _proviso(self, hosted: Hosted, needed: Needed, early: bool) -> str:
        """What it takes beside the progress of sources, to a kernel and in it."""
        rule, below = hosted.kernel.progress_rule, self._below(hosted)
        if None in needed.values() or not (early or all(k.kernel.progress_rule.follows_input for k in below)):
            return DEPENDS
        if rule.waits_for_members and rule.early is None:
            return MOVING
        if rule.may_be_empty and any(WEIGHT in channel.columns for channel in hosted.channels):
            return EMPTIED
        if rule.sorts:
            return DEPENDS if self._taken_back() or rule.cti is Cti.OPEN_END else ""
        # what comes with progress from below may change what waits; on a grid it only comes later than that
        coming = any(self._due(k) is not None or self.readings.kernel(k.name).held_rows for k in below)
        if rule.grid is None and (
            coming or (hosted.aligns == AlignAt.INPUT and self.readings.kernel(hosted.name).held_rows)
        ):
            return DEPENDS
        return ""

    def _below(self, hosted: Hosted) -> list[Hosted]:
        """The kernels on the way to a kernel."""
        found, below = set(hosted.inputs), []
        for kernel in reversed(self.kernels.values()):
            if kernel.name in found:
                found.update(kernel.inputs)
                below.append(kernel)
        return below

    def _onward(self, hosted: Hosted) -> Hosted | None:
        """The kernel that holds its rows next; None where they come out."""
        if any(feed.path.relation == hosted.name for feed in self.program.result):
            return None
        above = [k for k in self.kernels.values() if hosted.name in k.inputs]
        found = [k if k.kernel.progress_rule.holds else self._onward(k) for k in above]
        return None if None in found else found[0]

    def _goes_on(self, onward: Hosted | None) -> str:
        return "" if onward is None else f"what that releases goes on to {self.title(onward)}"

    def _least_input(self, hosted: Hosted) -> str:
        """Return the name of the input that promises least."""
        ctis = self._ctis(hosted)
        return self.shown(min(hosted.channels, key=lambda channel: ctis[channel.number]).relation)

    # how far sources must come

    def _watermark(self, hosted: Hosted) -> int:
        return max(carry(self._w(channel.relation), channel.carried) for channel in hosted.channels)

    def _w(self, relation: str) -> int:
        return (
            self.progress[relation].watermark if relation in self.progress else self._watermark(self.kernels[relation])
        )

    def _needed(self, hosted: Hosted, goal: int, until_final: bool) -> Needed:
        found: dict[str, int | None] = {}
        for channel in hosted.channels:
            for source, t in self._before(channel, goal, until_final).items():
                known = found.get(source, t)
                found[source] = None if t is None or known is None else max(t, known)
        return found

    def _before(self, channel: Channel, goal: int, until_final: bool) -> Needed:
        moves = [step.by for step in channel.carried if isinstance(step, Carried)]
        known = len(moves) == len(channel.carried)
        t = goal - sum(moves)
        if channel.relation in self.sources:
            return {channel.relation: t if known else None}
        below = self.kernels[channel.relation]
        if not known:
            return dict.fromkeys(self.behind(below))
        rule = below.kernel.progress_rule
        if until_final and rule.sends_window_start and rule.grid is not None:
            # its CTI is the start of its earliest window that is not final
            t = rule.grid.end(rule.grid.last_starting_before(t))
        return self._needed(below, t, until_final)

    def _lacking(self, needed: Needed, early: bool) -> Needed:
        """The sources that are not there yet, each under the one that makes its promises; any of them, where ``early``."""
        known = [t for t in needed.values() if t is not None]
        if self.level.block != 0 and len(known) == len(needed):
            return self._together(max(known), early)
        c = {s: self.progress[s].cti for s in needed}
        behind = {s: t for s, t in needed.items() if early or (c[s] == min(c.values()) if t is None else c[s] < t)}
        return behind if early else {self.follows.get(s, s): t for s, t in behind.items()}

    # what would release rows

    def _released_by(self, lacking: Needed, until_final: bool) -> tuple[tuple[str, ...], str]:
        """What releases rows, without what silent sources get by themselves; and that they do, "" if none is in the way."""
        silent = [s for s in lacking if s in self.silent]
        names = " and ".join(self.sources[s].name for s in silent)
        left = {s: t for s, t in lacking.items() if t is None or self.given.get(s, self.sources[s].cti) < t}
        speaking = {s: t for s, t in left.items() if s not in silent}
        if not silent or (left and not speaking):
            return self._released(lacking, until_final), ""
        passed = f"{names}, silent, has by itself the CTI that the others had a micro-batch before"
        if not left:
            return (f"the next micro-batch, which passes {names} over", self._end()), passed
        return self._released(speaking, until_final), passed

    def _released(self, lacking: Needed, until_final: bool) -> tuple[str, ...]:
        rows = [self._row(self.sources[s], t, until_final) for s, t in lacking.items()]
        # the greatest of watermarks counts, unless sources are released together
        made = [" and ".join(rows)] if until_final or self.level.block != 0 else rows
        if not until_final and self.level.block == 0:
            made += [way for s, t in lacking.items() if s in self.follows for way in self._promised(self.follows[s], t)]
        known = [t for t in lacking.values() if t is not None]
        if len(known) == len(lacking) and until_final and (at := self._argument(max(known))) is not None:
            alone = len(lacking) == 1 and len(self.sources) > 1
            only = f", source={self.sources[next(iter(lacking))].name!r}" if alone else ""
            made.append(f"run.advance({at}{only})")
        elif not known:
            made.append("run.advance(...)")
        return (*made, self._end())

    def _promised(self, leader: str, t: int | None) -> Iterator[str]:
        """What has a source promise so much that one that follows it counts as having come so far."""
        yield self._row(self.sources[leader], t, True)
        if t is not None and (at := self._argument(t)) is not None:
            yield f"run.advance({at}, source={self.sources[leader].name!r})"

    def _held_below(self, hosted: Hosted) -> tuple[str, ...]:
        """The sources are far enough, but an operator on the way is behind: its own rule says why."""
        below = [self.kernels[ch.relation] for ch in hosted.channels if ch.relation in self.kernels]
        if not below:
            return ("members whose ends no longer move", self._end())
        least = min(below, key=lambda k: self._output_cti(k))
        cti = least.kernel.progress_rule.cti.shown(len({channel.port for channel in least.channels}))
        return (f"progress of {self.title(least)}, whose CTI: {cti}", self._end())

    def _row(self, source: SourceStatus, t: int | None, until_final: bool) -> str:
        # a row is enough that is so far beyond
        ways: list[int] = []
        made = ""
        if t is not None and not until_final:
            ways = [t + (self.level.block or 0)]
        elif t is not None:
            known = [self._reach(s) for s in self._speaking() if self.sources[s] is not source]
            if self.level.remember is not None and t + self.level.remember <= min(known, default=INFINITY):
                ways.append(t + self.level.remember)
            if source.delay is not None:
                # its CTIs are at multiples of every
                ways.append(-(-t // source.every) * source.every + source.delay)
                said = (("delay", source.delay, 0), ("every", source.every, 1))
                made = ", ".join(f"{name} {show_duration(n, self.axis)}" for name, n, none in said if n != none)
                made = f" ({made})" if made and ways[-1] == min(ways) else ""
        if ways:
            return f"a {source.moved_by} of {source.name} {self._from(min(ways))}{made}"
        if source.delay is None and until_final:
            return f"a CTI of {source.name}" + ("" if t is None else f" at {shown(t, self.axis)} or later")
        return f"a {source.moved_by} of {source.name}"

    def _from(self, t: int) -> str:
        """An instant and all later ones; the last microsecond before shows better than one that is hardly past it."""
        past = self.axis == TIMESTAMP and t % 1_000 == 1
        return f"after {shown(t - 1, self.axis)}" if past else f"at or after {shown(t, self.axis)}"

    def _end(self) -> str:
        match self.state:
            case RunState.RUNNING:
                return "run.finish(), if the input has ended"
            case RunState.ENDED:
                return "a run on the checkpoint with finish=True, if the input has ended"
        return "a run on the checkpoint"

    def _argument(self, t: int) -> str | None:
        """An instant as ``run.advance`` takes it; None for what no calendar has."""
        if self.axis != TIMESTAMP:
            return str(t)
        found = iso(t)
        return None if found is None else repr(dt.datetime.fromisoformat(found).replace(tzinfo=None))

    # names and numbers

    def behind(self, hosted: Hosted) -> list[str]:
        """The source relations that feed a kernel, through others too."""
        return list(dict.fromkeys(s for channel in hosted.channels for s in self.feeding(channel.relation)))

    def feeding(self, relation: str) -> list[str]:
        """The source relations behind a relation, itself if it is one."""
        return [relation] if relation in self.sources else self.behind(self.kernels[relation])

    def arrived(self, hosted: Hosted) -> dict[int, int]:
        """The deltas that have reached each port of a kernel so far."""
        arrived = self.readings.kernel(hosted.name).arrived
        return {channel.port: arrived.get(channel.port, 0) for channel in hosted.channels}

    def handed_on(self, relation: str) -> int:
        """Rows that a source or a kernel has brought so far."""
        found = self.sources.get(relation)
        return found.events if found is not None else self.readings.kernel(relation).inserted or 0

    def title(self, hosted: Hosted) -> str:
        """A kernel as explain shows it."""
        return self.program.titles[hosted.name][0]

    def shown(self, relation: str) -> str:
        """A source's name, or a kernel as explain shows it."""
        found = self.sources.get(relation)
        return found.name if found is not None else self.title(self.kernels[relation])
