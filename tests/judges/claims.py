"""Check the claims of functions and casts that they never fail, over odd values of their operands' types.

Rules evaluate an expression on more rows where it claims that, so a false claim fails a query, and only over rows that few cases
have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.compiler.rules.rule import can_fail
from streamq.errors import StreamqError
from streamq.plan.expr import Call, Cast, Col, Expr, Lit, show
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import columns, expression_nodes, is_opaque, types
from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow.arrow_expr import attempt
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.testing.intent import ANYTHING
from streamq.testing.payload_values import odd, pool
from streamq.time import INTEGER

SMALL = (t.NumericType, t.BooleanType, t.DateType, t.TimestampType, t.TimestampNTZType, t.DayTimeIntervalType)
"""The types whose values are all small."""

MOST = 2_000
"""The greatest number of rows over which an expression is called."""


class Claims:
    """The claims that have been tried, each once: the failure of each expression over columns of some types, None without one."""

    def __init__(self) -> None:
        self.failures: dict[tuple[str, tuple[DataType, ...]], str | None] = {}
        self.held: set[str] = set()

    def false_one(self, plan: Node) -> str | None:
        """Return an expression of a plan that claims never to fail and does, with its failure; None if there is none."""
        if plan.digest in self.held:
            return None
        parts = (part for node in nodes(expanded(plan)) for expr in expressions(node) for part in _parts(expr, node))
        for part, kinds in parts:
            key = part.digest, kinds
            if key not in self.failures:
                self.failures[key] = _failure(part, kinds)
            if self.failures[key] is not None:
                return self.failures[key]
        self.held.add(plan.digest)
        return None


def _schema_of(expr: Expr, node: Node) -> Schema | None:
    """Return the schema of the events that a node's expression reads: of an input, or its own; None if no one has its columns."""
    schemas = (*(child.schema for child in node.children), node.schema)
    return next((s for s in schemas if not is_opaque(expr) and columns(expr) <= set(s.names)), None)


def _parts(expr: Expr, node: Node) -> Iterator[tuple[Expr, tuple[DataType, ...]]]:
    """Yield the calls and casts in an expression over columns x0, x1, ... instead of their operands, with the columns' types.

    Constants stay. Nothing is yielded for types that are not known, for columns that no input of the node has, and for results
    that odd operands could make as large as memory.
    """
    schema = _schema_of(expr, node)
    if schema is None:
        return
    try:
        kinds = types(expr, schema, "oracle")
    except StreamqError:
        return
    for part in expression_nodes(expr):
        operands = [child for child in part.children if not isinstance(child, Lit)]
        read = tuple(kind for child in operands if (kind := kinds[child.digest]) is not None)
        if isinstance(part, Call | Cast) and len(read) == len(operands) and isinstance(kinds[part.digest], SMALL):
            yield _over_columns(part), read


def _over_columns(part: Call | Cast) -> Expr:
    """Return a call or a cast with a column x0, x1, ... in place of each operand that is no constant."""
    numbers = itertools.count()

    def column(operand: Any) -> Any:
        # some arguments are plain values
        return Col(f"x{next(numbers)}") if isinstance(operand, Expr) and not isinstance(operand, Lit) else operand

    if isinstance(part, Cast):
        return replace(part, arg=column(part.arg))
    return replace(part, args=tuple(map(column, part.args)))


def _failure(part: Expr, kinds: tuple[DataType, ...]) -> str | None:
    """Return the failure of an expression over columns x0, x1, ... of these types that claims to have none; None without one.

    Expressions that only Spark evaluates are not tried.
    """
    schema = Schema(tuple(Field(f"x{i}", kind) for i, kind in enumerate(kinds)), INTEGER)
    if can_fail(part, schema):
        return None
    try:
        values = [[None, *pool(kind, ANYTHING), *odd(kind, ANYTHING)] for kind in kinds]
        rows = list(itertools.islice(itertools.product(*values), MOST))
        arrays = {f.name: pa.array([row[i] for row in rows], arrow_type(f.type)) for i, f in enumerate(schema.fields)}
        faults = attempt(part, schema, arrays, _no_lifetime, len(rows)).faults
    except StreamqError:
        return None
    if not faults:
        return None
    operands = ", ".join(f"x{i} = {value!r}" for i, value in enumerate(rows[int(faults[0].rows.argmax())]))
    return f"{show(part)} claims never to fail, and fails for {operands}: {faults[0].text}"


def _no_lifetime(part: str) -> Any:
    raise AssertionError(part)


__all__ = ["Claims"]
