"""Values that tell a function or a cast from another: halves, blanks, capitals, zeros in fractions, leap days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from pyspark.sql import types as t

from streamq.plan.expr import Call, Cast, Expr
from streamq.plan.passes import expression_nodes

NUMBERS = (2.5, -2.5, -0.75, 1234.5678)
TEXTS = (" aB ", "abcab")
DAYS = (dt.date(2024, 2, 29), dt.date(2026, 12, 31), dt.date(1969, 3, 2))
INSTANTS = (
    dt.datetime(2024, 2, 29, 3, 5, 7, 50_040, dt.UTC),
    dt.datetime(2026, 12, 31, 23, 59, 59, 999_000, dt.UTC),
    dt.datetime(1969, 3, 2, 12, tzinfo=dt.UTC),
)

OF_NUMBERS = (
    "floor ceil ceiling round rint sign signum % abs negative sqrt exp ln log log10 log2 pow power greatest least"
)
OF_TEXTS = (
    "upper lower ucase lcase length char_length character_length octet_length trim btrim ltrim rtrim substring substr left right "
    "replace reverse repeat instr lpad rpad concat concat_ws startswith endswith contains like rlike"
)
OF_TIMES = (
    "year quarter month day dayofmonth dayofyear dayofweek weekday weekofyear hour minute second last_day date_trunc date_add "
    "date_sub datediff date_diff to_date unix_date unix_seconds unix_millis"
)

BY_FUNCTION: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(OF_NUMBERS.split(), NUMBERS),
    **dict.fromkeys(OF_TEXTS.split(), TEXTS),
    **dict.fromkeys(OF_TIMES.split(), (*DAYS, *INSTANTS)),
}
"""The telling values by the identity of a function, of any of the types of its operands."""

READ: dict[type[t.DataType], tuple[str, ...]] = {
    **dict.fromkeys((t.ByteType, t.ShortType, t.IntegerType, t.LongType), ("12", " -3 ", "+7")),
    **dict.fromkeys((t.FloatType, t.DoubleType, t.DecimalType), ("12", " -2.5 ", "1e2", ".125")),
    t.BooleanType: ("true", " F ", "y", "0"),
    t.DateType: ("2024-02-29", " 2026-3-1", "2026-12"),
}
"""Texts that a cast to a type can read."""


def telling_values(expr: Expr) -> Iterator[Any]:
    """Yield, for each call and cast in an expression, values of all types that its operands may have."""
    for part in expression_nodes(expr):
        if isinstance(part, Call):
            yield from BY_FUNCTION.get(part.function.identity, ())
        elif isinstance(part, Cast):
            yield from (*NUMBERS, *DAYS, *INSTANTS, *READ.get(type(part.type), ()))


__all__ = ["telling_values"]
