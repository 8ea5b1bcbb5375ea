"""Plans as JSON: what is read is what was written, for every node; what is damaged or foreign is refused."""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

import streamq as sq
from streamq import col
from streamq.compiler.constants_json import decoded, encoded
from streamq.compiler.options import Options
from streamq.compiler.plan_json import (
    expression_classes,
    from_text,
    plan_from_json,
    plan_to_json,
    to_text,
    value_classes,
)
from streamq.compiler.results import Results
from streamq.compiler.rewriter import rewrite
from streamq.errors import PlanError, StreamqError
from streamq.functions.catalogue import function_of
from streamq.operators import Select, Where, written_operators
from streamq.plan.expr import Alias, Call, Cast, Expr, Lit, Opaque
from streamq.plan.node import NODES, Node, expanded, nodes, number_sources
from streamq.plan.schema import Field
from streamq.sources.insert_only import Intervals
from streamq.testing.case import Case
from streamq.testing.scenario import concrete
from streamq.testing.table import table
from tests.algebra import SIZES, intervals
from tests.drawn.queries import composition
from tests.operators.test_plans_of_verbs import QUERIES as CALLS


def source(**columns: t.DataType) -> Intervals:
    fields = [Field("from", t.LongType()), Field("to", t.LongType()), *(Field(n, k) for n, k in columns.items())]
    return Intervals("s", tuple(fields), "from", "to")


DOCUMENT = plan_to_json(number_sources(Where(source(v=t.IntegerType()), col("v") > 1))[0])


def again(plan: Node) -> Node:
    return plan_from_json(from_text(to_text(plan_to_json(plan))))


def same(plan: Node) -> None:
    read = again(plan)
    assert read.digest == plan.digest
    assert [(type(n), n.schema, n.traits) for n in nodes(read)] == [(type(n), n.schema, n.traits) for n in nodes(plan)]
    assert to_text(plan_to_json(read)) == to_text(plan_to_json(plan))


def classes(document: Any) -> set[str]:
    """The names of all classes in a document."""
    stack, names = [document], set()
    while stack:
        match stack.pop():
            case dict() as one:
                names |= {one["is"]} if "is" in one else set()
                stack.extend(one.values())
            case list() as many:
                stack.extend(many)
    return names


@pytest.mark.slow
@given(concrete(composition(1, 4)))
def test_random_plans_come_back(case: Case) -> None:
    same(case.plan)
    same(rewrite(case.plan).plan)


def every_plan() -> list[Node]:
    """Plans that hold every class there is, before and after rewriting: of every verb, and of what no verb of the table makes."""
    s = sq.intervals(intervals(1), "from", "to")
    aggregates = (*map(sq.min, "kv"), sq.max("v"), sq.var("v"), sq.covar("v", "v"), sq.first("k"), sq.last("k"))
    # Spark has no order on maps
    maps = sq.points(table("at bigint, k map<string,bigint>", []), "at", name="m").hopping_window(5, 2)
    pairs = s.set_duration(1).windowed_join(s.to_points(), size=5, hop=2, suffixes=("", "_r"))
    plans = [query.plan for query in CALLS]
    plans += [s.hopping_window(5, 2).select(**{a.name + a.args[0].name: a for a in aggregates}).plan]
    plans += [maps.select(**{a.name: a for a in aggregates[-2:]}).plan, pairs.select(n=sq.count()).plan]
    points = [sq.points(table("at bigint, k string, v double", []), "at", name=name) for name in ("one", "two")]
    of_last_rows = points[0].windowed_join(points[1], on="k", rows=3, step=2, suffixes=("", "_r")).select(n=sq.count())
    plans += [points[0].last_rows(4, 2).select(n=sq.count()).plan, of_last_rows.plan]
    plans += [rewrite(plan).plan for plan in plans]
    points = sq.points(SIZES, "size", name="p", progress=sq.explicit(), late="adjust", invalid="drop")
    log = table("at bigint, what string, k string", [])
    moment = table("at timestamp", [])
    attempted = sq.udf("double", name="attempted", on_error="quarantine")(lambda v: 1 / v)
    more = [
        points,
        sq.points(SIZES, "size", name="q", progress=sq.follow(sq.points(SIZES, "size", name="p"))),
        sq.intervals(intervals(1), "from", "to", progress=sq.generate(2, per=["k", "v"], idle_after="1 minute")),
        sq.points(moment, "at", name="c", progress=sq.clock("1 second")),
        sq.points(moment, "at", name="b", progress=sq.generate("1 second", clock=sq.clock("1 second"))),
        sq.events([sq.insert(1, k="a"), sq.cti(4)], invalid="drop"),
        sq.edges(log, "at", edge="what", key="k", payload="end", progress=sq.generate(3)),
        sq.changes(log, "what", "at", "k"),
        s.select(x=attempted("v")),
    ]
    named = Select(s.plan, (("x", Call(function_of("concat"), (Alias(col("k"), "n"), Lit("x", t.StringType())))),))
    bound = Where(s.plan, Call(function_of(">"), (sq.window_start(), Lit(3))))
    both = [points.hopping_window(size, 2).select(n=sq.count()).plan for size in (8, 4)]
    shared = rewrite(number_sources(Results(tuple(both), 2 * Options().egresses))[0]).plan
    return [*plans, *(query.plan for query in more), named, bound, *shared.children]


