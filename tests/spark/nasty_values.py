"""Columns of nasty values, of every type."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow.arrow_expr import arrow_type

ROWS = 240
UTC = dt.UTC
NAN, INF = float("nan"), float("inf")

DOUBLES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 0.05, 1.005, 2.675, 1e-300, 5e-324, 1.7e308, 127.9, -128.9, 123456.789),
    *(2147483647.5, -2147483649.0, 9.223372036854775807e18, -9.3e18, NAN, INF, -INF),
]
TEXTS = [
    *("", " ", "a", "A", "abc", "a%b", "a_b", "ß", "ſt", "ΑΣ", "İstanbul", "é", "e\u0301", "日本語", "\U0001f600x"),
    *("line\nbreak", "x\n", "\u2028", "  pad ", "\tab", "abcabc", "aXbXc"),
    *("0", " 12 ", "+5", "-128", "99999999999999999999", "1.5", "1e3", ".5", "5.", "1.5f", "0x1p3", "1e400"),
    *("NaN", "-Infinity", "inf", "true", "Yes", "N"),
    *("2024-02-29", "2023-02-29", "2024-2-3", "0001-01-01", "+12345-06-07", "2024-02-29 12:00", "2024T"),
]
DAYS = [
    *(dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1900, 2, 28), dt.date(1, 1, 1)),
    *(dt.date(9999, 12, 31), dt.date(2020, 12, 31), dt.date(2021, 1, 3), dt.date(2021, 1, 4)),
]
TIMES = [
    *(dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2021, 1, 3, tzinfo=UTC)),
    *(dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    *(dt.datetime(1965, 3, 4, 5, 6, 7, 8, UTC), dt.datetime(2024, 2, 29, 12, 30, 15, 120000, UTC)),
    *(dt.datetime(2024, 12, 30, 1, 2, 3, tzinfo=UTC), dt.datetime(1582, 10, 10, 4, tzinfo=UTC)),
]

POOLS: dict[str, tuple[t.DataType, list[Any]]] = {
    "p": (t.BooleanType(), [True, False, None]),
    "b": (t.ByteType(), [0, 1, -1, 7, 127, -128, None]),
    "h": (t.ShortType(), [0, 1, -1, 300, 32767, -32768, None]),
    "i": (t.IntegerType(), [0, 1, -1, 2, -3, 10, 25, -25, 1_000_000, 2**31 - 1, -(2**31), None]),
    "l": (t.LongType(), [0, 1, -1, 3, -7, 10**9, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), None]),
    "x": (t.FloatType(), [0.0, -0.0, 1.5, -2.5, 0.1, 3.4e38, 1e-45, 2147483648.0, 9.223372e18, NAN, INF, -INF, None]),
    "d": (t.DoubleType(), [*DOUBLES, None]),
    "s": (t.StringType(), [*TEXTS, None]),
    "y": (t.BinaryType(), [b"", b"\x00\xff", b"abc", b"abd", None]),
    "e": (t.DateType(), [*DAYS, None]),
    "z": (t.TimestampType(), [*TIMES, None]),
    "m": (
        t.DecimalType(10, 2),
        [Decimal(v) for v in ("0.00", "1.00", "-1.50", "12345678.99", "-99999999.99", "0.01", "127.99")] + [None],
    ),
    "n": (t.DecimalType(5, 4), [Decimal(v) for v in ("0.0000", "1.5000", "-9.9999", "0.0001", "1.0050")] + [None]),
    "v": (
        t.DayTimeIntervalType(),
        [dt.timedelta(0), dt.timedelta(hours=1), dt.timedelta(days=-3, microseconds=5), None],
    ),
}
"""Columns by name; each exists a second time with a 2 after it, in another order."""

LISTS = {"la": "d", "lb": "s", "lc": "y", "ld": "z"}
"""Columns of lists by name, and the column whose values they have."""

STRUCT = t.StructType([t.StructField("x", t.FloatType()), t.StructField("a b", t.ArrayType(t.StringType()))])

SCHEMA = Schema(
    (
        *(Field(n + again, kind) for n, (kind, _) in POOLS.items() for again in ("", "2")),
        *(Field(name, t.ArrayType(POOLS[of][0])) for name, of in LISTS.items()),
        Field("st", STRUCT),
        Field("sl", t.ArrayType(STRUCT)),
    ),
    "timestamp",
)


def nasty() -> dict[str, pa.Array]:
    """Random rows of the pools."""
    chosen = random.Random(7)
    columns = {}
    for name, (kind, pool) in POOLS.items():
        for again in ("", "2"):
            values = [pool[k % len(pool)] if k < len(pool) and not again else chosen.choice(pool) for k in range(ROWS)]
            columns[name + again] = pa.array(values, arrow_type(kind))

    def several(pool: list[Any]) -> list[Any] | None:
        return None if chosen.random() < 0.1 else [chosen.choice(pool) for _ in range(chosen.randrange(3))]

    def struct() -> dict[str, Any] | None:
        parts = {"x": chosen.choice(POOLS["x"][1]), "a b": several(["", "a", " 1:a", " -", None])}
        return None if chosen.random() < 0.1 else parts

    structs = [struct() for _ in range(ROWS)]
    nested = {name: [several(POOLS[of][1]) for _ in range(ROWS)] for name, of in LISTS.items()}
    nested |= {"st": structs, "sl": [several(structs) for _ in range(ROWS)]}
    return columns | {n: pa.array(values, arrow_type(SCHEMA.type_of(n))) for n, values in nested.items()}
