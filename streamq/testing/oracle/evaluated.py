"""Expressions of a query as functions that DuckDB calls and that evaluate the expression itself.

The technique of the paper on the test framework, section 6.2: there SQL CLR functions, for the types of the two engines
differ and so would any translation. A function's parameters are what its expression reads, by vectors of at most a few
thousand rows; every expression stands over a table that exists, so that it is put to no row but the operator's own.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, QueryFailed, sentence
from streamq.plan.expr import Alias, Col, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.lifetime import Lifetime
from streamq.plan.lowering import in_utc
from streamq.plan.passes import columns, is_opaque, nodes
from streamq.plan.schema import Schema, quote
from streamq.plan.spark_form import to_spark
from streamq.plan.tree import show
from streamq.runtime.arrow_expr import check, evaluate
from streamq.testing.oracle.expressions import lifetime, listed, sql
from streamq.testing.oracle.values import from_duckdb, sql_type, to_duckdb

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import Column, SparkSession

Compute = Callable[[list[pa.Array]], Any]
"""The values of an expression from those of its operands."""

_NUMBERS = itertools.count()
"""Functions belong to the database, which evaluations share: no two have one name."""


@dataclass
class Evaluated:
    """The expressions of one evaluation that became functions of a connection.

    ``session`` gives the SparkSession for those that only Spark evaluates. ``raised`` is what the last of them failed
    with; DuckDB itself keeps only the text.
    """

    connection: duckdb.DuckDBPyConnection
    session: Callable[[], SparkSession | None]
    names: list[str] = field(default_factory=list)
    raised: BaseException | None = None

    def sql(self, expr: Expr, schema: Schema) -> str:
        """A call of the function that evaluates an expression; columns, constants and parts of the lifetime need none.

        Raises NeedsSpark where it takes a session and none is active.
        """
        if _plain(expr):
            return sql(expr, schema)
        kind = infer(expr, schema, "oracle")
        operands = _operands(expr, schema)
        compute = self._computed(expr, schema, operands)

        def function(*vectors: pa.ChunkedArray) -> pa.Array:
            try:
                arguments = [_one(from_duckdb(v, o.kind)) for v, o in zip(vectors, operands, strict=True)]
                return _one(to_duckdb(compute(arguments), kind))
            except BaseException as error:
                self.raised = error
                raise

        # DuckDB counts the parameters
        parameters = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(operands))]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        name = f"expression_{next(_NUMBERS)}"
        # the stubs know neither names for the ways of calling nor types by their SQL
        create: Any = self.connection.create_function
        create(
            name,
            function,
            [sql_type(o.kind) for o in operands],
            sql_type(kind),
            type="arrow",
            null_handling="special",
            exception_handling="default",
        )
        self.names.append(name)
        return f"{name}({listed(*(o.sql for o in operands))})"

    def _computed(self, expr: Expr, schema: Schema, operands: Sequence[_Operand]) -> Compute:
        try:
            check(expr, schema, "oracle")
        except NeedsSpark as error:
            spark = self.session()
            if spark is None:
                hint = "Start a session first: sq.session()."
                raise NeedsSpark(
                    sentence("oracle", "an expression that only Spark evaluates", f"found {show(expr)}", hint)
                ) from error
            return _in_spark(expr, operands, spark)

        def compute(arguments: list[pa.Array]) -> pa.Array:
            by_name = {o.name: v for o, v in zip(operands, arguments, strict=True)}
            return evaluate(expr, schema, by_name, lambda part: by_name[f"__{part}"], len(arguments[0]))

        return compute

    def forget(self) -> None:
        """Take the functions out of the database."""
        for name in self.names:
            self.connection.remove_function(name)


@dataclass(frozen=True)
class _Operand:
    """What a function is given: a payload column by its name, or a part of the lifetime, ``__start`` for one."""

    name: str
    sql: str
    kind: t.DataType


def _plain(expr: Expr) -> bool:
    while isinstance(expr, Alias):
        expr = expr.arg
    return isinstance(expr, Col | Lifetime) or (isinstance(expr, Lit) and expr.type is None)


def _operands(expr: Expr, schema: Schema) -> list[_Operand]:
    # what a pyspark Column reads is not known: any column
    names = frozenset(schema.names) if is_opaque(expr) else columns(expr)
    operands = [_Operand(f.name, f"c{i}", f.type) for i, f in enumerate(schema.fields) if f.name in names]
    for part in sorted({n.part for n in nodes(expr) if isinstance(n, Lifetime)}):
        kind = t.LongType() if part == "duration" else schema.axis_type
        operands.append(_Operand(f"__{part}", lifetime(part, schema), kind))
    # one of constants alone has to be told how many rows there are
    return operands or [_Operand("__le", "le", t.LongType())]


class _ByName:
    """Operands as columns of a DataFrame, for :func:`streamq.plan.spark_form.to_spark`."""

    def column(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(quote(name))

    def lifetime(self, part: str) -> Column:
        return self.column(f"__{part}")


def _in_spark(expr: Expr, operands: Sequence[_Operand], spark: SparkSession) -> Compute:
    schema = t.StructType([t.StructField(o.name, o.kind) for o in operands])

    def compute(arguments: list[pa.Array]) -> pa.ChunkedArray:
        with in_utc(spark):
            frame = spark.createDataFrame(pa.table(arguments, names=schema.names), schema)
            try:
                return frame.select(to_spark(expr, _ByName()).alias("x")).toArrow().column("x")
            except PySparkException as error:
                raise QueryFailed(str(error).strip().splitlines()[0]) from error

    return compute


def _one(column: Any) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


__all__ = ["Evaluated"]
