"""The window that a time-sensitive module is called in, and lifetimes, as its code reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.values import Ints
from streamq.time import INFINITY


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


def ticks_of(instant: Any) -> int:
    """The ticks of an instant that a module gives; raises TypeError for what is none. None, NaT and NA are infinite ends."""
    import pandas as pd

    if instant is None or instant is pd.NaT or instant is pd.NA:
        return INFINITY
    if isinstance(instant, int | np.integer) and not isinstance(instant, bool):
        return int(instant)
    if isinstance(instant, float | np.floating) and (np.isnan(instant) or float(instant).is_integer()):
        # a column of whole numbers with an infinite end among them is one of floats in pandas
        return INFINITY if np.isnan(instant) else int(instant)
    moment = pd.Timestamp(instant)
    moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment
    return int(moment.to_datetime64().astype("datetime64[us]").astype(np.int64))


__all__ = ["WindowInterval", "instant_of", "instants_of", "ticks_of"]
