"""Values for people: what Python has as Python's, what it does not have as text."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import col
from streamq import testing as t
from streamq.errors import LONGEST, PlanError, Sentence, SourceError, StreamqError, StreamqWarning, sentence, warn
from streamq.html import WIDEST, shortened_value, with_escapes
from streamq.runtime.arrow.values import python_rows, python_values

LEAST, MOST = -(2**63), 2**63 - 1
UTC = pa.timestamp("us", tz="UTC")
LAST, FIRST = 253_402_300_799_999_999, -62_135_596_800_000_000
"""The last and the first microsecond that Python has."""


@pytest.mark.parametrize(
    ("kind", "ticks", "shown"),
    [
        (UTC, LAST, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)),
        (UTC, LAST + 1, "+10000-01-01 00:00:00+00:00"),
        (UTC, FIRST, dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        (UTC, FIRST - 1, "0000-12-31 23:59:59.999999+00:00"),
        (UTC, MOST, "+294247-01-10 04:00:54.775807+00:00"),
        (UTC, LEAST, "-290308-12-21 19:59:05.224192+00:00"),
        (pa.timestamp("us"), LAST + 1, "+10000-01-01 00:00:00"),
        (pa.date32(), 2_932_896, dt.date(9999, 12, 31)),
        (pa.date32(), 2_932_897, "+10000-01-01"),
        (pa.date32(), -719_162, dt.date(1, 1, 1)),
        (pa.date32(), -719_163, "0000-12-31"),
    ],
    ids=str,
)
def test_instants_and_days_that_python_does_not_have_are_text(kind: pa.DataType, ticks: int, shown: object) -> None:
    assert python_values(pa.array([None, ticks], kind)) == [None, shown]


def test_at_any_depth() -> None:
    kind = pa.struct([("l", pa.list_(UTC)), ("m", pa.map_(pa.date32(), UTC))])
    far, near = "+10000-01-01 00:00:00+00:00", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    rows = [{"l": [0]}, {"l": [LAST + 1, None, 0], "m": [(0, LAST + 1)]}, None, {"l": []}]
    table = pa.table({"x": pa.array(rows, kind), "n": [1, 2, 3, 4]})
    assert python_rows(table.slice(1)) == [
        {"x": {"l": [far, None, near], "m": [(dt.date(1970, 1, 1), far)]}, "n": 2},
        {"x": None, "n": 3},
        {"x": {"l": [], "m": None}, "n": 4},
    ]
    assert python_rows(table.slice(4)) == []


@pytest.mark.parametrize("ticks", [[0, None], [LAST + 1, LEAST]])
def test_a_dictionary_of_instants(ticks: list[int | None]) -> None:
    array = pa.array(ticks, UTC)
    assert python_values(array.dictionary_encode()) == python_values(array)
    assert python_values(pa.array([["a"], None])) == [["a"], None]


# Control characters of values and names are printed as escapes, wherever streamq prints them, and long values are shortened.

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


# However long what a user wrote is, or what is wrong with it, the message is short: each part of it is cut in its middle.

LONG = "x" * 100_000
MANY = 1_500

TEXTS = sq.events([(1, 3, {"k": LONG, "v": 1})], name="s")
NAMED = sq.events([(1, 3, {LONG: 1, "v": 1})], name="n")
WIDE = sq.events([(1, 3, {f"column_{i}": i for i in range(MANY)})], name="w")


def over(module: Any, stream: sq.Stream = TEXTS, *columns: str, keys: tuple[str, ...] = ()) -> Any:
    grouped: Any = stream.group_by(*keys) if keys else stream
    applied = module(*(columns or ("v",)))
    return grouped.tumbling_window(5).select(*([applied] if module.kind == "udo" else []), **(
        {} if module.kind == "udo" else {"y": applied})).to_arrow()  # fmt: skip


def raising(*values: Any) -> Any:
    raise ValueError(LONG)


def rows_of(row: Any) -> Any:
    return sq.udo("y bigint", name="own", time_sensitive=True)(lambda events, window: [row])


FAILS = sq.uda("bigint", name="own")(lambda values: 1 // 0)

MISTAKES: dict[str, Callable[[], Any]] = {
    "an unknown column among many": lambda: WIDE.where(col("nope") > 1),
    "an unknown key among many": lambda: WIDE.group_by("nope").tumbling_window(3).select(n=sq.count()),
    "an unknown column": lambda: TEXTS.where(col(LONG) > 1),
    "a column that is almost one": lambda: NAMED.where(col(LONG + "y") > 1),
    "a literal of another type": lambda: TEXTS.where(col("v") == LONG),
    "a union of many columns": lambda: WIDE.union(TEXTS),
    "a join of many columns": lambda: WIDE.join(WIDE),
    "a duration": lambda: TEXTS.tumbling_window(LONG),
    "a word": lambda: TEXTS.explain(LONG),
    "a verb": lambda: getattr(TEXTS, LONG),
    "a function": lambda: getattr(sq.functions, LONG),
    "a type": lambda: sq.udf(LONG),
    "an option": lambda: sq.udf("int", **{LONG: 1}),
    "a promise": lambda: sq.udo("a int", properties=[sq.filters_on(LONG)])(list),
    "a start": lambda: sq.events([(LONG, 3, {"v": 1})]),
    "a row that is no event": lambda: sq.events([(3, 1, {"v": LONG})]).to_arrow(),
    "what a module raises": lambda: over(sq.uda("bigint", name="own")(raising)),
    "what a module gives": lambda: over(sq.uda("bigint", name="own")(lambda values: LONG)),
    "a value of a member": lambda: over(FAILS, TEXTS, "k"),
    "a value of a group": lambda: over(FAILS, keys=("k",)),
    "the name of a group's key": lambda: over(FAILS, NAMED, keys=(LONG,)),
    "the name of a module": lambda: over(sq.uda("bigint", name=LONG)(lambda values: 1 // 0)),
    "the fields of a row": lambda: over(rows_of({LONG: 1})),
    "many fields of a row": lambda: over(rows_of({str(i): i for i in range(MANY)})),
    "what a function raises": lambda: TEXTS.select(y=sq.udf("int", name="own")(raising)("v")).to_arrow(),
    "a value of a function": lambda: TEXTS.select(y=sq.udf("int", name="own")(lambda v: 1 // 0)("k")).to_arrow(),
    "a value of a step": lambda: (
        TEXTS.to_points().scan(sq.udso("y int", name="own", initial=0)(lambda s, v: 1 // 0)("k")).to_arrow()
    ),
    "a text": lambda: sq.cedr(LONG, A=TEXTS),
    "a string of a text": lambda: sq.cedr(f"EVENT E WHEN A AS a WHERE a.v = '{LONG}'", A=TEXTS),
    "a field of a text": lambda: sq.cedr(f"EVENT E WHEN A AS a WHERE a.{LONG} = 1", A=TEXTS),
    "a field of many": lambda: sq.cedr("EVENT E WHEN A AS a WHERE nope = 1", A=WIDE),
    "a function of a text": lambda: sq.cedr(f"EVENT E WHEN A AS a WHERE {LONG}(a.v) = 1", A=TEXTS),
    "a type of many": lambda: sq.cedr("EVENT E WHEN B", **{f"A{i}": TEXTS for i in range(MANY)}),
    "a scope of a text": lambda: sq.cedr(f"EVENT E WHEN SEQUENCE(A AS a, A AS b, '{LONG}')", A=TEXTS),
    "a law of a module": lambda: t.check_module(sq.uda("int", name="own")(lambda v: LONG), "string", examples=2),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_message_is_short_whatever_it_is_about(mistake: str) -> None:
    with pytest.raises((StreamqError, AssertionError)) as raised:
        MISTAKES[mistake]()
    assert len(str(raised.value)) < 4 * (LONGEST + 50)


@pytest.mark.parametrize("part", range(4))
def test_each_part_of_a_sentence_is_cut_in_its_middle(part: int) -> None:
    parts = ["verb", "wrong", "observed", "Hint."]
    parts[part] = "a" * 3_000 + "b" * 3_000
    text = sentence(*parts)
    assert f"{'a' * (LONGEST // 2)} … ({6_000 - LONGEST:,} characters more) … {'b' * (LONGEST // 2)}" in text
    assert isinstance(text, Sentence)
    assert text.endswith(text.hint)


def test_a_warning_is_short() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StreamqWarning)
        warn(LONG)
    (only,) = caught
    assert len(str(only.message)) < LONGEST + 50
