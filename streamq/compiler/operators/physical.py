"""Physical: rows that insert, retract or promise (CTI), in StreamInsight's form ``(kind, LE, RE, REnew, payload)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.compiler.lowering import spark_expression
from streamq.compiler.operators.source import Source, axis_of, checked, keep_good, source_schema, ticks_of
from streamq.compiler.plan import Traits, node
from streamq.policies import SourcePolicy
from streamq.runtime.event import BAD, CTI, INSERT, KIND, LE, NEW_END, RE, RETRACT
from streamq.schema import INTERVAL, Field, Schema, quote
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.compiler.batch import Batch


@node
class Physical(Source):
    """The rows of ``table``: ``kind`` is insert, retract or cti; a cti's time stands in ``start``; ids match if given.

    CTI: c, the greatest CTI row; or made from the data
    Final: settled events
    State: events not settled, retractions whose insert is still to come
    Cost: an insert is appended; a retraction is looked up among the events of its start
    """

    table: str
    columns: tuple[Field, ...]
    kind: str
    start: str
    end: str
    new_end: str
    id: str | None = None
    policy: SourcePolicy = SourcePolicy(delay=None)

    title = "physical"
    insert_only = False

    @property
    def consumed(self) -> tuple[str, ...]:
        return (self.kind, self.start, self.end, self.new_end)

    def _schema(self) -> Schema:
        raw = Schema(self.columns, "integer")
        for name in (self.kind, *([self.id] if self.id else [])):
            raw.require(name, "physical")
        return source_schema(
            self, axis_of(self.columns, (self.start, self.end, self.new_end), "physical"), INTERVAL, "physical"
        )

    def _traits(self) -> Traits:
        return Traits(retracts=True, moves_ends=True, infinite=True)

    def detail(self) -> str:
        return f"{self.shown_name()}, kind={self.kind}, start={self.start}, end={self.end}, new_end={self.new_end}" + (
            f", id={self.id}" if self.id else ""
        )


def rows(node: Physical, df: DataFrame, streaming: bool) -> DataFrame:
    """``__kind``, ``__le``, ``__re``, ``__new``, payload and ``__bad`` of every row."""
    from pyspark.sql import functions as F

    raw = Schema(node.columns, node.schema.axis)
    kind = F.lower(F.col(quote(node.kind)))
    le = spark_expression(ticks_of(node.start, raw.type_of(node.start)))
    re = F.coalesce(spark_expression(ticks_of(node.end, raw.type_of(node.end))), F.lit(INFINITY))
    new = F.coalesce(spark_expression(ticks_of(node.new_end, raw.type_of(node.new_end))), F.lit(INFINITY))
    is_row = kind.isin(INSERT, RETRACT)
    reason = (
        F.when(
            ~F.coalesce(kind.isin(INSERT, RETRACT, CTI), F.lit(False)),
            F.lit("a kind that is not insert, retract or cti"),
        )
        .when(le.isNull(), F.lit("null start"))
        .when(is_row & (re <= le), F.lit("end not after start"))
        .when((kind == RETRACT) & (new < le), F.lit("new end before start"))
    )
    le, reason = checked(le, reason, node, streaming, re)
    columns = (F.col(quote(f.name)) for f in node.payload)
    return df.select(kind.alias(KIND), le.alias(LE), re.alias(RE), new.alias(NEW_END), *columns, reason.alias(BAD))


def batch(node: Physical, inputs: list[DataFrame], run: Batch) -> DataFrame:
    """Every retraction folded into its insert: signed deltas, summed by (LE, RE, payload); a CTI is no event."""
    from pyspark.sql import functions as F

    df = keep_good(rows(node, run.table(node), False)).where(F.col(KIND) != CTI)
    deltas = F.when(F.col(KIND) == INSERT, F.array(F.struct(F.col(RE).alias("re"), F.lit(1).alias("w")))).otherwise(
        F.array(
            F.struct(F.col(RE).alias("re"), F.lit(-1).alias("w")),
            F.struct(F.col(NEW_END).alias("re"), F.lit(1).alias("w")),
        )
    )
    names = [f.name for f in node.payload]
    df = df.select(LE, F.explode(deltas).alias("__d"), *(quote(name) for name in names))
    df = df.select(LE, F.col("__d.re").alias(RE), F.col("__d.w").alias("__w"), *(quote(name) for name in names))
    # an end moved back to the start is a deletion: the empty lifetime is no event
    df = (
        df.where(F.col(RE) > F.col(LE)).groupBy(LE, RE, *(quote(name) for name in names)).agg(F.sum("__w").alias("__w"))
    )
    reason = F.when(F.col("__w") < 0, F.lit("a retraction that matches nothing"))
    le, reason = checked(F.col(LE), reason, node, False, F.col(RE))
    df = keep_good(df.withColumn(LE, le).withColumn(BAD, reason)).where(F.col("__w") > 0)
    copies = F.explode(F.sequence(F.lit(1), F.col("__w").cast("int")))
    return df.select(LE, RE, *(quote(name) for name in names), copies.alias("__copy")).drop("__copy")
