"""A law's two sides: compared as plans, and executed: left by the oracle, right in-process, without any other rule."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import types as t

from streamq.compiler.rules import RULES
from streamq.plan.node import Node
from streamq.plan.schema import Field
from streamq.run.batch.answers import local_history
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.sources.insert_only import Intervals, Points
from streamq.testing.difference import assert_same_history
from streamq.testing.oracle import oracle
from streamq.windows import Hopping

PAYLOAD = (Field("k", t.StringType()), Field("v", t.LongType()), Field("w", t.DoubleType()))
TRIPS = Points("trips", (Field("at", t.LongType()), *PAYLOAD), "at")
MORE = Points("more", (Field("at", t.LongType()), *PAYLOAD), "at")
STAYS = Intervals("stays", (Field("from", t.LongType()), Field("to", t.LongType()), *PAYLOAD), "from", "to")
HOPPING = Hopping(4, 2)

_ROWS = {
    "k": ["a", "b", "a", None, "c", "a", "b"],
    "v": [1, 2, None, 4, -5, 6, 0],
    "w": [0.5, 1.5, 2.5, None, -1.25, 0.0, 8.0],
}
TABLES = {
    "trips": pa.table({"at": [0, 1, 1, 3, 6, 7, 9], **_ROWS}),
    "more": pa.table({"at": [2, 2, 4, 5, 8, 9, 12], **_ROWS}),
    "stays": pa.table({"from": [0, 1, 1, 3, 6, 7, 9], "to": [3, 9, 2, None, 8, None, 10], **_ROWS}),
}


def why_not(rule: Callable[[Node], Node | None], node: Node) -> str | None:
    """The reason that explain has against a rule at a node."""
    (reason,) = (one.why_not for one in RULES if one.function is rule)
    assert reason is not None
    return reason(node)


def holds(rule: Callable[[Node], Node | None], left: Node, right: Node) -> None:
    """The rule makes ``right`` of ``left``, with the same schema and traits, and both have the same history."""
    assert_same_history(in_process(_made(rule, left, right)), _answer(left))


def holds_in_process(rule: Callable[[Node], Node | None], left: Node, right: Node) -> None:
    """As :func:`holds`, where only streamq itself can say what ``left`` is: it must not be empty."""
    expected = in_process(left)
    assert expected.num_rows
    assert_same_history(in_process(_made(rule, left, right)), expected)


def _made(rule: Callable[[Node], Node | None], left: Node, right: Node) -> Node:
    made = rule(left)
    assert made is not None
    assert drawn(made) == drawn(right)
    assert (made.schema, made.traits) == (left.schema, left.traits)
    return made


def in_process(plan: Node) -> pa.Table:
    """The history of a plan as it stands, computed in-process."""
    out = local_history(plan, TABLES, ()).drop_columns([WEIGHT])
    names = {LE: "start", RE: "end"}
    return out.rename_columns([names.get(n, n) for n in out.column_names])


def drawn(plan: Node) -> str:
    """A plan as text, for readable differences."""
    inputs = ", ".join(drawn(c) for c in plan.children)
    return f"{plan.title}[{plan.detail()}]({inputs})"


def _answer(plan: Node) -> pa.Table:
    return oracle(plan, TABLES)
