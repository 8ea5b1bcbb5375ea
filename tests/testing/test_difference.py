"""Histories are compared as bags, and a difference between them is drawn."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamq.testing.deltas import WrongOutput, check_ends
from streamq.testing.difference import assert_same_history, same_history
from streamq.testing.history import Axis, history
from streamq.time import INFINITY
from tests.testing.by_oracle import INF, NAN

# histories


def test_equal_histories() -> None:
    a = pa.table({"start": [1, 1, 2], "end": [5, 5, INFINITY], "k": ["a", "a", None], "v": [0.1 + 0.2, NAN, -0.0]})
    b = pa.table({"v": [0.0, 0.3, NAN], "start": [2, 1, 1], "end": [None, 5, 5], "k": [None, "a", "a"]})
    assert same_history(a, b) is None
    assert same_history(a, b.to_pandas()) is not None, "in pandas a NaN is a NULL"
    assert_same_history(a.slice(0, 0), b.slice(0, 0))


def test_answers_as_users_get_them_are_histories() -> None:
    instants = pa.array([1, None], pa.timestamp("us", "UTC"))
    lifetimes = history(pa.table({"v": [1, 2], "start": instants.fill_null(7), "end": instants}))
    assert lifetimes.to_pylist() == [{"start": 1, "end": 1, "v": 1}, {"start": 7, "end": INFINITY, "v": 2}]


def test_floats_are_matched_as_bags() -> None:
    def made(*values: float) -> pa.Table:
        return pa.table({"start": [1] * len(values), "end": [2] * len(values), "v": pa.array(values, pa.float64())})

    assert same_history(made(1.0, 1.0 + 6e-10), made(1.0 + 1.2e-9, 1.0)) is None
    assert same_history(made(1.0, 1.0), made(1.0, 1.1)) is not None
    assert same_history(made(INF), made(1e308)) is not None
    assert same_history(made(1e300, 5e-324), made(1e300 * (1 + 1e-12), 0.0)) is None
    assert same_history(made(1.0), made(1.0, 1.0)) is not None


def test_kinds_of_types_are_compared() -> None:
    a = pa.table({"start": [1], "end": [2], "v": pa.array([1], pa.int32())})
    assert same_history(a, a.set_column(2, "v", pa.array([1], pa.int64()))) is None
    assert "v is int32, expected double" in str(same_history(a, a.set_column(2, "v", pa.array([1.0]))))
    assert "columns" in str(same_history(a, a.rename_columns(["start", "end", "w"])))


def test_a_difference_is_drawn() -> None:
    answer = pa.table({"start": [1, 2, 9], "end": [5, 3, INFINITY], "v": [1, 2, 3]})
    expected = pa.table({"start": [1, 2], "end": [5, 4], "v": [1, 2]})
    assert str(same_history(answer, expected)) == (
        "missing (only in the expected history): 1 row\n"
        "  |-)        [2, 4)    v=2\n"
        "extra (only in the one found): 2 rows\n"
        "  |)         [2, 3)    v=2\n"
        "         |>  [9, inf)  v=3"
    )
    many = pa.table({"start": range(30), "end": range(1, 31)})
    assert "... and 10 more" in str(same_history(many, many.slice(0, 0)))
    with pytest.raises(AssertionError, match="missing"):
        assert_same_history(answer, expected)


# timelines


def test_a_lifetime_that_begins_at_the_end_of_time_is_drawn_there() -> None:
    axis = Axis([(1, 5), (INFINITY, INFINITY)])
    assert axis.draw(1, 5) == "|---)  "
    assert axis.draw(INFINITY, INFINITY) == "     |>"
    assert axis.mark(INFINITY) == "     ! "


# outputs as a user gets them


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("name", ["end", "new_end"])
def test_an_end_that_never_comes_is_null(name: str, kind: pa.DataType) -> None:
    check_ends(pa.table({name: pa.array([None, 5], pa.int64()).cast(kind)}))
    with pytest.raises(WrongOutput, match=f"the {name} of a row that never ends is not NULL"):
        check_ends(pa.table({name: pa.array([5, INFINITY], pa.int64()).cast(kind)}))


def test_a_payload_may_have_an_end_of_its_own() -> None:
    check_ends(pa.table({"end": ["never"]}))
