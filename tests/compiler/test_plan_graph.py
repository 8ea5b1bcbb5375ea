"""Graphs of plans: boxes that do not overlap, edges that lead down, marks of rules, well-formed SVG, and Mermaid's text."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.compiler.explain import explain
from streamq.compiler.explain_graphs import Measurements
from streamq.compiler.plan_graph import (
    TIME_GUIDE,
    Layout,
    OperatorBox,
    OperatorBoxKind,
    PlanGraph,
    apart_at_least,
    layered,
)
from streamq.errors import PlanError
from streamq.run.rehearsal import Rehearsal
from tests.laws.cost_operators import OPERATORS, program

SVG = "{http://www.w3.org/2000/svg}"


def query() -> sq.Stream:
    rows = pa.table({"at": [1], "booth": ["<1>"], "toll": [7.0]})
    cars = sq.points(rows, time="at", name="cars & vans", progress=sq.generate(3))
    hopping = cars.where(sq.col("toll") > 1).group_by("booth").hopping_window(30, 5)
    other = cars.group_by("booth").tumbling_window(30).select(m=sq.count(), middle=sq.median("toll"))
    return hopping.select(n=sq.count(), mean=sq.avg("toll")).join(other, on="booth").where(sq.col("n") > 1)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]], dict[str, int]]:
    """Sizes, edges from lesser to greater numbers, and bands that do not lead back."""
    count = draw(st.integers(1, 9))
    lengths = st.floats(10, 200)
    sizes = {f"n{i}": (draw(lengths), draw(lengths)) for i in range(count)}
    pairs = list(combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    bands = sorted(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    return sizes, [(f"n{a}", f"n{b}") for a, b in edges], {f"n{i}": band for i, band in enumerate(bands)}


@given(graph=graphs())
def test_boxes_do_not_overlap_edges_lead_down_and_bands_lie_under_one_another(
    graph: tuple[dict[str, tuple[float, float]], list[tuple[str, str]], dict[str, int]],
) -> None:
    sizes, edges, bands = graph
    layout = layered(sizes, edges, bands, 30)
    for a, b in combinations(sizes, 2):
        beside, below = (
            abs(layout.centers[a][axis] - layout.centers[b][axis]) + 1e-6 >= (sizes[a][axis] + sizes[b][axis]) / 2
            for axis in (0, 1)
        )
        assert beside or below
    for name, (x, y) in layout.centers.items():
        width, height = sizes[name]
        assert x - width / 2 >= -1e-6 and x + width / 2 <= layout.width + 1e-6
        assert y - height / 2 >= -1e-6 and y + height / 2 <= layout.height + 1e-6
    for (upper, lower), route in layout.routes.items():
        assert all(y < v for (_, y), (_, v) in pairwise(route)), "an edge never leads up"
        assert route[0] == (layout.centers[upper][0], layout.centers[upper][1] + sizes[upper][1] / 2)
        assert route[-1] == (layout.centers[lower][0], layout.centers[lower][1] - sizes[lower][1] / 2)
        assert not crossed(layout, sizes, route, {upper, lower})
    spans = [layout.bands[band] for band in sorted(set(bands.values()))]
    assert all(low < high for low, high in spans) and all(a[1] < b[0] for a, b in pairwise(spans))


def crossed(
    layout: Layout, sizes: dict[str, tuple[float, float]], route: tuple[tuple[float, float], ...], own: set[str]
) -> list[str]:
    """The other boxes through whose height an edge runs at a place inside them."""
    return [
        name
        for name, (x, y) in layout.centers.items()
        if name not in own
        for u, v in route[1:-1]
        if abs(u - x) < sizes[name][0] / 2 and abs(v - y) < sizes[name][1] / 2
    ]


@given(wished=st.lists(st.integers(-50, 50), min_size=1, max_size=6), apart=st.integers(0, 20))
def test_places_are_the_nearest_that_are_far_enough_apart(wished: list[int], apart: int) -> None:
    places = apart_at_least([float(w) for w in wished], [float(apart)] * (len(wished) - 1))
    assert all(b - a >= apart - 1e-9 for a, b in pairwise(places))
    # no run of places that touch can be moved nearer to its wishes
    for i in range(len(places)):
        for j in range(i, len(places)):
            run = range(i, j + 1)
            pull = sum(wished[n] - places[n] for n in run)
            is_free_left = i == 0 or places[i] - places[i - 1] > apart + 1e-9
            is_free_right = j == len(places) - 1 or places[j + 1] - places[j] > apart + 1e-9
            assert not (pull < -1e-6 and is_free_left) and not (pull > 1e-6 and is_free_right)


def test_the_page_draws_both_plans_side_by_side_and_the_stages_in_frames() -> None:
    page = ElementTree.fromstring(query().explanation(format="html"))
    (beside,) = page.findall(".//div[@class='plans']")
    headings = [section.findtext("h2") for section in beside.findall("section")]
    assert headings == ["logical plan", "incremental plan (CTI: c, unless said otherwise)"]
    logical, incremental, stages = page.iter(f"{SVG}svg")
    for svg in (logical, incremental, stages):
        assert (
            svg.get("role") == "img"
            and svg.findtext(f"{SVG}title")
            and "result below" in svg.findtext(f"{SVG}desc", "")
        )
    frames = [e for e in stages.iter(f"{SVG}rect") if e.get("class") == "frame"]
    assert len(frames) == sum("stage " in (e.text or "") for e in stages.iter(f"{SVG}text")) > 1


def test_a_box_is_marked_by_the_rule_that_replaced_or_made_it_or_by_the_reason_why_it_was_not_split() -> None:
    def marks(mode: str) -> list[str]:
        page = ElementTree.fromstring(query().explanation(mode, "html"))
        return [e.text or "" for e in page.iter(f"{SVG}text") if e.get("class") == "mark"]

    assert "restate_aggregates" in marks("logical")
    assert "split_basic_windows" in marks("incremental")
    assert any(mark.startswith("not split_basic_windows: median does not merge") for mark in marks("incremental"))


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operators_graph_is_well_formed_and_each_box_links_to_its_details(name: str) -> None:
    queries = program(OPERATORS[name])
    text = sq.Stream(queries.plan.inputs[0], {}).explanation(format="html")
    page = ElementTree.fromstring(text)
    targets = {e.get("id") for e in page.iter() if e.get("id")}
    links = [e.get("href", "") for e in page.iter(f"{SVG}a")]
    assert links and all(link.startswith("#") and link[1:] in targets for link in links)


def test_mermaid_is_a_flowchart_of_one_plan() -> None:
    lines = query().explanation("physical", "mermaid").split("\n")
    assert lines[0] == "flowchart TD" and lines.count("  end") == sum("subgraph" in line for line in lines)
    assert '  s0["points cars & vans, time=at"]' in lines
    assert "where toll #gt; 1" in "\n".join(lines) and "<" not in "\n".join(lines).replace("-->", "")
    with pytest.raises(PlanError, match='Mermaid draws one plan; found mode=None. Give mode="logical"'):
        query().explain(format="mermaid")


def test_the_stages_of_a_run_have_its_rows_its_state_and_the_slowest_stage() -> None:
    run = Rehearsal(query())
    run.arrive()
    metrics = run.metrics
    for stage in metrics["stages"]:
        stage["time_ms"] = 12
        for operator in stage["operators"]:
            assert operator["cpu_ms"] >= 0
            operator["cpu_ms"] = 2.0
    metrics["stages"][-1]["time_ms"] = 40
    metrics["stages"][-1]["operators"][-1]["cpu_ms"] = 31.5
    metrics["sources"]["cars & vans"] |= {"rows": 1_200, "dropped": 3}
    measured = Measurements.of_metrics(metrics, run.program)
    text = explain(run.program, "physical", measured=measured)
    assert re.search(r"so far: 0 rows inserted, 0 retracted; state: [1-9]\d* rows?, [1-9]\d* bytes; 2.0 ms", text)
    assert "buckets, 12 ms in the last micro-batch\n" in text and "40 ms in the last micro-batch, the slowest\n" in text
    page = ElementTree.fromstring(explain(run.program, "physical", "html", measured=measured))
    boxes = [["".join(line.itertext()) for line in box.iter(f"{SVG}text")] for box in page.iter(f"{SVG}a")]
    assert [box[0] for box in boxes if "slowest operator" in box] == ["inner join"]
    measured_boxes = {box[0]: box[1:] for box in boxes if any(line.startswith("so far: ") for line in box)}
    assert set(measured_boxes) == {"points", "ingress", "hopping", "inner join"}
    assert measured_boxes["points"] == ["cars & vans, time=at", "so far: 1,200 rows", "of these 3 late and dropped"]
    assert "\n    so far: 1,200 rows; of these 3 late and dropped\n" in text
    assert TIME_GUIDE in "".join(page.itertext()) and "31.5 ms of processor time in the last micro-batch" in text
    alone = replace(measured, times={0: 12.0})
    assert alone.frame(0).endswith("micro-batch") and alone.frame(1) == ""


def test_numbers_are_not_cut_however_long_an_operators_line_is() -> None:
    numbers = ("so far: 1,234,567,890 rows inserted, 1,234,567 retracted", "state: 12 rows, 345 bytes")
    box = OperatorBox(
        name="a", kind=OperatorBoxKind.STATE, title="session", text="by a column, " * 30, measured=numbers
    )
    graph = PlanGraph("stages", (box,), ())
    assert box.lines[2].endswith("…") and " ".join(box.lines[3:]) == " ".join(numbers)
    assert TIME_GUIDE in graph.guide and all(number in graph.details for number in numbers)
    unmeasured = PlanGraph("stages", (replace(box, measured=()),), ())
    assert len(unmeasured.boxes[0].lines) == 3 and TIME_GUIDE not in unmeasured.guide


def test_a_single_stage_has_its_time_and_is_not_the_slowest() -> None:
    stays = sq.points(pa.table({"at": [1], "k": [1]}), time="at", name="stays", progress=sq.generate(3))
    counts = stays.group_by("k").tumbling_window(5).select(n=sq.count())
    run = Rehearsal(counts)
    run.arrive()
    metrics = run.metrics
    metrics["stages"][0]["time_ms"] = 7
    measured = Measurements.of_metrics(metrics, run.program)
    page = explain(run.program, "physical", "html", measured=measured)
    assert "stage 1 of 1, up to 4 buckets, 7 ms in the last micro-batch</text>" in page and "slowest" not in page
