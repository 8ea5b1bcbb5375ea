"""Progress policies: how a source has CTIs, and the verbs that a user writes for them.

A source sends CTIs itself, or follows another source; or streamq generates CTIs, from the greatest start, of a source or of each
partition, or from the time of day. ``streamq/__init__.pyi`` names the verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from streamq.errors import PlanError, check_keywords, column_names
from streamq.plan.node import ADDED
from streamq.runtime.time.progress_policy import CtiSteps, PartitionStarts, ProgressPolicy
from streamq.time import TIMESTAMP, Duration, length, show_duration, ticks


@dataclass(frozen=True)
class ProgressArgument:
    """The argument ``progress`` of a source: ``text`` shows it as written, ``policy`` returns the policy for a time axis."""

    text: str
    policy: Callable[[str], ProgressPolicy] = field(compare=False)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ExplicitCtis(ProgressPolicy):
    """The greatest CTI among the source's items; each holds for the whole source, and no state is kept."""

    name = "explicit"
    takes_ctis = True

    def shown(self, axis: str) -> str:
        return "explicit()"

    def remedy(self, leader: str) -> str:
        return "its own CTIs come too early; sent later, they admit these rows"


@check_keywords
def explicit() -> ProgressArgument:
    """Take progress from the source's own CTI rows (``sq.cti`` in literal streams, ``cti`` rows in physical ones)."""
    return ProgressArgument("sq.explicit()", lambda axis: ExplicitCtis())


_UNNAMED = "#"
"""The beginning of the tables of unnamed sources; alone, an unnamed source that is not in the plan."""


@dataclass(frozen=True)
class LeaderCtis(ProgressPolicy):
    """The progress of the source over ``table``, its leader; its own items do not move it, and no state is kept."""

    table: str

    name = "follow"
    # the CTIs show only how far the source itself has come
    takes_ctis = True

    @property
    def leader(self) -> str:
        return self.table

    def shown(self, axis: str) -> str:
        return f"follow({self.table})"

    def remedy(self, leader: str) -> str:
        return f"a greater delay of {leader}, whose progress it has, takes them in, or progress of its own"

    def renamed(self, names: Mapping[str, str]) -> Self:
        # an unnamed leader that is not in the plan has no number there, and must not get that of another source
        outside = _UNNAMED if self.table.startswith(_UNNAMED) else self.table
        return type(self)(names.get(self.table, outside))


class TableHolder(Protocol):
    """An object built over tables, as a stream is over those of its sources."""

    @property
    def tables(self) -> Mapping[str, Any]:
        """The tables by the names of their sources."""


@check_keywords
def follow(other: TableHolder) -> ProgressArgument:
    """Take progress from another source of the same query: that source's CTIs are promises for this one, too.

    It is for a source that seldom sends rows, such as prices or settings, which would hold the others back. A row behind the
    other source's CTI is late; this source's own greatest start moves nothing. Raises PlanError if ``other`` is not built over
    exactly one source.
    """
    tables = list(getattr(other, "tables", ()))
    if len(tables) != 1:
        what = f"found {len(tables)}" if hasattr(other, "tables") else f"found {other!r}"
        raise PlanError("follow", "not one source", what, "Give the source itself, a stream.")
    return ProgressArgument(f"sq.follow({tables[0]})", lambda axis: LeaderCtis(tables[0]))


@dataclass(frozen=True)
class ClockCtis(CtiSteps, ProgressPolicy):
    """The time of day less ``delay``, rounded down to a multiple of ``every``, both in microseconds; nothing is kept."""

    name = "clock"

    @property
    def clock(self) -> CtiSteps:
        return self

    def shown(self, axis: str) -> str:
        steps = f", every={show_duration(self.every, axis)}" if self.every != 1 else ""
        return f"clock(delay={show_duration(self.delay, axis)}{steps})"

    def remedy(self, leader: str) -> str:
        return (
            "a greater delay takes them in: it is how long a row is on its way, and the clock does not wait while a run is "
            "stopped (docs/concepts.md, CTIs and the watermark)"
        )


