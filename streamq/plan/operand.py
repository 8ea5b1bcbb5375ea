"""The operands of a function: their types while a query is checked, their values in Arrow while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from streamq.errors import StreamqError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Operand:
    """The type of an operand, None where only Spark knows it; ``constant`` is the Python value if it was written down as one.

    It is an ellipsis otherwise, because None is a constant, too.
    """

    kind: DataType | None
    constant: Any = ...


@dataclass(frozen=True)
class Fault:
    """The rows on which Spark raises an error, and the error: its text, and its class and cause where they add to it.

    module: the module that sets the events of these rows aside; empty: the query fails.
    """

    rows: Mask
    text: str
    kind: type[StreamqError] = StreamqError
    cause: BaseException | None = None
    module: str = ""


@dataclass(frozen=True)
class Value:
    """A computed operand; NULL where it has a fault. ``constant`` is as in an ``Operand``."""

    array: pa.Array
    kind: DataType
    constant: Any = ...
    faults: tuple[Fault, ...] = ()


OperandCheck = Callable[[Sequence[Value]], bool]
"""True if operands of these types and constants are accepted; their arrays are empty."""
Reach = Callable[[Sequence[Value]], "list[Mask | None]"]
"""Returns for each operand the rows on which Spark evaluates it, None for all."""
Compute = Callable[[Sequence[Value], DataType], "pa.Array | tuple[pa.Array, Sequence[Fault]]"]
"""Returns the result of that type and the faults of rows that fail, if any can."""


def rows_before_null(operands: Sequence[Value]) -> list[Mask | None]:
    """Return a mask for each operand: the rows where Spark evaluates it, as none before it is NULL; None, for the first: all."""
    reached: list[Mask | None] = [None]
    for operand in operands[:-1]:
        is_valid = operand.array.is_valid().to_numpy(zero_copy_only=False)
        reached.append(is_valid if reached[-1] is None else reached[-1] & is_valid)
    return reached


@dataclass(frozen=True)
class ArrowForm:
    """The in-process computation of a function, from Arrow arrays to an array, with Spark's answer to the last bit.

    ``takes``: the types that it accepts; others need Spark. ``compute``: returns the array of the result type, NULL where the
    result is, and the rows on which Spark raises, if there are any. ``reach``: the rows on which each operand is
    evaluated, because errors on other rows do not count; by default from left to right up to the first NULL.
    """

    takes: OperandCheck
    compute: Compute
    reach: Reach = rows_before_null