@pytest.mark.slow
def test_every_class_is_written_and_read() -> None:
    # most have no expansion
    plans = {plan.digest: plan for written in every_plan() for plan in (written, expanded(written))}.values()
    written: set[str] = set()
    for plan in plans:
        same(plan)
        written |= classes(plan_to_json(plan))
    assert written == {*NODES} | set(expression_classes()) | set(value_classes())
    assert {n.__name__ for n in written_operators()} <= written


VALUES_OF_ALL_KINDS = [
    None, True, False, 0, -1, 2**63, 10**40, "", "a\n\"'\\ \ud800 ü 漢", 0.0, -0.0, 1.5, 1e-300, float("inf"), float("-inf"),
    b"", b"\x00\xff", Decimal("1.50"), Decimal("-0E+3"), Decimal("NaN"), dt.date(1, 1, 1), dt.date(9999, 12, 31),
    dt.datetime(2024, 1, 31, 12, 0, 0, 1), dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 10, 27, 2, 30, fold=1),
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-5, seconds=1))),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "X")), dt.timedelta(days=-3, microseconds=1),
    (), (1, (None, ("x", 2.0))),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES_OF_ALL_KINDS, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    read = decoded(json.loads(json.dumps(encoded(value), allow_nan=False)))
    assert (type(read), repr(read)) == (type(value), repr(value))


ZONES = ("Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia")
"""Whole hours and parts of them, summers of an hour and of half of one, a day that was left out."""

plain = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.text(), st.floats(), st.binary(), st.decimals(), st.dates()),
    # of all zones that the machine has, the list alone takes a second
    st.datetimes(timezones=st.sampled_from([None, dt.UTC, *map(ZoneInfo, ZONES)])),
    st.timedeltas(),
)


@pytest.mark.slow
@given(st.recursive(plain, lambda inner: st.lists(inner, max_size=3).map(tuple)))
def test_any_value_comes_back(value: Any) -> None:
    read = decoded(json.loads(json.dumps(encoded(value), allow_nan=False)))
    assert repr(read) == repr(value)


def test_nan_comes_back() -> None:
    assert repr(decoded(encoded(float("nan")))) == "nan"
    plan = Where(source(v=t.DoubleType()), col("v") == float("nan"))
    same(plan)


@pytest.mark.parametrize("value", [dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), dt.timedelta(1), b"x", -0.0])
def test_a_constant_keeps_its_digest(value: Any) -> None:
    same(Select(source(), (("x", Lit(value)), ("y", Lit(value, t.StringType())))))


def test_values_of_other_libraries() -> None:
    import numpy as np
    import pandas as pd

    assert encoded(np.float64(1.5)) == {"float": "1.5"}
    with pytest.raises(PlanError, match=r"to_json: a value that cannot be written; found Timestamp\("):
        encoded(pd.Timestamp("2024-01-01"))
    with pytest.raises(PlanError, match="to_json: a value that cannot be written; found {1: 2}"):
        encoded({1: 2})
    with pytest.raises(PlanError, match="to_json: a time zone that cannot be written"):
        encoded(dt.datetime(2024, 1, 1, tzinfo=Summer()))


class Summer(dt.tzinfo):
    """A zone of a library that nobody else knows."""


@pytest.mark.parametrize(
    "value", [{}, {"float": "x"}, {"float": 1.5}, {"date": "2024-02-30"}, {"datetime": "x"}, {"bytes": "0"}, 1.5,
              {"datetime": "2024-01-01", "zone": "Nowhere/Town"}, {"datetime": "2024-01-01", "zone": "../../etc/passwd"},
              {"datetime": "2024-01-01", "zone": "Europe"}, {"decimal": "x"}, {"timedelta": 10**30}, {"pickle": "gA=="},
              {"float": "1", "bytes": "00"}, {"datetime": "2024-01-01", "zone": 10**12}],
)  # fmt: skip
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(PlanError, match="from_json: not a value; found "):
        decoded(value)


