"""Plans as programs: a program builds the plan it was made of, over the same tables, in the verbs a user would write."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import types as t

import streamq as sq
from streamq import col, lit
from streamq.choices import LengthKind
from streamq.errors import PlanError
from streamq.functions.catalogue import function_of
from streamq.operators import AlterLifetime, JoinTable, Select, Where, WindowAggregate, written_operators
from streamq.operators.lifetime_change import Length, Start
from streamq.patterns.detect import Detect
from streamq.plan.expr import Call, Lit, Opaque
from streamq.plan.node import Node, nodes, number_sources, rename_tables
from streamq.plan.schema import Schema
from streamq.testing.case import Case
from streamq.testing.generate import cases
from streamq.testing.program import TESTING, program
from streamq.testing.program_text import Unwritable
from streamq.testing.program_verbs import verbs
from streamq.testing.python_values import keys
from streamq.testing.table import fields_of, table
from streamq.time import TIMESTAMP
from streamq.user_code.udo import UserOperator
from tests.algebra import QUERIES, SIZES, intervals
from tests.each import each


def built(text: str, result: str = "q") -> sq.Stream:
    """The query of a program."""
    names: dict[str, Any] = {"t": SimpleNamespace(table=table)}
    exec(text.replace(f"{TESTING}\n", ""), names)
    return names[result]


def check(plan: Node, tables: dict[str, pa.Table]) -> str:
    """The program, once it has built the same query over the same tables."""
    text = program(plan, tables)
    query = built(text)
    wanted, names = number_sources(plan)
    rebuilt, own = number_sources(query.plan)
    assert rebuilt == wanted
    ours = {own[n]: held for n, held in query.tables.items() if n in own}
    theirs = {names[n]: held for n, held in tables.items() if n in names}
    assert ours.keys() == theirs.keys()
    for name, held in ours.items():
        assert held.schema == theirs[name].select(held.column_names).schema
        assert keys(held) == keys(theirs[name].select(held.column_names))
    assert text == program(plan, tables)
    return text


BY_JSON = ("apply", "rows of a UDO", "events of a UDO")
"""Queries with code of a user's own, which a text does not hold, and with columns that carry keys under names of their own."""


def has_no_verb(node: Node) -> bool:
    """Nodes that the generators make and no public verb gives."""
    match node:
        case JoinTable(columns=columns, names=names, on=on):
            shared = {b for a, b in on if a == b}
            return tuple(n for n, _ in names) != tuple(f.name for f in columns if f.name not in shared)
        case WindowAggregate(aggregates=aggregates):
            return len({a.digest for _, a in aggregates}) < len(aggregates)
        case AlterLifetime(start=start, length=length):
            by_verbs = start == Start() or (start.anchor == "LE" and start.expr is None and length == Length())
            moved = bool(start.by) or (length.kind == LengthKind.SAME and bool(length.by))
            return not by_verbs and (moved or (node.schema.axis == TIMESTAMP and start.expr is not None))
    return False


def is_of_a_user(node: Node) -> bool:
    """Whether a node is the windows of an operator of a user's."""
    return isinstance(node, WindowAggregate) and any(isinstance(a.function, UserOperator) for _, a in node.aggregates)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 3 // 2)  # type: ignore[union-attr]
@given(cases())
def test_random_plans(case: Case) -> None:
    text = check(case.plan, {**case.tables, **case.static})
    without_verb = sum(map(has_no_verb, nodes(case.plan)))
    # an operator of a user's is a verb only together with what makes rows of its lists
    operators = sum(map(is_of_a_user, nodes(case.plan)))
    # what is below such an operator may stand in its text
    assert (
        min(without_verb, 1 if operators else without_verb) <= text.count("sq.from_json(") <= without_verb + operators
    )


@pytest.mark.slow
@each(QUERIES, [True, False])
def test_every_query_of_the_algebra(name: str, named: bool) -> None:
    s, z = (sq.intervals(intervals(i, 8), "from", "to", name=f"s{i}" if named else None) for i in (1, 2))
    query = QUERIES[name](s, z, SIZES)
    text = check(query.plan, query.tables)
    # the columns that carry a group's keys through a sub-plan have names of their own
    assert ("sq.from_json(" in text) == (name in BY_JSON)


def test_every_operator_has_verbs() -> None:
    s, z = (sq.intervals(intervals(i, 8), "from", "to", name=f"s{i}") for i in (1, 2))
    streams = [query(s, z, SIZES) for name, query in QUERIES.items() if name not in BY_JSON]
    streams += [
        sq.cedr("EVENT E WHEN SEQUENCE(A AS x FIRST, B AS y, 9) WHERE x.k = y.k", A=s, B=z),
        SOURCES,
        sq.changes(LOG, "what now", "at", "id", order_by="paid", beside="paid", name="log", invalid="drop"),
        s.union(z).where(col("v") > 1),
        sq.events([sq.insert(1, v=2)], progress=sq.generate(5), name="e"),
    ]
    kinds: set[type[Node]] = set()
    for query in streams:
        assert "sq.from_json(" not in check(query.plan, query.tables)
        kinds |= {type(n) for n in nodes(query.plan)}
    assert kinds == {*written_operators(), Detect}


