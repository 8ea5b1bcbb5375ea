"""Ids and contributors of matches: where a pattern asks for them, each match has an id that no other has."""

from __future__ import annotations

import pytest
from pyspark.sql import types

import streamq as sq
from streamq.errors import NeedsSpark
from streamq.functions.text import IdText
from streamq.plan.expr import Call
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_expr import check_in_process, evaluate
from streamq.runtime.arrow.values import number_values
from tests.patterns.pattern_cases import brute_force
from tests.spark.nasty_values import SCHEMA, nasty

A = sq.events([(1, 2, {"m": 1}), (3, 4, {"m": None}), (20, 21, {"m": 1}), (20, 22, {"m": 1})], name="a")
B = sq.events([(5, 6, {"m": 1}), (6, 7, {"m": 2})], name="b")


def rows(pattern: str) -> list[dict[str, object]]:
    table = sq.cedr(pattern, A=A, B=B).to_arrow()
    return table.drop_columns(["end"]).to_pylist()


def test_an_event_is_told_by_its_type_start_number_and_payload() -> None:
    """The two at 20 differ in their ends only, which count for nothing."""
    assert rows("EVENT E WHEN A OUTPUT A.id AS id") == [
        {"id": "A 1 0 1:1", "start": 1},
        {"id": "A 3 0 -", "start": 3},
        {"id": "A 20 0 1:1", "start": 20},
        {"id": "A 20 1 1:1", "start": 20},
    ]


def test_a_field_that_is_called_id_is_the_payloads() -> None:
    """Nothing is computed of other fields then."""
    events = sq.events([(1, 2, {"id": 7, "x": 0.5})], name="e")
    assert sq.cedr("EVENT E WHEN A AS a WHERE a.id > 1 OUTPUT a.id AS id", A=events).to_arrow().to_pylist() == [
        {"id": 7, "start": 1, "end": 2}
    ]


def test_a_match_is_told_by_its_operator_and_contributors() -> None:
    assert rows("EVENT E WHEN SEQUENCE(A AS x, B AS y, 4) AS s OUTPUT s.id AS id, s.contributors AS of, x.id AS x") == [
        {"id": "SEQUENCE 4 (A 1 0 1:1, B 5 0 1:1)", "of": ["A 1 0 1:1", "B 5 0 1:1"], "x": "A 1 0 1:1", "start": 5},
        {"id": "SEQUENCE 4 (A 3 0 -, B 5 0 1:1)", "of": ["A 3 0 -", "B 5 0 1:1"], "x": "A 3 0 -", "start": 5},
        {"id": "SEQUENCE 4 (A 3 0 -, B 6 0 1:2)", "of": ["A 3 0 -", "B 6 0 1:2"], "x": "A 3 0 -", "start": 6},
    ]


JUDGED = """
SEQUENCE(A AS x, B AS y, 4) OUTPUT x.id AS id, y.contributors AS of
A AS x OUTPUT x.id AS id, x.contributors AS of
ANY(A, B) AS s OUTPUT s.id AS id, s.contributors AS of, B.id AS b
ANY(A AS x, A AS y) AS s OUTPUT s.id AS id, s.contributors AS of
ANY(A AS x, SEQUENCE(A AS y, B, 4) AS z) AS s OUTPUT s.id AS id, z.id AS z, s.contributors AS of
ALL(B, A, 9) AS s OUTPUT s.id AS id, s.contributors AS of
ATLEAST(2, B, A AS x, A AS y, 9) AS s OUTPUT s.id AS id, s.contributors AS of
ATMOST(3, A, B, 9) AS s OUTPUT s.id AS id, s.contributors AS of
ATMOST(3, ANY(A) AS z, 9) AS s OUTPUT s.id AS id, s.contributors AS of
REPEAT(A AS x, 2, 9) AS s OUTPUT s.id AS id, s.contributors AS of, collect(x.id) AS xs
SEQUENCE(REPEAT(A AS x, 2, 9) AS r, B, 30) AS s OUTPUT r.contributors AS run, s.id AS id, s.contributors AS of
UNLESS(REPEAT(A AS x, 2, 9) AS r, B, 1) AS s OUTPUT r.contributors AS run, s.id AS id, s.contributors AS of
UNLESS_BEFORE(SEQUENCE(A FIRST CONSUME, B, 9) AS z, B AS c, 1) AS s OUTPUT z.id AS z, s.id AS id, s.contributors AS of
SEQUENCE(NOT(B, ALL(A AS x, A AS y, 9) AS n) AS s, A AS z, 30) OUTPUT s.id AS id, s.contributors AS of
CANCEL_WHEN(SEQUENCE(A, B, 9) AS z, B AS c) AS s OUTPUT z.id AS z, s.id AS id, s.contributors AS of
""".strip().splitlines()


