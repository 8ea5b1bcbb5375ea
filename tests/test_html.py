"""Values in notebooks: each is well-formed HTML that says what its text says, whatever texts it holds."""

from __future__ import annotations

import sys
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import streamq as sq
from streamq import html
from streamq import testing as t
from streamq.errors import PlanError
from streamq.run.batch.answers import as_html
from streamq.run.rehearsal import Rehearsal

NASTY = [
    "<script>alert(1)</script>\x00",
    "a & b",
    "日本 \U0001f600",
    "x" * 10_000,
    None,
    float("nan"),
    float("inf"),
    Decimal("1.50"),
]


TAGS = {"div", "style", "h2", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td"}


def parsed(value: Any) -> ElementTree.Element:
    """The HTML of a value, which has to be well-formed, and has no element that runs anything."""
    root = ElementTree.fromstring(value._repr_html_())
    assert {element.tag for element in root.iter()} <= TAGS
    return root


def texts(root: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(tag)]


def cars() -> sq.Stream:
    rows = [(i, None if i % 2 else i + 3, {"v": str(value)}) for i, value in enumerate(NASTY)]
    return sq.events(rows, name="cars<b>", progress=sq.generate())


def test_cells_are_escaped_cut_and_aligned() -> None:
    root = ElementTree.fromstring(
        html.fragment(html.tabulated(("<i>", "v"), [("a", value) for value in NASTY], "1 < 2"))
    )
    shown = texts(root, "td")[1::2]
    assert shown[0] == "<script>alert(1)</script>\ufffd" and shown[2] == NASTY[2] and shown[4] == "NULL"
    assert len(shown[3]) < 400 and shown[3].endswith("(10,000 characters)")
    numbers = [cell.text for cell in root.iter("td") if cell.get("class") == "number"]
    assert numbers == ["nan", "inf", "1.50"]
    assert (texts(root, "caption"), texts(root, "th")) == (["1 < 2"], ["<i>", "v"])


def test_rows_beyond_the_most_are_counted() -> None:
    some = html.tabulated(("n",), [(i,) for i in range(12)], most=10)
    assert some.count("<tr>") == 11 and "... 2 more rows" in some
    assert "more rows" not in html.tabulated(("n",), [(i,) for i in range(10)], most=10)


def test_values_are_nested_tables() -> None:
    readout = html.Readout({"a": 1, "sources": {"s": {"rows": 2}}, "list": [{"x": 1}, {"x": 2}], "empty": {}})
    root = parsed(readout)
    assert texts(root, "th") == ["a", "sources", "s", "rows", "list", "x", "x", "empty"]
    assert dict(readout) == readout and repr(readout).startswith("{'a': 1")


def test_of_a_long_value_a_table_as_text_shows_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    texts = sq.events([(0, 1, {"short": "a" * 500, "long": "é" * 10_000})], name="texts")
    texts.show()
    _, row = capsys.readouterr().out.splitlines()
    assert "é" * 300 + "... (10,000 characters)" in as_html(texts.to_arrow(), 5)
    assert "a" * 500 + "  " in row and "é" * 500 + "… (10,000 characters)" in row and "é" * 501 not in row


def test_streams_and_schemas_show_their_columns() -> None:
    assert texts(parsed(cars().schema), "th") == ["column", "type", "v"]
    root = parsed(cars().where(sq.col("v") > "<"))
    assert texts(root, "td") == ["string"] and "where v > '<'" in texts(root, "pre")[0]


def test_a_rehearsed_run_shows_why_metrics_late_and_progress() -> None:
    run = Rehearsal(cars().group_by("v").tumbling_window(5).select(n=sq.count()))
    run.arrive(**{"cars<b>": 3})
    assert "waiting for a row of cars<b>" in texts(parsed(run.why()), "h2")[0]
    assert "cars<b>" in texts(parsed(run.metrics), "th")
    assert "cars<b>|dropped" in texts(parsed(run.late), "th")
    parsed(run.progress)


def test_differences_and_errors_show_their_parts() -> None:
    one, other = (pa.table({"v": [v], "start": [1], "end": [5]}) for v in ("<a>", "b"))
    difference = t.same_history(one, other)
    assert difference is not None
    assert texts(parsed(difference), "th")[3:] == ["missing", "extra"]
    columns = t.same_history(one, other.rename_columns(["w", "start", "end"]))
    assert columns is not None and "different columns" in texts(parsed(columns), "pre")[0]
    assert texts(parsed(PlanError("where: <x>")), "pre") == ["where: <x>"]


def test_modules_and_the_doctor_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed(sq.modules)
    from streamq.run.session.findings import Finding, Report

    findings = Report(
        (Finding("Java <17>", "found & fine"), Finding("Spark", "no", wrong="not <there>", hint="Install it"))
    )
    assert texts(parsed(findings), "td")[0::2] == ["ok", "PROBLEM"]


@pytest.mark.parametrize("verb", ["explain", "show"])
def test_a_notebook_shows_the_page_and_elsewhere_the_text_is_printed(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, str]] = []
    stream = cars()
    getattr(stream, verb)()
    text = capsys.readouterr().out
    display = SimpleNamespace(display=lambda data, raw: shown.append(data))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    getattr(stream, verb)()
    assert capsys.readouterr().out == "" and shown[0]["text/plain"] + "\n" == text
    root = ElementTree.fromstring(shown[0]["text/html"])
    if verb == "explain":
        stream.explain()
        ids, again = (
            {e.get("id") for e in ElementTree.fromstring(data["text/html"]).iter()} - {None} for data in shown
        )
        assert len(ids) == len(again) > 0 and not ids & again, "two cells of a notebook share no id"
        stream.explain(format="html")
        text = capsys.readouterr().out
        assert text.startswith("<!DOCTYPE html>"), "a format that is asked for is printed"
        body = ElementTree.fromstring(text).find("body/div")
        assert body is not None and len(list(body.iter())) == len(list(root.iter()))
