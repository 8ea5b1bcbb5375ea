"""Progress as data: the messages in which sources and stages report c and W, and the clocks that a stage keeps of them.

A summary of the starts of a source's rows tells a start far ahead of all others. Progress maps are how the steps of a path change
the CTI and the watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_expr import attempt
from streamq.runtime.time.endpoints import Endpoint
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY, saturating_add

SAMPLE = 256
"""The number of rows of a table, evenly spread, from which the middle start is taken."""


class StartSummary:
    """The number of rows, the least of their starts, and a start in the middle of them; in ticks."""

    # no dataclass, because its generated methods would be shipped with every stage
    def __init__(self, rows: int, least: int, middle: int):
        self.rows, self.least, self.middle = rows, least, middle


def summarize_starts(starts: pa.Array | pa.ChunkedArray) -> StartSummary | None:
    """Return the summary of some starts; None if there are none."""
    if not len(starts):
        return None
    values = starts.to_numpy()
    sample = values[:: max(1, len(values) // SAMPLE)]
    middle = (len(sample) - 1) // 2
    return StartSummary(len(values), int(values.min()), int(np.partition(sample, middle)[middle]))


def merge_summaries(a: StartSummary | None, b: StartSummary | None) -> StartSummary | None:
    """Return the summary of two sets of rows together; its middle start is that of the larger set."""
    if a is None or b is None:
        return a or b
    return StartSummary(a.rows + b.rows, min(a.least, b.least), a.middle if a.rows >= b.rows else b.middle)


@dataclass
class LevelProgress:
    """A relation's c and W as they count at the level of consistency, and the CTI that the source has promised."""

    c: int
    w: int
    promised: int

    @property
    def counted(self) -> int:
        """The CTI by which items are late."""
        return max(self.c, self.promised)


CLOCKS = "clocks"
"""The name under which a bucket's state has the clocks of relations."""

PACE = "pace"
"""The name under which a source's clock has what counts of it."""

NOTES_ONLY = -1
"""The sender of a message that carries only notes, and no c or W."""


@dataclass
class Message:
    """A progress report of a relation by one task (or bucket ``sender``): CTI, greatest LE, and notes for the channels that read
    it.

    invalid: counts of a source's invalid rows, by ``source|invalid``; until: the bound on windows of endless lifetimes, if the
    message gives one; starts: a summary of the starts of a source's rows; reach: the greatest instant reached, if c and W do
    not tell it; parts: what the source's policy has read from the task's rows; idle_before: parts last active before this round
    are idle.
    """

    relation: str
    c: int = MINUS_INFINITY
    w: int = MINUS_INFINITY
    sender: int | None = None
    notes: dict[int, list[list[Endpoint]]] = field(default_factory=dict)
    invalid: dict[str, int] = field(default_factory=dict)
    until: int | None = None
    starts: StartSummary | None = None
    reach: int = MINUS_INFINITY
    parts: list[Any] = field(default_factory=list)
    idle_before: int = 0

    @property
    def finite_c(self) -> int:
        """The CTI; MINUS_INFINITY if it is the end of the input."""
        return self.c if self.c != INFINITY else MINUS_INFINITY

    @property
    def furthest(self) -> int:
        """The greatest start, finite CTI or ``reach`` that the message reports."""
        return max(self.reach, self.w, self.finite_c)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Message:
        notes = {int(k): [[Endpoint(**e) for e in note] for note in v] for k, v in fields["notes"].items()}
        starts = None if fields["starts"] is None else StartSummary(**fields["starts"])
        return Message(**{**fields, "notes": notes, "starts": starts})


def merge_messages(a: Message, b: Message) -> Message:
    """Return one message for two messages about one source, from two tasks or from two parts of a task's rows.

    Its instants are the greater ones, but ``until`` is that of ``a`` if it has one, and ``reach`` the greater ``furthest``; its
    counts are the sums, its notes and parts those of both. It has no sender.
    """
    return Message(
        relation=a.relation,
        c=max(a.c, b.c),
        w=max(a.w, b.w),
        notes={k: [*a.notes.get(k, ()), *b.notes.get(k, ())] for k in {**a.notes, **b.notes}},
        invalid={k: a.invalid.get(k, 0) + b.invalid.get(k, 0) for k in {**a.invalid, **b.invalid}},
        until=b.until if a.until is None else a.until,
        starts=merge_summaries(a.starts, b.starts),
        reach=max(a.furthest, b.furthest),
        parts=[*a.parts, *b.parts],
        idle_before=max(a.idle_before, b.idle_before),
    )


def clock_messages(policies: Mapping[str, ProgressPolicy], now: int) -> list[Message]:
    """Return the CTIs that a time of day makes, for each source that follows the clock; ``policies`` by relation."""
    return [Message(relation, c=policy.clock.cti(now)) for relation, policy in policies.items() if policy.clock]


def encode_messages(messages: Iterable[Message]) -> bytes:
    """Return messages as an envelope's body."""
    return json.dumps(list(messages), default=vars, separators=(",", ":")).encode()


def decode_messages(body: bytes) -> list[Message]:
    """Return the messages in an envelope's body."""
    return [Message.from_json(m) for m in json.loads(body)]


def forget_pace(clock: dict[str, Any]) -> None:
    """Let a source's stored clock forget what counts of it."""
    clock.pop(PACE, None)