@pytest.mark.parametrize(
    "kind", [t.DecimalType(38, 18), t.ArrayType(t.DoubleType(), False), t.MapType(t.StringType(), t.LongType()),
             t.StructType([t.StructField("a b", t.DateType(), False, {"x": 1})]), t.DayTimeIntervalType(),
             t.TimestampNTZType(), t.YearMonthIntervalType(), t.VariantType(), t.CharType(3)],
)  # fmt: skip
def test_types_come_back(kind: t.DataType) -> None:
    same(source(v=kind))
    same(Select(source(), (("x", Cast(Lit(None), kind)),)))


@pytest.mark.slow
def test_depth_is_no_matter() -> None:
    plan: Node = source(v=t.IntegerType())
    deep: Expr = col("v")
    for i in range(3_000):
        plan, deep = Where(plan, col("v") != i), deep + 1
    same(Select(plan, (("x", deep),)))


def test_what_is_shared_is_written_once() -> None:
    s = sq.intervals(intervals(1), "from", "to", name="s")
    twice = s.where(col("v") > 1)
    for _ in range(40):
        twice = twice.union(twice)
    assert len(plan_to_json(twice.plan)["nodes"]) == 42
    same(twice.plan)


def test_a_pyspark_column_cannot_be_written() -> None:
    hidden = Opaque(object(), "Column<'upper(k)'>")
    plan = Where(source(k=t.StringType()), Call(function_of("isnull"), (hidden,)))
    wrong = r"to_json: a pyspark Column cannot be written; found Column<'upper\(k\)'>. Write it with sq.col"
    with pytest.raises(PlanError, match=wrong):
        plan_to_json(plan)


def test_the_document_is_the_same_each_time_and_stands_on_lines() -> None:
    s = sq.points(SIZES, "size", name="s").where(col("k") == "a").to_json()
    assert s == sq.points(SIZES, "size", name="s").where(col("k") == "a").to_json()
    assert s == (
        '{\n "streamq": 1,\n "digest": "0bd08db0368c6bd2",\n "expressions": [\n'
        '  {"is": "Col", "name": "k", "origin": null},\n'
        '  {"is": "Lit", "value": "a", "type": null},\n'
        '  {"is": "Call", "name": "==", "args": [{"expression": 0}, {"expression": 1}]}\n ],\n "nodes": [\n'
        '  {"is": "Points", "table": "s", "columns": [{"is": "Field", "name": "k", "type": {"type": "string"}}, '
        '{"is": "Field", "name": "size", "type": {"type": "long"}}], "time": "size", '
        '"policy": {"is": "SourcePolicy", "delay": 0, "late": "drop", "invalid": null}},\n'
        '  {"is": "Where", "input": {"node": 0}, "predicate": {"expression": 2}}\n ]\n}\n'
    )


# A plan's JSON that is damaged is refused, and never read as another plan.


def changed(change: Callable[[dict[str, Any]], Any]) -> Any:
    document = copy.deepcopy(DOCUMENT)
    replaced = change(document)
    return document if replaced is None else replaced


