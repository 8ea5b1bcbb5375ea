"""What the operators of a run hold back, until which CTI or watermark, and which source has not come so far; from readings.

An operator waits for a CTI of its input; that is traced back through what lies between to how far each source must come, by
the CTI rules of SEMANTICS section 6.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.monitoring import Seen, SourceReading, ctis_in, iso, kernels, paces, shown, sources
from streamq.runtime.carried import Carried, carry
from streamq.runtime.consistency import MIDDLE
from streamq.runtime.kernels.ctis import CtisKernel
from streamq.runtime.kernels.recompute import RecomputeKernel
from streamq.runtime.kernels.settle import SettleKernel
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.stage import IN
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, saturating_add, show_duration
from streamq.windows import ALIGN, Hopping

if TYPE_CHECKING:
    from streamq.compiler.program import Program
    from streamq.runtime.kernel import Kernel
    from streamq.runtime.stage import Channel, Hosted

RUNNING, ENDED, STOPPED, FINISHED, FAILED = "running", "ended", "stopped", "finished", "failed"
"""States of a run. ended: an available-now run that has done all there was; finished: its input has ended."""


@dataclass(frozen=True)
class Wait:
    """An operator that holds rows.

    cti: what its inputs promise together; least: the input that promises least; goal: the CTI that releases the next rows (or
    the watermark, where ``early``), None where it cannot be told; window: the next one, or None where rows go one by one;
    source: the one furthest behind; release: what would release the next rows, any one of these; by_start: the goal counts
    starts, not ends.
    """

    operator: str
    rows: int
    cti: int
    least: str
    goal: int | None
    window: tuple[int, int] | None
    source: SourceReading | None
    release: tuple[str, ...]
    early: bool = False
    by_start: bool = False


Needed = Mapping[str, int | None]
"""How far sources, by relation, must come; None where that cannot be told."""


class Waiting:
    """A program and what is known of its run."""

    def __init__(self, program: Program, seen: Seen, state: str):
        self.program, self.seen, self.state = program, seen, state
        self.axis = program.plan.schema.axis
        self.told = seen.told
        self.sources: dict[str, SourceReading] = sources(program, seen)
        self.kernels: dict[str, Hosted] = kernels(program)
        self.paces = paces(program, self.told)
        self.level = program.stages[0].consistency if program.stages else MIDDLE
        self.follows = program.stages[0].follows if program.stages else {}

    def waits(self) -> Iterator[Wait]:
        """The operators that hold rows until time has passed something, in the order of the stages."""
        for hosted in self.kernels.values():
            rows, held = (self.told.get(f"{what}|{hosted.name}", 0) for what in ("state_rows", "held"))
            if held and hosted.aligns and self._least_c() != INFINITY:
                yield self._blocked(hosted, held)
            rows = held if isinstance(hosted.kernel, CtisKernel) else rows - held
            if rows and _holds(hosted.kernel) and min(self._ctis(hosted).values()) != INFINITY:
                yield self._wait(hosted, rows)

    def _blocked(self, hosted: Hosted, held: int) -> Wait:
        """Rows that the level of consistency holds back: until all sources have promised, or come, far enough."""
        first = self.told[f"first|{hosted.name}"]
        sooner = self.level.block is not None and self.level.block < max(self._delay(s) for s in self._speaking())
        least = min(self._speaking(), key=lambda s: self.sources[s].w if sooner else self.sources[s].c)
        release = self._released(self._together(first if sooner else first + 1, sooner), not sooner)
        place = "before" if hosted.aligns == IN else "behind"
        operator = f"consistency: rows held back {place} {self.title(hosted)}"
        source = self.sources[least]
        return Wait(operator, held, source.c, source.name, first + 1, None, source, release, by_start=True)

    def _together(self, goal: int, early: bool) -> Needed:
        """Where sources are released together: those that are not there yet, by their watermarks if ``early``."""
        come = saturating_add(goal, self.level.block or 0)
        return {s: goal for s in self._speaking() if (self.sources[s].w < come if early else self.sources[s].c < goal)}

    def _speaking(self) -> list[str]:
        """The sources that make progress of their own."""
        return [s for s in self.sources if s not in self.follows]

    def _delay(self, source: str) -> int:
        delay = self.sources[source].delay
        return INFINITY if delay is None else delay

    def _least_c(self) -> int:
        return min(source.c for source in self.sources.values())

    def _ctis(self, hosted: Hosted) -> dict[int, int]:
        return ctis_in(self.program, hosted, self.told)

    def _wait(self, hosted: Hosted, rows: int) -> Wait:
        ctis = self._ctis(hosted)
        c, w = min(ctis.values()), self._watermark(hosted)
        early = (
            self.level.block is not None
            and not isinstance(hosted.kernel, SettleKernel | CtisKernel)
            and not getattr(hosted.kernel, "final", False)
        )
        at = max(c, w) if early else c
        window = self._window(hosted, at, early)
        if window is not None and window[1] <= at:
            # reached, but not final
            return Wait(
                *self._of(hosted, rows, c), None, window, None, ("members whose ends no longer move", self._end())
            )
        # where there are no windows, or none yet: as far as the next input is, or as the greatest start
        ahead = min((t for t in ctis.values() if at < t < INFINITY), default=None)
        goal = ahead if at == MINUS_INFINITY else window[1] if window is not None else ahead or max(at + 1, w)
        needed = dict.fromkeys(self.behind(hosted)) if goal is None else dict(self._needed(hosted, goal, not early))
        lacking = self._lacking(needed, early)
        source = None
        if lacking and (not early or len(lacking) == 1):
            source = self.sources[min(lacking, key=lambda s: self.paces[s][0] - (lacking[s] or 0))]
        release = self._released(lacking, not early) if lacking else self._held_below(hosted)
        return Wait(*self._of(hosted, rows, c), goal, window, source, release, early)

    def _of(self, hosted: Hosted, rows: int, c: int) -> tuple[str, int, int, str]:
        ctis = self._ctis(hosted)
        return self.title(hosted), rows, c, self.shown(min(hosted.channels, key=lambda ch: ctis[ch.number]).relation)

    def _window(self, hosted: Hosted, at: int, early: bool) -> tuple[int, int] | None:
        """The next window of a grid: the first that ends after what is reached, or an earlier one that is not final."""
        grid = _grid(hosted.kernel)
        if grid is None or at == MINUS_INFINITY:
            return None
        index = grid.first_ending_after(at)
        sent = self.told.get(f"out|{hosted.name}", INFINITY)
        if not early and _aligned(hosted.kernel) and MINUS_INFINITY < sent < grid.start(index):
            index = grid.last_starting_before(sent + 1)
        return grid.start(index), grid.end(index)

    # how far sources must come

    def _watermark(self, hosted: Hosted) -> int:
        return max(carry(self._w(channel.relation), channel.carried) for channel in hosted.channels)

    def _w(self, relation: str) -> int:
        return self.paces[relation][1] if relation in self.paces else self._watermark(self.kernels[relation])

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
        grid = _grid(below.kernel) if until_final and _aligned(below.kernel) else None
        # its CTI is the start of its earliest window that is not final
        return self._needed(below, t if grid is None else grid.end(grid.last_starting_before(t)), until_final)

    def _lacking(self, needed: Needed, early: bool) -> Needed:
        """The sources that are not there yet, each under the one that makes its progress; any of them, where ``early``."""
        known = [t for t in needed.values() if t is not None]
        if self.level.block != 0 and len(known) == len(needed):
            return self._together(max(known), early)
        c = {s: self.paces[s][0] for s in needed}
        behind = {s: t for s, t in needed.items() if early or (c[s] == min(c.values()) if t is None else c[s] < t)}
        return {self.follows.get(s, s): t for s, t in behind.items()}

    # what would release rows

    def _released(self, lacking: Needed, until_final: bool) -> tuple[str, ...]:
        rows = [self._row(self.sources[s], t, until_final) for s, t in lacking.items()]
        # the greatest of watermarks counts, unless sources are released together
        made = [" and ".join(rows)] if until_final or self.level.block != 0 else rows
        known = [t for t in lacking.values() if t is not None]
        if len(known) == len(lacking) and until_final and (at := self._argument(max(known))) is not None:
            alone = len(lacking) == 1 and len(self.sources) > 1
            only = f", source={self.sources[next(iter(lacking))].name!r}" if alone else ""
            made.append(f"run.advance({at}{only})")
        elif not known:
            made.append("run.advance(...)")
        return (*made, self._end())

    def _held_below(self, hosted: Hosted) -> tuple[str, ...]:
        """The sources are far enough, but an operator on the way is behind: its own rule says why."""
        below = [self.kernels[ch.relation] for ch in hosted.channels if ch.relation in self.kernels]
        if not below:
            return ("members whose ends no longer move", self._end())
        least = min(below, key=lambda k: self.told.get(f"out|{k.name}", MINUS_INFINITY))
        rule = next(line for line in self.program.titles[least.name] if line.startswith("CTI: "))
        return (f"progress of {self.title(least)}, whose {rule}", self._end())

    def _row(self, source: SourceReading, t: int | None, until_final: bool) -> str:
        # a row is enough that is so far beyond
        ways = [source.delay, self.level.remember if len(self.sources) == 1 else None]
        delay = min((d for d in ways if d is not None), default=None) if until_final else self.level.block or 0
        if delay is None:
            return f"a CTI of {source.name}" + ("" if t is None else f" at {shown(t, self.axis)} or later")
        if t is None:
            return f"a row of {source.name}"
        late = f" (delay {show_duration(delay, self.axis)})" if delay and delay == source.delay else ""
        if t == source.c + 1:
            return f"a row of {source.name} after {shown(source.c + delay, self.axis)}{late}"
        return f"a row of {source.name} at or after {shown(t + delay, self.axis)}{late}"

    def _end(self) -> str:
        match self.state:
            case "running":
                return "run.finish(), if the input has ended"
            case "ended":
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

    def handed_on(self, relation: str) -> int:
        """Rows that a source or a kernel has brought so far."""
        found = self.sources.get(relation)
        return found.rows if found is not None else self.told.get(f"given|{relation}", 0)

    def title(self, hosted: Hosted) -> str:
        """A kernel as explain shows it."""
        return self.program.titles[hosted.name][0]

    def shown(self, relation: str) -> str:
        """A source's name, or a kernel as explain shows it."""
        found = self.sources.get(relation)
        return found.name if found is not None else self.title(self.kernels[relation])


def _holds(kernel: Kernel) -> bool:
    """Whether a kernel holds rows back until time has passed something; the others pass on at once what they make."""
    return isinstance(kernel, WindowAggregateKernel | RecomputeKernel | SettleKernel | CtisKernel)


def _grid(kernel: Kernel) -> Hopping | None:
    """The windows, or pieces, that a kernel reports one by one."""
    match kernel:
        case WindowAggregateKernel(window=grid):
            return grid
        case RecomputeKernel(evaluator=evaluator):
            found = getattr(evaluator, "window", None) or getattr(evaluator, "cells", None)
            return found if isinstance(found, Hopping) else None
    return None


def _aligned(kernel: Kernel) -> bool:
    """Whether the CTI of a kernel with a grid is the start of a window."""
    evaluator = getattr(kernel, "evaluator", None)
    return getattr(evaluator, "stamp", ALIGN) == ALIGN and not hasattr(evaluator, "cells")
