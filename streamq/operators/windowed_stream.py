"""A stream in windows: ``select`` and ``top_k`` compute rows from each window's members.

With a user's operator, an aggregate computes a list of rows a window, and explode unpacks it:
``select(operator) => explode(window(operator))``; if the operator sets lifetimes itself, ``alter_lifetime`` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from pyspark.sql.types import BooleanType, NullType

from streamq.aggregates.holistic import WINDOW_EDGES
from streamq.choices import Anchor, ClipInput, LengthKind, Stamp, check_word, choose_word
from streamq.errors import CallResult, PlanError, StreamqError, UnknownColumn, UnknownVerb, check_whole_number
from streamq.operators.alter_lifetime import AlterLifetime, Length, Start
from streamq.operators.expansion import Explode
from streamq.operators.select import Select
from streamq.operators.top_k import TopK
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Cast, Col, Expr, ExpressionText, Lifetime, show
from streamq.plan.function import CallableModule
from streamq.plan.hints import for_aggregate_of, for_window
from streamq.plan.node import Node, Verbs, named_after
from streamq.plan.passes import aggregates as aggregates_in
from streamq.plan.passes import check_boolean, columns, expression_nodes, infer, rewrite_expression
from streamq.plan.resolve import ExprArgument, column_or_expr, name_columns, resolve
from streamq.plan.schema import check_names, show_keys
from streamq.runtime.user_code.code_values import LASTS, START
from streamq.user_code.module import time_bound
from streamq.user_code.udo import OWN_LIFETIMES, UserOperator
from streamq.windows import Rows, Window
from streamq.windows.window import check_order, default_stamp

ROWS = "__rows"
"""The name of the column that holds the lists."""

IS_MEMBER = "__is_member"
"""The column that is true of the events that satisfy the condition on members."""


def rows_of(
    applied: Aggregate, source: Node, keys: tuple[str, ...], window: Window, clip: ClipInput, asked_stamp: Stamp | None
) -> Node:
    """Return the plan of an operator's rows over windows.

    ``applied``: the call of the operator. ``asked_stamp``: the user's; None: the operator's default, or else the window's. Raises
    PlanError for a stamp that it cannot have, for an aggregate among its arguments, and for illegal names of its columns.
    """
    operator = applied.function
    assert isinstance(operator, UserOperator)
    stamp = asked_stamp or operator.default_stamp or default_stamp(window)
    if stamp in OWN_LIFETIMES and not operator.time_sensitive:
        wrong, hint = (
            f"stamp {stamp!r} is for operators that give their own lifetimes",
            "Declare it time_sensitive=True.",
        )
        raise PlanError(operator.name, wrong, "it is not time-sensitive", hint)
    if stamp is Stamp.TIME_BOUND and time_bound not in operator.properties:
        hint = "Declare it: properties=[sq.time_bound]."
        raise PlanError(operator.name, "stamp 'time_bound' is a promise of the operator", "it makes none", hint)
    check_names([*(k for k in keys if not k.startswith("__")), *(f.name for f in operator.fields)], operator.name)
    bare = resolve(replace(applied, options=(str(stamp), *applied.options[1:])), source, operator.name)
    assert isinstance(bare, Aggregate)
    if any(aggregates_in(part) for part in bare.children):
        raise PlanError(operator.name, "an aggregate of an aggregate", "", "Put a window over the window.")
    on_window = Stamp.ALIGN if stamp in (Stamp.UNCHANGED, Stamp.CLIP) else stamp
    lists = WindowAggregate(source, keys, window, ((ROWS, bare),), clip, on_window)
    rows: Node = Explode(lists, ROWS, flatten=True)
    if stamp not in OWN_LIFETIMES:
        return rows
    with_lifetimes = AlterLifetime(
        rows, Start(Anchor.GIVEN, expr=Col(START), within=0), Length(LengthKind.GIVEN, expr=Col(LASTS))
    )
    names = [*keys, *(f.name for f in operator.fields)]
    return Select(with_lifetimes, tuple((name, Col(name)) for name in names))


S = TypeVar("S", bound=Verbs)


class IncompleteVerb(Protocol):
    """An object on which verbs of streams are not available yet; ``called`` describes it, ``not_yet`` is the hint to the user."""

    called: ClassVar[str]
    not_yet: ClassVar[str]

    @property
    def stream(self) -> Verbs: ...


@dataclass(frozen=True)
class WindowedStream(CallResult, Generic[S]):
    """A stream in windows; ``select`` or ``top_k`` turns it into a stream again."""

    called: ClassVar[str] = "a window without a select"
    not_yet: ClassVar[str] = "Call select(...) first, as .select(n=sq.count())."

    stream: S
    keys: tuple[str, ...]
    window: Window
    clip: ClipInput
    asked_stamp: Stamp | None
    """The stamp that the user chose; None for the default."""

    condition: Expr | None = None
    """The condition that members satisfy, among the events that the windows are made of; None: all are members."""

    @property
    def stamp(self) -> Stamp:
        """The stamp of aggregates' results: the user's, else the window's default."""
        return default_stamp(self.window) if self.asked_stamp is None else self.asked_stamp

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_verb(name, self)

    def __repr__(self) -> str:
        shown = self.window.shown(self.stream.plan.schema.axis)
        where = "" if self.condition is None else f" where {show(self.condition)}"
        members = where + show_keys(self._inner_keys)
        groups = show_keys(self.window.traits.outer_keys(self.keys)) + (f", its members{members}" if members else "")
        return f"{self.stream!r} in {self.window.name} windows ({shown}){groups}"

    @property
    def _inner_keys(self) -> tuple[str, ...]:
        """The keys by which the members of one window are grouped."""
        return self.window.traits.counting.inner_keys

    def where(self, predicate: ExprArgument) -> Self:
        """Keep, of each window of rows, the members for which ``predicate`` is true; the others have been counted.

        So ``rows_window(n, step).where(p)`` has those of every n rows for which p is true, and ``where(p).rows_window(n, step)``
        n rows for which it is. A window without such members has no row. Windows of other kinds do not depend on the number of
        their members: filter the stream before them. Raises PlanError for these, UnknownColumn, TypeMismatch or MixedStreams.

        ::

            events   3 at 1  5 at 4  1 at 9  4 at 12           n = 2, step = 2
            windows  [1,5):3 5  [9,13):1 4     where v > 3     [1,5):5  [9,13):4

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1}), (12, 13, {"v": 4})])
        >>> s.rows_window(2, 2).where(sq.col("v") > 3).select(total=sq.sum("v")).show()
        total  start  end
            5      5    6
            4     13   14
        """
        self._with_members("where", "filters", self._inner_keys)
        condition = resolve(predicate, self.stream.plan, "where", of_events=True)
        check_boolean(condition, self.stream.plan.schema, "where", "the predicate")
        if isinstance(infer(condition, self.stream.plan.schema, "where"), NullType):
            condition = Cast(condition, BooleanType())
        return replace(self, condition=condition if self.condition is None else self.condition & condition)

    def group_by(self, *keys: str, **named_keys: ExprArgument) -> Self:
        """Group the members of each window of rows by keys; the rows of all groups have been counted together.

        So ``rows_window(n, step).group_by(k)`` has a row for each k among every n rows, and ``group_by(k).rows_window(n, step)``
        windows of n rows of each k. Arguments are those of ``group_by`` of a stream. Windows of other kinds are those of each
        group: group the stream before them. Raises PlanError for these, for a second call, and for a computed key with the name
        of a column; UnknownColumn, TypeMismatch.

        ::

            events   a at 1  b at 4  a at 9  a at 12           n = 2, step = 2
            windows  [1,5):a b  [9,13):a a

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"k": "a"}), (4, 5, {"k": "b"}), (9, 10, {"k": "a"}), (12, 13, {"k": "a"})])
        >>> s.rows_window(2, 2).group_by("k").select(n=sq.count()).show()
        k  n  start  end
        a  1      5    6
        b  1      5    6
        a  2     13   14
        """
        if self._inner_keys:
            raise PlanError("group_by", "the members are grouped already", f"by {', '.join(self._inner_keys)}")
        self._with_members("group_by", "groups", ())
        for name in named_keys:
            if name in self.stream.plan.schema.names:
                hint = "Give the key another name: events are counted in the order of their own columns."
                raise PlanError("group_by", f"a column called {name!r}", "the stream has one", hint)
        grouped: Any = self.stream.group_by(*keys, **named_keys)  # type: ignore[attr-defined]
        inner = tuple(key for key in grouped.keys if key not in self.keys)
        window = self._with_members("group_by", "groups", inner)
        return replace(self, stream=grouped.stream, keys=(*self.keys, *inner), window=window)

    def _with_members(self, verb: str, does: str, inner_keys: tuple[str, ...], where: str = "") -> Window:
        """Return the windows with such members; raise PlanError for a kind of windows that depends on its members."""
        if not isinstance(self.window, Rows):
            hint = f"Write it before the window: s.{verb}(...) and then the window."
            raise PlanError(verb, f"only a rows window {does} its members", f"found {self.window.name} windows", hint)
        return replace(self.window, inner_keys=inner_keys, where=where)

    def _with_condition(self) -> tuple[Node, Window]:
        """Return the events, with a column for the condition that members satisfy, if there is one, and their windows."""
        source = self.stream.plan
        if self.condition is None:
            return source, self.window
        columns = (*((name, Col(name)) for name in source.schema.names), (IS_MEMBER, self.condition))
        return Select(source, columns), self._with_members("where", "filters", self._inner_keys, IS_MEMBER)

    def select(self, *given_columns: ExprArgument, **named_columns: ExprArgument) -> S:
        """Compute one row for each window with members: the group's keys, then a column for each keyword.

        A single ``udo`` instead computes any number of rows for each window.

        A column is an aggregate (``sq.count()``, ``sq.avg("fare")``, ...) or an expression over aggregates, keys,
        ``sq.window_start()`` and ``sq.window_end()``; a number, a truth value or an instant is a constant, and so is
        ``sq.lit("text")``. Raises PlanError for a column that is neither aggregate nor key, and for a plain string, which
        could mean an aggregate, a column or a constant.

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"v": 2}), (3, 8, {"v": 6})])
        >>> s.tumbling_window(4).select(total=sq.sum("v"), mean=sq.sum("v") / sq.count()).show()
        total  mean  start  end
            8   4.0      0    4
            6   6.0      4    8
        """
        source = self.stream.plan
        members, window = self._with_condition()
        operator = self._operator(given_columns, named_columns)
        if operator is not None:
            return self.stream._derive(rows_of(operator, members, self.keys, window, self.clip, self.asked_stamp))
        check_aggregates(given_columns, named_columns, source.schema.names)
        self._check_aligned()
        wanted = list(name_columns(given_columns, named_columns, source.schema, "select"))
        wanted = [(name, e) for name, e in wanted if not (name in self.keys and isinstance(e, Col) and e.name == name)]
        check_names([*(k for k in self.keys if not k.startswith("__")), *(name for name, _ in wanted)], "select")
        aggregates: dict[str, tuple[str, Aggregate]] = {}
        outputs: list[tuple[str, Expr]] = []

        def stands_for(aggregate: Aggregate, own: str = "") -> Expr:
            """Return the column of an aggregate's result; equal aggregates share one. ``own``: its name, if it is new."""
            return Col(
                aggregates.setdefault(aggregate.digest, (own or f"__{aggregate.name}{len(aggregates)}", aggregate))[0]
            )

        def reduced(part: Expr) -> Expr | None:
            return stands_for(part) if isinstance(part, Aggregate) else None

        def bounded(part: Expr) -> Expr | None:
            """Return an aggregate for a bound of the window, if the row's lifetime is not its window; else None."""
            if not isinstance(part, Lifetime) or self.stamp == Stamp.ALIGN:
                return None
            if part.part == "duration":
                return rewrite_expression(Lifetime("end") - Lifetime("start"), bounded)
            return stands_for(Aggregate(WINDOW_EDGES[part.part], ()))

        for name, value in wanted:
            expr = _resolved(value, source)
            check_not_nested(expr)
            _check_makes_values(name, expr)
            # aggregates are replaced first: a lifetime inside of one is its members', not the window's
            if isinstance(expr, Aggregate):
                output = stands_for(expr, name)
            else:
                output = rewrite_expression(rewrite_expression(expr, reduced), bounded)
            aggregated = {n for n, _ in aggregates.values()}
            for column in sorted(set(columns(output)) - aggregated - set(self.keys)):
                observed, hint = f"found {show(expr)}", f"Aggregate it, as sq.max({column!r}), or group by it."
                raise PlanError("select", f"column {column!r} is neither aggregated nor a key", observed, hint)
            outputs.append((name, output))
        node = WindowAggregate(members, self.keys, window, tuple(aggregates.values()), self.clip, self.stamp)
        plain_columns = [*self.keys, *(name for name, _ in aggregates.values())]
        final = [*((k, Col(k)) for k in self.keys), *outputs]
        if [name for name, _ in final] == plain_columns and all(
            isinstance(e, Col) and e.name == name for name, e in final
        ):
            return self.stream._derive(node)
        return self.stream._derive(Select(node, tuple(final)))

    agg = select

    def _operator(self, columns: Sequence[Any], named_columns: Mapping[str, Any]) -> Aggregate | None:
        """Return the user's operator in a select's arguments, None without one.

        Raises PlanError if it is not the only argument, or is passed by keyword.
        """
        for value in (*columns, *named_columns.values()):
            if not (isinstance(value, Aggregate) and isinstance(value.function, UserOperator)):
                continue
            if len(columns) + len(named_columns) == 1 and columns:
                return value
            wrong = f"{value.name} makes rows of its own"
            for name, one in named_columns.items():
                if one is value:
                    own = ", ".join(f.name for f in value.function.fields)
                    hint = f"Its rows have the columns {own}: write .select({show(value)})."
                    raise PlanError("select", wrong, f"found {name}={show(value)}", hint)
            others = [*(show(one) for one in columns if one is not value and isinstance(one, Expr)), *named_columns]
            hint = f"Write .select({show(value)}), and other aggregates or operators in a select of their own."
            raise PlanError("select", wrong, f"found {', '.join(others) or 'others'} beside it", hint)
        return None

    def _check_aligned(self) -> None:
        """Raise PlanError if the stamp is meant for operators that set lifetimes themselves."""
        if self.asked_stamp in OWN_LIFETIMES:
            raise PlanError(
                "select",
                f"stamp {self.asked_stamp!r} is for operations that give their own lifetimes",
                "aggregates and top_k have none",
                f"Say {Stamp.ALIGN!r} or {Stamp.POINT_AT_END!r}.",
            )

    def top_k(self, k: int, by: ExprArgument, *, desc: bool = True, ties: str = "keep", row_number: bool = False) -> S:
        """Keep the ``k`` members of each window with the greatest (``desc=False``: least) ``by``, and add their ``rank``.

        ``rank`` is SQL's RANK: equal values share one. With ``ties="keep"`` all members that share the last rank stay;
        ``"break"`` orders them by payload and keeps ``k``, and ``row_number=True`` then adds a column ``row_number`` with
        each member's place: 1, 2, ... A NULL is less than any value. Rows carry the member's payload.
        Raises PlanError for a ``k`` below 1, a ``by`` without an order, and ``row_number`` with ties kept; UnknownColumn.

        ::

            events   3 at 1  5 at 2  1 at 3   k = 2
            window   [0,5): 5 with rank 1, 3 with rank 2

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (2, 3, {"v": 5}), (3, 4, {"v": 1})])
        >>> s.tumbling_window(5).top_k(2, by="v").show()
        v  rank  start  end
        3     2      0    5
        5     1      0    5
        """
        check_whole_number("top_k", "k", k)
        self._check_aligned()
        check_word(ties, ("keep", "break"), "ties", "top_k")
        if row_number and ties == "keep":
            hint = 'Say ties="break".'
            raise PlanError("top_k", "rows that share a rank have no number of their own", "ties='keep'", hint)
        if isinstance(by, list | tuple):
            hint = 'Of rows equal in the first, ties="break" takes those that come first by the payload.'
            raise PlanError("top_k", "rows go by one column or expression", f"found by={by!r}", hint)
        members, window = self._with_condition()
        order = resolve(column_or_expr(by), self.stream.plan, "top_k")
        best = TopK(
            members,
            self.keys,
            window,
            k=k,
            by=order,
            desc=desc,
            ties=ties,
            clip=self.clip,
            stamp=self.stamp,
            row_number=row_number,
        )
        where = window.traits.counting.where
        shown = tuple((name, Col(name)) for name in best.schema.names if name != where)
        return self.stream._derive(Select(best, shown) if where else best)


