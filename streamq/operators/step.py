"""Steps: operators without state. A step computes its output for each row by itself, without looking at other rows.

Workers, and the in-process backend, apply steps to Arrow tables of deltas, with exactly Spark's answer and errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark
from streamq.operators.operator import BatchRun, Operator
from streamq.plan.expr import Expr, fold
from streamq.plan.footprint import Expected
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, expressions
from streamq.plan.passes import kept_answer, reads_end, types, types_read
from streamq.plan.schema import Schema, quote
from streamq.runtime.arrow.arrow_expr import check_in_process, evaluate, lifetime_part
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.deltas import LE, RE, with_ends, with_weights
from streamq.runtime.grid_ranges import WindowSpans
from streamq.runtime.hosts.hosted_kernel import TECHNICAL, RenamedColumns, TableStep
from streamq.runtime.time.progress import ProgressMap, ProgressShift
from streamq.time import show_duration

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
    def with_lifetimes(self, start: Column, end: Column, is_alive: Column | None, schema: Schema) -> SparkRows:
        """Return the rows where ``is_alive`` is true (None: all), with new lifetimes ``[start, end)`` in ticks."""

    @abstractmethod
    def join(self, table: DataFrame, on: Sequence[tuple[str, str]], inner: bool, schema: Schema) -> SparkRows:
        """Join each row with every row of a static table that is equal to it in the columns ``on``.

        ``on`` are pairs of a row's column and a table's column; the table's is not in the result. Unless ``inner``, a row
        without a match stays, with NULLs.
        """

    @abstractmethod
    def explode(self, column: str, flatten: bool, schema: Schema) -> SparkRows:
        """Return a row for each element of the array ``column``; ``flatten``: the fields of the elements become columns."""


@dataclass(frozen=True, kw_only=True)
class StepEffect:
    """The effect of a step on its rows, their lifetimes and progress; by default one row a row, of the same lifetime.

    drops: the output may lack rows of the input; multiplies: it may have several of one. progress_map: what the step makes of CTI
    and watermark if it changes lifetimes, None if it does not; one that moves every start by five ticks adds five.
    moves_as_progress: every start is moved by as many ticks as progress is, so that late rows stay late, and only those are.
    moves_start: a start may differ from the one before. keeps_end: a retraction that moves an end before moves it after, too.
    """

    drops: bool = False
    multiplies: bool = False
    progress_map: ProgressMap | None = None
    moves_as_progress: bool = True
    moves_start: bool = False
    keeps_end: bool = True


class Step(Operator):
    """An operator with one input and no state."""

    input: Node

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
    def effect(self) -> StepEffect:
        """The effect of the step on rows and progress."""
        return StepEffect()

    @property
    def reads_open_end(self) -> bool:
        """True if the payload, the start or the presence of an output row depends on its event's end.

        Then the CTI, and a final row, waits until that end no longer moves. A step that only hands the end on does not read it.
        """
        return any(map(reads_end, expressions(self)))

    @property
    def progress(self) -> str:
        match self.effect.progress_map:
            case None | ProgressShift(by=0):
                rule = "c"
            case ProgressShift(by=by):
                rule = f"c {'+' if by > 0 else '-'} {show_duration(abs(by), self.schema.axis)}"
            case WindowSpans():
                rule = "start of the first window that ends after c"
            case _:
                rule = "start(c)"
        if not self.input.traits.moves_ends or not self.reads_open_end:
            return rule
        waits = "least start of an event whose end is open"
        return waits if rule == "c" else f"{rule}; the {waits}, if that is before"

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return None if self.effect.multiplies else inputs[0]

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

    def with_lifetimes(self, start: Column, end: Column, is_alive: Column | None, schema: Schema) -> BatchRows:
        # each step of a DataFrame is analyzed by Spark, which takes longer than a small job
        names = [quote(name) for name in schema.names]
        if is_alive is None:
            return BatchRows(self.frame.select(start.alias(LE), end.alias(RE), *names), schema, self.tables)
        frame = self.frame.select(start.alias("__start"), end.alias("__end"), is_alive.alias("__is_alive"), *names)
        frame = frame.where("__is_alive").selectExpr(f"__start AS {LE}", f"__end AS {RE}", *names)
        return BatchRows(frame, schema, self.tables)

    def join(self, table: DataFrame, on: Sequence[tuple[str, str]], inner: bool, schema: Schema) -> BatchRows:
        is_equal = [F.col(quote(ours)) == F.col(quote(theirs)) for ours, theirs in on]
        joined = self.frame.join(table, is_equal, "inner" if inner else "left")
        return BatchRows(joined.select(LE, RE, *(quote(name) for name in schema.names)), schema, self.tables)

    def explode(self, column: str, flatten: bool, schema: Schema) -> BatchRows:
        others = [F.col(quote(name)) for name in self.frame.columns if name != column]
        elements = F.inline(F.col(quote(column))) if flatten else F.explode(F.col(quote(column))).alias(column)
        frame = self.frame.select(*others, elements)
        return BatchRows(frame.select(LE, RE, *(quote(name) for name in schema.names)), schema, self.tables)


@dataclass(frozen=True)
class ArrowRows(StepRows[pa.Array]):
    """Rows in Arrow arrays: the ``payload`` columns of ``schema``, and ``technical`` columns such as ``__le`` and ``__re``.

    ``count``: the number of rows. ``tables``: the static tables of the query, by name.
    """

    count: int
    schema: Schema
    technical: Mapping[str, pa.Array]
    payload: Mapping[str, pa.Array]
    tables: Mapping[str, pa.Table]

    @staticmethod
    def from_table(table: pa.Table, schema: Schema, tables: Mapping[str, pa.Table]) -> ArrowRows:
        """Return the rows of a table: of its columns those of ``schema`` are payload, those named ``__...`` technical."""
        technical = {n: _array(table.column(n)) for n in table.column_names if n.startswith("__")}
        payload = {n: _array(table.column(n)) for n in schema.names}
        return ArrowRows(table.num_rows, schema, technical, payload, tables)

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return pa.table({**self.technical, **self.payload})

    @property
    def starts(self) -> pa.Array:
        """The starts of the rows, in ticks."""
        return self.technical[LE]

    @property
    def ends(self) -> pa.Array:
        """The ends of the rows, in ticks."""
        return _array(self.lifetimes.column(RE))

    @property
    def lifetimes(self) -> pa.Table:
        """The technical columns of the rows, ends and weights included."""
        return with_weights(with_ends(pa.table(dict(self.technical))))

    def evaluate(self, expr: Expr) -> pa.Array:
        return _array(evaluate(expr, self.schema, dict(self.payload), self._lifetime, self.count))

    def _lifetime(self, part: str) -> Any:
        return lifetime_part(part, self.starts, self.ends, arrow_type(self.schema.axis_type))

    def filter(self, is_kept: pa.Array) -> ArrowRows:
        is_kept = pc.fill_null(is_kept, False)
        return self.take(pc.indices_nonzero(is_kept).cast(pa.int64()))

    def take(self, places: pa.Array) -> ArrowRows:
        """Return the rows at these places, in this order; a place may occur several times."""
        technical = {name: column.take(places) for name, column in self.technical.items()}
        payload = {name: column.take(places) for name, column in self.payload.items()}
        return replace(self, count=len(places), technical=technical, payload=payload)

    def with_payload(self, columns: Mapping[str, pa.Array], schema: Schema) -> ArrowRows:
        return replace(self, payload=columns, schema=schema)

    def with_lifetimes(self, starts: pa.Array, ends: pa.Array, is_alive: pa.Array, schema: Schema) -> ArrowRows:
        """Return the rows where ``is_alive`` is true, with new lifetimes in ticks."""
        technical = {**self.technical, LE: starts, RE: ends}
        return replace(self, technical=technical, schema=schema).filter(is_alive)


def _array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@dataclass(frozen=True)
class ComputedColumns:
    """A new payload: ``columns`` are pairs of a name and the expression that computes it from rows of ``schema``."""

    columns: tuple[tuple[str, Expr], ...]
    schema: Schema

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas with the new payload; raise the error of the first row on which Spark raises."""
        events = ArrowRows.from_table(rows, self.schema, {})
        payload = {name: events.evaluate(expr) for name, expr in self.columns}
        return pa.table({**{name: rows.column(name) for name in TECHNICAL}, **payload})


