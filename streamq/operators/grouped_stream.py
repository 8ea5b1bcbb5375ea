"""Grouped streams: windows per group, and whole sub-plans per group; and the verbs that put a stream or its groups into windows.

``group_by(...).apply(sub-plan)`` plans the sub-plan once, with the group's keys added to each of its operators.
It is StreamInsight's Group & Apply as a rewrite: windows get the keys, joins get an equality on them, projections keep them.
So a grouped query is a plan like any other, and the rewriter, the backends and the oracle know nothing of groups.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pyspark.sql import types as t

from streamq.errors import CallResult, PlanError, TimeError, TypeMismatch, kind_of
from streamq.functions.logic import COALESCE
from streamq.operators.clip import Clip
from streamq.operators.interval_join import Pairing
from streamq.operators.operator import Operator
from streamq.operators.per_window import PerWindow, warn_of_neighbours
from streamq.operators.scan import ScanVerbs
from streamq.operators.select import Select
from streamq.operators.windowed_stream import WindowedStream, missing_verb, windowed
from streamq.plan.expr import Call, Case, Cast, Col, Expr, Lit, fold
from streamq.plan.hints import for_group
from streamq.plan.node import Node, Verbs, expanded, named_after, nodes
from streamq.plan.resolve import ExprArgument
from streamq.plan.schema import POINT, Schema, check_key, check_names, group_depth, group_flag, group_value
from streamq.time import Duration, ticks
from streamq.windows import AllWindowVerbs, Snapshot, Window


class Group(Node):
    """The leaf that stands for one group's events while the user writes a sub-plan; no plan that runs contains it."""

    title = "group"

    def __init__(self, input: Node, keys: tuple[str, ...]):
        self.input, self.keys = input, keys
        self.schema, self.traits, self.children = self._schema(), input.traits, (input,)
        self.digest = f"group by {','.join(keys)}: {input.digest}"

    def _schema(self) -> Schema:
        return self.input.schema

    def with_children(self, children: Sequence[Node]) -> Group:
        """Return the group of another stream."""
        (source,) = children
        return Group(source, self.keys)


def apply_to_groups(result: Node, group: Group) -> Node:
    """Return the plan that applies ``result``, a sub-plan over one ``group``, to every group.

    Its columns are those of ``result``, after the keys that ``result`` does not have. Raises PlanError if ``result`` does not
    read the group.
    """
    source, result, group = group.input, expanded(result), expanded(group)
    parts = nodes(result)
    matched = any(isinstance(n, Clip | Pairing) for n in parts)
    # an apply within the sub-plan adds keys of its own
    used_names = {name for n in (group.input, *parts) for name in n.schema.names}
    key_columns = _key_columns(group, matched, used_names)
    hidden = tuple(name for name, _ in key_columns)
    plan, is_keyed = fold(result, lambda n, inputs: _with_keys(n, inputs, group, source, key_columns))
    if not is_keyed:
        raise PlanError(
            "apply", "the sub-plan does not use the group", f"found {result.title}", "Build it on its argument."
        )
    names = result.schema.names
    values = {k: Col(h) for k, h in zip(group.keys, hidden, strict=False)}
    flags = dict(zip(group.keys, hidden[len(group.keys) :], strict=True)) if matched else {}
    back = {k: Case((Col(flags[k]), Lit(None), v)) if matched else v for k, v in values.items()}
    return Select(plan, (*((k, e) for k, e in back.items() if k not in names), *((n, Col(n)) for n in names)))


NamedExprs = tuple[tuple[str, Expr], ...]


def _key_columns(group: Group, matched: bool, used_names: Collection[str]) -> NamedExprs:
    """Return the keys under names that ``used_names`` does not contain: their values and, if ``matched``, then their flags.

    ``matched``: operators compare keys, and there a NULL equals nothing; but NULLs form a group. So each NULL is replaced by a
    value, and a flag beside it tells the two apart.
    """
    depth = 0
    while any(n.startswith(group_depth(depth)) for n in used_names):
        depth += 1
    kinds = [group.input.schema.type_of(k) for k in group.keys]
    if not matched:
        return tuple((group_value(depth, k), Col(k)) for k in group.keys)
    values = [
        (group_value(depth, k), Call(COALESCE, (Col(k), _filler_value(kind, k))))
        for k, kind in zip(group.keys, kinds, strict=True)
    ]
    return (*values, *((group_flag(depth, k), Col(k).is_null()) for k in group.keys))