class RelationClock:
    """A relation's c and W as a bucket knows them, kept in ``values`` (JSON-like, in the state store).

    A source's c is the greatest that a task has sent, or the one its ``policy`` derives from all tasks; a stage's c (policy
    None) is the least over its buckets, ``senders`` of them. Neither decreases.
    """

    def __init__(self, values: dict[str, Any], relation: str, senders: int, policy: ProgressPolicy | None):
        """Read the clock of a relation from ``values``, or add a new one, which has heard nothing."""
        unheard = dict.fromkeys(("c", "w", "promise", "reach"), MINUS_INFINITY)
        self.held = values.setdefault(relation, {**unheard, "by": {}, "until": None})
        self.senders, self.policy = senders, policy
        self._parts: list[Any] = []
        self._idle_before = 0

    @property
    def c(self) -> int:
        return int(self.held["c"])

    @property
    def w(self) -> int:
        return int(self.held["w"])

    @property
    def promise(self) -> int:
        """The greatest finite CTI that has arrived, or that the policy would give if it waited for no part of the source."""
        return int(self.held["promise"])

    @property
    def reach(self) -> int:
        """The greatest start or finite CTI that has arrived, whatever the level of consistency."""
        return int(self.held["reach"])

    def reach_at_least(self, t: int) -> None:
        """Count an instant as reached."""
        self.held["reach"] = max(self.reach, t)

    @property
    def until(self) -> int | None:
        """The bound on windows of endless lifetimes, if the call that ended the stream gave one."""
        return None if self.held["until"] is None else int(self.held["until"])

    @property
    def pace(self) -> LevelProgress:
        """The c and W that count: a source's at the level of consistency, a stage's own."""
        return LevelProgress(**self.held[PACE]) if self.has_pace else LevelProgress(self.c, self.w, MINUS_INFINITY)

    def set_pace(self, pace: LevelProgress) -> None:
        """Set what counts of a source; none of its instants decreases."""
        before = self.pace if self.has_pace else pace
        c, w, promised = max(before.c, pace.c), max(before.w, pace.w), max(before.promised, pace.promised)
        self.held[PACE] = {"c": c, "w": w, "promised": promised}

    @property
    def has_pace(self) -> bool:
        """True if it has been set what counts of a source."""
        return PACE in self.held

    def hear(self, message: Message) -> None:
        """Update the clock by a message; one that carries only notes changes nothing.

        A source's c rises at once, a stage's c when all its buckets have sent one. W, the promise and the reach rise with the
        message's; the parts of a source wait for :meth:`take_promise`. Of several ``until`` the last one counts.
        """
        if message.sender == NOTES_ONLY:
            return
        if message.until is not None:
            self.held["until"] = message.until
        self.held["w"] = max(self.held["w"], message.w)
        self.held["promise"] = max(self.promise, message.finite_c)
        # a stage's c and W are those of the level of consistency
        self.reach_at_least(message.reach if self.policy is None else message.furthest)
        if self.policy is not None:
            self.held["c"] = max(self.held["c"], message.c)
            self._parts += message.parts
            self._idle_before = max(self._idle_before, message.idle_before)
            return
        by = self.held["by"]
        by[str(message.sender)] = max(by.get(str(message.sender), MINUS_INFINITY), message.c)
        if len(by) == self.senders:
            self.held["c"] = max(self.held["c"], min(by.values()))

    def take_promise(self) -> None:
        """Update c and the promise by the state of the source's policy, once all messages of a micro-batch have arrived.

        A policy without parts has no state, and both stay.
        """
        assert self.policy is not None
        parts = self.policy.parts
        if parts is not None:
            state = self.held.setdefault("parts", {})
            parts.keep(state, self._parts, self._idle_before)
            self.held["c"] = max(self.held["c"], parts.cti(state))
            self.held["promise"] = max(self.promise, parts.greatest_cti(state))


class ProgressMap(Protocol):
    """A step that moves lifetimes."""

    def apply(self, t: int) -> int:
        """Return the instant that the step gives for an instant between the ends of the axis."""


@dataclass(frozen=True)
class ProgressShift:
    """A shift by ``by`` ticks, kept on the axis."""

    by: int = 0

    def apply(self, t: int) -> int:
        return min(INFINITY - 1, saturating_add(t, self.by))


def map_progress(t: int, steps: Sequence[ProgressMap]) -> int:
    """Return an instant of progress after the steps of a path; both ends of the axis stay as they are."""
    for step in steps:
        if t in (INFINITY, MINUS_INFINITY):
            return t
        t = step.apply(t)
    return t


@dataclass(frozen=True)
class ExprProgressMap:
    """A map from an instant to the value of ``expr``, an expression over a start alone."""

    expr: Expr
    schema: Schema

    def apply(self, t: int) -> int:
        """Return the expression's value in ticks, kept finite; MINUS_INFINITY, no progress, if it has none or would overflow."""
        axis = pa.timestamp("us", tz="UTC") if self.schema.axis == "timestamp" else pa.int64()
        value = attempt(self.expr, self.schema, {}, lambda part: pa.array([t]).cast(axis), 1)
        at = None if value.faults else value.array.cast(pa.int64())[0].as_py()
        return MINUS_INFINITY if at is None else max(FIRST_INSTANT, min(INFINITY - 1, int(at)))
