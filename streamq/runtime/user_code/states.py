"""User code for aggregation as hosts call it, whatever its form: states, the operations on them, and the events it reads.

It ships to executors with the calls; ``check_module`` checks its laws.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.plan.fingerprint import fingerprint
from streamq.plan.named_object import NamedObject
from streamq.runtime.values import Ints
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class States:
    """The states of an aggregation and the operations on them; an operation returns a new state and does not change its
    arguments.

    remove, merge: None if missing; in_parts: events may be added in parts; any_order: and in any order. The result of a
    time-sensitive
    module takes the window: ``result(state, window)``.
    """

    name: str
    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    result: Callable[..., Any]
    remove: Callable[[Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    in_parts: bool = True
    any_order: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class ModuleStates(States, NamedObject):
    """A user's ``code`` with its ``options``; ``read`` converts arguments by name to the events that ``add`` takes.

    sensitive: the code reads lifetimes and the window. Its events are then a pandas DataFrame: the arguments by name, ``start``
    and
    ``end``.
    """

    code: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    sensitive: bool = False
    read: Callable[[Mapping[str, pa.Array]], Any]

    @property
    def identity(self) -> str:
        """The name, with a text that distinguishes code and options from others of that name."""
        options = f":{sorted(self.options.items())!r}" if self.options else ""
        return f"{self.name}:{fingerprint(self.code)}{options}:{self.sensitive}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleStates) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def merges(self) -> bool:
        """True if states of parts of a window may be merged, so that basic windows are computed once."""
        return self.merge is not None and self.in_parts and self.any_order and not self.sensitive


def series_of(columns: Mapping[str, pa.Array]) -> tuple[pd.Series, ...]:
    """Return the arguments as a Series each."""
    return as_series([*columns.values()])


def as_frame(columns: Mapping[str, pa.Array]) -> pd.DataFrame:
    """Return columns as a DataFrame, each converted as by :func:`as_series`."""
    import pandas as pd

    return pd.DataFrame({name: _series(column) for name, column in columns.items()}, copy=False)


def as_series(columns: Sequence[pa.Array]) -> tuple[pd.Series, ...]:
    """Return columns as by ``to_pandas``: integers and booleans with NULLs are nullable, NULL among floats is NaN."""
    return tuple(_series(column) for column in columns)


def _series(array: pa.Array) -> pd.Series:
    import pandas as pd

    plain = pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
    if plain and array.null_count:
        dtype = "boolean" if pa.types.is_boolean(array.type) else f"Int{array.type.bit_width}"
        return pd.Series(array.to_pylist(), dtype=dtype)
    # a copy, because Arrow's memory is read-only, and checking mode must find a module that writes to its events
    return array.to_pandas(date_as_object=False).copy()


@dataclass(frozen=True)
class WindowInterval:
    """A window ``[start, end)``: integers on an integer axis, pandas Timestamps in UTC on a timestamp axis.

    ``end`` is None while the window has no end.
    """

    start: Any
    end: Any

    @property
    def duration(self) -> Any:
        """The length: an integer, or a Timedelta; None without an end."""
        return None if self.end is None else self.end - self.start


def instant_of(ticks: int, axis: pa.DataType) -> Any:
    """Return an instant as a module reads it: an integer, or a Timestamp; None for an infinite end."""
    import pandas as pd

    if ticks >= INFINITY:
        return None
    return pd.Timestamp(np.datetime64(ticks, "us"), tz="UTC") if pa.types.is_timestamp(axis) else int(ticks)


def instants_of(ticks: Ints, axis: pa.DataType) -> pa.Array:
    """Return instants as a column of the axis, NULL for infinite ends."""
    is_endless = ticks == INFINITY
    return pa.array(ticks, pa.int64(), mask=is_endless if is_endless.any() else None).cast(axis)


def instant_to_ticks(instant: Any, axis: pa.DataType) -> int:
    """Return the ticks of an instant that a module returned; None, NaT, NA and NaN are an infinite end.

    An integer axis takes integers and whole floats (a pandas column with missing values has only floats); a timestamp axis takes
    datetimes and Timestamps, those without a zone in UTC. Raises ValueError for anything else.
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
