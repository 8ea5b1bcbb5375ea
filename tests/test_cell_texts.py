"""Control characters of values and names are printed as escapes, wherever streamq prints them, and long values are shortened."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError, SourceError
from streamq.html import WIDEST, shortened_value, with_escapes

NASTY = "a\tb\nc\x1b[31m\x7f\x9b\u2028"
ESCAPED = r"a\tb\nc\x1b[31m\x7f\x9b\u2028"


def nasty() -> sq.Stream:
    return sq.events([(1, 3, {f"v{NASTY}": f"x{NASTY}"})], name=f"s{NASTY}")


def shown(stream: sq.Stream, capsys: pytest.CaptureFixture[str]) -> str:
    stream.show()
    return capsys.readouterr().out


def difference(_: sq.Stream, __: pytest.CaptureFixture[str]) -> str:
    answer = nasty().to_arrow()
    return str(t.same_history(answer, answer.slice(0, 0)))


def difference_of_columns(_: sq.Stream, __: pytest.CaptureFixture[str]) -> str:
    answer = nasty().to_arrow()
    return str(t.same_history(answer, answer.rename_columns(["w", "start", "end"])))


WRITERS: dict[str, tuple[Callable[[sq.Stream, pytest.CaptureFixture[str]], str], str]] = {
    "show": (shown, "vx"),
    "rows of a trace": (lambda stream, _: str(stream.trace().rows()), "vx"),
    "events of a trace": (lambda stream, _: str(stream.trace().events()), "s"),
    "plot": (lambda stream, _: str(stream.plot(title=f"t{NASTY}", key=f"v{NASTY}")), "tsv"),
    "chart": (lambda stream, _: str(stream.select(**{f"n{NASTY}": sq.lit(1)}).chart(title=f"t{NASTY}")), "tn"),
    "difference": (difference, "vx"),
    "difference of columns": (difference_of_columns, "v"),
    "schema": (lambda stream, _: repr(stream.schema), "v"),
    "stream": (lambda stream, _: repr(stream), "v"),
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
def test_control_characters_are_printed_as_escapes(writer: str, capsys: pytest.CaptureFixture[str]) -> None:
    write, marks = WRITERS[writer]
    text = write(nasty(), capsys)
    assert with_escapes(text.replace("\n", "")) == text.replace("\n", "")
    assert all(f"{mark}{ESCAPED}" in text for mark in marks)
    assert "b\nc" not in text


def test_columns_are_aligned_by_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sq.events([(1, 3, {"v": "\x1b[31mred"})]).show()
    head, row = capsys.readouterr().out.splitlines()
    assert len(head) == len(row) and row.startswith(r"\x1b[31mred")


def test_a_difference_shortens_long_values_as_a_table_does() -> None:
    rows = pa.table({"v": ["é" * 10_000], "n": [[1] * 1_000], "start": [1], "end": [2]})
    difference = t.same_history(rows, rows.slice(0, 0))
    text = repr(difference)
    assert text == str(difference) and f"v='{'é' * WIDEST}'… (10,000 characters)" in text
    assert "… (3,000 characters)" in text and len(text) < 1_200
    assert shortened_value("a" * WIDEST) == "a" * WIDEST


def test_a_schema_is_its_columns_and_lifetimes() -> None:
    assert repr(sq.events([(1, 3, {"v": 1})]).schema) == "v bigint; interval on integer"
    assert repr(sq.events([])) == "Stream(no columns; interval on integer)"


def test_halves_of_surrogate_pairs_are_refused_with_the_column() -> None:
    with pytest.raises(
        SourceError, match=r"events: column 'a' holds a text with half a surrogate pair; found '\\ud800'"
    ):
        sq.events([(1, 3, {"a": "b\ud800"})])
    with pytest.raises(PlanError, match=r"events: a column name with half a surrogate pair; found '\\ud800'"):
        sq.events([(1, 3, {"\ud800": "b"})])
    with pytest.raises(PlanError, match="events: a column name is a string; found 1"):
        sq.events([(1, 3, {1: "b"})])