LOG = table(
    "at timestamp, `what now` string, id int, paid decimal(5,2), seen array<date>",
    [
        (dt.datetime(2024, 5, 1, 12), "on", 1, Decimal("1.50"), [dt.date(2024, 5, 1), None]),
        (None, None, None, None, None),
    ],
)
ITEMS = table("kind string, start timestamp, end timestamp, REnew timestamp, id int", [("insert", 5, None, 7, 1)])
ZONES = table("id int, at timestamp, city string", [(1, 3, 'Ulm "an der" Donau')])
EDGES = sq.edges(
    LOG, "at", edge="what now", key="id", open="on", close=None, payload="end",
    name="log book", progress=sq.generate("90 seconds"), late="adjust", invalid="drop",
)  # fmt: skip
POINTS = sq.points(LOG, "at", name="sq", progress=sq.explicit())
PHYSICAL = sq.physical(ITEMS, new_end="REnew", id="id", name="items", late="fail")
SOURCES = (
    EDGES.select("id", n=1)
    .union(POINTS.select("id", n=lit(2)), POINTS.chop("1 day").select("id", n=3))
    .join(PHYSICAL.distinct_ids("2 minutes", id="id"), on=[("n", "id")], suffixes=("_a", "_b"))
    .join_table(ZONES, on=[("id_a", "id")], suffixes=("", "_zone"), name="zones")
    .landmark_window("1 hour", start=dt.datetime(2024, 5, 1), period="1 day")
    .select(total=sq.sum("n"), since=sq.window_start())
)

PROGRAM = """\
import datetime as dt
from decimal import Decimal

import streamq as sq
from streamq import lit
from streamq import testing as t

edges = sq.edges(
    t.table(
        "at timestamp, `what now` string, id int, paid decimal(5,2), seen array<date>",
        [
            (
                dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC),
                "on",
                1,
                Decimal("1.50"),
                [dt.date(2024, 5, 1), None],
            ),
            (None, None, None, None, None),
        ],
    ),
    time="at",
    edge="what now",
    key="id",
    open="on",
    close=lit(None),
    payload="end",
    name="log book",
    progress=sq.generate("90 seconds"),
    late="adjust",
    invalid="drop",
)
sq2 = sq.points(
    t.table(
        "at timestamp, `what now` string, id int, paid decimal(5,2), seen array<date>",
        [
            (
                dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC),
                "on",
                1,
                Decimal("1.50"),
                [dt.date(2024, 5, 1), None],
            ),
            (None, None, None, None, None),
        ],
    ),
    time="at",
    name="sq",
    progress=sq.explicit(),
)
s = sq2.select("id", n=2)
s2 = sq2.chop("1 day").select("id", n=3)
items = sq.physical(
    t.table(
        "kind string, start timestamp, end timestamp, REnew timestamp, id int",
        [("insert", 5, None, 7, 1)],
    ),
    new_end="REnew",
    id="id",
    name="items",
    late="fail",
)
s3 = items.distinct_ids(within="2 minutes", id="id")
q = (
    edges.select("id", n=1)
    .union(s, s2)
    .join(s3, on=[("n", "id")], suffixes=("_a", "_b"))
    .join_table(
        t.table("id int, at timestamp, city string", [(1, 3, 'Ulm "an der" Donau')]),
        on=[("id_a", "id")],
        name="zones",
    )
    .landmark_window("1 hour", start=dt.datetime(2024, 5, 1, 0, 0, tzinfo=dt.UTC), period="1 day")
    .select(total=sq.sum("n"), since=sq.window_start())
)
"""


def test_a_program_reads_as_one_writes_it() -> None:
    assert check(SOURCES.plan, SOURCES.tables) == PROGRAM


def test_a_window_s_select_takes_no_plain_text() -> None:
    query = (
        sq.points(LOG, "at", name="log").tumbling_window("1 hour").select(of=lit("hourly"), hours=1, n=sq.count() + 1)
    )
    assert '.select(of=lit("hourly"), hours=1, n=sq.count() + 1)' in check(query.plan, query.tables)


# what no verb gives

NAMED = sq.points(table("at bigint, v int", [(1, 2), (3, 4)]), "at", name="p")


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    "plan",
    [
        AlterLifetime(NAMED.plan, Start(by=2), Length(LengthKind.FIXED, 3)),
        AlterLifetime(NAMED.plan, Start(), Length(LengthKind.GIVEN, 0, sq.duration())),
        Where(NAMED.plan, col("v") > Lit(1, t.LongType())),
        Select(NAMED.plan, (("__own", col("v")),)),
    ],
    ids=["moved twice", "a duration that is the duration", "a typed constant", "a name of our own"],
)
def test_a_node_without_a_verb_is_read_from_its_json(plan: Node, named: bool) -> None:
    rows, name = NAMED.tables["p"], "p" if named else "#7"
    text = check(rename_tables(plan, {"p": name}), {name: rows})
    source = "p" if named else "points"
    assert text.count("sq.from_json(") == 1
    assert f"{source} = sq.points(" in text
    assert f"    {source}={source}," in text


