"""Steps: operators without state. A step computes its output for each row by itself, without looking at other rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from streamq.operators.operator import BatchRun, Operator
from streamq.plan.expr import Expr
from streamq.plan.footprint import Expected
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, expressions
from streamq.plan.passes import reads_end
from streamq.plan.schema import Schema, quote
from streamq.runtime.event import LE, RE
from streamq.runtime.hosts.hosted_kernel import TableStep
from streamq.runtime.time.progress_map import ProgressMap

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.table_steps import ArrowRows

V = TypeVar("V")


class StepRows(ABC, Generic[V]):
    """Rows that steps are applied to; a ``V`` holds the values of one column: a Column of Spark's, or an Arrow array."""

    @abstractmethod
    def evaluate(self, expr: Expr) -> V:
        """Return the values of an expression, one a row."""

    @abstractmethod
    def filter(self, is_kept: V) -> StepRows[V]:
        """Return the rows where ``is_kept`` is true, without those where it is false or NULL."""

    @abstractmethod
    def with_payload(self, columns: Mapping[str, V], schema: Schema) -> StepRows[V]:
        """Return the same rows with ``columns`` as their whole payload; ``schema`` has the types of the columns."""


class SparkRows(StepRows["Column"]):
    """Rows in a DataFrame ``frame``, with ``__le`` and, unless they are declared points, ``__re``; payload as in ``schema``.

    A batch removes the rows that a step drops; a stream only marks them, because a row may be on several paths at once.
    ``tables`` are the static tables of the query, by name.
    """

    frame: DataFrame
    schema: Schema
    tables: Mapping[str, DataFrame]

    @abstractmethod
    def filter(self, is_kept: Column) -> SparkRows: ...

    @abstractmethod
    def with_payload(self, columns: Mapping[str, Column], schema: Schema) -> SparkRows: ...

    @abstractmethod
    def with_lifetimes(self, start: Column, end: Column, is_alive: Column, schema: Schema) -> SparkRows:
        """Return the rows where ``is_alive`` is true, with new lifetimes ``[start, end)`` in ticks; the others are dropped."""

    @abstractmethod
    def join(self, table: DataFrame, on: Sequence[tuple[str, str]], inner: bool, schema: Schema) -> SparkRows:
        """Join each row with every row of a static table that is equal to it in the columns ``on``.

        ``on`` are pairs of a row's column and a table's column; the table's is not in the result. Unless ``inner``, a row
        without a match stays, with NULLs.
        """

    @abstractmethod
    def explode(self, column: str, flatten: bool, schema: Schema) -> SparkRows:
        """Return a row for each element of the array ``column``; ``flatten``: the fields of the elements become columns."""


@dataclass(frozen=True)
class LifetimeChange:
    """A change of all lifetimes, after which the CTI and watermark of rows are those before, mapped by ``progress_map``.

    A step that moves every start by five ticks has a map that adds five. moves_as_progress: every start is moved by as many
    ticks as progress is, so that late rows stay late, and only those are. moves_start: a start may differ from the one before.
    keeps_end: a retraction that moves an end before moves it after, too.
    """

    progress_map: ProgressMap
    moves_as_progress: bool = True
    moves_start: bool = True
    keeps_end: bool = True


class Step(Operator):
    """An operator with one input and no state; by default it leaves lifetimes unchanged.

    ``may_drop``: its output may lack rows of its input; ``multiplies``: it may make several rows of one.
    """

    input: Node
    may_drop: ClassVar[bool] = False
    multiplies: ClassVar[bool] = False

    @abstractmethod
    def on_spark(self, rows: SparkRows) -> SparkRows:
        """Apply the step to rows in a DataFrame, of a batch or a micro-batch."""

    @abstractmethod
    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        """Apply the step to rows in Arrow arrays."""

    @property
    def table_step(self) -> TableStep | None:
        """The step as workers apply it to deltas in Arrow, with exactly Spark's answer and errors; None if only Spark can."""
        return None

    def copied_column(self, name: str) -> str | None:
        return name if name in self.input.schema.names else None

    def _traits(self) -> Traits:
        return self.input.traits

    @property
    def lifetime_change(self) -> LifetimeChange | None:
        """The change that the step makes of lifetimes; None if it makes none."""
        return None

    @property
    def reads_open_end(self) -> bool:
        """True if the payload, the start or the presence of an output row depends on its event's end.

        Then the CTI, and a final row, waits until that end no longer moves. A step that only hands the end on does not read it.
        """
        return any(map(reads_end, expressions(self)))

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return None if self.multiplies else inputs[0]

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Apply the step to the whole input."""
        return self.on_spark(BatchRows(inputs[0], self.input.schema, run.tables)).frame


class ExpressionStep(Step):
    """A step written once, in expressions that both Spark and Arrow evaluate."""

    @abstractmethod
    def apply(self, rows: StepRows[V]) -> StepRows[V]:
        """Apply the step to rows of either kind."""

    def on_spark(self, rows: SparkRows) -> SparkRows:
        applied: Any = self.apply(rows)
        return applied

    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        applied: Any = self.apply(rows)
        return applied


class BatchRows(SparkRows):
    """The rows of a batch; dropped rows are removed at once."""

    def __init__(self, frame: DataFrame, schema: Schema, tables: Mapping[str, DataFrame]):
        self.frame, self.schema, self.tables = frame, schema, tables

    def evaluate(self, expr: Expr) -> Column:
        return spark_expression(expr, self.schema)

    def filter(self, is_kept: Column) -> BatchRows:
        return BatchRows(self.frame.where(is_kept), self.schema, self.tables)

    def with_payload(self, columns: Mapping[str, Column], schema: Schema) -> BatchRows:
        frame = self.frame.select(LE, RE, *(column.alias(name) for name, column in columns.items()))
        return BatchRows(frame, schema, self.tables)

    def with_lifetimes(self, start: Column, end: Column, is_alive: Column, schema: Schema) -> BatchRows:
        # each step of a DataFrame is analyzed by Spark, which takes longer than a small job
        names = [quote(name) for name in schema.names]
        frame = self.frame.select(start.alias("__start"), end.alias("__end"), is_alive.alias("__is_alive"), *names)
        frame = frame.where("__is_alive").selectExpr(f"__start AS {LE}", f"__end AS {RE}", *names)
        return BatchRows(frame, schema, self.tables)

    def join(self, table: DataFrame, on: Sequence[tuple[str, str]], inner: bool, schema: Schema) -> BatchRows:
        from pyspark.sql import functions as F

        is_equal = [F.col(quote(ours)) == F.col(quote(theirs)) for ours, theirs in on]
        joined = self.frame.join(table, is_equal, "inner" if inner else "left")
        return BatchRows(joined.select(LE, RE, *(quote(name) for name in schema.names)), schema, self.tables)

    def explode(self, column: str, flatten: bool, schema: Schema) -> BatchRows:
        from pyspark.sql import functions as F

        others = [F.col(quote(name)) for name in self.frame.columns if name != column]
        elements = F.inline(F.col(quote(column))) if flatten else F.explode(F.col(quote(column))).alias(column)
        frame = self.frame.select(*others, elements)
        return BatchRows(frame.select(LE, RE, *(quote(name) for name in schema.names)), schema, self.tables)
