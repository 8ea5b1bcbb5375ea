"""to_json and from_json: a query read back gives the same answer over the tables that it is given, and fits them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import col
from streamq.errors import PlanError, SourceError, StreamqError, TypeMismatch, UnknownColumn
from streamq.plan.node import number_sources
from streamq.stream import Stream
from tests.algebra import QUERIES, SIZES, intervals

TRIPS = pa.table({"at": [1, 4, 6], "zone": ["a", "b", "a"], "fare": [3, 8, 5]})
ZONES = pa.table({"zone": ["a", "b"], "city": ["Ulm", "Bonn"]})


def fares() -> Stream:
    trips = sq.points(TRIPS, "at", name="trips", progress=sq.generate(5), late="fail")
    return trips.join_table(ZONES, on="zone", name="zones").group_by("city").tumbling_window(5).select(n=sq.sum("fare"))


def rows(query: Stream) -> list[dict[str, Any]]:
    return query.to_arrow().to_pylist()


def test_a_query_is_read_back_over_other_tables() -> None:
    query = fares()
    again = sq.from_json(query.to_json(), trips=TRIPS, zones=ZONES)
    assert again.plan == query.plan
    assert rows(again) == rows(query)
    other = pa.table({"fare": [10], "more": [True], "zone": ["b"], "at": [11]})
    assert rows(sq.from_json(query.to_json(), {"trips": other}, zones=ZONES)) == [
        {"city": "Bonn", "n": 10, "start": 10, "end": 15}
    ]


@pytest.mark.parametrize("name", ["inner join", "except", "apply", "join_table"])
def test_unnamed_sources_are_numbered(name: str) -> None:
    s, z = (sq.intervals(intervals(seed), "from", "to") for seed in (1, 2))
    query = QUERIES[name](s, z, SIZES)
    _, names = number_sources(query.plan)
    tables = {names[n]: table for n, table in query.tables.items() if n in names}
    again = sq.from_json(query.to_json(), tables)
    assert number_sources(again.plan)[0] == number_sources(query.plan)[0]
    assert again.to_json() == query.to_json()


def test_a_query_read_back_joins_others() -> None:
    """The numbers in a text are places in it; they do not clash with the numbers of this process's sources."""
    ours = sq.points(TRIPS, "at").select("fare")
    text = ours.to_json()
    one, two = (sq.from_json(text, {"#1": TRIPS.slice(i, 1)}) for i in range(2))
    assert [r["fare"] for r in rows(ours.union(one, two))] == [3, 3, 8, 8, 5]


def test_streams_stand_in_the_place_of_sources() -> None:
    log = pa.table({"at": [1, 3, 5], "op": ["c", "u", "d"], "id": [1, 1, 1], "price": [5, 6, None]})
    prices = sq.changes(log, "op", "at", "id", name="prices").where(col("price") > 5)
    assert rows(sq.from_json(prices.to_json(), prices=sq.changes(log, "op", "at", "id"))) == rows(prices)
    tiny = sq.events([sq.insert(1, None, v=3), sq.retract(1, None, 10, v=3)], name="tiny")
    assert rows(sq.from_json(tiny.shift(1).to_json(), tiny=tiny)) == [{"v": 3, "start": 2, "end": 11}]


def test_one_query_goes_on_where_another_ends() -> None:
    first = sq.points(TRIPS, "at", name="trips", late="fail").extend(3).where(col("fare") > 3)
    stub = sq.events([(0, 1, {"zone": "", "fare": 0})], name="first")
    second = sq.from_json(stub.join(stub.shift(1), on="zone", suffixes=("", "_r")).to_json(), first=first)
    assert second.plan == first.join(first.shift(1), on="zone", suffixes=("", "_r")).plan
    assert second.tables == {"trips": TRIPS}


def test_tables_and_text_are_names_too() -> None:
    query = sq.points(TRIPS, "at", name="tables").union(sq.points(TRIPS, "at", name="text"))
    assert rows(sq.from_json(query.to_json(), {"tables": TRIPS}, text=TRIPS)) == rows(query)


@pytest.mark.parametrize(
    ("tables", "error", "message"),
    [
        ({}, PlanError, "no table 'trips'; there are: none. Give it: from_json(text, trips=df)."),
        ({"trips": TRIPS}, PlanError, "no table 'zones'; there are: trips. Give it: from_json(text, zones=df)."),
        (
            {"trips": TRIPS, "zones": ZONES, "tripz": TRIPS},
            PlanError,
            "the query has no table 'tripz'; there are: trips",
        ),
        ({"trips": ZONES, "zones": ZONES}, UnknownColumn, "table 'trips': no column 'at'; there are: zone, city"),
        ({"trips": TRIPS, "zones": TRIPS}, UnknownColumn, "table 'zones': no column 'city'; there are: at, zone, fare"),
        (
            {"trips": TRIPS.set_column(2, "fare", pa.array([1.5, 2.5, 3.5])), "zones": ZONES},
            TypeMismatch,
            "table 'trips': column 'fare' is of another type; found double instead of bigint. Cast it first.",
        ),
        (
            {"trips": [1], "zones": ZONES},
            SourceError,
            "table 'trips': not a DataFrame; found list. Give a DataFrame of Spark",
        ),
        (
            {"trips": TRIPS, "zones": fares()},
            PlanError,
            "table 'zones': a stream; a table is static. Join streams with",
        ),
        (
            {"trips": fares(), "zones": ZONES},
            TypeMismatch,
            "table 'trips': a stream of other columns or another time axis; found (city string, n bigint; interval on int",
        ),
    ],
)
def test_tables_that_do_not_fit(tables: dict[str, Any], error: type[StreamqError], message: str) -> None:
    with pytest.raises(error, match=f"^from_json: {re.escape(message)}"):
        sq.from_json(fares().to_json(), tables)


def test_what_else_is_wrong() -> None:
    with pytest.raises(PlanError, match="from_json: table 'trips' twice; once in tables, once by its name"):
        sq.from_json(fares().to_json(), {"trips": TRIPS}, trips=TRIPS, zones=ZONES)
    with pytest.raises(PlanError, match=r"from_json: no table '#1'; there are: none. Give it: .*\(text, {'#1': df}\)."):
        sq.from_json(sq.points(TRIPS, "at").to_json())
    with pytest.raises(PlanError, match="from_json: not a text; found dict. Give what to_json"):
        sq.from_json({})  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="from_json: the text has been changed or damaged"):
        sq.from_json(fares().to_json().replace('"late": "fail"', '"late": "drop"'), trips=TRIPS, zones=ZONES)
