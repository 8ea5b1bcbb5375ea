"""Explain, compared with ``tests/golden/explain/``: logical plan, rules, incremental plan and stages.

``STREAMQ_GOLDEN=1 pytest tests/compiler/test_explain.py`` writes the files anew; read the difference before you keep
it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.compiler.explain import explain, state_section
from streamq.errors import PlanError
from streamq.operators import Union
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Lit, Opaque
from streamq.plan.node import Node
from streamq.plan.schema import Field
from streamq.sources.edges import Edges
from streamq.sources.insert_only import Intervals, Points
from streamq.stream import Stream
from tests.programs import compiled

GOLDEN = Path(__file__).parents[1] / "golden" / "explain"
PARTS = ("logical", "rules", "incremental", "physical")

TRIP = (
    Field("at", t.TimestampType()),
    Field("zone", t.StringType()),
    Field("fare", t.DoubleType()),
    Field("tip", t.DoubleType()),
    Field("note", t.StringType()),
)

CAR = (Field("zone", t.StringType()), Field("fare", t.DoubleType()))


def trips(name: str) -> Stream:
    return Stream(Points(name, TRIP, "at"), {})


def tasks() -> Stream:
    fields = (Field("at", t.LongType()), Field("what", t.StringType()), Field("task", t.LongType()))
    source = Edges("tasks", fields, "at", "what", ("task",), Lit("start"), Lit("end"), "start", SourcePolicy())
    return Stream(source, {})


def delays() -> Stream:
    """A filter and a computed column, a window, a filter on its key and on its count."""
    paid = trips("trips").with_columns(total=sq.col("fare") + sq.col("tip")).where(lambda e: e.fare > 0)
    by_zone = paid.group_by("zone").hopping_window("1 hour", "5 minutes")
    made = by_zone.select(n=sq.count(), mean=sq.avg("total"), sd=sq.stddev("tip"), most=sq.max("fare") * 2)
    return made.where((sq.col("zone") != "JFK") & (sq.col("n") > 3)).select("zone", "n", "mean", "sd")


def shared() -> Stream:
    """Two sources without a name; a window that is read twice."""
    both = trips("#7").union(trips("#12")).where(lambda e: e.fare > 1)
    top = both.group_by("zone").tumbling_window("1 hour").select(n=sq.count(), top=sq.max("fare"))
    return top.select("zone").union(top.where(lambda e: e.zone == "a").select("zone"))


def open_ends() -> Stream:
    """Edges: their ends move, so what reads an end waits; endless lifetimes keep a filter above its window."""
    long = tasks().where(sq.duration() > 10)
    return long.group_by("task").hopping_window(60, 20).select(n=sq.count()).where(lambda e: e.task == 1)


def levels() -> list[tuple[dict[str, Any], str, str, str]]:
    """How a run is asked for, and its output, its level and its last stage."""
    middle, final = "middle (items at once, repaired until the CTI)", "any (final rows wait for the CTI)"
    strong = "strong (items wait until the CTI of every source has passed them)"
    waits = "items wait until every CTI has passed them or every watermark is 1 minute beyond"
    weak = "weak (history is forgotten 1 hour behind the watermark)"
    between = weak.replace("weak (", f"level ({waits}; ")
    first, second = "stage 1 of 1, up to 32 buckets", "stage 2 of 2, 1 bucket"
    log = "changelog"
    return [
        ({}, "final", final, first),
        ({"consistency": "strong"}, "final", final, first),
        ({"consistency": sq.weak("1 hour")}, "final", weak, first),
        ({"output": log}, "changelog", middle, first),
        ({"output": log, "consistency": sq.level("1 minute", "1 hour")}, "changelog", between, first),
        (
            {"output": log, "consistency": "strong"},
            "changelog, each micro-batch by sync time, written by one task",
            strong,
            first,
        ),
        ({"output": log, "ctis": True}, "changelog with CTIs, written by one task", middle, second),
        (
            {"output": log, "ctis": True, "consistency": "strong"},
            "changelog with CTIs, by sync time, written by one task",
            strong,
            second,
        ),
        ({"output": "upsert", "consistency": sq.weak("1 hour")}, "upsert, by zone, start", weak, first),
    ]


def test_how_a_run_is_asked_for_is_explained() -> None:
    query = trips("trips").group_by("zone").tumbling_window("1 hour").select(n=sq.count())
    for asked, output, level, last in levels():
        lines = query.explanation("physical", **asked).splitlines()
        assert lines[1:3] == [f"  output: {output}", f"  consistency: {level}"]
        assert [line.strip() for line in lines if line.startswith("  stage")][-1] == last
        holds_back = output != "final" and asked.get("consistency") in ("strong", sq.level("1 minute", "1 hour"))
        assert (lines[3] == "    keeps: rows that the level holds back") == holds_back
    assert (
        json.loads(query.explanation("physical", "json", output="upsert"))["physical"][0]
        == "output: upsert, by zone, start"
    )
    with pytest.raises(PlanError, match="explain: no level of consistency; found 'week'"):
        query.explain(consistency="week")
    with pytest.raises(PlanError, match="explain: output='upsert' needs a result with one row a group and start"):
        trips("trips").explain(output="upsert")


def opaque() -> Stream:
    """A pyspark Column: nothing is pushed through it."""
    hidden = Opaque(None, "(fare > 3)").cast("boolean")
    return trips("trips").where(hidden).where(lambda e: e.tip > 1).select("zone").where(lambda e: e.zone == "a")


def hosted() -> Stream:
    """Operators that evaluators host: an anti join, sessions, snapshots with top_k, a signal that is clipped, an inner join."""
    alone = tasks().left_anti_join(tasks().where(lambda e: e.task < 0), on="task")
    counted = alone.group_by("task").session_window(60).select(n=sq.count())
    top = counted.snapshot_window().top_k(1, by="n")
    return top.join(tasks().to_signal(key="task").clip(tasks()), on="task")


def rides() -> Stream:
    return Stream(Intervals("rides", (Field("on", t.LongType()), Field("off", t.LongType()), *CAR), "on", "off"), {})


def joined() -> Stream:
    """Every kind of join, over streams that overlap; what is static is looked up on the way."""
    zones = pa.table({"zone": ["a"], "city": ["Ulm"]})
    cars, cheap = rides().join_table(zones, on="zone", how="left", name="zones"), rides().where(lambda e: e.fare < 3)
    both = cars.join(cheap, on="zone", where=lambda l, r: l.fare > r.fare, suffixes=("", "_r"))
    kept = both.select("zone", "fare").left_anti_join(rides().where(lambda e: e.fare > 90), on="zone")
    half = kept.join(rides().select("zone"), on="zone", how="semi")
    return half.join(
        rides().select("zone", car=sq.col("fare")), on="zone", how="left", where=lambda l, r: l.fare != r.car
    )


def spans() -> Stream:
    """Lifetimes moved, cut, made signals of; differences of bags; repetitions."""
    moved = rides().shift(-5).extend(3).where(lambda e: e.fare > 1)
    cut = moved.clip(rides().to_points_at_end(), on="zone").chop(60, 5)
    left = cut.except_(rides().set_duration(10)).distinct_ids(15, id="zone")
    late = left.alter_lifetime(
        start=sq.start() - sq.col("fare").cast("bigint") % 5, within=5, duration=sq.duration() * 2
    )
    return late.to_signal("zone")


def pairs() -> Stream:
    """The two streams of DataCell: aggregates per window, from partial results of pairs of basic windows."""
    few = trips("few").windowed_join(trips("more"), "zone", size="1 hour", hop="5 minutes", suffixes=("", "_m"))
    return few.select(most=sq.max("fare"), mean=sq.avg("tip_m"))


def last_rows() -> Stream:
    """The two streams of DataCell over the last rows of each, and of each zone."""
    by_zone = trips("all").last_rows(100, key="zone").group_by("zone").select(mean=sq.avg("fare"))
    few = trips("few").windowed_join(trips("more"), "zone", rows=1000, step=50, order_by="tip", suffixes=("", "_m"))
    return few.select(most=sq.max("fare"), mean=sq.avg("tip_m")).union(
        by_zone.select(most=sq.col("mean"), mean=sq.col("mean"))
    )


def windows() -> Stream:
    """Every kind of window, clipped, stamped, filtered, and windows over windows."""
    by = rides().group_by("zone")
    few = sq.col("fare") < 3
    made = [
        by.snapshot_window().select(x=sq.sum("fare")),
        by.sliding_window(10, stamp="point_at_end").select(x=sq.avg("fare", where=few)),
        by.count_window(3, by="end").select(x=sq.percentile("fare", 0.9)),
        by.rows_window(3, 2, order_by="fare").select(x=sq.first("fare")),
        by.session_window(30, clip_input="right").select(x=sq.time_weighted_avg("fare")),
        by.landmark_window(60, period=1440).select(x=sq.max("fare", where=few)),
        by.hopping_window(60, 20, stamp="point_at_end")
        .top_k(2, by="fare", ties="break")
        .select("zone", x=sq.col("fare")),
    ]
    every = made[0].union(*made[1:])
    return every.windowed_join(rides(), on="zone", size=60).tumbling_window(1440).select(n=sq.count_distinct("x"))


def applied() -> Stream:
    """A sub-plan per group: the keys carried through it, with a flag beside each where they are matched."""
    return (
        rides()
        .group_by("zone")
        .apply(lambda g: g.join(g.session_window(30).select(mean=sq.avg("fare")), where=lambda e, s: e.fare > s.mean))
    )


@sq.udo(
    "zone string, rise double", time_sensitive=True, name="rises", properties=[sq.filters_on("zone"), sq.time_bound]
)
def rises(events: Any, window: Any) -> Any:
    """Never called here."""


MIDDLE_FARE = sq.uda("double", name="middle_fare")(lambda fare: fare.median())


def modules() -> Stream:
    """Code of a user's own: what its properties buy, or would buy, and a filter that goes below an operator."""
    by_rise = trips("trips").tumbling_window("1 hour").select(rises("zone", "fare")).where(lambda e: e.zone == "JFK")
    return by_rise.select(x=sq.col("rise")).union(
        trips("more").hopping_window("1 hour", "5 minutes").select(x=MIDDLE_FARE("fare", where=sq.col("tip") > 0))
    )


