"""Literal events: the kinds of Python's, NumPy's and pandas' values that they take, and the errors for others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamq as sq
from streamq.errors import StreamqError, TimeError

DAY = pd.Timestamp("2024-01-01")
FINER = DAY + pd.Timedelta(7, "ns")
S = sq.events([(DAY, None, {"at": dt.datetime(2024, 1, 1), "lasts": dt.timedelta(1)})])

PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "a start": lambda instant, length: sq.events([(instant, None, {})]),
    "an end": lambda instant, length: sq.events([(dt.datetime(1970, 1, 1), instant, {})]),
    "a new end": lambda instant, length: sq.events([sq.retract(DAY, None, instant)]),
    "a CTI": lambda instant, length: sq.events([sq.cti(instant)]),
    "an instant in the payload": lambda instant, length: sq.events([(1, 2, {"v": instant})]),
    "a nested instant": lambda instant, length: sq.events([(1, 2, {"v": [{"x": instant}]})]),
    "a duration in the payload": lambda instant, length: sq.events([(1, 2, {"v": length})]),
    "NumPy's instant": lambda instant, length: sq.events([(1, 2, {"v": instant.to_datetime64()})]),
    "NumPy's duration": lambda instant, length: sq.events([(1, 2, {"v": length.to_timedelta64()})]),
    "a constant": lambda instant, length: S.where(sq.col("at") < instant),
    "a constant duration": lambda instant, length: S.where(sq.col("lasts") < length),
    "NumPy's constant": lambda instant, length: S.where(sq.col("at") < instant.to_datetime64()),
    "NumPy's constant duration": lambda instant, length: S.where(sq.col("lasts") < length.to_timedelta64()),
    "the size of windows": lambda instant, length: S.tumbling_window(length),
    "the start of landmarks": lambda instant, length: S.landmark_window("1 hour", start=instant),
    "the end of a batch": lambda instant, length: S.to_arrow(until=instant),
}
"""The places at which times come in, beside tables."""


@pytest.mark.parametrize("place", PLACES)
def test_no_time_loses_digits_below_a_microsecond(place: str) -> None:
    take = PLACES[place]
    take(DAY, pd.Timedelta(5, "us"))
    with pytest.raises(StreamqError, match="microsecond"):
        take(FINER, pd.Timedelta(5_007, "ns"))


def test_not_a_time_is_no_end() -> None:
    assert (
        sq.events([(DAY, pd.NaT, {"v": 1})]).to_arrow().to_pylist()
        == sq.events([(DAY, None, {"v": 1})]).to_arrow().to_pylist()
    )
    gone = [sq.insert(DAY, pd.NaT, v=1), sq.retract(DAY, pd.NaT, DAY + dt.timedelta(1), v=1)]
    assert sq.events(gone).to_arrow().column("end").to_pylist() == [
        DAY.to_pydatetime().replace(tzinfo=dt.UTC) + dt.timedelta(1)
    ]
    with pytest.raises(StreamqError, match="start"):
        sq.events([(pd.NaT, DAY, {"v": 1})]).to_arrow()
    with pytest.raises(TimeError, match="until|instant"):
        S.to_arrow(until=pd.NaT)


def test_values_of_a_type_that_spark_lacks_are_refused() -> None:
    for value in (2**63, 1j, {1}, pd.NA, range(3)):
        try:
            sq.events([(1, 2, {"v": value})]).to_arrow()
        except StreamqError:
            continue
        assert isinstance(value, set)


def test_unsigned_numbers_of_numpy_are_wider_signed_ones() -> None:
    payload = {"a": np.uint8(1), "b": np.float16(1.5), "c": np.uint64(2**63)}
    stream = sq.events([(1, 2, payload)])
    assert stream.to_arrow().select(["a", "b", "c"]).to_pylist() == [{"a": 1, "b": 1.5, "c": 2**63}]
    assert [f.type.simpleString() for f in stream.schema.fields] == ["smallint", "float", "decimal(20,0)"]
