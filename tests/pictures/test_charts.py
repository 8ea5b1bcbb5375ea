"""Charts of numbers: each event's step lies over its lifetime at its value, and lines join only what meets."""

from __future__ import annotations

import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from IPython.core.formatters import DisplayFormatter

import streamq as sq
from streamq.errors import PlanError, SessionError, TypeMismatch, UnknownColumn
from streamq.pictures.picture import Picture
from streamq.pictures.query_picture import MOST_TABLE_ROWS
from tests.pictures.drawn import SVG

LOADS = [
    *[(1, 4, "a", 2.0), (4, 6, "a", 5.0), (8, 9, "a", 1.0)],
    *[(2, 5, "b", 3.0), (4, None, "b", 7.0)],
    *[(1, 2, "c", 4.0), (1, 2, "c", 6.0), (2, 3, "c", 9.0)],
]


def loads() -> sq.Stream:
    return sq.events([(s, e, {"k": k, "v": v}) for s, e, k, v in LOADS], name="loads")


def test_steps_lie_over_lifetimes_and_lines_join_events_that_meet() -> None:
    chart = loads().chart(key="k")
    (panel,) = chart.spec["vconcat"]
    points = panel["data"]["values"]
    steps = Counter((a["at"], b["at"], a["key"], a["value"]) for a, b in zip(points[::2], points[1::2], strict=True))
    assert steps == Counter((s, 10 if e is None else e, k, v) for s, e, k, v in LOADS)
    runs = {(point["key"], point["value"]): point["run"] for point in points}
    assert runs["a", 2.0] == runs["a", 5.0], "they meet"
    assert len({runs["a", 5.0], runs["a", 1.0], runs["b", 3.0], runs["b", 7.0]}) == 4, "a gap, and events that overlap"
    assert len({runs["c", v] for v in (4.0, 6.0, 9.0)}) == 3, "of two at once neither goes on"
    assert repr(chart) == "v over time; 8 events of 3 keys (k)."


def test_values_that_are_no_finite_numbers_are_left_out() -> None:
    values = [None, float("nan"), float("inf"), 2.5]
    stream = sq.events([(i, i + 1, {"v": v, "d": Decimal("1.5"), "t": "x"}) for i, v in enumerate(values)], name="s")
    first, second = stream.chart().spec["vconcat"]
    assert [p["value"] for p in first["data"]["values"]] == [2.5, 2.5]
    assert {p["value"] for p in second["data"]["values"]} == {1.5}
    assert stream.where(sq.col("v") > 99).select("d").where(sq.col("d") > 9).chart().spec["vconcat"][0]["data"] == {
        "values": []
    }


@pytest.mark.slow
def test_numbers_fill_the_chart_and_the_clock_has_24_hours() -> None:
    rows = pa.table({"at": pa.array([36_000, 72_000], pa.timestamp("s", "UTC")), "degrees": [20.5, 21.5]})
    chart = sq.points(rows, time="at", name="s").chart()
    marks = [element.text for element in ElementTree.fromstring(chart.svg).iter(f"{SVG}text")]
    assert {"10:00", "13:00", "20:00"} <= {*marks} and not any("PM" in (mark or "") for mark in marks), marks
    assert "20.6" in marks and "0" not in marks, marks


def test_keys_that_read_alike_are_told_apart() -> None:
    keys = [None, "NULL", "x" * 10_000, "x" * 10_001]
    chart = sq.events([(1, 2, {"k": key, "v": 1.0}) for key in keys], name="s").chart(key="k")
    (panel,) = chart.spec["vconcat"]
    assert len({point["key"] for point in panel["data"]["values"]}) == len(keys)
    assert {len(end["name"]) < 40 for end in panel["layer"][1]["data"]["values"]} == {True}


def test_what_cannot_be_drawn_is_an_error() -> None:
    stream = loads()
    with pytest.raises(TypeMismatch, match="chart: column 'k' holds no numbers; it is a string"):
        stream.chart("k")
    with pytest.raises(TypeMismatch, match="chart: no column holds numbers"):
        stream.select("k").chart()
    with pytest.raises(UnknownColumn, match="chart: no column 'w'"):
        stream.chart("w")
    many = sq.points(pa.table({"at": range(20_001), "v": range(20_001)}), time="at", name="s")
    with pytest.raises(PlanError, match="chart: more than 20,000 events; found 20,001. Draw a coarser window"):
        many.chart()


@pytest.mark.slow
def test_a_chart_is_drawn_without_the_network_and_saved(tmp_path: Path) -> None:
    chart = loads().chart(key="k", title="The load")
    assert chart.svg in chart._repr_html_() and ">The load<" in chart.svg
    assert chart.save(tmp_path / "p.svg").read_text(encoding="utf-8") == f"{chart.svg}\n"
    assert chart.save(tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert chart.altair.to_dict()["title"] == chart.spec["title"]


def test_without_altair_and_vl_convert_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chart = loads().chart()
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(SessionError, match=r"chart: Altair is not installed. pip install 'streamq\[charts\]'"):
        chart.altair
    with pytest.raises(
        SessionError, match=r"chart: vl-convert is not installed. pip install 'streamq\[charts\]'"
    ) as error:
        chart.save(tmp_path / "p.svg")
    assert error.value.__suppress_context__
    shown, _ = DisplayFormatter().format(chart)
    page = ElementTree.fromstring(shown["text/html"])
    assert page.findtext("pre") == repr(chart) == shown["text/plain"]
    assert page.findtext("p") == str(error.value)
    assert len(page.findall(".//tbody/tr")) == len(LOADS)


def test_the_table_beside_a_chart_has_its_events_the_first_of_many() -> None:
    def cells(chart: Picture) -> list[list[str]]:
        page = ElementTree.fromstring(f"<div>{chart.tables}</div>")
        return [[cell.text or "" for cell in row] for row in page.iter("tr")]

    chart = sq.events([(1, None, {"k": "<a>", "v": 2.5, "w": 1}), (3, 4, {"k": None, "v": None, "w": 1})]).chart(
        "v", key="k"
    )
    assert cells(chart) == [["k", "v", "start", "end"], ["<a>", "2.5", "1", "inf"], ["NULL", "NULL", "3", "4"]]
    many = sq.points(
        pa.table({"at": range(MOST_TABLE_ROWS + 2), "v": range(MOST_TABLE_ROWS + 2)}), time="at", name="s"
    ).chart()
    assert len(cells(many)) == 1 + MOST_TABLE_ROWS and "... 2 more rows" in many.tables
