"""Find what the operators of a run wait for: the CTI or watermark that releases their rows, and the sources that lack it.

An operator waits for a CTI of its input. The CTI rules of docs/language.md, "Progress, finality, state, cost", give the progress
that each source needs for it, through all operators in between, and conditions that give it to them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

from streamq.choices import RunState
from streamq.compiler.staged_plan import INGRESS, StagedPlan
from streamq.plan.node import WrittenPattern, nodes
from streamq.run.status.run_status import RunStatus, SourceStatus, allowed_silence, followers, instant_text, iso
from streamq.run.status.watcher import ctis_for_silent, silent_sources
from streamq.run.status.why import DEPENDS, EMPTIED, ENDS, MOVING, Wait, missing_rows
from streamq.runtime.deltas import WEIGHT
from streamq.runtime.hosts.hosted_kernel import Channel, HostedKernel
from streamq.runtime.time.consistency import AlignAt
from streamq.runtime.time.progress import ProgressShift, map_progress
from streamq.runtime.time.progress_rule import Cti
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, saturating_add, show_duration


def _patterns(program: StagedPlan) -> Iterator[WrittenPattern]:
    """Yield the patterns in the plans before they were rewritten."""
    for node in nodes(program.written):
        # only the node of a pattern, whose class is above this layer, has any
        yield from getattr(node, "patterns", ())


def title(program: StagedPlan, hosted: HostedKernel) -> str:
    """Return a kernel's name as in explain; for a kernel that computes a part of a pattern, the pattern's text."""
    node = program.nodes.get(hosted.number)
    columns = [] if node is None else [name for n in (node, *node.children) for name in n.schema.names]
    there = {pattern: variables for pattern in _patterns(program) if (variables := pattern.variables_in(columns))}
    if not there:
        return f"{program.titles[hosted.name][0]}"
    pattern = max(there, key=lambda p: (len(there[p]), -len(p.variables)))
    part = f", its {', '.join(there[pattern])}" if len(there[pattern]) < len(pattern.variables) else ""
    return f"pattern {pattern.name}{part}: {pattern.text}"


def input_title(program: StagedPlan, hosted: HostedKernel, port: int) -> str:
    """Return a text for an input of a join: its side, or the events of a pattern that it provides."""
    columns = program.nodes[hosted.number].children[port].schema.names
    variables = dict.fromkeys(v for pattern in _patterns(program) for v in pattern.variables_in(columns))
    return f"for {', '.join(variables)}" if variables else f"from the {('left', 'right')[port]}"


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


class WaitAnalysis(RunSources):
    """The operators of a run that hold rows, and the sources that they wait for, computed from its status."""

    def __init__(self, status: RunStatus):
        super().__init__(status)
        self.history, self.readings = status.history, status.history.readings
        self.kernels, self.ctis = status.kernels, status.input_ctis

    def waits(self) -> Iterator[Wait]:
        """Yield the waits of the operators that hold rows, in the order of the stages.

        An operator may have two: one for rows that the level of consistency holds back, and one for its other rows, which has
        no goal if no instant releases them. One whose input has ended has none.
        """
        for hosted in self.kernels.values():
            readings = self.readings.kernel(hosted.name)
            rows, held = readings.state_rows or 0, readings.held_rows or 0
            if held and hosted.aligns and self.least_cti() != INFINITY:
                yield self._blocked(hosted, held)
            rows = held if hosted.kernel.progress_rule.sorts else rows - held
            if rows and self._holds(hosted) and min(self.ctis[hosted.name].values()) != INFINITY:
                yield self._wait(hosted, rows)

    def _holds(self, hosted: HostedKernel) -> bool:
        """Return True if rows in a kernel's state wait to be sent: for more rows, or for an instant (``_due``)."""
        return hosted.kernel.progress_rule.wanted is not None or self._due(hosted) is not None

    def _due(self, hosted: HostedKernel) -> int | None:
        """Return the progress that releases a kernel's next rows if no others come; None if no row waits for an instant."""
        if hosted.kernel.progress_rule.sorts:
            return self._held_from(hosted) + 1
        return self.readings.kernel(hosted.name).due

    def _blocked(self, hosted: HostedKernel, held: int) -> Wait:
        """Return the wait for ``held`` rows that the level of consistency holds until all sources have progressed far enough."""
        first = self._held_from(hosted)
        lag = max(self.statuses[s].progress.lag for s in self.leaders())
        sooner = self.level.block is not None and self.level.block < lag
        least = min(self.leaders(), key=lambda s: self.joint_progress(s) if sooner else self.statuses[s].cti)
        release = self.releases(self.joint_needs(first if sooner else first + 1, sooner), not sooner)
        place = "before" if hosted.aligns == AlignAt.INPUT else "behind"
        operator = f"consistency: rows held back {place} {self.title(hosted)}"
        source, proviso = self.statuses[least], DEPENDS if self._taken_back() else ""
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

    def _held_from(self, hosted: HostedKernel) -> int:
        """Return the least start of the rows that a kernel holds back."""
        first = self.readings.kernel(hosted.name).held_from
        assert first is not None, "a kernel that holds rows says from which start on"
        return first

    def _output_cti(self, hosted: HostedKernel) -> int:
        cti = self.readings.kernel(hosted.name).output_cti
        return MINUS_INFINITY if cti is None else cti

    def _wait(self, hosted: HostedKernel, rows: int) -> Wait:
        """Return the wait of a kernel that holds ``rows``: until its input's CTI, or watermark, is far enough.

        Without a goal if no instant releases them: they wait for more rows, for ends, or for the end of the input.
        """
        rule, c, due = hosted.kernel.progress_rule, min(self.ctis[hosted.name].values()), self._due(hosted)
        early = rule.early is not None and self.level.block is not None
        if due is None:
            return self._endless_wait(hosted, rows, (missing_rows(rule.wanted),))
        if due == INFINITY:
            return self._endless_wait(hosted, rows, (ENDS[rule.endless], self.end_condition()))
        window = None if rule.grid is None or rule.has_sizes else (due - rule.grid.size, due)
        if due <= (max(c, self._watermark(hosted)) if early else c):
            # the instant is reached, but the rows are not final
            parts = ("members" if window else "rows") + " whose ends no longer move"
            return self._endless_wait(hosted, rows, (parts, self.end_condition()), window)
        needed = self._needed(hosted, due, not early)
        lacking = self.unmet_needs(needed, early)
        source = None
        if lacking and (not early or len(lacking) == 1):
            least = min(lacking, key=lambda s: self.progress[s].c - (lacking[s] or 0))
            source = self.statuses[self.follows.get(least, least)]
        ways, passed_over = self.releases_with_note(lacking, not early) if lacking else (self._held_below(hosted), "")
        release = rule.early if early else rule.final
        by_start, beyond = (release.by_start, release.is_strict) if release is not None else (False, False)
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
            cti=min(self.ctis[hosted.name].values()),
            least=self._least_input(hosted),
            window=window,
            release=release,
        )

    def _proviso(self, hosted: HostedKernel, needed: Needed, early: bool) -> str:
        """Return a text on what a kernel's rows need besides the progress of sources, "" for nothing."""
        rule, below = hosted.kernel.progress_rule, self._kernels_below(hosted)
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

    def _kernels_below(self, hosted: HostedKernel) -> list[HostedKernel]:
        """Return the kernels whose rows reach this one, the nearest first."""
        inputs, below = set(hosted.inputs), []
        for candidate in reversed([*self.kernels.values()]):
            if candidate.name in inputs:
                inputs.update(candidate.inputs)
                below.append(candidate)
        return below

    def _onward(self, hosted: HostedKernel) -> HostedKernel | None:
        """Return the next kernel that holds this one's rows, the first of several; None if a result gets some that none holds."""
        if any(feed.path.relation == hosted.name for feed in self.program.result_feeds):
            return None
        above = [k for k in self.kernels.values() if hosted.name in k.inputs]
        holders = [k if k.kernel.progress_rule.holds else self._onward(k) for k in above]
        return None if None in holders else holders[0]

    def _goes_on(self, onward: HostedKernel | None) -> str:
        """Return a text that names the kernel to which released rows go; "" if they reach the result."""
        return "" if onward is None else f"what that releases goes on to {self.title(onward)}"

    def _least_input(self, hosted: HostedKernel) -> str:
        """Return the name of the input with the least CTI."""
        ctis = self.ctis[hosted.name]
        return self.shown(min(hosted.channels, key=lambda channel: ctis[channel.number]).relation)

    # the progress that sources need

    def _watermark(self, hosted: HostedKernel) -> int:
        """Return the watermark at a kernel's inputs, the greatest of its channels, after the steps of each."""
        return max(map_progress(self._w(channel), channel.progress_maps) for channel in hosted.channels)

    def _w(self, channel: Channel) -> int:
        """Return the watermark of a channel's relation: of a source its own, of a kernel that at its inputs."""
        kernel = self.kernels.get(channel.relation)
        if kernel is not None:
            return self._watermark(kernel)
        return self.progress[channel.relation].w

    def _needed(self, hosted: HostedKernel, goal: int, until_final: bool) -> Needed:
        """Return the progress that each source needs for all inputs of a kernel to reach the goal, by relation.

        It is None where a step on the way depends on the rows. ``until_final``: the goal is a CTI, so windows below have to end
        before they send one that far; else it is a watermark.
        """
        needed: dict[str, int | None] = {}
        for channel in hosted.channels:
            for source, t in self._channel_needs(channel, goal, until_final).items():
                other = needed.get(source, t)
                needed[source] = None if t is None or other is None else max(t, other)
        return needed

    def _channel_needs(self, channel: Channel, goal: int, until_final: bool) -> Needed:
        """Return the progress that each source needs for a channel to reach the goal, as ``_needed`` does."""
        shifts = [step.by for step in channel.progress_maps if isinstance(step, ProgressShift)]
        is_fixed = len(shifts) == len(channel.progress_maps)
        t = goal - sum(shifts)
        if channel.relation in self.statuses:
            return {channel.relation: t if is_fixed else None}
        below = self.kernels[channel.relation]
        if not is_fixed:
            return dict.fromkeys(self.sources_of(below))
        rule = below.kernel.progress_rule
        if until_final and rule.sends_window_start and rule.grid is not None:
            # its CTI is the start of its earliest window that is not final
            t = rule.grid.end(rule.grid.last_starting_before(t))
        return self._needed(below, t, until_final)

    def _held_below(self, hosted: HostedKernel) -> tuple[str, ...]:
        """Return what an operator waits for if the sources have enough progress: progress of the one below with the least CTI.

        Without one below it waits for its own members, whose ends may still move.
        """
        below = [self.kernels[ch.relation] for ch in hosted.channels if ch.relation in self.kernels]
        if not below:
            return ("members whose ends no longer move", self.end_condition())
        least = min(below, key=lambda k: self._output_cti(k))
        cti = least.kernel.progress_rule.cti.shown(len({channel.port for channel in least.channels}))
        return (f"progress of {self.title(least)}, whose CTI: {cti}", self.end_condition())

    # names and numbers

    def sources_of(self, hosted: HostedKernel) -> list[str]:
        """Return the source relations that feed a kernel, directly or through other kernels."""
        return list(dict.fromkeys(s for channel in hosted.channels for s in self.feeding(channel.relation)))

    def feeding(self, relation: str) -> list[str]:
        """Return the source relations that feed a relation; a source's relation itself."""
        return [relation] if relation in self.statuses else self.sources_of(self.kernels[relation])

    def arrived(self, hosted: HostedKernel) -> dict[int, int]:
        """Return the number of deltas that have reached each port of a kernel so far."""
        arrived = self.readings.kernel(hosted.name).arrived
        return {channel.port: arrived.get(channel.port, 0) for channel in hosted.channels}

    def handed_on(self, relation: str) -> int:
        """Return the number of a source's events, invalid rows left out, or of a kernel's inserted rows, so far."""
        source = self.statuses.get(relation)
        return source.events if source is not None else self.readings.kernel(relation).inserted or 0

    def title(self, hosted: HostedKernel) -> str:
        """Return a kernel's name for the user."""
        return title(self.program, hosted)

    def shown(self, relation: str) -> str:
        """Return the name, for the user, of a relation's source or kernel; of an ingress kernel that of its source."""
        hosted = self.kernels.get(relation)
        if hosted is not None and relation.startswith(f"{INGRESS}:"):
            (relation,) = hosted.inputs
        source = self.statuses.get(relation)
        return source.name if source is not None else self.title(self.kernels[relation])
