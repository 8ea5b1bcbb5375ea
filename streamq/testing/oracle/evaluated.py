"""Turn expressions of a query into functions that DuckDB calls, and that evaluate the expression as streamq does.

This is the technique of the paper on the test framework, section 6.2, which uses SQL CLR functions, because the types of the two
engines differ and so would any translation. A function's parameters are the columns and lifetime parts that its expression reads,
in vectors of at most a few thousand rows. Expressions are evaluated over existing tables only, so that no other rows than the
operator's are evaluated.

Only expressions without a definition of the oracle's own come here: those that only Spark evaluates, and a few functions and
casts (of decimals, nested values and fields) that would be written twice in the same words. A mistake in these goes unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, QueryFailed, sentence
from streamq.plan.expr import Alias, Col, Expr, Lifetime, Lit
from streamq.plan.lowering import in_utc, to_spark
from streamq.plan.passes import columns, expression_nodes, infer, is_opaque
from streamq.plan.schema import Schema, quote
from streamq.plan.tree import show
from streamq.runtime.arrow_expr import check_in_process, evaluate
from streamq.testing.oracle.expressions import lifetime, sql
from streamq.testing.oracle.python_functions import Compute, Operand, PythonFunctions

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


@dataclass(frozen=True)
class Evaluated:
    """Makes functions of the expressions of one evaluation; ``session`` returns the SparkSession for those that need Spark."""

    functions: PythonFunctions
    session: Callable[[], SparkSession | None]

    def sql(self, expr: Expr, schema: Schema) -> str:
        """Return the SQL of an expression: a column, constant or lifetime part directly, else a call of its function.

        Raises NeedsSpark if the expression needs a session and none is active.
        """
        if _plain(expr):
            return sql(expr, schema)
        operands = _operands(expr, schema)
        return self.functions.call(self._computation(expr, schema, operands), operands, infer(expr, schema, "oracle"))

    def _computation(self, expr: Expr, schema: Schema, operands: Sequence[Operand]) -> Compute:
        """Return the Python function that evaluates an expression over columns of its operands, in Spark if it must be.

        Raises NeedsSpark if it must be and no session is active.
        """
        try:
            check_in_process(expr, schema, "oracle")
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


def _plain(expr: Expr) -> bool:
    """True for a column, a part of the lifetime, and a constant of its own type, under any alias."""
    while isinstance(expr, Alias):
        expr = expr.arg
    return isinstance(expr, Col | Lifetime) or (isinstance(expr, Lit) and expr.type is None)


def _operands(expr: Expr, schema: Schema) -> list[Operand]:
    """Return the columns and lifetime parts that an expression reads; the start, in ticks, if it reads none.

    An expression with a pyspark Column has all columns.
    """
    # a pyspark Column cannot be inspected and may read any column
    names = frozenset(schema.names) if is_opaque(expr) else columns(expr)
    operands = [Operand(f.name, f"c{i}", f.type) for i, f in enumerate(schema.fields) if f.name in names]
    for part in sorted({n.part for n in expression_nodes(expr) if isinstance(n, Lifetime)}):
        kind = t.LongType() if part == "duration" else schema.axis_type
        operands.append(Operand(f"__{part}", lifetime(part, schema), kind))
    # a function of constants alone needs one parameter to know the number of rows
    return operands or [Operand("__le", "le", t.LongType())]


class _ByName:
    """Maps operands to columns of a DataFrame, for :func:`streamq.plan.lowering.to_spark`."""

    def column(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(quote(name))

    def lifetime(self, part: str) -> Column:
        return self.column(f"__{part}")


def _in_spark(expr: Expr, operands: Sequence[Operand], spark: SparkSession) -> Compute:
    """Return the function that evaluates an expression in Spark; it raises QueryFailed if Spark does."""
    schema = t.StructType([t.StructField(o.name, o.kind) for o in operands])

    def compute(arguments: list[pa.Array]) -> pa.ChunkedArray:
        """Return the expression's values, computed in UTC by a DataFrame of the arguments."""
        with in_utc(spark):
            frame = spark.createDataFrame(pa.table(arguments, names=schema.names), schema)
            try:
                return frame.select(to_spark(expr, _ByName()).alias("x")).toArrow().column("x")
            except PySparkException as error:
                raise QueryFailed(str(error).strip().splitlines()[0]) from error

    return compute


__all__ = ["Evaluated"]
