"""The kernel interface: what hosts ask of a stateful operator. Three methods, kept at three, and its progress rule.

Late policies are the treatments of an item behind its source's CTI, one object each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from streamq.choices import CountReason, Invalid
from streamq.errors import InvalidEvent, LateEvent
from streamq.plan.function import NamedObject
from streamq.runtime.arrow.values import Mask
from streamq.runtime.deltas import LE, RE
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.time.endpoints import Endpoint
from streamq.runtime.time.progress_rule import ProgressRule
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY, WindowEnds, show_ticks


class LatePolicy(NamedObject):
    """The treatment of an item that breaks its source's CTI; plans know it by its ``name``, the word that users write.

    An item that is late by the level of consistency alone has an effect from the CTI on, under any policy.
    """

    shows_items: ClassVar[bool] = False
    """True if a user sees late items as they came, so that they must be judged before steps change them."""

    adjusts: ClassVar[bool] = False
    """True if an item has an effect from the CTI on, however late it is."""

    def acts_from(self, promised: int) -> int:
        """Return the instant from which on a late item has an effect, though only from the CTI on.

        ``promised`` is the CTI that the source has sent; items before the returned instant are dropped.
        """
        return promised

    def meet(self, is_broken: Mask, error: Callable[[Mask], LateEvent]) -> None:
        """Raise if items that break a CTI fail the query; ``is_broken`` marks them, ``error`` makes the error for these."""


class _Drop(LatePolicy):
    """Drop the item, and count it."""

    name = "drop"


class _Adjust(LatePolicy):
    """Keep the part of its lifetime from the CTI on."""

    name = "adjust"
    adjusts = True

    def acts_from(self, promised: int) -> int:
        return MINUS_INFINITY


class _Fail(LatePolicy):
    """Fail with LateEvent."""

    name = "fail"
    shows_items = True

    def meet(self, is_broken: Mask, error: Callable[[Mask], LateEvent]) -> None:
        if is_broken.any():
            raise error(is_broken)


DROP, ADJUST, FAIL = _Drop(), _Adjust(), _Fail()

LATE_POLICIES = {policy.name: policy for policy in (DROP, ADJUST, FAIL)}
"""The policies that users choose from, by name."""


@dataclass(frozen=True)
class Judge:
    """A source and its policies on late and invalid items, for the first place on a path that has a CTI to judge by.

    points: the source's events are points; no part of a late point is left, even if steps have made its lifetime longer. ends:
    those of the reader's windows, to which the CTI is rounded down; None for other readers.
    """

    source: str
    late: LatePolicy = DROP
    invalid: Invalid = Invalid.DROP
    axis: str = INTEGER
    points: bool = False
    ends: WindowEnds | None = None


@dataclass(eq=False, repr=False)
class Arrival:
    """The deltas, or partial results of them, that one channel brings to a port in a micro-batch."""

    port: int
    table: pa.Table
    judge: Judge | None = None

    c: int = MINUS_INFINITY
    """The channel's own CTI before this micro-batch: if ``judge`` is set, rows before it are late."""

    promised: int = MINUS_INFINITY
    """The CTI that the source itself has sent. At a weak level ``c`` may be ahead of it; rows between the two are adjusted."""


@dataclass(eq=False, repr=False)
class Announcement:
    """The lifetime endpoints that the map side announces for one task's deltas of a channel.

    judge, c, promised: as in :class:`Arrival`; the deltas were not judged when they were announced.
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
    """The endpoints that the map side announced."""

    until: int | None = None
    """The bound on windows of endless lifetimes at the end of the stream, if the call that ended it gave one."""

    by_port_before: Sequence[int] = ()
    by_port: Sequence[int] = ()
    """Each port's CTI before and after the micro-batch; ``c`` is the least of them. (): all ports have ``c``."""

    promised: int = INFINITY
    """For a kernel that reads a source, the CTI that the source has sent; at a weak level ``c`` may be ahead of it."""

    counted_before: int = MINUS_INFINITY
    counted: int = MINUS_INFINITY
    """For a kernel that reads a source, the CTI by which items are late; ahead of ``c`` while ``c`` waits for other sources."""

    reach: int = MINUS_INFINITY
    """The greatest instant seen, whatever the level or the end of the input.

    Without ``until`` it bounds the windows of endless lifetimes.
    """

    form_changed: bool = False
    """True if an earlier run has sent the kernel's rows in another form (``identity``), until this micro-batch."""

    @property
    def has_moved(self) -> bool:
        """True if there is more progress than before."""
        before = (self.c_before, self.m_before, self.by_port_before)
        return before != (self.c, self.m, self.by_port)


