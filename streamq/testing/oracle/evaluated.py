"""Expressions of a query as functions that DuckDB calls and that evaluate the expression itself.

The technique of the paper on the test framework, section 6.2: there SQL CLR functions, for the types of the two engines
differ and so would any translation. A function's parameters are what its expression reads, by vectors of at most a few
thousand rows; every expression stands over a table that exists, so that it is put to no row but the operator's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, QueryFailed, sentence
from streamq.plan.expr import Alias, Call, Col, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.lifetime import Lifetime
from streamq.plan.lowering import in_utc
from streamq.plan.passes import columns, is_opaque, nodes, rewrite
from streamq.plan.schema import Schema, quote
from streamq.plan.spark_form import to_spark
from streamq.plan.tree import show
from streamq.runtime.arrow_expr import check_in_process, evaluate
from streamq.testing.oracle.expressions import lifetime, sql
from streamq.testing.oracle.python_functions import Compute, Operand, PythonFunctions
from streamq.user_code.udf import UserFunction

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


@dataclass(frozen=True)
class Evaluated:
    """The expressions of one evaluation that become functions; ``session`` gives the SparkSession for those of Spark's."""

    functions: PythonFunctions
    session: Callable[[], SparkSession | None]

    def sql(self, expr: Expr, schema: Schema) -> str:
        """A call of the function that evaluates an expression; columns, constants and parts of the lifetime need none.

        Raises NeedsSpark where it takes a session and none is active.
        """
        if _plain(expr):
            return sql(expr, schema)
        operands = _operands(expr, schema)
        return self.functions.call(self._computed(expr, schema, operands), operands, infer(expr, schema, "oracle"))

    def _computed(self, expr: Expr, schema: Schema, operands: Sequence[Operand]) -> Compute:
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

        with_options = rewrite(expr, _with_options)

        def compute(arguments: list[pa.Array]) -> pa.Array:
            by_name = {o.name: v for o, v in zip(operands, arguments, strict=True)}
            return evaluate(with_options, schema, by_name, lambda part: by_name[f"__{part}"], len(arguments[0]))

        return compute


def _with_options(part: Expr) -> Expr | None:
    """A call of a user's function whose options are bound here, not by the function itself."""
    if not isinstance(part, Call) or not isinstance(part.function, UserFunction):
        return None
    function = part.function
    return replace(part, function=replace(function, code=partial(function.code, **function.options), options={}))


def _plain(expr: Expr) -> bool:
    while isinstance(expr, Alias):
        expr = expr.arg
    return isinstance(expr, Col | Lifetime) or (isinstance(expr, Lit) and expr.type is None)


def _operands(expr: Expr, schema: Schema) -> list[Operand]:
    # what a pyspark Column reads is not known: any column
    names = frozenset(schema.names) if is_opaque(expr) else columns(expr)
    operands = [Operand(f.name, f"c{i}", f.type) for i, f in enumerate(schema.fields) if f.name in names]
    for part in sorted({n.part for n in nodes(expr) if isinstance(n, Lifetime)}):
        kind = t.LongType() if part == "duration" else schema.axis_type
        operands.append(Operand(f"__{part}", lifetime(part, schema), kind))
    # one of constants alone has to be told how many rows there are
    return operands or [Operand("__le", "le", t.LongType())]


class _ByName:
    """Operands as columns of a DataFrame, for :func:`streamq.plan.spark_form.to_spark`."""

    def column(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(quote(name))

    def lifetime(self, part: str) -> Column:
        return self.column(f"__{part}")


def _in_spark(expr: Expr, operands: Sequence[Operand], spark: SparkSession) -> Compute:
    schema = t.StructType([t.StructField(o.name, o.kind) for o in operands])

    def compute(arguments: list[pa.Array]) -> pa.ChunkedArray:
        with in_utc(spark):
            frame = spark.createDataFrame(pa.table(arguments, names=schema.names), schema)
            try:
                return frame.select(to_spark(expr, _ByName()).alias("x")).toArrow().column("x")
            except PySparkException as error:
                raise QueryFailed(str(error).strip().splitlines()[0]) from error

    return compute


__all__ = ["Evaluated"]