@dataclass(frozen=True)
class FilteredRows:
    """A filter: the rows of ``schema`` for which ``predicate`` is true, neither false nor NULL."""

    predicate: Expr
    schema: Schema

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas that pass; raise the error of the first row on which Spark raises."""
        events = ArrowRows.from_table(rows, self.schema, {})
        return delta_table(events.filter(events.evaluate(self.predicate)))


def delta_table(events: ArrowRows) -> pa.Table:
    """Return events as a table of deltas."""
    technical = {name: events.technical[name] for name in TECHNICAL}
    return pa.table({**technical, **{name: events.payload[name] for name in events.schema.names}})


def columns_step(columns: Sequence[tuple[str, Expr]], schema: Schema) -> TableStep | None:
    """Return the step that computes a payload from rows of ``schema``; None if a column is not exact.

    ``columns`` are pairs of a name and an expression. Plain columns need no evaluator of expressions.
    """
    plain = tuple((name, copied) for name, expr in columns if (copied := expr.copied_column) is not None)
    if len(plain) == len(columns):
        return RenamedColumns(plain)
    if all(is_exact(expr, schema) for _, expr in columns):
        return ComputedColumns(tuple(columns), schema)
    return None


def is_exact(root: Expr, schema: Schema) -> bool:
    """Return True if Arrow computes an expression over ``schema`` as Spark does, to the last bit and with the same failures."""
    return kept_answer(("exact", root.digest, *types_read(root, schema)), lambda: _is_exact(root, schema))


def _is_exact(root: Expr, schema: Schema) -> bool:
    kinds = types(root, schema, "stream")
    exact: list[bool] = []

    def visit(node: Expr, operands: list[DataType | None]) -> DataType | None:
        kind = kinds[node.digest]
        typed = [operand for operand in operands if operand is not None]
        exact.append(kind is not None and len(typed) == len(operands) and node.is_exact(typed, kind))
        return kind

    fold(root, visit)
    if not all(exact):
        return False
    try:
        check_in_process(root, schema, "stream")
    except NeedsSpark:
        return False
    return True
