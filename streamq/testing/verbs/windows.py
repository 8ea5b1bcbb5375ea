"""Read the verbs that put a stream, or its groups, in windows, and those that compute results over windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamq.aggregates.window_bounds import WINDOW_END, WINDOW_START
from streamq.choices import ClipInput, Stamp
from streamq.operators import (
    Explode,
    Join,
    JoinTable,
    LastRows,
    Scan,
    Select,
    TopK,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.windowed_stream import rows_of
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr, Lifetime
from streamq.plan.node import Node
from streamq.testing.verbs.expressions import column, outputs, over, replace_parts
from streamq.testing.windows.room import room_of, rooms
from streamq.time import ticks
from streamq.user_code.udo import UserOperator
from streamq.windows import Snapshot, Window

if TYPE_CHECKING:
    from streamq.testing.verbs.streams import Events


class Windowable(ABC):
    """The receiver of window verbs: a stream, or its groups by ``keys``."""

    plan: Node
    keys: tuple[str, ...]

    @abstractmethod
    def _events(self, plan: Node) -> Events:
        """Return the stream of a plan."""

    def ticks(self, duration: Any) -> int:
        return ticks(duration, self.plan.schema.axis)

    def in_windows(self, window: Window, clip: str, stamp: str | None, plan: Node | None = None) -> Windows:
        stamped = None if stamp is None else Stamp(stamp)
        return Windows(self._events(plan or self.plan), self.keys, window, ClipInput(clip), stamped)

    def per_window(self) -> Windows:
        """Group by lifetime, so that each group's only snapshot is that lifetime; the result drops the columns of lifetimes."""
        names = self.plan.schema.names
        bounds = {f"__lifetime_{part}": Lifetime(part) for part in ("start", "end")}
        timed = Select(self.plan, (*((name, Col(name)) for name in names), *bounds.items()))
        return Windows(self._events(timed), (*self.keys, *bounds), Snapshot(), ClipInput.FULL, None, tuple(bounds))

    def implied_windows(self) -> Windows | None:
        """Return the windows of aggregates without a window verb; None if there must be one.

        Of pairs of windows each is one; of last rows, what lives at each instant.
        """
        if _is_of_last_rows(self.plan):
            return self.in_windows(Snapshot(), ClipInput.FULL, None)
        return self.per_window() if isinstance(_below_steps(self.plan), WindowedJoin) else None

    def scan(self, operator: Any) -> Events:
        """Step over the events of each group, or of the stream, in order; skip those that do not pass the call's filter."""
        schema = self.plan.schema
        where = None if operator.where is None else over(operator.where, schema)
        args = tuple(over(arg, schema) for arg in operator.args)
        return self._events(Scan(self.plan, self.keys, operator.operator, args, where))


def _is_of_last_rows(plan: Node) -> bool:
    """True if a plan has the last rows of a stream, or pairs of them, with steps between that leave lifetimes as they are."""
    match _below_steps(plan):
        case LastRows():
            return True
        case Join(left=left, right=right):
            return _is_of_last_rows(left) and _is_of_last_rows(right)
    return False


def _below_steps(plan: Node) -> Node:
    """Return the plan below the steps over it that leave lifetimes as they are."""
    while isinstance(plan, Explode | JoinTable | Select | Where):
        plan = plan.input
    return plan


for _room in rooms().values():
    for _name, _verb in _room.verbs.items():
        setattr(Windowable, _name, _verb)


@dataclass(frozen=True)
class Groups(Windowable):
    """A stream by groups."""

    events: Events
    keys: tuple[str, ...]

    # Events has a field of this name
    @property
    def plan(self) -> Node:  # type: ignore[override]
        """The stream's plan."""
        return self.events.plan

    def _events(self, plan: Node) -> Events:
        return self.events.of(plan)

    def select(self, *columns: Any, **named_columns: Any) -> Events:
        """Compute a row for each window and group of the pairs of a windowed join, or of last rows at each instant."""
        windows = self.implied_windows()
        assert windows is not None
        return windows.select(*columns, **named_columns)

    agg = select


