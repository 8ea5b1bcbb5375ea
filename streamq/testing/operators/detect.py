"""Detect: defined by the syntax of its pattern; what the rules do not evaluate, by the plan that the compiler makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as t

from streamq.patterns import syntax
from streamq.patterns.detect import Detect
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.runtime.arrow_types import arrow_type
from streamq.testing.meetings import Meeting, meeting_of
from streamq.testing.oracle.definitions import FalseClaim, defines
from streamq.testing.oracle.expressions import listed, payload
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import from_duckdb, to_duckdb
from streamq.testing.patterns.conditions import Unjudged
from streamq.testing.patterns.functions import parts_of_condition
from streamq.testing.patterns.rules import EventType, matches_by_rules, primitives, rows_of
from streamq.testing.patterns.trees import event_types, parts_below
from streamq.testing.patterns.wording import misread
from streamq.testing.scale import lengths
from streamq.time import ticks


@defines(Detect)
def detect(node: Detect, inputs: Sequence[str], run: Run) -> str:
    """The matches, one by one, by the rules of the language (SEMANTICS of patterns in docs/patterns.md)."""
    definitions = node.definitions
    if definitions.source is not None and (wrong := misread(definitions.source, definitions.text)) is not None:
        raise FalseClaim(f"of a pattern's text {wrong}")
    try:
        matches = _matches(node, run)
    except Unjudged:
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
    """The matches of a pattern; raises Unjudged where the rules do not evaluate it."""
    *earlier, last = node.definitions.program.definitions
    of_functions = (part for condition in node.conditions for part in parts_of_condition(condition))
    program = syntax.Program((*earlier, replace(last, where=(*last.where, *of_functions))))
    types = {name: _events(name, plan, run) for name, plan in node.types.items()}
    return matches_by_rules(program, types, node.schema.axis)


def _events(name: str, plan: Node, run: Run) -> EventType:
    """The events of a type: the matches of a pattern with their roots and contributors, the rows of any other plan."""
    if isinstance(plan, Detect):
        return _matches(plan, run)
    return primitives(name, _history(plan.schema, run.histories[plan.digest], run), plan.schema.axis)


def _history(schema: Schema, table: str, run: Run) -> pa.Table:
    rows = run.arrow(f"SELECT {listed('le', 're', *payload(schema))} FROM {table}")
    kinds = [t.LongType(), t.LongType(), *(f.type for f in schema.fields)]
    columns = [from_duckdb(column, kind) for column, kind in zip(rows.columns, kinds, strict=True)]
    return pa.table(columns, names=["start", "end", *schema.names])


@lengths.register(Detect)
def scopes(node: Detect) -> Iterator[int]:
    """The scopes of the pattern."""
    for definition in node.definitions.program.definitions:
        for part in parts_below(definition.pattern):
            within = getattr(part.pattern, "within", None)
            if within is not None:
                yield ticks(within, node.schema.axis)


@meeting_of.register(Detect)
def meeting(node: Detect) -> Meeting:
    """The events of a pattern's types, within its scopes, equal in what equations and correlation keys compare."""
    fields: set[str] = set()
    for definition in node.definitions.program.definitions:
        for condition in definition.where:
            match condition:
                case syntax.CorrelationKey(attributes, True):
                    fields |= set(attributes)
                case syntax.Apply("=", (syntax.EventField(_, one), syntax.EventField(_, other))):
                    fields |= {one, other}
    # as often as the text names it, an event of a type may be needed
    leaves = (kind for d in node.definitions.program.definitions for _, kind in event_types(d.pattern))
    named = [kind.name for kind in leaves if kind.name in node.types]
    inputs = tuple(node.types[name] for name in named)
    return Meeting(inputs if len(inputs) <= MANY else node.inputs, tuple(scopes(node)), frozenset(fields))


MANY = 12
"""Of a pattern with more parts the events come in the order of its types."""
