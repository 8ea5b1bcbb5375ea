"""alter_lifetime and its special cases: where lifetimes go, what drops, what saturates, what is refused."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

import streamq as sq
from streamq.errors import PlanError, TimeError, TypeMismatch, UnknownColumn
from streamq.time import INFINITY
from tests.judged import answer

S = sq.events([(1, 5, {"v": 3}), (4, None, {"v": 8}), (6, 7, {"v": -1}), (9, 12, {"v": None})])
LEAST = -(2**63) + 1
FAR = sq.events([(LEAST, LEAST + 4, {"v": 1}), (0, 9, {"v": 2}), (INFINITY - 5, INFINITY - 1, {"v": 3})])
DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
STAMPED = sq.events([(DAY, DAY + dt.timedelta(hours=5), {"v": 90}), (DAY, None, {"v": None})])


def lifetimes(s: sq.Stream) -> list[tuple[int, int | None]]:
    return [row[:2] for row in answer(s)]


def test_what_was_dropped_is_not_evaluated_later() -> None:
    kept = S.set_duration(sq.col("v")).where(10 / (sq.col("v") + 1) > 1)
    assert answer(kept) == [(1, 4, 3), (4, 12, 8)], "10 / (-1 + 1) fails"


def test_arithmetic_saturates_at_the_ends_of_the_axis() -> None:
    assert lifetimes(FAR.shift(2)) == [(LEAST + 2, LEAST + 6), (2, 11), (INFINITY - 3, None)]
    assert lifetimes(FAR.shift(10)) == [(LEAST + 10, LEAST + 14), (10, 19)], "no event starts at infinity"
    assert lifetimes(FAR.shift(-10)) == [(LEAST, LEAST + 4), (-10, -1), (INFINITY - 15, INFINITY - 11)]
    assert lifetimes(FAR.extend(10)) == [(LEAST, LEAST + 14), (0, 19), (INFINITY - 5, None)]
    assert lifetimes(FAR.set_duration(10)) == [(LEAST, LEAST + 10), (0, 10), (INFINITY - 5, None)]
    assert lifetimes(FAR.to_points_at_end()) == [(LEAST + 4, LEAST + 5), (9, 10), (INFINITY - 1, None)]


def test_durations_on_a_timestamp_axis() -> None:
    hours = dt.timedelta(hours=1)
    assert lifetimes(STAMPED.shift("1 hour")) == [(DAY + hours, DAY + 6 * hours), (DAY + hours, None)]
    assert lifetimes(STAMPED.set_duration(dt.timedelta(hours=2))) == [(DAY, DAY + 2 * hours)] * 2
    micros = sq.col("v") * 60_000_000
    assert lifetimes(STAMPED.set_duration(micros)) == [(DAY, DAY + 1.5 * hours), (DAY, None)]
    later = sq.start() + sq.lit(hours)
    assert lifetimes(STAMPED.alter_lifetime(start=later, duration=hours)) == [(DAY + hours, DAY + 2 * hours)] * 2


def test_errors() -> None:
    payload = "alter_lifetime: a start that reads the payload; found start\\(\\) - v. Say how far .*: within=..."
    with pytest.raises(PlanError, match=payload):
        S.alter_lifetime(start=sq.start() - sq.col("v"))
    with pytest.raises(TimeError, match="alter_lifetime: within must not be negative; found -3"):
        S.alter_lifetime(start=sq.start() - sq.col("v"), within=-3)
    with pytest.raises(
        PlanError, match="a start that reads the end beside other things; found start\\(\\) \\+ end\\(\\)"
    ):
        S.alter_lifetime(start=sq.start() + sq.end())
    with pytest.raises(TypeMismatch, match="start is no instant of the axis; found double in start\\(\\) / 2"):
        S.alter_lifetime(start=sq.start() / 2)
    with pytest.raises(TypeMismatch, match="start is no instant of the axis; found bigint"):
        STAMPED.alter_lifetime(start=sq.col("v"), within="1 hour")
    for falling in (-sq.start(), sq.start() % 7, sq.when(sq.start() < 12, sq.start())):
        with pytest.raises(
            PlanError, match="a start that does not keep the order of events; .* non-decreasing function"
        ):
            S.alter_lifetime(start=falling)
    with pytest.raises(TimeError, match="a start further back than within allows; found start 1 of an event at 26"):
        sq.events([(26, 30, {"v": 25})]).alter_lifetime(start=sq.start() - sq.col("v"), within=24).to_arrow()
    with pytest.raises(TypeMismatch, match="duration is neither ticks nor a duration; found double in v \\* 1.5"):
        S.alter_lifetime(duration=sq.col("v") * 1.5)
    with pytest.raises(UnknownColumn, match="set_duration: no column 'w'; there are: v"):
        S.set_duration(sq.col("w"))
    for wrong in (0, -1):
        with pytest.raises(TimeError, match=f"set_duration: the duration must be positive; found {wrong}"):
            S.set_duration(wrong)
    with pytest.raises(TimeError, match="shift: not a duration; found v. Write '10 minutes', a timedelta or integer"):
        S.shift(sq.col("v"))  # type: ignore[arg-type]
    with pytest.raises(TimeError, match="extend: a duration with a unit on an integer axis; found '3 seconds'"):
        S.extend("3 seconds")
    with pytest.raises(TimeError, match="shift: a duration without a unit on a timestamp axis; .* Write '3 seconds'"):
        STAMPED.shift(3)
    with pytest.raises(TimeError, match="shift: a duration longer than the time axis"):
        S.shift(2**62)


def test_numpys_integers_are_ticks() -> None:
    s = sq.events([(np.int64(1), np.int32(3), {"v": 1})])
    assert answer(s.shift(np.int64(2))) == [(3, 5, 1)]


def test_a_duration_in_the_payload_is_read_in_process() -> None:
    day, lasts = (
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        [dt.timedelta(1, 5, 7), None, dt.timedelta(-1), dt.timedelta(0, 0, 1)],
    )
    s = sq.events([(day, day + dt.timedelta(1), {"lasts": last}) for last in lasts])
    assert [row["end"] for row in s.set_duration(sq.col("lasts")).to_arrow().to_pylist()] == [
        day + dt.timedelta(0, 0, 1),
        day + dt.timedelta(1, 5, 7),
        None,
    ]
    longer = s.alter_lifetime(duration=sq.col("lasts") + dt.timedelta(1))
    assert longer.to_arrow().num_rows == 3
