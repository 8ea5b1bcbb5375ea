"""alter_lifetime and its special cases: where lifetimes go, what drops, what saturates, what is refused."""

from __future__ import annotations

import datetime as dt

import numpy as np
from pyspark.sql.types import LongType

import streamq as sq
from streamq.choices import Anchor, LengthKind
from streamq.functions.logic import GREATEST
from streamq.operators import AlterLifetime
from streamq.operators.alter_lifetime import Length, Start
from streamq.plan.expr import Call, Col, Lit
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


def test_a_length_that_is_positive_drops_no_event() -> None:
    def drops(start: Start, length: Length) -> bool:
        return AlterLifetime(S.plan, start, length).effect.drops

    fixed = Length(LengthKind.FIXED, 3)
    assert not drops(Start(), fixed) and not drops(Start(by=-2), fixed)
    assert drops(Start(by=2), fixed), "no event starts at infinity"
    assert drops(Start(Anchor.RE), fixed), "nor at an end that it lacks"
    assert not drops(Start(), Length(by=2)) and drops(Start(), Length(by=-2)) and drops(Start(by=-2), Length())
    some = Lit(None, LongType()), Col("v")
    for least, is_dropped in ((1, False), (0, True)):
        given = Call(GREATEST, (*some, Lit(least, LongType())))
        assert drops(Start(), Length(LengthKind.GIVEN, expr=given)) is is_dropped
