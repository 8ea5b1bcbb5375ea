"""Detect: defined by the rules of its pattern's syntax or, where they do not cover it, by the compiler's expansion of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as t

from streamq.patterns import syntax
from streamq.patterns import syntax as s
from streamq.patterns.definitions import Detect
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.testing.oracle.run import Run, defines
from streamq.testing.oracle.values import from_duckdb, listed, payload, to_duckdb
from streamq.testing.patterns.conditions import UnjudgedPattern
from streamq.testing.patterns.matches import EventType, event_types, parts_below
from streamq.testing.patterns.rules import matches_by_rules, primitives, rows_of
from streamq.testing.query_scale import Meeting, lengths, meeting_of
from streamq.time import ticks

IN_TEXTS: Mapping[str, str] = {
    "==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "+": "+", "-": "-", "*": "*",
    "and": "and", "or": "or", "not": "not", "isin": "in", "isnull": "is null", "negative": "negative",
}  # fmt: skip
"""Operators of the language by those of expressions."""

OWN = {"@": "@Vs", "@.root": "@root"}
"""Names in the rules of a variable's built-in columns."""


def parts_of_condition(condition: Expr) -> Iterator[s.Expression]:
    """Yield the conditions that AND connects, at any depth, in the language; raise UnjudgedPattern as :func:`in_text`.

    They are apart because each is checked as soon as its variables are bound.
    """
    match in_text(condition):
        case s.Apply("and", parts):
            for part in parts:
                yield from _flatten(part)
        case one:
            yield one


def _flatten(part: s.Expression) -> Iterator[s.Expression]:
    """Yield a condition, or instead of an AND, at any depth, the conditions that it connects."""
    match part:
        case s.Apply("and", parts):
            for inner in parts:
                yield from _flatten(inner)
        case _:
            yield part


def in_text(expr: Expr) -> s.Expression:
    """Translate an expression over columns ``x.field`` to the language.

    Raises UnjudgedPattern unless it has only columns, constants without a type, and operators of IN_TEXTS: a CASE or a cast
    has no translation here, though the language has both.
    """
    match expr:
        case Col(name=name):
            variable, _, field = name.partition(".")
            return s.EventField(variable, OWN.get(field, field))
        case Lit(value=value, type=None):
            return s.Literal(value)
        case Call(function=function) if function.identity in IN_TEXTS:
            return s.Apply(IN_TEXTS[function.identity], tuple(map(in_text, expr.children)))
    raise UnjudgedPattern(f"the expression {expr!r}")


@defines(Detect)
def detect(node: Detect, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the matches, found by the rules of the language (docs/patterns.md), else by the compiler's expansion."""
    try:
        matches = _matches(node, run)
    except UnjudgedPattern:
        return f"SELECT {listed('le', 're', *payload(node.schema))} FROM {run.define(node.expansion)}"
    rows = rows_of(matches)
    columns = {
        "le": pa.array([r["start"] for r in rows], pa.int64()),
        "re": pa.array([r["end"] for r in rows], pa.int64()),
    }
    for i, field in enumerate(node.schema.fields):
        values = pa.array([r[field.name] for r in rows], arrow_type(field.type))
        columns[f"c{i}"] = to_duckdb(values, field.type)
    return f"SELECT * FROM {run.registered(pa.table(columns))}"


def _matches(node: Detect, run: Run) -> EventType:
    """Return the matches of a pattern; raise UnjudgedPattern if the rules do not cover it."""
    *earlier, last = node.definitions.program.definitions
    function_conditions = (part for condition in node.conditions for part in parts_of_condition(condition))
    program = syntax.Program((*earlier, replace(last, where=(*last.where, *function_conditions))))
    types = {name: _events(name, plan, run) for name, plan in node.types.items()}
    return matches_by_rules(program, types, node.schema.axis)


def _events(name: str, plan: Node, run: Run) -> EventType:
    """Return the events of a type: matches, with roots and contributors, if its plan is a pattern, else the plan's rows."""
    if isinstance(plan, Detect):
        return _matches(plan, run)
    return primitives(name, _history(plan.schema, run.histories[plan.digest], run), plan.schema.axis)


def _history(schema: Schema, table: str, run: Run) -> pa.Table:
    """Return a table of DuckDB, which holds a history of this schema, as an Arrow table with the schema's column names."""
    rows = run.arrow(f"SELECT {listed('le', 're', *payload(schema))} FROM {table}")
    kinds = [t.LongType(), t.LongType(), *(f.type for f in schema.fields)]
    columns = [from_duckdb(column, kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    return pa.table(columns, names=["start", "end", *schema.names])


@lengths.register(Detect)
def scopes(node: Detect) -> Iterator[int]:
    """Yield the scopes of the pattern, in ticks."""
    for definition in node.definitions.program.definitions:
        for part in parts_below(definition.pattern):
            within = getattr(part.pattern, "within", None)
            if within is not None:
                yield ticks(within, node.schema.axis)


@meeting_of.register(Detect)
def meeting(node: Detect) -> Meeting:
    """Return the meeting of a pattern: events of its types, within its scopes, with equal values in compared fields.

    Compared fields are those in equations and in correlation keys. An input stands for each mention of a type, in the order of
    the text; if there are more than MANY, for each type.
    """
    fields: set[str] = set()
    for definition in node.definitions.program.definitions:
        for condition in definition.where:
            match condition:
                case syntax.CorrelationKey(attributes, True):
                    fields |= set(attributes)
                case syntax.Apply("=", (syntax.EventField(_, one), syntax.EventField(_, other))):
                    fields |= {one, other}
    # a match may need an event for each mention of a type
    leaves = (kind for d in node.definitions.program.definitions for _, kind in event_types(d.pattern))
    named = [kind.name for kind in leaves if kind.name in node.types]
    inputs = tuple(node.types[name] for name in named)
    return Meeting(inputs if len(inputs) <= MANY else node.inputs, tuple(scopes(node)), frozenset(fields))


MANY = 12
"""The greatest number of parts for which a meeting follows the order of the parts; beyond, it follows the types' order."""