@pytest.mark.parametrize("pattern", JUDGED)
def test_ids_and_contributors_are_those_of_the_rules(pattern: str) -> None:
    text = f"EVENT E WHEN {pattern}"
    histories = {name: stream.to_arrow() for name, stream in (("A", A), ("B", B))}
    names = sq.cedr(text, A=A, B=B).columns
    expected = [{name: row[name] for name in (*names, "start")} for row in brute_force(text, histories)]
    assert expected and sorted(rows(text), key=repr) == sorted(expected, key=repr)


def test_a_match_in_a_definition_has_its_id_by_the_rules() -> None:
    text = "EVENT D WHEN SEQUENCE(A AS x, B AS y, 4) EVENT E WHEN ANY(D AS d, A) AS s OUTPUT d.id AS id, s.id AS s"
    expected = brute_force(text, {"A": A.to_arrow(), "B": B.to_arrow()})
    assert sorted(rows(text), key=repr) == sorted(
        ({name: row[name] for name in ("id", "s", "start")} for row in expected), key=repr
    )


FLOATS = [0.5, -0.1, 5e-324, -1.5e-310, 2.2250738585072014e-308, 1.7976931348623157e308, 0.0, -0.0]


@pytest.mark.parametrize("x", [*FLOATS, float("nan"), float("inf"), float("-inf")], ids=str)
def test_a_float_has_the_text_of_the_rules(x: float) -> None:
    events = sq.events([(1, 2, {"x": x})])
    text = "EVENT E WHEN A OUTPUT A.id AS id"
    (row,) = brute_force(text, {"A": events.to_arrow()})
    assert [row["id"]] == sq.cedr(text, A=events).to_arrow()["id"].to_pylist()


def test_a_type_of_several_words_is_told_from_a_type_and_a_start() -> None:
    found = sq.cedr("EVENT E WHEN `A 1` AS x OUTPUT x.id AS id", **{"A 1": A}).to_arrow()
    assert found.column("id").to_pylist()[0] == "3:A 1 1 0 1:1"


@pytest.mark.parametrize("field", SCHEMA.fields, ids=lambda field: field.name)
def test_values_have_one_text_where_they_are_equal_and_nowhere_else(field: Field) -> None:
    """At any depth; of intervals only Spark has texts."""
    array = nasty()[field.name]
    text = Call(IdText(field.type), (sq.col(field.name),))
    if isinstance(field.type, types.DayTimeIntervalType):
        with pytest.raises(NeedsSpark):
            check_in_process(text, SCHEMA, "test")
        return
    texts = evaluate(text, SCHEMA, {field.name: array}, lambda _: array, len(array))
    values, _ = number_values(array)
    assert (
        len(set(zip(values.tolist(), texts.to_pylist(), strict=True)))
        == len({*values.tolist()})
        == len({*texts.to_pylist()})
    )


def test_an_event_with_floats_is_told_by_their_bits() -> None:
    schema = {"v": "double", "of": "array<float>"}
    values = [{"v": 0.5, "of": [0.1, None]}, {"v": float("nan"), "of": []}, {"v": -0.0, "of": None}]
    events = sq.events([(i, i + 1, row) for i, row in enumerate(values)], schema=schema)
    assert sq.cedr("EVENT E WHEN A AS a OUTPUT a.id AS id", A=events).to_arrow().column("id").to_pylist() == [
        "A 0 0 8:0x1.0p-1 19: 13:0x1.99999ap-4 -",
        "A 1 0 3:NaN 0:",
        "A 2 0 7:0x0.0p0 -",
    ]


def test_events_with_maps_have_no_ids() -> None:
    events = sq.events([(1, 2, {"m": None})], schema={"m": "map<string,int>"})
    assert sq.cedr("EVENT E WHEN A AS a OUTPUT a.m AS m", A=events).to_arrow().num_rows == 1
    with pytest.raises(
        sq.StreamqError, match=r"column 14: no ids of 'A': .*; found map<string,int> in 'm'. Leave it out"
    ):
        sq.cedr("EVENT E WHEN A AS a OUTPUT a.id AS id", A=events)