def _filler_value(kind: t.DataType, name: str) -> Expr:
    """Return some value of a key's type; raise TypeMismatch for a list or a struct, which have no literal."""
    match kind:
        case t.ArrayType() | t.StructType():
            wrong, hint = f"no joins in groups by column {name!r}", "Group by its parts, or by a text of it."
            raise TypeMismatch("apply", wrong, f"found {kind.simpleString()}", hint)
        case t.StringType():
            return Lit("")
        case t.BooleanType():
            return Lit(False)
        case t.BinaryType():
            return Lit(b"")
        case t.DateType():
            return Lit(dt.date(1970, 1, 1))
        case t.TimestampType():
            return Lit(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
        case t.TimestampNTZType():
            return Lit(dt.datetime(1970, 1, 1), kind)
        case t.DayTimeIntervalType():
            return Lit(dt.timedelta(0), kind)
    return Cast(Lit(0), kind)


def _with_keys(
    node: Node, inputs: list[tuple[Node, bool]], group: Group, source: Node, key_columns: NamedExprs
) -> tuple[Node, bool]:
    """Return the node with the keys after its columns and True, or the node itself and False if it does not read the group.

    ``inputs`` are the results for its inputs; ``source`` has the rows of all groups.
    """
    hidden = tuple(name for name, _ in key_columns)
    if node == group:
        return Select(source, (*((n, Col(n)) for n in group.schema.names), *key_columns)), True
    if not any(keyed for _, keyed in inputs):
        return node, False
    assert isinstance(node, Operator)
    plan = node.with_keys([n for n, _ in inputs], [keyed for _, keyed in inputs], hidden)
    names = (*node.schema.names, *hidden)
    return (plan if plan.schema.names == names else Select(plan, tuple((n, Col(n)) for n in names))), True


S = TypeVar("S", bound=Verbs)


class WindowVerbs(AllWindowVerbs[WindowedStream[S]], Generic[S]):
    """The window verbs; shared by streams and groups."""

    @abstractmethod
    def _groups(self) -> tuple[S, tuple[str, ...]]:
        """Return the stream and the keys of its groups; without keys the whole stream is one group."""

    @property
    def _axis(self) -> str:
        return self._groups()[0].plan.schema.axis

    def _in_windows(self, window: Window, verb: str, clip_input: str, stamp: str | None) -> WindowedStream[S]:
        stream, keys = self._groups()
        warn_of_neighbours(stream.plan, verb)
        return windowed(stream, keys, window, clip=clip_input, stamp=stamp, verb=verb)

    def per_window(self) -> WindowedStream[S]:
        """Group the rows by lifetime: each distinct lifetime is one window, and its members are the rows that have it.

        Applied to the results of windows, it treats the results of each window by themselves; any other window would mix the
        results of overlapping windows. Only equality of lifetimes counts, not their origin. A result has its rows' lifetime.

        ::

            rows     a 3 [0,4)  b 5 [0,4)   a 1 [2,6)  b 0 [2,6)
            top 1    b 5 [0,4)              a 1 [2,6)

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"k": "a"}), (3, 4, {"k": "b"}), (3, 5, {"k": "b"})])
        >>> counts = s.group_by("k").hopping_window(4, 2).select(n=sq.count())
        >>> counts.per_window().top_k(1, by="n").show()
        k  n  rank  start  end
        a  1     1     -2    2
        b  2     1      0    4
        b  2     1      2    6
        b  1     1      4    8
        """
        return PerWindow.from_stream(*self._groups())

    def sliding_window(
        self, duration: Duration, *, clip_input: str = "full", stamp: str | None = None
    ) -> WindowedStream[S]:
        """Look back over the last ``duration`` at every instant: extend each lifetime by it, then take snapshots.

        In a stream of points, declared (``sq.points``) or derived (``to_points()``, a join with points), each lifetime is set to
        ``duration`` instead. Raises TimeError for a duration that is not positive.

        ::

            events   3 at 1  5 at 4                duration 5
            windows  [1,4):3  [4,6):3 5  [6,9):5

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5})]).to_points()
        >>> s.sliding_window(5).select(total=sq.sum("v")).show()
        total  start  end
            3      1    4
            8      4    6
            5      6    9
        """
        stream, keys = self._groups()
        warn_of_neighbours(stream.plan, "sliding_window")
        return windowed(_slid(stream, duration), keys, Snapshot(), clip=clip_input, stamp=stamp, verb="sliding_window")


def _slid(stream: Any, duration: Duration) -> Any:
    """Return a stream whose lifetimes last ``duration`` longer, or of points just that long; raise TimeError unless positive."""
    if ticks(duration, stream.plan.schema.axis, "sliding_window") <= 0:
        raise TimeError("sliding_window", "the duration must be positive", f"found {duration!r}")
    return stream.set_duration(duration) if stream.plan.schema.shape == POINT else stream.extend(duration)


named_after(WindowVerbs, "Stream")


class GroupVerbs(WindowVerbs[Any], Verbs):
    """The window verbs over the whole stream, and ``group_by``, after which they apply per group."""

    def _groups(self) -> tuple[Any, tuple[str, ...]]:
        return self, ()

    def group_by(self, *keys: str, **named_keys: ExprArgument) -> GroupedStream[Self]:
        """Group the stream by keys, for windows, ``scan`` or sub-plans per group; NULLs are equal.

        Arguments are columns; a keyword argument is a computed key of that name, in which a string is a constant. Raises
        PlanError without a key, UnknownColumn, and TypeMismatch for a key that has no equality.

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.group_by("k").tumbling_window(4).select(n=sq.count()).show()
        k  n  start  end
        a  1      0    4
        b  1      0    4
        b  1      4    8
        """
        if not keys and not named_keys:
            raise PlanError("group_by", "no key", "", "Name at least one column, or leave group_by out.")
        stream: Any = self
        if named_keys:
            stream = stream.with_columns(**named_keys)
        names: tuple[Any, ...] = (*keys, *named_keys)
        for name in names:
            if not isinstance(name, str):
                cure = "Name a computed key: group_by(k=expression)."
                cure = 'Give them one by one: group_by("a", "b").' if isinstance(name, list | tuple) else cure
                raise PlanError("group_by", "a key is a column name", f"found {name!r}", cure)
            check_key(stream.plan.schema.require(name, "group_by"), name)
        check_names(names, "group_by")
        return GroupedStream(stream, names)


class GroupedStream(CallResult, ScanVerbs[S], WindowVerbs[S]):
    """A stream divided into groups, the result of ``group_by``."""

    called = "a group without a window"
    not_yet = "Add a window first, as .tumbling_window(size).select(...), for results of windows .per_window(), or .apply(...)."

    def __init__(self, stream: S, keys: tuple[str, ...]):
        self.stream, self.keys = stream, keys

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_verb(name, self)

    def __repr__(self) -> str:
        return f"{self.stream!r} by {', '.join(self.keys)}"

    def select(self, *columns: ExprArgument, **named_columns: ExprArgument) -> S:
        """Compute one row for each window and group of the pairs of a :meth:`windowed_join`, as :meth:`per_window` does.

        Over :meth:`last_rows`, and pairs of them, the windows are snapshots, as of :meth:`snapshot_window`. Raises PlanError for
        groups of another stream, which need a window before; the message suggests one.
        """
        if (implied := self.stream.plan.traits.implied_windows) is not None:
            windows: WindowedStream[S] = getattr(self, implied)()
            return windows.select(*columns, **named_columns)
        hint = for_group(self.keys, self.stream.plan.schema.axis)
        raise PlanError("select", "a group without a window", f"found {self!r}", hint)

    agg = select

    def apply(self, sub_plan: Callable[[S], S]) -> S:
        """Apply a sub-plan to each group: ``sub_plan`` is a function from the stream of one group's events to its result.

        The result has the keys, unless ``sub_plan`` returns them itself, and then its columns. ``sub_plan`` may use any verb,
        ``group_by`` too, and join other streams to the group, which are the same for every group. Raises PlanError if the
        function does not return a stream of the group. (StreamInsight's Group & Apply.)

        ::

            events  a [1,5)  a [3,8)   b [4,6)
            counts  a 1 [1,3)  a 2 [3,5)  a 1 [5,8)   b 1 [4,6)

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"k": "a"}), (3, 8, {"k": "a"}), (4, 6, {"k": "b"})])
        >>> s.group_by("k").apply(lambda g: g.snapshot_window().select(n=sq.count()).where(sq.col("n") > 1)).show()
        k  n  start  end
        a  2      3    5
        """
        if not callable(sub_plan):
            raise PlanError("apply", "not a function", f"found {sub_plan!r}", "Write apply(lambda g: g.where(...)).")
        group = Group(self.stream.plan, self.keys)
        result = sub_plan(self.stream._derive(group))
        _check_is_stream(result)
        return result._derive(apply_to_groups(result.plan, group))

    def _groups(self) -> tuple[S, tuple[str, ...]]:
        return self.stream, self.keys


def _check_is_stream(result: object) -> None:
    """Raise PlanError if the sub-plan of ``apply`` returned anything but a stream."""
    if not isinstance(result, Verbs):
        cure = "End it with .select(...)." if isinstance(result, WindowedStream | GroupedStream) else ""
        raise PlanError("apply", "the sub-plan gave no stream", f"found {kind_of(result)}", cure)


named_after(GroupedStream, "group_by(...)")
