"""Queries as programs: a program makes the calls that made the query, over the same tables, and so builds the same plan."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import streamq as sq
from streamq import col, lit
from streamq import testing as t
from streamq.compiler.plan_json import plan_to_json
from streamq.errors import PlanError
from streamq.functions.catalogue import function_of
from streamq.operators import AlterLifetime, Where
from streamq.operators.alter_lifetime import Length, Start
from streamq.plan.expr import Call, Opaque
from streamq.plan.node import Node, number_sources
from streamq.testing.arrival import keys
from streamq.testing.case import Case
from streamq.testing.program import program
from streamq.testing.table import table
from streamq.user_code.repository import called_modules
from tests.algebra import QUERIES, SIZES, intervals
from tests.each import each
from tests.laws.test_operators import OPERATORS
from tests.operators.test_plans_of_verbs import QUERIES as CALLS

once = settings(max_examples=1, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))


def built(text: str) -> sq.Stream:
    """The query of a program, which is not asked for its answer."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(text.replace("print(q", "str(lambda: q"), names)
    query: sq.Stream = names["q"]
    return query


def builds(text: str, plan: Node) -> bool:
    """Whether a program builds a plan; code of a user's own is another object there, in the same places."""
    rebuilt, wanted = (number_sources(one)[0] for one in (built(text).plan, plan))
    return rebuilt == wanted or (bool(called_modules(plan)) and without_code(rebuilt) == without_code(wanted))


def without_code(plan: Node) -> Any:
    """The JSON of a plan without what depends on the code of modules and on the place where it was read."""

    def visit(part: Any) -> Any:
        if isinstance(part, list):
            return [visit(one) for one in part]
        own = ("digest", "registered_in")
        return {n: visit(one) for n, one in part.items() if n not in own} if isinstance(part, dict) else part

    return visit(plan_to_json(plan))


def check(query: sq.Stream) -> str:
    """The program, once it has built the same query over the same tables."""
    text = program(query)
    for module in called_modules(query.plan):
        # other tests have modules of that name
        sq.modules.register(module)
    assert builds(text, query.plan)
    again = built(text)
    ours, theirs = (
        {names[n]: held for n, held in one.tables.items() if n in names}
        for one in (query, again)
        for _, names in [number_sources(one.plan)]
    )
    assert ours.keys() == theirs.keys()
    for name, held in theirs.items():
        assert held.schema == ours[name].select(held.column_names).schema
        assert keys(held) == keys(ours[name].select(held.column_names))
    return text


@pytest.mark.slow
@each(QUERIES, [True, False])
def test_every_query_of_the_algebra(name: str, named: bool) -> None:
    s, z = (sq.intervals(intervals(i, 8), "from", "to", name=f"s{i}" if named else None) for i in (1, 2))
    assert "sq.from_json(" not in check(QUERIES[name](s, z, SIZES))


@each(CALLS)
def test_every_verb_with_every_argument(query: sq.Stream) -> None:
    assert "sq.from_json(" not in check(query)


@pytest.mark.slow
@each(OPERATORS)
def test_every_operator_with_arguments_at_random(name: str) -> None:
    @once
    @given(t.concrete(OPERATORS[name]))
    def run(case: Case) -> None:
        text = case.program()
        assert builds(text, case.plan)
        assert "sq.from_json(" not in text

    run()


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
PHYSICAL = sq.physical(ITEMS, new_end="REnew", id="id", name="items", late="fail", progress=sq.follow(POINTS))
SOURCES = (
    EDGES.select("id", n=1)
    .union(POINTS.select("id", n=lit(2)), POINTS.chop("1 day").where(POINTS["id"] > 1).select("id", n=3))
    .join(
        PHYSICAL.distinct_ids("2 minutes", id="id"),
        on=[("n", "id")],
        where=lambda a, b: a.n < b.id,
        suffixes=("_a", "_b"),
    )
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
zones = t.table("id int, at timestamp, city string", [(1, 3, 'Ulm "an der" Donau')])
items = sq.physical(
    t.table(
        "kind string, start timestamp, end timestamp, REnew timestamp, id int",
        [("insert", 5, None, 7, 1)],
    ),
    new_end="REnew",
    id="id",
    name="items",
    progress=sq.follow(sq2),
    late="fail",
)
q = (
    edges.select("id", n=1)
    .union(sq2.select("id", n=lit(2)), sq2.chop("1 day").where(sq2["id"] > 1).select("id", n=3))
    .join(
        items.distinct_ids("2 minutes", id="id"),
        on=[("n", "id")],
        where=lambda a, b: a.n < b.id,
        suffixes=("_a", "_b"),
    )
    .join_table(zones, on=[("id_a", "id")], suffixes=("", "_zone"), name="zones")
    .landmark_window("1 hour", start=dt.datetime(2024, 5, 1, 0, 0), period="1 day")
    .select(total=sq.sum("n"), since=sq.window_start())
)
"""


def test_a_program_reads_as_one_writes_it() -> None:
    assert check(SOURCES) == PROGRAM


NAMED = sq.points(table("at bigint, v int", [(1, 2), (3, 4)]), "at", name="p")


def test_what_no_call_has_made_is_read_from_json_and_what_is_above_is_called() -> None:
    moved = sq.Stream(AlterLifetime(NAMED.plan, Start(by=2), Length(by=3)), NAMED.tables)
    both = moved.where(col("v") > 1).union(NAMED)
    text = check(both)
    assert text.count("sq.from_json(") == text.count('.where(col("v") > 1)') == text.count("t.table(") == 1
    assert "        p=p,\n" in text


def test_one_table_of_two_sources_is_read_from_json() -> None:
    other = sq.points(NAMED.tables["p"], "at", name="p", late="fail")
    assert check(NAMED.union(other)).count("sq.from_json(") == 1


def test_streams_that_are_used_twice_have_names() -> None:
    high = NAMED.where(col("v") > 1)
    text = check(high.union(high.shift(1)).join(high, on="v"))
    assert text.count('.where(col("v") > 1)') == 1 and "union(s.shift(1))" in text and 'join(s, on="v")' in text
    groups = NAMED.group_by("v")
    text = check(groups.tumbling_window(3).select(n=sq.count()).union(groups.snapshot_window().select(n=sq.count())))
    assert text.count(".group_by(") == 1


def test_pipe_and_apply_show_what_their_functions_do() -> None:
    def later(stream: sq.Stream, by: int) -> sq.Stream:
        return stream.shift(by)

    assert "q = p.shift(3)\n" in check(NAMED.pipe(later, by=3))
    assert "q = p\n" in check(NAMED.pipe(lambda s: s))
    text = check(NAMED.group_by("v").apply(lambda g: later(g, 2).group_by("v").apply(lambda h: h.to_points().union(h))))
    assert ".apply(lambda g: g.shift(2).group_by" in text and ".apply(lambda g2: g2.to_points().union(g2))" in text


@pytest.mark.slow
def test_long_and_deep_plans() -> None:
    query, deep = NAMED, col("v") + 1
    for i in range(400):
        query, deep = query.where(col("v") != i), deep + 1
    text = check(query.select(deep=deep))
    assert text.count(".where(") == 400


def test_names_do_not_clash() -> None:
    rows = table("at bigint, self int, `for` int, `a b` int, l int", [(1, 2, 3, 4, 5)])
    one, two = sq.points(rows, "at", name="q"), sq.points(rows, "at", name="list")
    left = one.select(col("l"), (col("self") + 1).alias("x"), col("for").alias("self"), y=lit("a"))
    joined = left.join(two, on="l", suffixes=("", "_"))
    other = joined.with_columns(z=col("a b") + 1).rename({"a b": "b a", "for": "class"})
    check(other)
    check(other.group_by("b a").tumbling_window(3).select(sq.sum("class").alias("the sum"), n=sq.count()))


def test_other_rows() -> None:
    ticks = pa.table({"at": [5], "v": pa.array([1], pa.int32())})
    assert "[(5, 1)]" in program(sq.points(table("at timestamp, v int", []), "at", name="p"), {"p": ticks})


def test_what_is_wrong() -> None:
    with pytest.raises(PlanError, match="program: no table 'p'; there are: none"):
        program(NAMED, {})
    hidden = Where(NAMED.plan, Call(function_of("isnull"), (Opaque(None, "upper(k)"),)))
    with pytest.raises(PlanError, match=r"to_json: a pyspark Column cannot be written; found upper\(k\)"):
        program(sq.Stream(hidden, NAMED.tables))


# modules


def test_a_module_is_looked_up() -> None:
    @sq.udf("boolean", name="is low")
    def low(v: int) -> bool:
        return v < 3

    text = check(NAMED.where(low("v")))
    assert 'is_low = sq.modules.get("is low")' in text and '.where(is_low(col("v")))' in text


# what streams remember


def test_calls_are_not_pickled_and_change_no_plan() -> None:
    query = NAMED.where(lambda e: e.v > 1)
    assert query.made_by is not None and query.made_by.target is NAMED and NAMED.made_by is None
    assert "made_by" not in query.__reduce_ex__(4)[2]
    again = copy.copy(query)
    assert again.made_by is None and again.plan == query.plan
    assert NAMED.where(col("v") > 1).plan.digest == query.plan.digest


def test_a_module_and_a_source_of_one_name_are_two_variables() -> None:
    @sq.udf("bigint", name="trips")
    def trips(v: int) -> int:
        return v * 2

    query = sq.events([(1, 2, {"v": 3})], name="trips").select(x=trips("v"))
    made: dict[str, sq.Stream] = {}
    exec(t.program(query), made)
    assert made["q"].to_arrow().to_pylist() == query.to_arrow().to_pylist() == [{"x": 6, "start": 1, "end": 2}]