@dataclass(frozen=True)
class Windows:
    """A stream in windows; ``hidden`` are keys that results lack, ``asked`` is the stamp that the user chose, if any."""

    events: Events
    keys: tuple[str, ...]
    window: Window
    clip: ClipInput
    asked: Stamp | None
    hidden: tuple[str, ...] = ()

    @property
    def stamp(self) -> Stamp:
        """The stamp of results: the user's, else the default in the kind's room, which follows the language's pages."""
        return self.asked or room_of(self.window).usual_stamp

    def _result(self, plan: Node) -> Events:
        """Return the stream of a result's plan, without the hidden keys."""
        if self.hidden:
            shown = [name for name in plan.schema.names if name not in self.hidden]
            plan = Select(plan, tuple((name, Col(name)) for name in shown))
        return self.events.of(plan)

    def select(self, *columns: Any, **named_columns: Any) -> Events:
        """Compute a row for each window: the keys, then aggregates, or expressions over aggregates, keys and window bounds.

        A user's operator, which must be the only column, gives rows of its own instead.
        """
        source = self.events.plan
        if len(columns) == 1 and isinstance(columns[0], Aggregate) and isinstance(columns[0].function, UserOperator):
            return self._result(rows_of(columns[0], source, self.keys, self.window, self.clip, self.asked))
        reading = _SelectedAggregates(self.stamp == Stamp.ALIGN)
        wanted = {}
        for name, value in outputs(columns, named_columns):
            if not (name in self.keys and isinstance(value, Col) and value.name == name):
                wanted[name] = reading.output(name, over(value, source.schema))
        aggregates = tuple(reading.aggregates.values())
        plan: Node = WindowAggregate(source, self.keys, self.window, aggregates, self.clip, self.stamp)
        every = {**{key: Col(key) for key in self.keys}, **wanted}
        if [(n, Col(n).digest) for n in plan.schema.names] != [(n, e.digest) for n, e in every.items()]:
            plan = Select(plan, tuple(every.items()))
        return self._result(plan)

    agg = select

    def top_k(self, k: int, by: Any, *, desc: bool = True, ties: str = "keep", row_number: bool = False) -> Events:
        """Return the ``k`` members with the greatest values of ``by`` (least unless ``desc``), and their rank.

        There are more than ``k`` if ``ties`` is "keep" and the last one's value is shared. A string ``by`` names a column.
        """
        source = self.events.plan
        order = over(column(by), source.schema)
        return self._result(
            TopK(
                source,
                self.keys,
                self.window,
                k=k,
                by=order,
                desc=desc,
                ties=ties,
                clip=self.clip,
                stamp=self.stamp,
                row_number=row_number,
            )
        )


class _SelectedAggregates:
    """Collects the aggregates of a window's select, each once.

    An aggregate that is a whole column has the column's name, one within an expression a generated name.
    """

    def __init__(self, is_aligned: bool):
        self.is_aligned = is_aligned
        self.aggregates: dict[str, tuple[str, Aggregate]] = {}

    def output(self, name: str, expression: Expr) -> Expr:
        """Return a column as an expression over aggregates; lifetimes outside of aggregates are the window's."""
        if isinstance(expression, Aggregate):
            return self._column(expression, name)
        reduced = replace_parts(expression, lambda part: self._column(part) if isinstance(part, Aggregate) else None)
        return reduced if self.is_aligned else replace_parts(reduced, self._bound)

    def _column(self, aggregate: Aggregate, name: str = "") -> Expr:
        """Return the column of an aggregate; it is collected, under ``name`` or a generated name, unless it has been before.

        Then the column has its first name, and ``name`` has no effect.
        """
        name = name or f"__{aggregate.name}{len(self.aggregates)}"
        return Col(self.aggregates.setdefault(aggregate.digest, (name, aggregate))[0])

    def _bound(self, part: Expr) -> Expr | None:
        """Return a part of the window's interval as an aggregate, for rows whose lifetime is not the window; else None."""
        match part:
            case Lifetime(part="start"):
                return self._column(Aggregate(WINDOW_START, ()))
            case Lifetime(part="end"):
                return self._column(Aggregate(WINDOW_END, ()))
            case Lifetime(part="duration"):
                end, start = (self._column(Aggregate(edge, ())) for edge in (WINDOW_END, WINDOW_START))
                return end - start
        return None


__all__ = ["Groups", "Windowable", "Windows"]