@check_keywords
def clock(delay: Duration, *, every: Duration | None = None) -> ProgressArgument:
    """Make progress of the time of day: ``cti(now - delay)`` in every micro-batch, also in one without rows.

    ``delay`` is the longest time from a row's start until Spark finds the row in its source; rows that take longer are *late*.
    So a query notices what did not come although all sources are silent: "no payment within ten minutes" is reported ten
    minutes and the delay after the order. ``every`` (default: none) rounds CTIs down to its multiples, for fewer of them.
    ``now`` is the time at which a micro-batch begins, the same if Spark repeats it. On Spark the clock ticks once a second, for
    the first time a second after the first start on a checkpoint, and every tick is a micro-batch unless the trigger waits
    longer. The clock does not stop with the run: the first micro-batch after a stop continues at now, and rows that arrived
    meanwhile and are read later than in that micro-batch are late. In batch there is no clock, as all rows are there. Only for
    sources on the timestamp axis.

    Raises TimeError for what is no duration with a unit, PlanError for a negative ``delay`` and for an ``every`` that is not
    positive; the source raises PlanError if its times are no timestamps.

    ::

        orders = sq.points(orders_df, time="at", progress=sq.clock("10 seconds"))
        payments = sq.points(payments_df, time="at", progress=sq.clock("10 seconds"))
        late = sq.cedr("EVENT E WHEN UNLESS(O, P, 10 minutes) WHERE O.order = P.order", O=orders, P=payments)
    """
    steps = 1 if every is None else ticks(every, TIMESTAMP, "clock")
    policy = ClockCtis(ticks(delay, TIMESTAMP, "clock"), steps)
    if policy.delay < 0:
        raise PlanError("clock", "delay is negative", f"found {delay!r}")
    if policy.every < 1:
        raise PlanError("clock", "every is no length of time", f"found {every!r}")

    def on_axis(axis: str) -> ProgressPolicy:
        """Return the policy; raise PlanError unless the axis is that of timestamps."""
        if axis != TIMESTAMP:
            hint = "Cast them to timestamps, or take sq.generate(...)."
            raise PlanError("clock", "a clock takes times that are timestamps", f"the axis is {axis}", hint)
        return policy

    steps_shown = "" if every is None else f", every={every!r}"
    return ProgressArgument(f"sq.clock({delay!r}{steps_shown})", on_axis)


@dataclass(frozen=True)
class GeneratedCtis(ProgressPolicy):
    """The greatest start less ``delay``, rounded down to a multiple of ``every``.

    ``max_ahead``: how many ticks a start may lie beyond the time of its micro-batch; ``idle_after``: for how many microseconds
    by the clock the source may be silent. The CTI is the greatest over the tasks of a source, and nothing is kept. ``clock``: a
    policy that makes CTIs of the time of day as well, the greater of which count.
    """

    delay: int = 0
    every: int = field(default=1, metadata=ADDED)
    max_ahead: int | None = field(default=None, metadata=ADDED)
    idle_after: int | None = field(default=None, metadata=ADDED)
    clock: ClockCtis | None = field(default=None, metadata=ADDED)

    name = "generate"

    @property
    def steps(self) -> CtiSteps:
        return CtiSteps(self.delay, self.every)

    def shown(self, axis: str) -> str:
        """Return ``generate(...)`` with the policy's columns and lengths, without lengths of 0 and an ``every`` of one tick."""
        shown = [f"{name}={show_duration(n, axis)}" for name, n in self.steps.lengths.items()]
        shown += [] if self.max_ahead is None else [f"max_ahead={show_duration(self.max_ahead, axis)}"]
        shown += self._shown_parts()
        shown += [f"idle_after={show_duration(self.idle_after, TIMESTAMP)}"] if self.idle_after else []
        shown += [] if self.clock is None else [f"clock={self.clock.shown(axis)}"]
        return f"generate({', '.join(shown)})"

    def _shown_parts(self) -> list[str]:
        return []

    def remedy(self, leader: str) -> str:
        return (
            "a greater delay takes them in. Files are read in the order in which they were written: where that is not the order "
            "of their times, the delay must cover it (docs/operations.md, Catching up with a history)"
        )


@dataclass(frozen=True)
class PartitionCtis(GeneratedCtis):
    """The least CTI over partitions, the rows of equal columns ``per``, each by its greatest start.

    ``awaited``: the partitions that are waited for from the start, which a run asks the source's connector for; None: a partition
    counts from its first row on.
    """

    per: tuple[str, ...] = ()
    awaited: tuple[tuple[Any, ...], ...] | None = field(default=None, metadata=ADDED)

    @property
    def parts(self) -> PartitionStarts:
        return PartitionStarts(self.per, self.steps, self.awaited or ())

    def _shown_parts(self) -> list[str]:
        return [f"per={'' if self.awaited is None else 'all of '}[{', '.join(self.per)}]"]


SILENCE = 60_000_000
"""The microseconds by the clock after which a part of a source without rows holds nobody back, unless the user says another."""


def by_parts(policy: ProgressPolicy, parts: tuple[str, ...]) -> ProgressPolicy:
    """Return a policy that generates CTIs of a whole source as one of its ``parts``, if there are any; else the policy.

    It waits for all of them, each until it is idle.
    """
    if not parts or type(policy) is not GeneratedCtis:
        return policy
    return PartitionCtis(**{**vars(policy), "idle_after": policy.idle_after or SILENCE}, per=parts, awaited=())


