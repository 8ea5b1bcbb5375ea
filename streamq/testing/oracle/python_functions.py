"""Python functions that SQL calls in one evaluation; by them expressions are evaluated as streamq evaluates them.

That is the technique of the paper on the test framework, section 6.2, which uses SQL CLR functions, because the types of the two
engines differ and so would any translation. A function's parameters are the columns and lifetime parts that its expression reads,
in vectors of at most a few thousand rows. Expressions are evaluated over existing tables only, so that no other rows than the
operator's are evaluated.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.errors import NeedsSpark, QueryFailed
from streamq.plan.expr import Alias, Col, Expr, Lifetime, Lit
from streamq.plan.lowering import in_utc, to_spark
from streamq.plan.passes import columns, expression_nodes, infer, is_opaque
from streamq.plan.schema import Schema, quote
from streamq.plan.tree import show
from streamq.runtime.arrow.arrow_expr import check_in_process, evaluate
from streamq.testing.oracle.values import from_duckdb, lifetime, listed, literal, sql_type, to_duckdb

Compute = Callable[[list[pa.Array]], Any]
"""A function from the columns of the operands to the column of results."""

_NUMBERS = itertools.count()
"""Numbers for unique names: functions belong to the database, which evaluations share."""


@dataclass(frozen=True)
class Operand:
    """A parameter of a function: its name, the SQL of the argument, and its type."""

    name: str
    sql: str
    kind: t.DataType


@dataclass
class PythonFunctions:
    """The functions of one evaluation.

    ``raised`` is the exception of the last function that failed; DuckDB itself keeps only its text. ``set_aside`` counts the
    failed calls of modules with ``on_error="quarantine"``, by module.
    """

    connection: duckdb.DuckDBPyConnection
    names: list[str] = field(default_factory=list)
    raised: BaseException | None = None
    set_aside: Counter[str] = field(default_factory=Counter)

    def call(self, compute: Compute, operands: Sequence[Operand], kind: t.DataType) -> str:
        """Register ``compute``, whose results have type ``kind``, as a function, and return the SQL of its call.

        ``compute`` gets whole columns, with their NULLs. The function is added to ``names``; an error in it is kept in ``raised``
        and raised in DuckDB.
        """

        def function(*vectors: pa.ChunkedArray) -> pa.Array:
            """Call ``compute`` over operands in Spark's types; return the results in DuckDB's; keep an error in ``raised``."""
            try:
                arguments = [_one(from_duckdb(v, o.kind)) for v, o in zip(vectors, operands, strict=True)]
                return _one(to_duckdb(compute(arguments), kind))
            except BaseException as error:
                self.raised = error
                raise

        # DuckDB reads the number of parameters from the signature
        parameters = [inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(operands))]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        name = f"streamq_{next(_NUMBERS)}"
        # the stubs know neither the strings for these options nor types given as SQL
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

    def forget(self) -> None:
        """Remove the functions from the database."""
        for name in self.names:
            self.connection.remove_function(name)


def _one(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def evaluated(expr: Expr, schema: Schema, functions: PythonFunctions) -> str:
    """Return the SQL of an expression: a column, constant or part of the lifetime, else a call of what evaluates it.

    An expression that cannot be evaluated in-process is evaluated by the active SparkSession; raises NeedsSpark if there is none.
    """
    below = expr
    while isinstance(below, Alias):
        below = below.arg
    match below:
        case Col(name=name):
            return f"c{schema.names.index(name)}"
        case Lit(value=value, type=None):
            return literal(value)
        case Lifetime(part=part):
            return lifetime(part, schema)
    operands = _operands(expr, schema)
    return functions.call(_computation(expr, schema, operands), operands, infer(expr, schema, "oracle"))


def _computation(expr: Expr, schema: Schema, operands: Sequence[Operand]) -> Compute:
    """Return the Python function that evaluates an expression over columns of its operands, in Spark if it must be.

    Raises NeedsSpark if it must be and no session is active.
    """
    try:
        check_in_process(expr, schema, "oracle")
    except NeedsSpark as error:
        spark = SparkSession.getActiveSession()
        if spark is None:
            hint = "Start a session first: sq.session()."
            raise NeedsSpark(
                "oracle", "an expression that only Spark evaluates", f"found {show(expr)}", hint
            ) from error
        return _in_spark(expr, operands, spark)

    def compute(arguments: list[pa.Array]) -> pa.Array:
        by_name = {o.name: v for o, v in zip(operands, arguments, strict=True)}
        return evaluate(expr, schema, by_name, lambda part: by_name[f"__{part}"], len(arguments[0]))

    return compute


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
