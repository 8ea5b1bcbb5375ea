"""The sources of a run: their progress, alone and together, what they lack of it, and conditions that give it to them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

from streamq.choices import RunState
from streamq.run.status.history import SourceStatus, allowed_silence, followers, instant_text, iso
from streamq.run.status.run_status import RunStatus
from streamq.run.status.watcher import ctis_for_silent, silent_sources
from streamq.time import INFINITY, TIMESTAMP, saturating_add, show_duration

Needed = Mapping[str, int | None]
"""The progress that sources need, by relation; None if it depends on the rows."""


class RunSources:
    """The sources of a run, by relation: their ``statuses``, those that follow others, and those that are silent.

    ``level`` is that of consistency as it counts, ``progress`` that of the sources at it.
    """

    def __init__(self, status: RunStatus):
        self.program, self.state, self.axis = status.program, status.state, status.axis
        self.statuses = status.sources
        self.follows = followers(self.program)
        self.silent, self.silent_ctis = self._passed_over(int(status.now.timestamp() * 1_000))
        self.level = self.program.options.counted_level
        self.progress = status.progress_of_sources

    def _passed_over(self, now: int) -> tuple[set[str], Mapping[str, int]]:
        """Return the sources that have been silent for their ``idle_after``, and the CTIs that they get for that.

        Both are empty unless the run goes on. A source that has brought nothing is in neither.
        """
        if self.state != RunState.RUNNING:
            return set(), {}
        # for a source that has brought nothing, the time since which it is silent is not known here
        allowed = {
            n: most for n, most in allowed_silence(self.program).items() if self.statuses[n].heard_at is not None
        }
        silent = silent_sources({n: self.statuses[n] for n in self.leaders()}, allowed, 0, now)
        return silent, ctis_for_silent(self.statuses, allowed, 0, now, self.follows)

    def joint_needs(self, goal: int, early: bool) -> Needed:
        """Return the sources that are behind the goal, each with it, if rows of all sources are released together.

        If ``early``, a source is behind if its joint progress is less than the goal plus the time for which the level blocks.
        Sources that follow others are left out.
        """
        come = saturating_add(goal, self.level.block or 0)
        return {
            s: goal for s in self.leaders() if (self.joint_progress(s) < come if early else self.statuses[s].cti < goal)
        }

    def joint_progress(self, source: str) -> int:
        """Return the progress of a source for a joint release of several sources: the greater of its CTI and watermark."""
        return max(self.statuses[source].cti, self.statuses[source].watermark)

    def leaders(self) -> list[str]:
        """Return the sources that make progress of their own."""
        return [s for s in self.statuses if s not in self.follows]

    def least_cti(self) -> int:
        """Return the least CTI of all sources."""
        return min(source.cti for source in self.statuses.values())

    def unmet_needs(self, needed: Needed, early: bool) -> Needed:
        """Return the sources that lack the needed progress, by the relation of the source that makes it.

        If ``early``, return all needed sources, by their own relations, as any of them can move the watermark. Where the need
        depends on the rows, sources with the least CTI lack it. At a level that blocks, every source needs the greatest of the
        goals, if all are known, because rows are released together.
        """
        goals = [t for t in needed.values() if t is not None]
        if self.level.block != 0 and len(goals) == len(needed):
            return self.joint_needs(max(goals), early)
        c = {s: self.progress[s].c for s in needed}
        behind = {s: t for s, t in needed.items() if early or (c[s] == min(c.values()) if t is None else c[s] < t)}
        return behind if early else {self.follows.get(s, s): t for s, t in behind.items()}

    def releases_with_note(self, lacking: Needed, until_final: bool) -> tuple[tuple[str, ...], str]:
        """Return conditions that release rows, without those of silent sources, and a note on these, "" if there are none.

        ``until_final`` as in :meth:`releases`. If only silent sources lack progress, even by the CTIs that silence gets them,
        their own conditions are returned without a note.
        """
        silent = [s for s in lacking if s in self.silent]
        names = " and ".join(self.statuses[s].name for s in silent)
        left = {s: t for s, t in lacking.items() if t is None or self.silent_ctis.get(s, self.statuses[s].cti) < t}
        speaking = {s: t for s, t in left.items() if s not in silent}
        if not silent or (left and not speaking):
            return self.releases(lacking, until_final), ""
        note = f"{names}, silent, has by itself the CTI that the others had a micro-batch before"
        if not left:
            return (f"the next micro-batch, which passes {names} over", self.end_condition()), note
        return self.releases(speaking, until_final), note

    def releases(self, lacking: Needed, until_final: bool) -> tuple[str, ...]:
        """Return conditions, any one of which gives the sources the progress that they lack.

        ``until_final``: they lack a CTI, so that all of them must come that far; else a watermark, which any of them can move.
        """
        rows = [self._row(self.statuses[s], t, until_final) for s, t in lacking.items()]
        # any source's row moves the watermark, unless sources are released together
        ways = [" and ".join(rows)] if until_final or self.level.block != 0 else rows
        if not until_final and self.level.block == 0:
            ways += [way for s, t in lacking.items() if s in self.follows for way in self._promised(self.follows[s], t)]
        goals = [t for t in lacking.values() if t is not None]
        if len(goals) == len(lacking) and until_final and (at := self._argument(max(goals))) is not None:
            alone = len(lacking) == 1 and len(self.program.sources) > 1
            only = f", source={self.statuses[next(iter(lacking))].name!r}" if alone else ""
            ways.append(f"run.advance({at}{only})")
        elif not goals:
            ways.append("run.advance(...)")
        return (*ways, self.end_condition())

    def _promised(self, leader: str, t: int | None) -> Iterator[str]:
        """Yield conditions that move a leader's CTI so far that its follower has the progress ``t``."""
        yield self._row(self.statuses[leader], t, True)
        if t is not None and (at := self._argument(t)) is not None:
            yield f"run.advance({at}, source={self.statuses[leader].name!r})"

    def _row(self, source: SourceStatus, t: int | None, until_final: bool) -> str:
        """Return a text on the row of a source that gives it the progress ``t``, with the policy that makes it so.

        ``t`` None: the progress depends on the rows. ``until_final`` as in :meth:`releases`. Where no start gives the progress,
        the text names a CTI, or a time of day.
        """
        starts: list[int] = []
        policy = place = by_clock = ""
        if t is not None and not until_final:
            starts = [t + (self.level.block or 0)]
        elif t is not None:
            reached = [self.joint_progress(s) for s in self.leaders() if self.statuses[s] is not source]
            if self.level.remember is not None and t + self.level.remember <= min(reached, default=INFINITY):
                starts.append(t + self.level.remember)
            if (steps := source.progress.steps) is not None:
                start = steps.least_instant(t)
                starts.append(start)
                lengths = ", ".join(f"{name} {show_duration(n, self.axis)}" for name, n in steps.lengths.items())
                policy = f" ({lengths})" if lengths and start == min(starts) else ""
                if source.straggler is not None and start == min(starts):
                    place = f" in {source.straggler}, and in any other partition that is behind"
            by_clock = self._by_clock(source, t)
        if starts:
            row = f"a {source.moved_by} of {source.name} {self._bound_text(min(starts))}{policy}{place}"
            return f"{row} or {by_clock}" if by_clock else row
        if by_clock:
            return by_clock
        if source.progress.lag == INFINITY and until_final:
            return f"a CTI of {source.name}" + ("" if t is None else f" at {instant_text(t, self.axis)} or later")
        return f"a {source.moved_by} of {source.name}"

    def _by_clock(self, source: SourceStatus, t: int) -> str:
        """Return the time of day that makes a source's CTI as great as ``t``; "" if it does not follow the clock."""
        clock = source.progress.clock
        if clock is None:
            return ""
        now = instant_text(clock.least_instant(t), TIMESTAMP)
        return f"the clock at {now}, which c of {source.name} follows ({clock.lag_text(self.axis)})"

    def _bound_text(self, t: int) -> str:
        """Return "at or after" an instant as text, or "after" the microsecond before if that is a whole millisecond."""
        past = self.axis == TIMESTAMP and t % 1_000 == 1
        return f"after {instant_text(t - 1, self.axis)}" if past else f"at or after {instant_text(t, self.axis)}"

    def end_condition(self) -> str:
        """Return a text on what ends the input of all sources."""
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
