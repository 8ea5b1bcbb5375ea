"""The types of payload columns by name, and Hypothesis strategies for the types of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.runtime.arrow_types import BITS
from streamq.testing.table import fields_of

Draw = Callable[[st.SearchStrategy[Any]], Any]


def _types(names: Iterable[str]) -> Mapping[str, t.DataType]:
    return {name: fields_of(f"k {name}")[0].type for name in names}


NUMBERS = _types([
    "int", "double", "bigint", "float", "smallint", "tinyint",
    "decimal(5,2)", "decimal(38,0)", "decimal(38,18)", "decimal(18,18)",
])  # fmt: skip
"""Numeric types, by name."""

OTHERS = _types(["string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "interval day to second"])
"""Other types without parts, by name."""

NESTED = _types([
    "array<double>", "struct<x:double,y:string>", "map<string,double>", "array<string>", "array<timestamp>",
    "array<array<int>>", "array<struct<x:int,y:float>>", "map<int,array<double>>", "struct<x:date,y:struct<z:double>>",
    "array<decimal(38,18)>", "struct<x:map<string,int>,y:array<boolean>>", "array<binary>",
])  # fmt: skip
"""Some nested types, by name: arrays, structs and maps, also within each other."""


@st.composite
def key_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Draw three types for a column of keys, to be tried in turn: any type, one without parts, a plain one."""
    plain = draw(st.sampled_from([OTHERS["string"], NUMBERS["int"]]))
    # doubles are drawn often: they have the most values that are equal but look different
    often = [NUMBERS["double"]] * 12 + [OTHERS["timestamp"]] * 2
    scalar = draw(st.sampled_from([plain] * 20 + often + [*OTHERS.values(), *NUMBERS.values()]))
    return draw(st.sampled_from([scalar] * 60 + list(NESTED.values()))), scalar, plain


@st.composite
def value_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Draw three types for a column of values, to be tried in turn: any type, a number, a plain number."""
    plain = draw(st.sampled_from([NUMBERS["int"], NUMBERS["double"]]))
    number = draw(st.sampled_from([plain] * 15 + list(NUMBERS.values())))
    return draw(st.sampled_from([number] * 60 + [*OTHERS.values(), *NESTED.values()])), number, plain


IDS = {name: kind for name, kind in {**NUMBERS, **OTHERS}.items() if name not in ("boolean", "decimal(18,18)")}
"""The types, by name, with enough values for a column of ids."""


def is_exact(kind: t.DataType) -> bool:
    """True if sums of values of a type are exact."""
    return type(kind) in BITS or isinstance(kind, t.DecimalType)


__all__ = ["Draw", "IDS", "NESTED", "NUMBERS", "OTHERS", "is_exact", "key_types", "value_types"]