QUERIES = (delays, shared, open_ends, opaque, hosted, joined, spans, pairs, last_rows, windows, applied, modules)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.__name__)
def test_text_is_as_in_the_golden_file(query: object) -> None:
    assert callable(query)
    stream = query()
    text = "\n\n".join(stream.explanation(mode) for mode in PARTS) + "\n"
    path = GOLDEN / f"{query.__name__}.txt"
    if os.environ.get("STREAMQ_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_the_words_of_the_stages_are_explained_in_the_docs() -> None:
    page = (GOLDEN.parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.partition("### The words of explain()")[2].partition("\n## ")[0]
    explained = {
        word for row in table.splitlines() if row[:1] == "|" for word in re.findall("`([^`]+)`", row.split("|")[1])
    }
    stages = [path.read_text().partition("\nstages\n")[2] for path in sorted(GOLDEN.glob("*.txt"))]
    words = {word for text in stages for word in re.findall(r"(?m)^ {6}([^:(,]+)(?:: | \()", text)}
    assert len(words) > 8 and words <= explained


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("", "state of the run\n  failed\n"),
        ("no column <b>\n  at v", "state of the run\n  failed: no column <b>\n    at v\n"),
    ],
)
def test_the_state_of_a_run_comes_first(reason: str, shown: str) -> None:
    def written(mode: str | None, format: str) -> str:
        return explain(compiled(delays().plan), mode, format, before=[state_section("failed", reason)])

    assert written(None, "text").startswith(f"{shown}\nlogical plan\n") and written("state", "text") == shown.rstrip()
    assert json.loads(written("state", "json")) == {"state": {"state": "failed", "reason": reason or None}}
    page = written(None, "html")
    assert page.index("state of the run") < page.index("logical plan") and "<b>" not in page
    assert written("physical", "mermaid").startswith("flowchart")


