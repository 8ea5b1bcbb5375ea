"""Types of payload columns, by name, and those of keys and of values, drawn at random."""

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
"""Types that are added up, by name."""

OTHERS = _types(["string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "interval day to second"])
"""Types without parts that are no numbers, by name."""

NESTED = _types([
    "array<double>", "struct<x:double,y:string>", "map<string,double>", "array<string>", "array<timestamp>",
    "array<array<int>>", "array<struct<x:int,y:float>>", "map<int,array<double>>", "struct<x:date,y:struct<z:double>>",
    "array<decimal(38,18)>", "struct<x:map<string,int>,y:array<boolean>>", "array<binary>",
])  # fmt: skip
"""Some types with parts, by name; one of each kind, within each other."""


@st.composite
def key_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Types for a column of keys, the first to be tried first: of any kind; without parts; a plain one."""
    plain = draw(st.sampled_from([OTHERS["string"], NUMBERS["int"]]))
    # of floats more values are equal that do not look so than of any other type
    often = [NUMBERS["double"]] * 12 + [OTHERS["timestamp"]] * 2
    scalar = draw(st.sampled_from([plain] * 20 + often + [*OTHERS.values(), *NUMBERS.values()]))
    return draw(st.sampled_from([scalar] * 60 + list(NESTED.values()))), scalar, plain


@st.composite
def value_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Types for a column of values, the first to be tried first: of any kind; a number; a plain one."""
    plain = draw(st.sampled_from([NUMBERS["int"], NUMBERS["double"]]))
    number = draw(st.sampled_from([plain] * 15 + list(NUMBERS.values())))
    return draw(st.sampled_from([number] * 60 + [*OTHERS.values(), *NESTED.values()])), number, plain


IDS = {name: kind for name, kind in {**NUMBERS, **OTHERS}.items() if name not in ("boolean", "decimal(18,18)")}
"""Types of columns that tell events apart, by name."""


def is_exact(kind: t.DataType) -> bool:
    """Whether sums of a type are exact."""
    return type(kind) in BITS or isinstance(kind, t.DecimalType)


__all__ = ["Draw", "IDS", "NESTED", "NUMBERS", "OTHERS", "is_exact", "key_types", "value_types"]