@pytest.mark.parametrize("name", ["zones", "s", "#9"])
def test_a_lookup_without_a_verb_has_its_table(name: str) -> None:
    zones, fields = table("v int, city string", [(2, "Ulm")]), fields_of("v int, city string")
    shared = NAMED.where(col("v") > 1).plan
    plan = JoinTable(shared, name, fields, (("v", "v"),), "inner", (("city", "town"),))
    assert check(plan, {"p": NAMED.tables["p"], name: zones}).count("sq.from_json(") == 1


def test_one_table_of_two_sources() -> None:
    rows = NAMED.tables["p"]
    other = sq.points(rows, "at", name="p", late="fail")
    text = check(NAMED.union(other).plan, {"p": rows})
    assert text.count("p_rows") == 3
    unnamed = rename_tables(NAMED.union(other).plan, {"p": "#3"})
    assert check(unnamed, {"#3": rows}).count("sq.from_json(") == 1


def test_what_is_above_and_below_such_a_node_is_written_in_verbs() -> None:
    moved = AlterLifetime(NAMED.where(col("v") > 1).plan, Start(by=2), Length(LengthKind.FIXED, 3))
    query = sq.Stream(moved, NAMED.tables)
    both = query.union(query.where(col("v") < 9).join(NAMED, suffixes=("", "_r")).select("v"))
    text = check(both.plan, both.tables)
    assert text.count("sq.from_json(") == text.count('.where(col("v") > 1)') == text.count("t.table(") == 1


def test_a_sub_plan_with_hidden_columns_is_read_from_its_json_over_tables() -> None:
    applied = NAMED.group_by("v").apply(lambda g: g.shift(1).tumbling_window(5).select(n=sq.count()))
    text = check(applied.where(col("n") > 1).plan, applied.tables)
    assert text.count("sq.from_json(") == 1
    assert '.where(col("n") > 1)' in text


@pytest.mark.slow
def test_long_and_deep_plans() -> None:
    query, deep, shared = NAMED, col("v") + 1, col("v") + 1
    for i in range(400):
        query, deep = query.where(col("v") != i), deep + 1
    for _ in range(40):
        shared = shared + shared
    text = check(query.select(deep=deep, shared=shared).plan, query.tables)
    assert text.count(".where(") == 400


def test_names_do_not_clash() -> None:
    rows = table("at bigint, self int, `for` int, `a b` int, l int", [(1, 2, 3, 4, 5)])
    one, two = sq.points(rows, "at", name="q"), sq.points(rows, "at", name="list")
    left = one.select(col("l"), (col("self") + 1).alias("x"), col("for").alias("self"), y=lit("a"))
    joined = left.join(two, on="l", suffixes=("", "_"))
    other = joined.with_columns(z=col("a b") + 1).rename({"a b": "b a", "for": "class"})
    check(other.plan, other.tables)
    again = other.group_by("b a").tumbling_window(3).select(sq.sum("class").alias("the sum"), n=sq.count())
    check(again.plan, other.tables)


def test_another_result_and_other_rows() -> None:
    text = program(NAMED.plan, NAMED.tables, result="trips")
    assert built(text, "trips").to_arrow() == NAMED.to_arrow()
    ticks = pa.table({"at": [5], "v": pa.array([1], pa.int32())})
    plan = sq.points(table("at timestamp, v int", []), "at", name="p").plan
    assert "[(5, 1)]" in program(plan, {"p": ticks})


def test_what_is_wrong() -> None:
    with pytest.raises(PlanError, match="program: no table 'p'; there are: none"):
        program(NAMED.plan, {})
    hidden = Where(NAMED.plan, Call(function_of("isnull"), (Opaque(None, "upper(k)"),)))
    with pytest.raises(PlanError, match=r"to_json: a pyspark Column cannot be written; found upper\(k\)"):
        program(hidden, NAMED.tables)


def test_a_node_that_nobody_knows_is_written_as_the_verb_of_its_room() -> None:
    """Its fields are the verb's arguments, streams first; what no verb takes so is Unwritable."""
    left, right = sq.events([(1, 2, {"k": 1})], name="left"), sq.events([(1, 2, {"k": 1})], name="right")

    @dataclass(frozen=True, eq=False, repr=False)
    class Shortened(Node):
        input: Node
        by: Node
        keys: tuple[str, ...]
        ticks: int

        def _schema(self) -> Schema:
            return self.input.schema

    Shortened.__module__ = "streamq.operators.shortened"
    node = Shortened(left.plan, right.plan, ("k",), 3)
    assert verbs(node, {right.plan.digest: "right"}, {}) == ['.shortened(right, keys="k", ticks=3)']
    with pytest.raises(Unwritable):
        verbs(Shortened(left.plan, right.plan, (1,), 3), {right.plan.digest: "right"}, {})  # type: ignore[arg-type]
