"""Functions of arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import STRING, BuiltIn, cast_operand, in_arrow, typed_by, types_accepted
from streamq.plan.function import Subscript, Text, Value
from streamq.runtime.arrow.arrow_types import arrow_type, is_valid

GETITEM = BuiltIn(
    "getitem",
    lambda value, key: value[key],
    shown=lambda arguments: Text(f"{arguments[0].as_operand(9)}[{arguments[1].text}]"),
    notation=Subscript(),
)
STRUCT = BuiltIn("struct", names_fields=True)
ARRAYS_ZIP = BuiltIn("arrays_zip", names_fields=True)


def _counted(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return lists of the integers from the first operand to the second, both included, descending if the second is less.

    NULL where a bound is NULL.
    """
    bounds = [cast_operand(o, t.LongType()) for o in operands]
    is_there = is_valid(bounds[0]) & is_valid(bounds[1])
    first, last = (pc.fill_null(b, 0).to_numpy(zero_copy_only=False) for b in bounds)
    lengths = np.where(is_there, np.abs(last - first) + 1, 0)
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    values = np.repeat(first, lengths) + within * np.repeat(np.where(last < first, -1, 1), lengths)
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32), mask=np.append(~is_there, False))
    return pa.ListArray.from_arrays(offsets, pa.array(values.astype(np.int64))).cast(arrow_type(kind))


SEQUENCE = in_arrow(
    "sequence",
    typed_by(lambda *kinds: t.ArrayType(t.LongType(), False) if {*map(type, kinds)} == {t.LongType} else None),
    types_accepted((t.LongType,), (t.LongType,)),
    _counted,
    total=True,
)


def _listed(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return one list for each row, of the operands' values in that row."""
    assert isinstance(kind, t.ArrayType)
    columns = [cast_operand(o, kind.elementType) for o in operands]
    count, rows = len(columns), len(columns[0])
    by_column = pa.concat_arrays([c.cast(arrow_type(kind.elementType)) for c in columns])
    values = by_column.take(pa.array(np.arange(count * rows).reshape(count, rows).T.reshape(-1)))
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * count, pa.int32()), values).cast(arrow_type(kind))


def _compacted(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return the lists without their NULLs; NULL for a list that is NULL."""
    lists = operands[0].array
    values = pc.list_flatten(lists)
    row = pc.list_parent_indices(lists).to_numpy()
    is_there = is_valid(values)
    lengths = np.bincount(row[is_there], minlength=len(lists))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    present = values.filter(pa.array(is_there))
    return pa.ListArray.from_arrays(pa.array(offsets, mask=np.append(~is_valid(lists), False)), present).cast(
        arrow_type(kind)
    )


def _list_of(*kinds: DataType) -> DataType | None:
    """Return the type of a list of operands of one type; None for operands of several types, where Spark must be asked."""
    return t.ArrayType(kinds[0]) if len({k.json() for k in kinds}) == 1 else None


def _without_nulls(kind: DataType) -> DataType | None:
    return t.ArrayType(kind.elementType, False) if isinstance(kind, t.ArrayType) else None


ARRAY = in_arrow("array", typed_by(_list_of), types_accepted(STRING, repeated=True), _listed, total=True)
ARRAY_COMPACT = in_arrow(
    "array_compact", typed_by(_without_nulls), types_accepted((t.ArrayType,)), _compacted, total=True
)