@check_keywords
def generate(
    delay: Duration = 0,
    *,
    every: Duration | None = None,
    per: str | Sequence[str] | None = None,
    idle_after: Duration | None = None,
    max_ahead: Duration | None = None,
    clock: ProgressArgument | None = None,
) -> ProgressArgument:
    """Generate progress from the data: ``cti(greatest start seen - delay)`` after every micro-batch.

    ``delay`` is a duration with a unit on a timestamp axis, integer ticks on an integer axis: how far out of order the source is;
    rows that come later than that are *late*. ``every``: CTIs only at multiples of this length, for fewer of them.

    ``idle_after``: a source that has brought no row for this long by the wall clock, in a run that goes on, no longer holds
    others back. It takes the CTI of the sources that still send rows, or, if none does, the greatest start of all; its rows
    behind that are late. The length is a time by the clock, such as "1 minute", on any axis.

    ``per``: columns whose values identify partitions of the source, such as the devices that send its rows: each is in order
    within ``delay``, while one may be far behind another. The CTI is ``cti(greatest start - delay)`` of the partition that is
    furthest behind. NULLs are equal, as in keys. A partition counts from its first row on: its rows behind the CTI are late,
    and the CTI waits until the partition has caught up. A partition without a row for ``idle_after`` is idle: it holds nobody
    back and is forgotten, so it comes back as a new one. The run checks its clock four times in ``idle_after``, so that this
    may take up to half as long again; in a ``writeStream`` of your own nothing checks it. Once all are idle, the CTI is
    ``cti(greatest start of all - delay)``.

    ``max_ahead``: in a stream, a row that starts more than this after the time of its micro-batch, the instant at which that was
    begun with, is no event (see ``invalid``), so that one wrong start cannot make all other rows late. A micro-batch that is
    repeated after a crash has the same time. Timestamps only.

    ``clock``: ``sq.clock(...)``, for CTIs of the time of day as well. The greater counts, so with ``per`` the clock passes
    partitions that are further behind. Timestamps only.

    Raises TimeError for what is no duration, PlanError for a negative ``delay`` or ``max_ahead``, for an ``every`` or
    ``idle_after`` that is not positive, for a ``per`` without columns, and for a ``clock`` that is no ``sq.clock(...)``. The
    source raises TimeError for a unit that does not fit its time axis, UnknownColumn for a column that it has not, or takes its
    times from, and TypeMismatch for one of maps.
    """
    rest = {"every": every, "idle_after": idle_after, "max_ahead": max_ahead}
    durations = {"delay": delay, **{name: duration for name, duration in rest.items() if duration is not None}}
    for name, duration in durations.items():
        least = 1 if name in ("every", "idle_after") else 0
        if length(duration, "generate") < least:
            wrong = f"{name} is {'no length of time' if least else 'negative'}"
            raise PlanError("generate", wrong, f"found {duration!r}")
    partitions = None if per is None else column_names(per, "generate", "per")
    if partitions is not None and (not partitions or len({*partitions}) < len(partitions)):
        raise PlanError("generate", "per takes different columns, one at least", f"found {per!r}")
    if clock is not None:
        _clock(clock, TIMESTAMP)
    silence = None if idle_after is None else ticks(idle_after, TIMESTAMP, "generate")

    def policy(axis: str) -> ProgressPolicy:
        """Return the policy for an axis; raise PlanError for ``max_ahead`` on integers, TimeError for misfit lengths."""
        if max_ahead is not None and axis != TIMESTAMP:
            wrong = "max_ahead goes by the wall clock, which takes timestamps"
            raise PlanError("generate", wrong, f"the axis is {axis}")
        of_source = GeneratedCtis(
            delay=ticks(delay, axis, "generate"),
            every=1 if every is None else ticks(every, axis, "generate"),
            max_ahead=None if max_ahead is None else ticks(max_ahead, axis, "generate"),
            idle_after=silence,
            clock=None if clock is None else _clock(clock, axis),
        )
        return of_source if partitions is None else PartitionCtis(**vars(of_source), per=partitions)

    shown = [f"{name}={duration!r}" for name, duration in durations.items() if duration]
    shown += [] if per is None else [f"per={per!r}"]
    shown += [] if clock is None else [f"clock={clock!r}"]
    return ProgressArgument(f"sq.generate({', '.join(shown)})", policy)


def _clock(argument: object, axis: str) -> ClockCtis:
    """Return the policy of ``sq.clock(...)`` on an axis; raise PlanError for any other argument."""
    policy = argument.policy(axis) if isinstance(argument, ProgressArgument) else None
    if not isinstance(policy, ClockCtis):
        raise PlanError("generate", "clock is sq.clock(...)", f"found {argument!r}")
    return policy


def verbs() -> list[str]:
    """Return the verbs that choose a policy: the names of the policies in this room."""
    return sorted(p.name for p in ProgressPolicy.__subclasses__() if p.__module__ == __name__)