@dataclass(eq=False, repr=False)
class Totals:
    """Counts of late, invalid and repeated items, by source and reason, and their rows for the late output."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: list[pa.Table] = field(default_factory=list)

    def add(self, source: str, reason: CountReason, n: int) -> None:
        """Count ``n`` items of a source, under ``source|reason``; 0 adds no count."""
        if n:
            key = f"{source}|{reason}"
            self.counts[key] = self.counts.get(key, 0) + n


@dataclass(eq=False, repr=False)
class Output:
    """The deltas, CTI and counts that a kernel sends in a micro-batch."""

    table: pa.Table | None
    """Deltas: ``__le``, ``__re``, ``__w`` and payload; None, or no rows: there are none."""

    c: int
    """The kernel's own CTI."""

    totals: Totals = field(default_factory=Totals)

    due: int | None = None
    """The least CTI, or watermark for a kernel that sends rows early, that lets the next waiting row go if no others come.

    INFINITY: only the end of the input does; None: no row waits. It is shown to users, no kernel reads it."""

    backlog: tuple[int, int] = (0, INFINITY)
    """The number of rows that the kernel itself holds back in order of time, and the least of their sync times."""

    m: int = MINUS_INFINITY
    """The least watermark of the kernels that read its rows, beside that of the starts and of its CTI."""

    evaluated: int | None = None
    """The rows that the kernel has computed with; None: those that came, and those that it has read from its state."""


class Kernel(Protocol):
    """An incremental operator over deltas. It keeps nothing on ``self`` but parameters; state lives in baskets."""

    @property
    def progress_rule(self) -> ProgressRule:
        """The CTI that the kernel sends on, and the progress that lets its rows go."""

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Return the same deltas in fewer rows, on the map side before the shuffle; columns that decide on the bucket stay."""

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """Return the endpoints of these deltas that every bucket must know, on the map side; None: there are none to know."""

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Process one micro-batch of one bucket: update ``state``, and return what the kernel sends."""


class UncombinedKernel:
    """The map side of a kernel that needs its rows as they are."""

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        return table

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        return None


def late_error(judge: Judge, n: int, c: int, row: dict[str, Any] | None = None) -> LateEvent:
    """Return the error for ``n`` late items behind the CTI ``c``, which shows ``row``, the first of them.

    ``row`` None: the items are partial results of windows, and none is shown.
    """
    return LateEvent(
        f"source {judge.source}",
        f"{n} late item(s) behind the CTI",
        f"the CTI is {show_ticks(c, judge.axis)}"
        + (", at a window's end" if row is None else f", first: {_own(row)}{_lifetime(row, judge.axis)}"),
        'Say late="drop" or "adjust" to go on. More delay in sq.generate, or later CTIs, are for what is still to come.',
    )


MEND_THE_SOURCE = 'Mend the source, or say invalid="drop".'
"""The hint in errors about rows that are no events, the same in every backend."""


def refuse_invalid(source: str, reason: str, row: dict[str, Any], axis: str = INTEGER) -> None:
    """Raise InvalidEvent for a row that is no event, showing its own columns, and its lifetime if it has one."""
    wrong = f"a row is no event: {reason}{_lifetime(row, axis)}"
    raise InvalidEvent(f"source {source}", wrong, f"first: {_own(row)}", MEND_THE_SOURCE)


def _own(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("__")}


def _lifetime(row: dict[str, Any], axis: str) -> str:
    """Return a row's start and end as text in parentheses, ``NULL`` for a NULL or INFINITY; empty if it has no such columns."""
    shown = [
        f"{name} {'NULL' if row[column] in (None, INFINITY) else show_ticks(row[column], axis)}"
        for name, column in (("start", LE), ("end", RE))
        if column in row
    ]
    return f" ({', '.join(shown)})" if shown else ""


def remembered_judge(state: KernelBaskets, arrivals: Sequence[Arrival]) -> Judge:
    """Return the source's policies, from this micro-batch or an earlier one: a bucket may run without an item of its own.

    They are kept in ``state``. Before the first item they are those by default, of a source without a name.
    """
    judge = next((a.judge for a in arrivals if a.judge is not None), None)
    if judge is not None:
        state.values["judge"] = {**vars(judge), "late": judge.late.name}
    fields = {"source": "", "late": DROP.name, **state.values.get("judge", {})}
    return Judge(**{**fields, "late": LATE_POLICIES[fields["late"]]})
