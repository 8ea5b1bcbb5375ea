"""The window that a time-sensitive module is called in, and lifetimes, as its code reads them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.values import Ints
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class WindowInterval:
    """A window ``[start, end)``: integers on an integer axis, pandas Timestamps in UTC on a timestamp axis.

    ``end`` is None while the window has none.
    """

    start: Any
    end: Any

    @property
    def duration(self) -> Any:
        """How long it is: an integer, or a Timedelta; None without an end."""
        return None if self.end is None else self.end - self.start


def instant_of(ticks: int, axis: pa.DataType) -> Any:
    """An instant as a module reads it: an integer, or a Timestamp; None for an infinite end."""
    import pandas as pd

    if ticks >= INFINITY:
        return None
    return pd.Timestamp(np.datetime64(ticks, "us"), tz="UTC") if pa.types.is_timestamp(axis) else int(ticks)


def instants_of(ticks: Ints, axis: pa.DataType) -> pa.Array:
    """Instants as a column of the axis, NULL for infinite ends."""
    is_endless = ticks == INFINITY
    return pa.array(ticks, pa.int64(), mask=is_endless if is_endless.any() else None).cast(axis)


def ticks_of(instant: Any, axis: pa.DataType) -> int:
    """Return the ticks of an instant that a module gives; None, NaT, NA and NaN are an infinite end.

    An integer axis has integers, and whole floats (a column of pandas that lacks a value has no other numbers); a timestamp
    axis has datetimes and Timestamps, those without a zone in UTC. Raises ValueError for anything else.
    """
    import pandas as pd

    if instant is None or instant is pd.NaT or instant is pd.NA:
        return INFINITY
    if isinstance(instant, float | np.floating) and np.isnan(instant):
        return INFINITY
    if not pa.types.is_timestamp(axis):
        ticks = _whole(instant)
    elif isinstance(instant, dt.datetime | np.datetime64):
        moment = pd.Timestamp(instant)
        moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment
        if moment.nanosecond:
            raise ValueError("parts below a microsecond")
        ticks = int(moment.to_datetime64().astype("datetime64[us]").astype(np.int64))
    else:
        raise ValueError("no instant of a timestamp axis")
    if not MINUS_INFINITY < ticks < INFINITY:
        raise ValueError("beyond the ends of the axis")
    return ticks


def _whole(number: Any) -> int:
    """Return an integer, or a float that is whole, as an integer; raises ValueError for anything else."""
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        return int(number)
    if isinstance(number, float | np.floating) and float(number).is_integer():
        return int(number)
    raise ValueError("no instant of an integer axis")


__all__ = ["WindowInterval", "instant_of", "instants_of", "ticks_of"]
