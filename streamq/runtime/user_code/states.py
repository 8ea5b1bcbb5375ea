"""A user's aggregating code as hosts call it, in whatever shape it was written: states, and what is done to them.

It travels to executors with what calls it; ``check_module`` checks its laws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq.plan.fingerprint import fingerprint
from streamq.plan.named import Named

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class States:
    """The states of an aggregation, and what may be done to them: a method gives a new state, and leaves those it is given.

    remove, merge: None where there is none; in_parts: whether events may come in parts; any_order: and in any order. The result
    of a time-sensitive module is asked for with the window, ``result(state, window)``.
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
class Module(States, Named):
    """A user's ``code`` with its ``options``; ``read`` makes events, as ``add`` takes them, of the arguments by name.

    sensitive: the code reads lifetimes and the window. Its events are a pandas DataFrame: the arguments by name, ``start`` and
    ``end``.
    """

    code: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    sensitive: bool = False
    read: Callable[[Mapping[str, pa.Array]], Any]

    @property
    def identity(self) -> str:
        """Its name, and what tells its code and options from others of that name."""
        options = f":{sorted(self.options.items())!r}" if self.options else ""
        return f"{self.name}:{fingerprint(self.code)}{options}:{self.sensitive}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Module) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def merges(self) -> bool:
        """Whether states of parts of a window may be merged: then basic windows are computed once."""
        return self.merge is not None and self.in_parts and self.any_order and not self.sensitive


def series_of(columns: Mapping[str, pa.Array]) -> tuple[pd.Series, ...]:
    return as_series([*columns.values()])


def as_frame(columns: Mapping[str, pa.Array]) -> pd.DataFrame:
    """Columns as a DataFrame, each as :func:`as_series` has it."""
    import pandas as pd

    return pd.DataFrame({name: _series(column) for name, column in columns.items()}, copy=False)


def as_series(columns: Sequence[pa.Array]) -> tuple[pd.Series, ...]:
    """Columns as pandas has them after ``to_pandas``: integers and booleans with NULLs are nullable, NULL among floats is NaN."""
    return tuple(_series(column) for column in columns)


def _series(array: pa.Array) -> pd.Series:
    import pandas as pd

    plain = pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)
    if plain and array.null_count:
        dtype = "boolean" if pa.types.is_boolean(array.type) else f"Int{array.type.bit_width}"
        return pd.Series(array.to_pylist(), dtype=dtype)
    # a copy: what Arrow lends cannot be written to, and a module that writes to it is to be found
    return array.to_pandas(date_as_object=False).copy()
