"""The kernel interface: what a stateful operator is to the hosts. Three methods, kept at three, and the rule of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from streamq.choices import CountReason, Invalid
from streamq.errors import InvalidEvent, LateEvent, sentence
from streamq.runtime.basket import KernelBaskets
from streamq.runtime.endpoints import Endpoint
from streamq.runtime.event import LE, RE
from streamq.runtime.late_policies import DROP, LATE_POLICIES, LatePolicy
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY, show_ticks

if TYPE_CHECKING:
    from streamq.runtime.progress_rule import ProgressRule


@dataclass(frozen=True)
class Judge:
    """Who decides on lateness: a source's name and policy, where its items are seen first by something with a c.

    points: whether its events are points, of which nothing is left once they are late, however long steps have made them.
    """

    source: str
    late: LatePolicy = DROP
    invalid: Invalid = Invalid.DROP
    axis: str = INTEGER
    points: bool = False


@dataclass(eq=False, repr=False)
class Arrival:
    """What one channel brought in a micro-batch: deltas (or partial results of them) for a port."""

    port: int
    table: pa.Table
    judge: Judge | None = None

    c: int = MINUS_INFINITY
    """The channel's own CTI before this micro-batch: if ``judge`` is set, rows before it are late."""

    promised: int = MINUS_INFINITY
    """The CTI that the source itself has sent. At a weak level ``c`` may be ahead of it; rows between the two are adjusted."""


@dataclass(eq=False, repr=False)
class Announcement:
    """What the map side announced of one task's deltas of a channel: the endpoints of their lifetimes.

    judge, c, promised: of the channel, as in :class:`Arrival`; the deltas were not judged when they were announced.
    """

    judge: Judge | None
    c: int
    promised: int
    endpoints: list[Endpoint]


@dataclass(eq=False, repr=False)
class Clock:
    """The progress of a kernel's input before and after a micro-batch."""

    c_before: int

    c: int
    """The CTI."""

    m_before: int

    m: int
    """The watermark, or the CTI where that is greater."""

    notes: tuple[Announcement, ...] = ()
    """What the map side announced."""

    until: int | None = None
    """At the end of the stream, the bound on windows of lifetimes without an end, if whoever ended it gave one."""

    by_port_before: Sequence[int] = ()
    by_port: Sequence[int] = ()
    """The CTI of each port before and after it; ``c`` is the least of them. (): none is ahead of it."""

    promised: int = INFINITY
    """Behind a source, the CTI that the source itself has sent, which ``c`` may be ahead of."""

    counted_before: int = MINUS_INFINITY
    counted: int = MINUS_INFINITY
    """Behind a source, the CTI by which its items are late, where that is ahead of ``c``: it waits for other sources."""

    reach: int = MINUS_INFINITY
    """The watermark as it would be if no input were blocked and none had ended. It bounds those windows without ``until``."""

    @property
    def has_moved(self) -> bool:
        """Whether there is more progress than before."""
        before = (self.c_before, self.m_before, self.by_port_before)
        return before != (self.c, self.m, self.by_port)


@dataclass(eq=False, repr=False)
class Totals:
    """What became of items that were not taken as they came; counted by (source, reason), rows for the late output."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: list[pa.Table] = field(default_factory=list)

    def add(self, source: str, reason: CountReason, n: int) -> None:
        """Count ``n`` items of a source."""
        if n:
            key = f"{source}|{reason}"
            self.counts[key] = self.counts.get(key, 0) + n


@dataclass(eq=False, repr=False)
class Output:
    """What a kernel sends in a micro-batch."""

    table: pa.Table | None
    """Deltas: ``__le``, ``__re``, ``__w`` and payload."""

    c: int
    """The kernel's own CTI."""

    totals: Totals = field(default_factory=Totals)

    due: int | None = None
    """The least CTI that lets the next of its rows go if no others come; the least watermark, for a kernel that does not wait
    for final rows. INFINITY: only the end of the input does; None: no row waits. For those who watch the query."""


class Kernel(Protocol):
    """An incremental operator over deltas. It keeps nothing on ``self`` but parameters; state lives in baskets."""

    @property
    def progress_rule(self) -> ProgressRule:
        """The CTI that it sends on, and the progress that lets its rows go."""

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Map side, before the shuffle: the same deltas in fewer rows; the columns that decide on the bucket stay."""

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """Map side: the endpoints of these deltas, which every bucket must know; None: it need not know any."""

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """One micro-batch of one bucket."""


class UncombinedKernel:
    """The map side of a kernel that needs its rows as they are."""

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """The rows."""
        return table

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """No endpoint."""
        return None


def late_error(judge: Judge, n: int, c: int, row: dict[str, Any] | None = None) -> LateEvent:
    """Return the error for late items, with the columns of the first and its lifetime; None: c is that of windows."""
    return LateEvent(
        sentence(
            f"source {judge.source}",
            f"{n} late item(s) behind the CTI",
            f"the CTI is {show_ticks(c, judge.axis)}"
            + (", at a window's end" if row is None else f", first: {_own(row)}{_lifetime(row, judge.axis)}"),
            'Say late="drop" or "adjust" to go on. More delay in sq.generate, or later CTIs, are for what is still to come.',
        )
    )


MEND_THE_SOURCE = 'Mend the source, or say invalid="drop".'
"""The hint of an error about a row that is no event, in whatever backend it is raised."""


def refuse_invalid(source: str, reason: str, row: dict[str, Any], axis: str = INTEGER) -> None:
    """Raise for a row that is no event, showing its own columns; its lifetime, unless the reason says it."""
    wrong = f"a row is no event: {reason}{_lifetime(row, axis)}"
    raise InvalidEvent(sentence(f"source {source}", wrong, f"first: {_own(row)}", MEND_THE_SOURCE))


def _own(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("__")}


def _lifetime(row: dict[str, Any], axis: str) -> str:
    shown = [
        f"{name} {'NULL' if row[column] in (None, INFINITY) else show_ticks(row[column], axis)}"
        for name, column in (("start", LE), ("end", RE))
        if column in row
    ]
    return f" ({', '.join(shown)})" if shown else ""


def remembered_judge(state: KernelBaskets, arrivals: Sequence[Arrival]) -> Judge:
    """The source's policy, from this batch or an earlier one: a bucket may be called without an item of its own."""
    judge = next((a.judge for a in arrivals if a.judge is not None), None)
    if judge is not None:
        state.values["judge"] = {**vars(judge), "late": judge.late.name}
    fields = {"source": "", "late": DROP.name, **state.values.get("judge", {})}
    return Judge(**{**fields, "late": LATE_POLICIES[fields["late"]]})
