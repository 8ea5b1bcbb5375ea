"""A picture or a clear sentence, whatever the rows: none, one, many, hostile texts, instants at the ends of time, errors."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import InvalidEvent, ModuleFailed, PlanError, SourceError, StreamqError, UnknownColumn
from streamq.stream import Stream
from tests.pictures.drawn import parsed_svg

LAST = 2**63 - 2


def one(**payload: Any) -> Stream:
    return sq.events([(5, 7, payload)], name="s")


PICTURES: dict[str, tuple[Stream, dict[str, Any], str]] = {
    "empty": (sq.events([], schema={"v": "int"}, name="s"), {}, "s: no events."),
    "one event": (one(v=1), {}, "s: 1 event, from 5 to 7."),
    "one without an end": (sq.events([(5, None, {"v": 1})], name="s"), {}, "s: 1 event, from 5, 1 without an end."),
    "no payload": (one(), {}, "s: 1 event, from 5 to 7."),
    "script": (one(**{"<script>": "</svg><script>alert(1)</script>]]>&\"'"}), {"title": "<b>&"}, "s: 1 event"),
    "no characters of XML": (one(v="\x00\x1b\ud7ff"), {"key": "v"}, "s: 1 event of 1 key (v)"),
    "long": (one(k="x" * 10_000, v="é日本語" * 3_000), {"key": "k"}, "s: 1 event of 1 key (k)"),
    "floats": (
        sq.events([(5, 7, {"k": float(k)}) for k in ("nan", "inf", "-0.0", "0.0")], name="s"),
        {"key": "k"},
        "s: 4 events of 3 keys (k)",
    ),
    "nested": (one(k=[{"a": [1, None]}], v=b"\x00\xff", d=dt.date(2020, 1, 1)), {"key": "k"}, "s: 1 event of 1 key"),
    "ends of time": (
        sq.events([(-LAST, -LAST + 1, {}), (LAST - 1, LAST, {}), (0, None, {})], name="s"),
        {},
        f"s: 3 events, from -{LAST} to {LAST}, 1 without an end.",
    ),
    "beyond Python's years": (
        sq.intervals(t.table("start timestamp, end timestamp", [(-(2**60), 2**60)]), start="start", end="end", name="s"),
        {},
        "s: 1 event, from -1152921504606846976 us to 1152921504606846976 us.",
    ),
    "a section": (
        sq.events([(5, 17, {}), (1, 3, {}), (18, 20, {}), (8, 9, {})], name="s"),
        {"between": (6, 12)},
        "s: 4 events, from 1 to 20. 2 events outside the axis.",
    ),
    "in bins": (
        sq.events([(i, i + 3, {"k": i % 30}) for i in range(2_000)], name="s"),
        {"key": "k"},
        "s: 2,000 events of 30 keys (k), from 0 to 2002. Too many to draw one by one",
    ),
}  # fmt: skip


def layer_domain(panel: dict[str, Any]) -> list[float]:
    return next(layer["encoding"]["x"]["scale"]["domain"] for layer in panel["layer"])


@pytest.mark.parametrize("case", PICTURES)
def test_there_is_a_picture(case: str, tmp_path: Path) -> None:
    stream, arguments, sentence = PICTURES[case]
    picture = stream.plot(**arguments)
    assert picture.description[0].startswith(sentence)
    svg = parsed_svg(picture)
    assert not [e for e in ElementTree.fromstring(picture.html).iter() if e.tag.lower().endswith("script")]
    assert all(len(text.text or "") < 700 for text in svg.iter() if not text.tag.endswith("style"))
    for panel in picture.spec["vconcat"]:
        for row in (row for layer in panel["layer"] for row in layer["data"]["values"] if "x2" in row):
            low, high = map(float, layer_domain(panel))
            assert low <= row["x"] <= row["x2"] <= high
    assert picture.save(tmp_path / "p.svg").read_text(encoding="utf-8") == f"{picture.svg}\n"
    assert picture.save(tmp_path / "p.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


class Frame:
    """Stands for a streaming DataFrame."""

    isStreaming = True


ROWS = pa.table({"start": [1], "end": [2], "v": [3]})


@sq.udf("double")
def inverse_of_zero(v: Any) -> Any:
    return v / 0


ERRORS: dict[str, tuple[Any, type[StreamqError], str]] = {
    "key": (lambda: one(booth=1).plot(key="boot"), UnknownColumn, "plot: no column 'boot'; there are: booth. Did you"),
    "output": (lambda: one().plot(output="upsert"), PlanError, "plot: output is 'final' or 'changelog'; found 'upsert'"),
    "between": (lambda: one().plot(between=(7, 5)), PlanError, "plot: between is a pair of instants, the first before"),
    "title": (lambda: one(v=1).plot(title=3), PlanError, "plot: title is a text; found 3."),
    "title of a chart": (lambda: one(v=1).chart(title=3), PlanError, "chart: title is a text; found 3."),
    "no pair": (lambda: one().plot(between=7), PlanError, "plot: between is a pair of instants; found 7."),
    "no event": (lambda: sq.events([(7, 5, {})]).plot(), InvalidEvent, "a row is no event: end not after start"),
    "failed": (lambda: one(v=1).select(x=inverse_of_zero("v")).plot(), ModuleFailed, "ZeroDivisionError"),
    "no rows": (lambda: one(v=1).plot(5), SourceError, "plot: the rows of source s are no table; found int."),
    "streaming": (lambda: one(v=1).plot(Frame()), PlanError, "plot: a streaming DataFrame has no rows yet; source s"),
    "column": (lambda: one(v=1).plot(ROWS.drop_columns("v")), UnknownColumn, "plot, rows of source s: no column 'v'; there"),
    "type": (lambda: one(v=1).plot(ROWS.set_column(2, "v", [["x"]])), SourceError, "plot: rows that do not fit source s; v: "),
    "name": (lambda: one(v=1).plot({"r": ROWS}), PlanError, "plot: no source 'r'; there are: s."),
    "several": (
        lambda: one(v=1).union(sq.events([(1, 2, {"v": 1})], name="r")).plot(ROWS),
        PlanError,
        "plot: rows for one of several sources; there are: s, r. Write {'s': rows, ...}.",
    ),
    "file": (lambda: one().plot().save("p.gif"), PlanError, "save: a picture is saved as .svg, .png or .html; found 'p.gif'."),
    "half a letter": (lambda: one().plot(title="\ud800"), PlanError, "plot: title is a text; found '"),
    "rows of a test": (lambda: t.plot([1]), SourceError, "plot: takes an Arrow table or a pandas frame; found list."),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_there_is_a_clear_sentence(case: str) -> None:
    call, kind, message = ERRORS[case]
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)


def test_rows_replace_those_of_a_source_and_a_dataframe_needs_them() -> None:
    stream = one(v=1).where(sq.col("v") > 2)
    picture = stream.plot(ROWS.to_pandas())
    assert picture.description[:2] == ["s: 1 event, from 1 to 2.", "answer: 1 event, from 1 to 2."]
    on_spark = Stream(stream.plan, {"s": Frame()})
    assert on_spark.plot({"s": ROWS}).svg == picture.svg
    with pytest.raises(PlanError, match="plot: source s is a DataFrame; plot reads rows in memory. Pass"):
        on_spark.plot()


def test_a_changelog_of_very_many_rows_is_refused_and_late_rows_are_counted() -> None:
    many = sq.points(pa.table({"at": range(20_001)}), time="at", name="s")
    with pytest.raises(PlanError, match="plot: a changelog over more than 20,000 rows; found 20,001. Give fewer"):
        many.plot(output="changelog")
    late = sq.points(pa.table({"at": [1, 90, 2]}), time="at", name="s", progress=sq.generate(5))
    result = late.tumbling_window(10).select(n=sq.count()).plot(output="changelog").description[2]
    assert result.endswith("Rows late or otherwise odd: 1 dropped (s).")


def test_a_list_of_micro_batches_is_drawn_as_their_rows_together() -> None:
    rows = pa.concat_tables([ROWS, pa.table({"start": [4], "end": [9], "v": [5]})])
    assert one(v=1).plot([{"s": rows.slice(0, 1)}, {"s": rows.slice(1)}]).svg == one(v=1).plot(rows).svg
