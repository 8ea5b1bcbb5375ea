"""Slices at the end of a definition: their bounds are instants of the axis, in-process as on Spark."""

from __future__ import annotations

import datetime as dt

import pytest

import streamq as sq
from streamq.errors import CedrError
from tests.judged import answer

TICKS = sq.events([(at, at + 1, {"v": at}) for at in (2, 5, 9)])
DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TIMES = sq.events([(DAY + dt.timedelta(hours=h), None, {"v": h}) for h in (0, 8, 12)])


def values(text: str, stream: sq.Stream) -> list[object]:
    return [row[2] for row in answer(sq.cedr(f"EVENT E WHEN ANY(A) OUTPUT A.v AS v {text}", A=stream))]


def test_numbers_on_an_integer_axis() -> None:
    assert values("@ [5, 9)", TICKS) == [5]
    assert values("@ [5, )", TICKS) == [5, 9]
    assert values("@ [, 5)", TICKS) == [2]


@pytest.mark.parametrize("bound", ["2024-05-01 08:00", "2024-05-01T08:00:00Z", "2024-05-01 10:00:00+02:00"])
def test_timestamps_in_quotes_on_the_other(bound: str) -> None:
    assert values(f"@ ['{bound}', )", TIMES) == [8, 12]
    assert values(f"@ [, '{bound}')", TIMES) == [0]


def test_lifetimes_are_cut() -> None:
    query = sq.cedr("EVENT E WHEN UNLESS(A, B, 9) OUTPUT A.v AS v # [4, 7)", A=TICKS, B=TICKS.where(sq.col("v") > 9))
    assert [row[:2] for row in answer(query)] == [(4, 7), (5, 7)]


@pytest.mark.parametrize(
    ("text", "stream", "message"),
    [
        ("@ [5.9, 21)", TICKS, "a whole number of ticks on an integer axis; found 5.9"),
        ("@ ['5', 21)", TICKS, "a whole number of ticks on an integer axis; found '5'"),
        ("@ [9, 3)", TICKS, "an empty slice"),
        ("# [3, 3)", TICKS, "an empty slice"),
        ("@ [3, 5)", TIMES, "a timestamp in quotes; found 3. Write '2024-05-01 08:00:00'"),
        ("@ ['gestern', )", TIMES, "no timestamp; found 'gestern'"),
        ("@ ['2024-05-02', '2024-05-01')", TIMES, "an empty slice"),
    ],
)
def test_what_is_no_slice_is_refused_at_its_place(text: str, stream: sq.Stream, message: str) -> None:
    with pytest.raises(CedrError, match="line 1, column") as refused:
        values(text, stream)
    assert message in str(refused.value)


def test_types_on_different_axes_are_refused_by_name() -> None:
    with pytest.raises(CedrError, match="'A' is on an integer axis, 'B' on a timestamp axis"):
        sq.cedr("EVENT E WHEN SEQUENCE(A, B, 5)", A=TICKS, B=TIMES)


def test_a_misspelt_function_is_told_before_its_arguments() -> None:
    with pytest.raises(CedrError, match="no function 'CorelationKey'. Did you mean 'CorrelationKey'?"):
        sq.cedr("EVENT E WHEN SEQUENCE(A AS a, A AS b, 5) WHERE CorelationKey(v, EQUAL)", A=TICKS)
