"""TopK: the members of each window with the greatest (or least) values of an expression, with their rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.operators.window import show_keys, show_policies, show_window, window_traits
from streamq.operators.window_aggregate import WindowAggregate
from streamq.plan.expr import Expr
from streamq.plan.inference import infer
from streamq.plan.keys import check_key
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, quote
from streamq.plan.tree import show
from streamq.windows import POINT_AT_END, Window, default_stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.operators.batch_run import BatchRun

RANK = "rank"


@node
class TopK(Node):
    """SQL RANK by ``by`` over a window's members, those up to ``k``; ``ties``: "keep" all at the last rank, or "break".

    NULL is less than any value, NaN greater. Broken ties go by the payload's columns in order, ascending, then LE, RE.

    CTI: hopping: start of the earliest window not final; snapshot: c; count: the (n-1)-th greatest instant below c; rows: the
        start of the first row of the earliest incomplete window; session: the least start of a session not final; landmark:
        the landmark of the earliest window not final; at point_at_end c
    Final: hopping, count, rows, session, landmark: windows that end at or before c; snapshot: windows that end before c
    State: hopping: members of windows not final; snapshot: events not settled, and those alive since the endpoint before c;
        count, rows: events of windows not final, or still to come; session: events of sessions not final; landmark: events
        since the landmark before c
    Cost: a copy of each member in each of its windows that is not final, and a sort of the copies
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    k: int
    by: Expr
    desc: bool
    ties: str
    clip: str
    stamp: str

    title = "top_k"
    cases = WindowAggregate.cases

    @property
    def case(self) -> tuple[str, ...]:
        return (self.window.name,)

    def _schema(self) -> Schema:
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        for name in source.names if self.ties == "break" else ():
            check_key(source.type_of(name), name, "top_k", "order")
        kind = infer(self.by, source, "top_k")
        if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
            raise PlanError(sentence("top_k", f"no order on {kind.simpleString()}", f"found {show(self.by)}"))
        if RANK in (n.lower() for n in source.names):
            raise PlanError(sentence("top_k", f"a column called {RANK!r}", "the result has one", "Rename it first."))
        shape = POINT if self.stamp == POINT_AT_END else INTERVAL
        return source.with_fields([*source.fields, Field(RANK, t.IntegerType())]).with_shape(shape)

    def _traits(self) -> Traits:
        return window_traits(self.window, self.stamp, self.input.traits)

    def detail(self) -> str:
        policies = show_policies(self.window, self.clip, self.stamp)
        shown = f"{self.window.name} {show_window(self.window, self.schema.axis)}{policies}{show_keys(self.keys)}"
        way = "greatest" if self.desc else "least"
        ties = "" if self.ties == "keep" else ", ties broken"
        stamp = "" if self.stamp == default_stamp(self.window) else f", stamp={self.stamp}"
        return f"{self.k} {way} by {show(self.by)} in {shown}{ties}{stamp}"


def batch(node: TopK, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """Members copied into their windows, ranked by Spark's RANK."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    from streamq.operators.window_members import stamped, window_members

    source = node.input.schema
    df, by = window_members(node, inputs[0], run)
    value = spark_expression(node.by, source)
    order = value.desc() if node.desc else value.asc()
    windows = Over.partitionBy(*(quote(k) for k in node.keys), *by)
    df = df.withColumn("__rank", F.rank().over(windows.orderBy(order)))
    if node.ties == "keep":
        df = df.where(F.col("__rank") <= node.k)
    else:
        payload = [F.col(quote(n)) for n in source.names]
        df = df.withColumn("__place", F.row_number().over(windows.orderBy(order, *payload)))
        df = df.where(F.col("__place") <= node.k)
    return stamped(df.withColumn(RANK, F.col("__rank").cast("int")), node)