def test_json_is_the_same_as_data() -> None:
    found = json.loads(delays().explanation(format="json"))
    assert list(found) == ["logical", "rules", "incremental", "physical"]
    first, last = found["logical"][0], found["logical"][-1]
    assert (first["operator"], first["inputs"]) == ("select", [2])
    assert last["schema"] == {"zone": "string", "fare": "double", "tip": "double", "note": "string"}
    assert (last["inputs"], last["shape"], last["axis"]) == ([], "point", "timestamp")
    assert {f["rule"] for f in found["rules"]["fired"]} >= {
        "push_where_below_state",
        "restate_aggregates",
        "split_basic_windows",
    }
    (merge,) = [n for n in found["incremental"] if n["operator"] == "hopping"]
    assert merge["CTI"] == "start of the earliest window not final"
    assert merge["batch"]


def test_html_is_one_page_and_escaped() -> None:
    html = delays().explanation("logical", format="html")
    assert html.startswith(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>streamq explain: trips</title>'
    )
    assert html.count('<p class="guide">') == 1
    assert "Click a box for its details." in html
    assert "fare &gt; 0" in html
    assert "http" not in html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<script" not in html


def test_a_page_explains_what_its_graphs_show() -> None:
    plan = delays().explanation(format="html")
    assert plan.count("CTI is the time before which nothing changes any more") == 1
    assert plan.count("A dashed frame: a stage") == 1
    assert plan.count("Orange: why stands in the box.") >= 1


