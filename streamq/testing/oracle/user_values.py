"""Values as user code gets and returns them (docs/modules.md), defined a second time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
}
"""The types of pandas for integers and booleans with NULLs."""


def series_of(column: pa.Array) -> pd.Series:
    """Return a column as a Series of its own memory; integers and booleans with NULLs have the NULLABLE types."""
    kinds = NULLABLE.get if column.null_count else None
    return column.to_pandas(date_as_object=False, types_mapper=kinds).copy()


def plain_value(result: Any) -> Any:
    """Return a value as Python's; NaN, NA and NaT become None."""
    if result is pd.NA or result is pd.NaT:
        return None
    plain = result.item() if isinstance(result, np.generic) else result
    return None if isinstance(plain, float) and math.isnan(plain) else plain


__all__ = ["plain_value", "series_of"]
