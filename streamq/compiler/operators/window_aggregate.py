"""WindowAggregate: one row a window with members, on the window's interval, holding aggregates over its members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pyspark.sql import types as t

from streamq.compiler.lowering import floor_div, spark_expression
from streamq.compiler.operators.select import Select
from streamq.compiler.plan import Node, Traits, node
from streamq.compiler.resolve import Given, named, resolve
from streamq.compiler.verbs import Verbs
from streamq.errors import PlanError, TimeError, TypeMismatch, sentence
from streamq.expr import Aggregate, Col, Expr, columns, rewrite, show
from streamq.runtime.event import LE, RE
from streamq.schema import INTERVAL, POINT, Field, Schema, avg_type, check_names, infer, is_numeric, quote, sum_type
from streamq.time import INFINITY, Duration, show_duration, ticks
from streamq.windows import Hopping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.compiler.batch import Batch

INDEX, LO, HI, COUNT = "__i", "__lo", "__hi", "__n"
"""A window's number, the range of windows an event or partial result lies in, and the events behind it."""

AGGREGATES: dict[str, str] = {
    "count": "count", "sum": "sum", "avg": "avg", "min": "min", "max": "max",
    "var": "var_samp", "var_pop": "var_pop", "stddev": "stddev_samp", "stddev_pop": "stddev_pop",
}  # fmt: skip
"""streamq's aggregates and Spark's names for them."""


@node
class WindowAggregate(Node):
    """The members of each window of a grid, per group of ``keys``, reduced to ``aggregates`` (SEMANTICS section 3)."""

    input: Node
    keys: tuple[str, ...]
    window: Hopping
    aggregates: tuple[tuple[str, Aggregate], ...]

    title = "hopping"
    progress = "start of the earliest window not final"

    def _schema(self) -> Schema:
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        fields = [Field(k, source.type_of(k)) for k in self.keys]
        fields += [Field(name, aggregate_type(a, source)) for name, a in self.aggregates]
        return source.with_fields(fields).with_shape(INTERVAL)

    def _traits(self) -> Traits:
        return Traits()

    def detail(self) -> str:
        shown = ", ".join(f"{name} = {show(a)}" for name, a in self.aggregates)
        return f"{show_window(self.window, self.schema.axis)}{show_keys(self.keys)}: {shown}"


def show_window(window: Hopping, axis: str) -> str:
    """``size=1 hour, hop=5 minutes``."""
    shown = f"size={show_duration(window.size, axis)}, hop={show_duration(window.hop, axis)}"
    return shown + (f", offset={show_duration(window.offset, axis)}" if window.offset else "")


def show_keys(keys: tuple[str, ...]) -> str:
    """`` by zone, kind`` or nothing."""
    return f" by {', '.join(keys)}" if keys else ""


def check_key(kind: t.DataType, name: str) -> None:
    """Raise where rows can't be grouped by a column of the type."""
    if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType | t.NullType):
        raise TypeMismatch(
            sentence(
                "group_by",
                f"cannot group by column {name!r}",
                f"found {kind.simpleString()}",
                "Group by a scalar column.",
            )
        )


def aggregate_type(aggregate: Aggregate, schema: Schema) -> t.DataType:
    """Spark's type of an aggregate over a stream; raises TypeMismatch for an argument it does not take."""
    verb = aggregate.name
    if not aggregate.args:
        return t.LongType()
    kind = infer(aggregate.args[0], schema, verb)
    if verb == "count":
        return t.LongType()
    if verb in ("min", "max"):
        if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
            raise TypeMismatch(sentence(verb, f"no order on {kind.simpleString()}", f"found {show(aggregate)}"))
        return kind
    if not is_numeric(kind):
        raise TypeMismatch(
            sentence(verb, "needs numbers", f"found {kind.simpleString()} in {show(aggregate)}", "Cast it.")
        )
    if verb == "sum":
        return sum_type(kind)
    return avg_type(kind) if verb == "avg" else t.DoubleType()


def window_range(window: Hopping, shape: str) -> tuple[Column, Column]:
    """The numbers of the first and the last window an event lies in; INFINITY for one that never ends.

    The first is the first that ends after LE, the last the last that starts before RE; the range is empty only for an
    event in a gap between windows.
    """
    from pyspark.sql import functions as F

    le = F.col(LE)
    low = _index(le, window.offset + window.size, window.hop) + 1
    if shape == POINT:
        return low, _index(le, window.offset, window.hop)
    re = F.col(RE)
    return low, F.when(re == INFINITY, F.lit(INFINITY)).otherwise(_index(re - 1, window.offset, window.hop))


def _index(x: Column, shift: int, hop: int) -> Column:
    # floor((x - shift) / hop) without forming x - shift, which could overflow at the ends of the axis
    from pyspark.sql import functions as F

    whole, part = divmod(shift, hop)
    below = F.when(F.pmod(x, F.lit(hop).cast("bigint")) < part, 1).otherwise(0) if part else F.lit(0)
    return floor_div(x, hop) - F.lit(whole).cast("bigint") - below