@pytest.mark.slow
def test_a_deep_plan_and_a_diamond_are_explained_without_recursion() -> None:
    plan: Node = trips("trips").plan
    for _ in range(10):
        plan = Union((plan, plan))
    assert explain(compiled(plan), "incremental").count("points trips") == 1
    deep = trips("trips")
    for i in range(1_000):
        deep = deep.where(sq.col("fare") > i)
    assert len(deep.explanation("logical").splitlines()) == 1_002


KEPT_FOR_7 = ", kept in a stream until c is 7 past the start"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (lambda s: s.set_duration(None).snapshot_window().select(n=sq.count()), "without an end"),
        (lambda s: s.set_duration(7).clip(s.shift(1)), f"at most 7{KEPT_FOR_7}; points{KEPT_FOR_7}"),
        (lambda s: s.set_duration(7).chop(5), f"at most 7{KEPT_FOR_7}"),
        (lambda s: s.set_duration(7).to_signal(), "at most 7"),
        (lambda s: s.snapshot_window().select(n=sq.count()), None),
        (lambda s: s.set_duration(sq.col("v")).chop(5), None),
    ],
)
def test_what_is_known_of_lifetimes_is_shown_where_state_reads_them(query: Any, shown: str | None) -> None:
    s = sq.points(pa.table({"t": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}), time="t", name="s")
    lines = query(s).explanation("incremental").splitlines()
    notes = [line.partition("lifetimes: ")[2] for line in lines if "lifetimes: " in line]
    assert notes == ([] if shown is None else [shown])


def test_what_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(
        PlanError,
        match="mode is 'logical', .* or 'physical'; found 'phsyical'. Did you mean 'physical'",
    ):
        delays().explanation("phsyical")
    with pytest.raises(PlanError, match="format is 'text', 'json', 'html', 'fragment' or 'mermaid'; found 'pdf'.$"):
        delays().explanation(format="pdf")
