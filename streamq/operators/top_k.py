"""TopK: keeps the members of each window with the greatest (or least) values of an expression, and adds their rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp
from streamq.errors import PlanError, sentence
from streamq.operators.evaluation import Evaluation, PortColumns, all_columns
from streamq.operators.lifetime_bound import batch_events
from streamq.operators.member_operator import MemberOperator
from streamq.operators.operator import BatchRun
from streamq.plan.expr import Expr
from streamq.plan.inference import infer
from streamq.plan.keys import check_key
from streamq.plan.lowering import spark_expression
from streamq.plan.node import ADDED, Node, node
from streamq.plan.own_names import show_keys
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, quote
from streamq.plan.tree import show
from streamq.runtime.evaluators.top_k_evaluator import TopKEvaluator
from streamq.windows import Window
from streamq.windows.batch_events import stamped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK, ROW_NUMBER = "rank", "row_number"


@node
class TopK(MemberOperator):
    """Ranks a window's members by ``by`` with SQL's RANK and keeps ranks up to ``k``.

    ``ties``: "keep" all members at the last rank, or "break" ties by the payload's columns in order, ascending, then LE and RE.
    ``row_number``: add each member's place among broken ties as a column. NULL is less than any value, NaN greater.

    CTI: {window}; at point_at_end c
    Final: {window}
    State: {window}; condensed: of settled ones that are in the same windows the best; asleep: of a group with many of them the
        best of those that end about as late as one another, read instead of them until then
    Opens: members: {window}; condensed: parts of a group that rows touch or with a window due: events not settled, and the best
        of the others; asleep: parts of a group that rows touch or with a window due: new events, those that end soon, and the
        best of each slot of the timing wheel; asleep: all its events where ends may still move; condensed, asleep: with
        early=True all its events, of which none are condensed
    Cost: a copy of each member in each of its windows that is not final, and a sort of the copies
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    k: int
    by: Expr
    desc: bool
    ties: str
    clip: ClipInput
    stamp: Stamp
    row_number: bool = field(default=False, metadata=ADDED)

    title = "top_k"
    cases = ("members", "condensed", "asleep")

    @property
    def case(self) -> tuple[str, ...]:
        return (self._form_of_members,)

    def _schema(self) -> Schema:
        """Return the input's columns and the places; raise PlanError for a ``by`` without an order and for clashing names."""
        source = self.input.schema
        self._check_keys()
        for name in source.names if self.ties == "break" else ():
            check_key(source.type_of(name), name, "top_k", "order")
        kind = infer(self.by, source, "top_k")
        if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
            raise PlanError(sentence("top_k", f"no order on {kind.simpleString()}", f"found {show(self.by)}"))
        for name in self._places:
            if name in (n.lower() for n in source.names):
                raise PlanError(
                    sentence("top_k", f"a column called {name!r}", "the result has one", "Rename it first.")
                )
        shape = POINT if self.stamp == Stamp.POINT_AT_END else INTERVAL
        places = [Field(name, t.IntegerType()) for name in self._places]
        return source.with_fields([*source.fields, *places]).with_shape(shape)

    @property
    def _places(self) -> tuple[str, ...]:
        """The columns that the operator adds to the payload."""
        return (RANK, ROW_NUMBER) if self.row_number else (RANK,)

    @property
    def event_windows(self) -> Window:
        return self.window

    def detail(self) -> str:
        window = self.window.shown_with(self.clip, self.stamp, self.schema.axis)
        shown = f"{self.window.name} {window}{show_keys(self.keys)}"
        way = "greatest" if self.desc else "least"
        ties = "" if self.ties == "keep" else f", ties broken{', numbered' if self.row_number else ''}"
        return f"{self.k} {way} by {show(self.by)} in {shown}{ties}"

    def _evaluation(self) -> Evaluation:
        """Return the evaluator that ranks the members of windows."""
        source = self.input.schema
        evaluator = TopKEvaluator(
            self.window.assigner(source.names),
            self.keys,
            clip=self.clip,
            stamp=self.stamp,
            sensitive=False,
            k=self.k,
            by="__by",
            desc=self.desc,
            ties=self.ties,
            payload=source.names,
            rank=RANK,
            row_number=ROW_NUMBER if self.row_number else "",
        )
        port = PortColumns((*all_columns(source), ("__by", self.by)), self.keys, self.window.order(source.names))
        return self._member_evaluation(evaluator, port, self.schema)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Copy members into their windows and rank them by Spark's RANK.

        With ``ties="keep"`` every member whose rank is at most ``k`` stays, else the first ``k`` in the order of value and
        payload.
        """
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as F

        source = self.input.schema
        df, by = self.window.copies(batch_events(self.input, inputs[0], run, self.keys))
        value = spark_expression(self.by, source)
        order = value.desc() if self.desc else value.asc()
        windows = Over.partitionBy(*(quote(k) for k in self.keys), *by)
        df = df.withColumn("__rank", F.rank().over(windows.orderBy(order)))
        if self.ties == "keep":
            df = df.where(F.col("__rank") <= self.k)
        else:
            payload = [F.col(quote(n)) for n in source.names]
            df = df.withColumn("__place", F.row_number().over(windows.orderBy(order, *payload)))
            df = df.where(F.col("__place") <= self.k)
        df = df.withColumn(RANK, F.col("__rank").cast("int"))
        df = df.withColumn(ROW_NUMBER, F.col("__place")) if self.row_number else df
        return stamped(df, self.stamp, self.schema)