def window_lifetime(window: Hopping) -> tuple[Column, Column]:
    """LE and RE of window ``__i``."""
    from pyspark.sql import functions as F

    start = F.col(INDEX) * F.lit(window.hop).cast("bigint") + F.lit(window.offset).cast("bigint")
    return start.alias(LE), (start + F.lit(window.size).cast("bigint")).alias(RE)


def last_window(df: DataFrame, window: Hopping, run: Batch) -> DataFrame:
    """The input with column ``__last``, the greatest window to report (SEMANTICS section 3, infinite lifetimes).

    That is the last window that starts before ``until``: the caller's, or else, if any lifetime is infinite, the greatest
    finite endpoint of all groups; else there is no bound.
    """
    from pyspark.sql import functions as F

    if run.until is not None:
        return df.withColumn("__last", F.lit(window.last_starting_before(run.until)))
    endpoint = F.when(F.col(RE) == INFINITY, F.col(LE)).otherwise(F.col(RE))
    bound = df.agg(F.max(endpoint).alias("__end"), F.max(F.col(RE)).alias("__greatest"))
    last = F.when(F.col("__greatest") == INFINITY, _index(F.col("__end") - 1, window.offset, window.hop)).otherwise(
        F.lit(INFINITY)
    )
    return df.crossJoin(F.broadcast(bound.select(last.alias("__last"))))


def members(node: Node, df: DataFrame, window: Hopping, run: Batch) -> DataFrame:
    """The input's events with ``__lo`` and ``__hi``, the range of windows to report them in; those in gaps are gone."""
    from pyspark.sql import functions as F

    low, high = window_range(window, node.schema.shape)
    if not node.traits.infinite and run.until is None:
        df = df.withColumns({LO: low, HI: high})
        return df if window.hop <= window.size else df.where(F.col(LO) <= F.col(HI))
    df = last_window(df, window, run).withColumns({LO: low, HI: F.least(high, F.col("__last"))})
    return df.where(F.col(LO) <= F.col(HI)).drop("__last")


def in_windows(node: Node, df: DataFrame, window: Hopping, run: Batch) -> DataFrame:
    """The input's events, one copy for each window they lie in, with its number ``__i``."""
    from pyspark.sql import functions as F

    df = members(node, df, window, run)
    one = node.schema.shape == POINT and window.n == 1
    return df.withColumn(INDEX, F.col(LO) if one else F.explode(F.sequence(F.col(LO), F.col(HI))))


def spark_aggregate(aggregate: Aggregate, schema: Schema) -> Column:
    """Spark's own aggregate."""
    from pyspark.sql import functions as F

    args: list[Any] = [spark_expression(a, schema) for a in aggregate.args] or [F.lit(1)]
    return getattr(F, AGGREGATES[aggregate.name])(*args)


def batch(node: WindowAggregate, inputs: list[DataFrame], run: Batch) -> DataFrame:
    """Re-evaluation: every event copied into each of its windows, then Spark's own aggregates."""
    source = node.input.schema
    df = in_windows(node.input, inputs[0], node.window, run)
    made = [spark_aggregate(a, source).alias(name) for name, a in node.aggregates]
    grouped = (
        df.groupBy(*(quote(k) for k in node.keys), INDEX).agg(*made)
        if made
        else df.select(*(quote(k) for k in node.keys), INDEX).distinct()
    )
    return grouped.select(*window_lifetime(node.window), *(quote(f.name) for f in node.schema.fields))


S = TypeVar("S", bound=Verbs)


class WindowVerbs(Verbs):
    """Windows over the whole stream, and ``group_by`` for windows per group."""

    def hopping_window(self, size: Duration, hop: Duration, offset: Duration = 0) -> Windowed[Self]:
        """The windows ``[offset + i*hop, offset + i*hop + size)`` for every integer i.

        ``size``, ``hop`` and ``offset`` are durations with a unit on a timestamp axis, integer ticks on an integer axis;
        size and hop may be any positive durations. An event is a member of every window its lifetime overlaps; a window
        without a member yields nothing; a result row lives on its window. Raises TimeError. (SEMANTICS section 3;
        Liarou et al., Enhanced Stream Processing in a DBMS Kernel, section 3.)

        ::

            events   a [1,4)  b [3,8)     size 4, hop 2
            windows  [-2,2):a  [0,4):ab  [2,6):ab  [4,8):b  [6,10):b

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.hopping_window(4, 2).select(n=sq.count()).show()
        n  start  end
        1     -2    2
        2      0    4
        2      2    6
        1      4    8
        1      6   10
        """
        return Windowed(self, (), grid(size, hop, offset, self.plan.schema.axis, "hopping_window"))

    def tumbling_window(self, size: Duration, offset: Duration = 0) -> Windowed[Self]:
        """Hopping windows that do not overlap: ``hop = size``.

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.tumbling_window(4).select(n=sq.count()).show()
        n  start  end
        2      0    4
        1      4    8
        """
        return Windowed(self, (), grid(size, size, offset, self.plan.schema.axis, "tumbling_window"))

    def group_by(self, *keys: str, **named_keys: Given) -> Grouped[Self]:
        """Windows per group: rows with equal keys form one stream; NULLs are equal. A keyword names a computed key.

        >>> import streamq as sq
        >>> s = sq.events([(1, 4, {"k": "a"}), (3, 8, {"k": "b"})])
        >>> s.group_by("k").tumbling_window(4).select(n=sq.count()).show()
        k  n  start  end
        a  1      0    4
        b  1      0    4
        b  1      4    8
        """
        if not keys and not named_keys:
            raise PlanError(sentence("group_by", "no key", "", "Name at least one column, or leave group_by out."))
        stream: Any = self
        if named_keys:
            stream = stream.with_columns(**named_keys)
        names = (*keys, *named_keys)
        for name in names:
            if not isinstance(name, str):
                raise PlanError(
                    sentence(
                        "group_by",
                        "a key is a column name",
                        f"found {name!r}",
                        "Name a computed key: group_by(k=expression).",
                    )
                )
            check_key(stream.plan.schema.require(name, "group_by"), name)
        check_names(names, "group_by")
        return Grouped(stream, names)