def put(path: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """Set what stands at a path, as ``nodes 0 table``."""

    def change(document: Any) -> None:
        *way, last = [int(p) if p.isdigit() else p for p in path.split()]
        for step in way:
            document = document[step]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: [], "not a plan; found a list instead of an object. Give what to_json"),
        (lambda d: 3.5, "not a plan; found a number instead of an object"),
        (lambda d: {}, "not a plan; found an object without 'streamq', 'digest', 'expressions', 'nodes'. Give what"),
        (lambda d: {**d, "nodes": {}}, "not a plan; 'nodes' is no list"),
        (lambda d: {"nodes": []}, "not a plan; found an object without 'streamq', 'digest', 'expressions'. Give"),
        (put("nodes", []), "not a plan"),
        (put("streamq", 99), "format 99; this version reads 1. Write it anew"),
        (put("digest", "0"), "the text has been changed or damaged; digest .* instead of 0"),
        (put("nodes 0 table", "other"), "the text has been changed or damaged"),
        (put("expressions 1 value", 2), "the text has been changed or damaged"),
        (put("nodes 0 is", "os.system"), "no class 'os.system'; there are: "),
        (put("nodes 1 is", "Wehre"), "no class 'Wehre'; there are: .* Did you mean 'Where'"),
        (put("expressions 0 is", "Opaque"), "no class 'Opaque'; there are: .*Col, Lit"),
        (put("nodes 0 policy is", "Where"), "no class 'Where'; there are: .*Field"),
        (put("nodes 0", 5), "not an entry of a plan; found 5"),
        (put("nodes 0 color", 5), "the fields of Intervals are table, .*; found .*color"),
        (lambda d: d["nodes"][0].pop("table") and None, "the fields of Intervals are table, .*; found columns"),
        (put("nodes 0 table", 5), "table of Intervals does not fit; found 5"),
        (put("nodes 0 columns", [5]), "columns of Intervals does not fit"),
        (put("nodes 0 policy", None), "policy of Intervals does not fit"),
        (put("nodes 0 policy delay", True), "delay of SourcePolicy does not fit"),
        (put("nodes 1 input", {"node": 1}), "a reference to what does not stand before it"),
        (put("nodes 1 input", {"node": -1}), "a reference to what does not stand before it"),
        (put("nodes 1 input", {"expression": 0}), "input of Where does not fit"),
        (put("nodes 1 predicate", {"expression": 9}), "a reference to what does not stand before it"),
        (put("expressions 2 args", [{"node": 0}]), "a reference to what does not stand before it"),
        (put("expressions 2 name", "udf"), "no function 'udf'"),
        (put("expressions 2 name", "uppper"), "no function 'uppper'. Did you mean 'upper'"),
        (put("expressions 0 name", "w"), "where: no column 'w'"),
        (put("nodes 0 columns 0 type", {"type": "lung"}), "not a type; found 'lung'"),
        (
            put("nodes 0 columns 0 type", {"type": {"type": "struct", "fields": 3}}),
            "not a type; found {'type': 'struct'",
        ),
        (put("nodes 0 columns 0 type", {"type": "varchar(-1)"}), r"not a type; found .varchar\(-1\)."),
        (put("nodes 0 columns 0 type", {"type": {"type": "array"}}), "not a type; found {'type': 'array'}"),
        (
            put(
                "nodes 0 columns 0 type", {"type": {"type": "array", "elementType": {"type": "udt", "pyClass": "os.x"}}}
            ),
            "a user-defined type cannot be read",
        ),
        (put("nodes 0 columns 0 name", "k"), "no column 'from'"),
    ],
)
def test_what_is_damaged_is_refused(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(StreamqError, match=message):
        plan_from_json(changed(change))


def test_names_that_do_not_fit_the_inputs_are_refused() -> None:
    s = sq.intervals(intervals(1), "from", "to", name="s").select("k")
    document = plan_to_json(s.join(s.select(j=sq.lit("k"))).plan)
    document["nodes"][-1]["left_names"] = [["nobody", "k"]]
    with pytest.raises(PlanError, match="from_json: a Join that cannot be; found "):
        plan_from_json(document)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nope"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="from_json: not JSON; .* Give what to_json"):
        from_text(text)


def test_lists_within_lists_without_end_are_refused() -> None:
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    document = changed(put("nodes 0 table", nested))
    with pytest.raises(PlanError, match="from_json: not a plan; lists within lists"):
        plan_from_json(document)


@sq.udf("int")
def is_small(k: int, limit: tuple[int, None] = (1, None)) -> int:
    return int(k < limit[0])


DOCUMENTS = [
    DOCUMENT,
    plan_to_json(
        number_sources(sq.events([(1, 2, {"k": 1})]).join(sq.events([(1, 2, {"k": 1, "w": 2})]), on="k").plan)[0]
    ),
    plan_to_json(
        number_sources(sq.events([(1, 2, {"k": 1})]).group_by("k").hopping_window(4, 2).agg(n=sq.sum("k")).plan)[0]
    ),
    plan_to_json(number_sources(sq.events([(1, 2, {"k": 1})]).where(is_small("k", limit=(3, None)) == 1).plan)[0]),
]


@settings(max_examples=max(60, settings().max_examples))
@given(st.data())
def test_no_damage_ends_in_another_plan(data: st.DataObject) -> None:
    """Whatever stands in a field, the reader gives the plan that was written or raises an error of its own."""
    written = data.draw(st.sampled_from(DOCUMENTS))
    document = copy.deepcopy(written)
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [document]
    while stack:
        part = stack.pop()
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                stack.append(value)
    at, key = data.draw(st.sampled_from(range(len(places))).map(places.__getitem__))
    values = [None, True, -1, 0, 1, 2, "", "from", "v", [], [[]], {}, {"is": "Lit"}, {"node": 0}, {"expression": 1}]
    at[key] = data.draw(st.sampled_from(values))
    if document == written:
        return
    try:
        found_plan = plan_from_json(document)
    except StreamqError:
        return
    assert found_plan.digest == written["digest"]


def test_a_defect_of_a_node_is_not_taken_for_a_damaged_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(node: Where) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(Where, "_schema", defect)
    with pytest.raises(AssertionError, match="a defect"):
        plan_from_json(DOCUMENT)