def check_aggregates(positional: Sequence[Any], keywords: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Raise PlanError for arguments that are no aggregates and look as if they were meant as one.

    Those are strings, functions that are not called (``len``, ``sq.count``), and the tuples and dictionaries of pandas. A
    positional string raises UnknownColumn if it is like an aggregate and names no column.
    """
    for value in positional:
        if isinstance(value, dict):
            named_so = {str(of) if str(of).isidentifier() else "n": (str(of), str(f)) for of, f in value.items()}
            hints = [for_aggregate_of(name, pair, columns) for name, pair in named_so.items()]
            raise PlanError("select", "a dictionary instead of aggregates", f"found {value!r}", " ".join(hints))
        if isinstance(value, FunctionType):
            raise PlanError("select", "a function instead of an aggregate", f"found {value.__name__}", OF_ALL_VALUES)
        if isinstance(value, str) and value not in columns and (hint := for_aggregate_of("n", value)):
            raise UnknownColumn("select", f"no column {value!r}", f"there are: {', '.join(columns)}", hint)
    for name, value in keywords.items():
        kind = _instead_of_aggregate(value)
        if kind:
            shown = value.__name__ if kind == "function" else repr(value)
            hint = for_aggregate_of(name, value, columns)
            raise PlanError("select", f"a {kind} instead of an aggregate", f"found {name}={shown}", hint)


OF_ALL_VALUES = (
    'A function of all values of a window is made an aggregate by sq.uda("double")(function), called with columns.'
)
"""The hint for a function where an aggregate is expected."""


def _resolved(value: Any, source: Node) -> Expr:
    """Return a value as an expression over the members; errors for a function get a hint to make it an aggregate."""
    try:
        return resolve(value, source, "select")
    except StreamqError as error:
        text = str(error)
        if not callable(value) or isinstance(value, Expr | CallableModule) or "Did you mean" in text:
            raise
        raise type(error)(f"{text} {OF_ALL_VALUES}") from error


def _check_makes_values(name: str, expr: Expr) -> None:
    """Raise PlanError if an expression contains an operator of the user's, which makes rows and not values."""
    for part in expression_nodes(expr):
        if isinstance(part, Aggregate) and isinstance(part.function, UserOperator):
            hint = f"Write .select({show(part)}), and what is made of its columns in a select behind it."
            raise PlanError("select", f"{part.name} makes rows of its own", f"found {name}={show(expr)}", hint)


def _instead_of_aggregate(value: Any) -> str:
    """Return a noun, for a message, for a value that may be meant as an aggregate; "" for expressions, numbers and instants."""
    match value:
        case ExpressionText():
            return ""
        case str():
            return "text"
        case list() | tuple() | dict():
            return type(value).__name__
        case FunctionType() if (value.__module__ or "").startswith("streamq.aggregates."):
            return "function"
        case type() | BuiltinFunctionType():
            return "function"
    return ""


def windowed(
    stream: S, keys: tuple[str, ...], window: Window, *, clip: str, stamp: str | None, verb: str
) -> WindowedStream[S]:
    """Return a stream in windows; raise PlanError for a ``clip`` or ``stamp`` that does not exist or does not fit.

    ``verb`` is the verb that the user called, for messages.
    """
    clip_input = choose_word(ClipInput, clip, "clip_input", verb)
    asked_stamp = None if stamp is None else choose_word(Stamp, stamp, "stamp", verb)
    check_order(window, stream.plan.schema, verb)
    return WindowedStream(stream, keys, window, clip_input, asked_stamp)


def check_not_nested(expr: Expr) -> None:
    """Raise PlanError if an expression contains an aggregate of an aggregate."""
    for outer in expression_nodes(expr):
        if isinstance(outer, Aggregate):
            inner = [n for part in outer.children for n in expression_nodes(part) if isinstance(n, Aggregate)]
            if inner:
                hint = "Put a window over the window: .select(n=...).tumbling_window(...).select(...)."
                raise PlanError(outer.name, "an aggregate of an aggregate", f"found {show(inner[0])} inside", hint)


def missing_verb(name: str, unfinished: IncompleteVerb) -> AttributeError:
    """Return the error for an attribute that ``unfinished`` lacks; a public name, but a field's, gets a hint.

    The hint is what to write instead of another system's name, or else ``not_yet``.
    """
    if name.startswith("_") or name in ("stream", "keys", "window"):
        return AttributeError(name)
    hint = for_window(name, unfinished.stream.plan.schema.axis) or unfinished.not_yet
    return UnknownVerb(name, unfinished.called, "", hint)


named_after(WindowedStream, "window")