class Grouped(Generic[S]):
    """A stream by groups: what ``group_by`` returns."""

    def __init__(self, stream: S, keys: tuple[str, ...]):
        self.stream, self.keys = stream, keys

    def __repr__(self) -> str:
        return f"Grouped({self.stream!r} by {', '.join(self.keys)})"

    def select(self, *columns: Given, **named_columns: Given) -> S:
        """Groups alone have no rows: raises PlanError, naming the windows to choose from."""
        raise PlanError(
            sentence(
                "select",
                "a group without a window",
                f"found {self!r}",
                "Add .tumbling_window(size) or .hopping_window(...).",
            )
        )

    agg = select

    def hopping_window(self, size: Duration, hop: Duration, offset: Duration = 0) -> Windowed[S]:
        """As the stream's ``hopping_window``, per group."""
        return Windowed(self.stream, self.keys, grid(size, hop, offset, self.stream.plan.schema.axis, "hopping_window"))

    def tumbling_window(self, size: Duration, offset: Duration = 0) -> Windowed[S]:
        """As the stream's ``tumbling_window``, per group."""
        return Windowed(
            self.stream, self.keys, grid(size, size, offset, self.stream.plan.schema.axis, "tumbling_window")
        )


class Windowed(Generic[S]):
    """A stream in windows: ``select`` says what to make of each window's members."""

    def __init__(self, stream: S, keys: tuple[str, ...], window: Hopping):
        self.stream, self.keys, self.window = stream, keys, window

    def __repr__(self) -> str:
        return (
            f"Windowed({self.stream!r}, {show_window(self.window, self.stream.plan.schema.axis)}{show_keys(self.keys)})"
        )

    def select(self, *given_columns: Given, **named_columns: Given) -> S:
        """One row a window with members: the group's keys, then a column a keyword.

        A column is an aggregate (``sq.count()``, ``sq.avg("fare")``, ...) or an expression over aggregates, keys,
        ``sq.window_start()`` and ``sq.window_end()``. Raises PlanError for a column that is neither aggregate nor key.
        """
        source = self.stream.plan
        made = list(named(given_columns, named_columns, "select"))
        made = [(name, e) for name, e in made if not (name in self.keys and isinstance(e, Col) and e.name == name)]
        check_names([*self.keys, *(name for name, _ in made)], "select")
        found: dict[str, tuple[str, Aggregate]] = {}
        outputs: list[tuple[str, Expr]] = []
        for name, given in made:
            expr = resolve(given, source, "select")
            plain = isinstance(expr, Aggregate)

            def take(part: Expr, own: str = name if plain else "") -> Expr | None:
                if not isinstance(part, Aggregate):
                    return None
                known = found.setdefault(part.digest, (own or f"__a{len(found)}", part))
                return Col(known[0])

            output = rewrite(expr, take)
            taken = {n for n, _ in found.values()}
            for column in sorted(set(columns(output)) - taken - set(self.keys)):
                raise PlanError(
                    sentence(
                        "select",
                        f"column {column!r} is neither aggregated nor a key",
                        f"found {show(expr)}",
                        f"Aggregate it, as sq.max({column!r}), or group by it.",
                    )
                )
            outputs.append((name, output))
        node = WindowAggregate(source, self.keys, self.window, tuple(found.values()))
        plain_columns = [*self.keys, *(name for name, _ in found.values())]
        final = [*((k, Col(k)) for k in self.keys), *outputs]
        if [name for name, _ in final] == plain_columns and all(
            isinstance(e, Col) and e.name == name for name, e in final
        ):
            return self.stream._derive(node)
        return self.stream._derive(Select(node, tuple(final)))

    agg = select


def grid(size: Duration, hop: Duration, offset: Duration, axis: str, verb: str) -> Hopping:
    """A window grid in ticks; raises TimeError for a size or hop that is not positive or does not fit the axis."""
    for name, given in (("size", size), ("hop", hop)):
        if ticks(given, axis, verb) <= 0:
            raise TimeError(sentence(verb, f"{name} must be positive", f"found {given!r}"))
    return Hopping(ticks(size, axis, verb), ticks(hop, axis, verb), ticks(offset, axis, verb))
