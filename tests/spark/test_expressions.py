"""Differential: what runs in-process gives Spark's answer, type and error, for every registered function.

All expressions go into few wide selects over nasty inputs. Where the in-process evaluation says that a row is an
error, Spark gets NULL in its stead (so that an error it is alone to raise fails the test), and a sample of those rows
is then put to Spark to see it raise.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as t

import streamq as sq
from streamq import functions as f
from streamq.errors import NeedsSpark, TypeMismatch
from streamq.expressions import col, lit, when
from streamq.functions.catalogue import by_name
from streamq.plan.expr import Call, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.passes import columns as columns_of
from streamq.plan.passes import nodes, substitute
from streamq.plan.schema import Field, Schema
from streamq.plan.spark_form import to_spark
from streamq.plan.spark_names import AGGREGATES, GENERATORS, WINDOWED
from streamq.plan.tree import show
from streamq.runtime.arrow_casts import can_cast
from streamq.runtime.arrow_expr import arrow_type, attempt, check

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

ROWS = 240
UTC = dt.UTC
NAN, INF = float("nan"), float("inf")

POOLS: dict[str, tuple[t.DataType, list[Any]]] = {
    "p": (t.BooleanType(), [True, False, None]),
    "b": (t.ByteType(), [0, 1, -1, 7, 127, -128, None]),
    "h": (t.ShortType(), [0, 1, -1, 300, 32767, -32768, None]),
    "i": (t.IntegerType(), [0, 1, -1, 2, -3, 10, 25, -25, 1_000_000, 2**31 - 1, -(2**31), None]),
    "l": (t.LongType(), [0, 1, -1, 3, -7, 10**9, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), None]),
    "x": (t.FloatType(), [0.0, -0.0, 1.5, -2.5, 0.1, 3.4e38, 1e-45, 2147483648.0, 9.223372e18, NAN, INF, -INF, None]),
    "d": (
        t.DoubleType(),
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            -2.5,
            0.05,
            1.005,
            2.675,
            1e-300,
            5e-324,
            1.7e308,
            127.9,
            -128.9,
            2147483647.5,
            -2147483649.0,
        ]
        + [9.223372036854775807e18, -9.3e18, 123456.789, NAN, INF, -INF, None],
    ),
    "s": (
        t.StringType(),
        [
            "",
            " ",
            "a",
            "A",
            "abc",
            "a%b",
            "a_b",
            "ß",
            "ſt",
            "ΑΣ",
            "İstanbul",
            "é",
            "e\u0301",
            "日本語",
            "\U0001f600x",
            "line\nbreak",
            "x\n",
        ]
        + [
            "\u2028",
            "  pad ",
            "\tab",
            "0",
            " 12 ",
            "+5",
            "-128",
            "99999999999999999999",
            "1.5",
            "1e3",
            ".5",
            "5.",
            "1.5f",
            "0x1p3",
        ]
        + [
            "NaN",
            "-Infinity",
            "inf",
            "1e400",
            "true",
            "Yes",
            "N",
            "2024-02-29",
            "2023-02-29",
            "2024-2-3",
            "0001-01-01",
            "+12345-06-07",
        ]
        + ["2024-02-29 12:00", "2024T", "abcabc", "aXbXc", None],
    ),
    "y": (t.BinaryType(), [b"", b"\x00\xff", b"abc", b"abd", None]),
    "e": (
        t.DateType(),
        [
            dt.date(1970, 1, 1),
            dt.date(1969, 12, 31),
            dt.date(2024, 2, 29),
            dt.date(1900, 2, 28),
            dt.date(1, 1, 1),
            dt.date(9999, 12, 31),
        ]
        + [dt.date(2020, 12, 31), dt.date(2021, 1, 3), dt.date(2021, 1, 4), None],
    ),
    "z": (
        t.TimestampType(),
        [
            dt.datetime(1970, 1, 1, tzinfo=UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            dt.datetime(1965, 3, 4, 5, 6, 7, 8, UTC),
        ]
        + [
            dt.datetime(2024, 2, 29, 12, 30, 15, 120000, UTC),
            dt.datetime(2024, 12, 30, 1, 2, 3, tzinfo=UTC),
            dt.datetime(1, 1, 1, tzinfo=UTC),
        ]
        + [
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            dt.datetime(2021, 1, 3, tzinfo=UTC),
            dt.datetime(1582, 10, 10, 4, tzinfo=UTC),
            None,
        ],
    ),
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

SCHEMA = Schema(tuple(Field(n + again, kind) for n, (kind, _) in POOLS.items() for again in ("", "2")), "timestamp")
NUMBERS = "bhilxd"
GOOD_REGEX = [
    "^a",
    "b$",
    "^$",
    ".",
    "a.c",
    "[a-c]+$",
    r"\d+",
    r"\s",
    r"\w{2,3}",
    "(ab|A)c?",
    r"[^a-z]",
    r"\.",
    "a*?b",
    r"[\d.]+e\d",
    "x$",
    "k$",
]


def nasty() -> dict[str, pa.Array]:
    """Random rows of the pools."""
    chosen = random.Random(7)
    columns = {}
    for name, (kind, pool) in POOLS.items():
        for again in ("", "2"):
            values = [pool[k % len(pool)] if k < len(pool) and not again else chosen.choice(pool) for k in range(ROWS)]
            columns[name + again] = pa.array(values, arrow_type(kind))
    return columns


def c(name: str) -> Expr:
    return col(name)


def operators() -> Iterator[Expr]:
    for a in NUMBERS + "m":
        for b in NUMBERS + "mn":
            for op in "+-*/%":
                yield Call(by_name(op), (c(a), c(b + "2")))
            yield Call(by_name("<"), (c(a), c(b + "2")))
            yield Call(by_name("<=>"), (c(a), c(b + "2")))
    for name in POOLS:
        for op in ("==", "!=", "<", "<=", ">", ">=", "<=>"):
            yield Call(by_name(op), (c(name), c(name + "2")))
        yield c(name) == None  # noqa: E711
        yield c(name).eq_null_safe(None)
        for function in ("isnull", "isnotnull"):
            yield Call(by_name(function), (c(name),))
        for function in ("coalesce", "greatest", "least", "nullif", "ifnull", "nvl", "equal_null"):
            yield Call(by_name(function), (c(name), c(name + "2")))
        yield when(c("p"), c(name)).when(c("p2"), c(name + "2"))
        yield when(c("p"), c(name)).otherwise(c(name + "2"))
        yield Call(by_name("nvl2"), (c(name), c(name + "2"), c(name)))
        yield c(name).isin(*[v for v in POOLS[name][1][:4] if v is not None])
        yield c(name).isin(POOLS[name][1])
        yield c(name).isin(c(name + "2"), None)
    for a, b in ("bi", "il", "ix", "lx", "xd", "ld", "hd", "ez", "ze"):
        yield Call(by_name("coalesce"), (c(a), c(b)))
        yield Call(by_name("greatest"), (c(a), c(b), c(b + "2")))
        yield Call(by_name("nullif"), (c(a), c(b)))
        yield Call(by_name("<"), (c(a), c(b)))
        yield when(c("p"), c(a)).otherwise(c(b))
        yield c(a).isin(c(b), c(b + "2"))
    yield from (c("p") & c("p2"), c("p") | c("p2"), ~c("p"), c("p") & None, c("p") | None, c("i").isin())
    yield from (
        c("d").isin(*[float(v) for v in range(12)], NAN),
        c("d").isin(0.0, None),
        c("d").isin(NAN),
        c("s").isin("a", "", None),
    )
    yield from (
        c("m") + 1,
        c("m") * 3,
        c("m") - Decimal("0.125"),
        c("m") / 3,
        c("m") / c("m2"),
        c("n") / c("m"),
        c("i") / c("n"),
        c("m") / c("l"),
        c("m").cast("decimal(38,10)") / c("l"),
        c("n").cast("decimal(38,30)") / c("n2"),
        2 - c("n"),
        c("m") == 1,
        c("m") < c("i"),
        c("n") >= 1.5,
        c("i") + lit(None),
    )
    yield from (
        c("z") + c("v"),
        c("v") + c("z"),
        c("z") - c("v"),
        c("z") - c("z2"),
        c("v") + c("v2"),
        c("v") - c("v2"),
        c("z") + dt.timedelta(hours=1),
    )
    yield from (
        c("z") < dt.datetime(2000, 1, 1),
        c("e") == dt.date(2024, 2, 29),
        c("y") == b"abc",
        c("i") + 1,
        1 - c("i"),
        c("b") * 2,
        c("l") / 3,
    )
    yield from (
        lit(1),
        lit("a"),
        lit(None),
        lit(2**40),
        lit(1.5),
        lit(Decimal("1.50")),
        lit(True),
        lit(dt.date(2000, 1, 1)),
        Lit(1, t.LongType()),
    )


def lazy() -> Iterator[Expr]:
    """An operand that raises, where Spark does not evaluate it on every row."""
    bad = c("i") / c("i2")
    yield when(c("i2") != 0, bad).otherwise(-1.0)
    yield when(c("p"), bad)
    yield when(c("p"), 1.0).when(bad > 1, 2.0).otherwise(bad)
    yield (c("i2") != 0) & (bad > 1)
    yield (c("i2") == 0) | (bad > 1)
    yield c("p") & (bad > 1)
    yield c("p") | (bad > 1)
    yield f.coalesce(c("d"), bad)
    yield f.coalesce(bad, c("d"))
    yield f.nvl2(c("p"), bad, c("d"))
    yield f.nanvl(c("d"), bad)
    yield c("d").isin(1.0, bad)
    yield c("d") + bad
    yield bad + c("d")
    yield bad / c("d")
    yield c("d") % bad
    yield c("d").eq_null_safe(bad)
    yield f.greatest(c("d"), bad)
    yield f.nullif(c("d"), bad)
    yield f.concat(c("s"), bad.cast("int").cast("string"))
    yield f.concat_ws(",", c("s"), bad.cast("int").cast("string"))
    yield f.substring(c("s"), c("b"), bad.cast("int"))
    yield when(c("p"), lit(1) / lit(0))


def casts() -> Iterator[Expr]:
    targets = [kind for kind, _ in POOLS.values()] + [t.TimestampNTZType(), t.DecimalType(38, 10), t.DecimalType(3, 0)]
    for name, (kind, _) in POOLS.items():
        yield from (c(name).cast(to) for to in targets if can_cast(kind, to))
    yield c("z").cast("timestamp_ntz").cast("string")
    yield c("z").cast("timestamp_ntz").cast("date")
    yield c("e").cast("timestamp_ntz")


def calls() -> Iterator[Expr]:
    for name in (
        "abs",
        "negative",
        "positive",
        "sign",
        "signum",
        "rint",
        "floor",
        "ceil",
        "ceiling",
        "sqrt",
        "ln",
        "log10",
        "isnan",
        "exp",
        "log2",
        "log",
    ):
        for a in NUMBERS + "m":
            yield Call(by_name(name), (c(a),))
    for a in "bhild":
        yield f.round(c(a))
        for places in (1, 2, -1, -2, -5, -9, 400, -400):
            yield f.round(c(a), places)
    yield from (f.nanvl("d", "d2"), f.nanvl("x", "d"), f.nanvl("x", "x2"))
    for name in (
        "upper",
        "ucase",
        "lower",
        "lcase",
        "length",
        "char_length",
        "character_length",
        "octet_length",
        "trim",
        "btrim",
        "ltrim",
        "rtrim",
        "reverse",
    ):
        yield Call(by_name(name), (c("s"),))
        yield Call(by_name(name), (lit(None).cast("string"),))
    yield from (f.length("y"), f.octet_length("y"))
    for name in ("trim", "btrim", "ltrim", "rtrim"):
        yield from (
            Call(by_name(name), (c("s"), lit("a b"))),
            Call(by_name(name), (c("s"), c("s2"))),
            Call(by_name(name), (c("s"), lit(""))),
        )
    for at in (-3, -1, 0, 1, 2, 100):
        yield f.substr(c("s"), lit(at))
        for length in (-1, 0, 1, 2, 2**31 - 1):
            yield f.substring("s", at, length)
            yield f.substring("y", at, length)
    yield from (f.substring("s", "b", "b2"), f.substring("s", "i", "i2"), f.substr(c("s"), c("b"), c("b2")))
    for n in (-1, 0, 1, 3):
        yield from (f.left(c("s"), lit(n)), f.right(c("s"), lit(n)), f.left(c("y"), lit(n)), f.repeat("s", n))
        yield from (f.lpad("s", n, "xy"), f.rpad("s", n, "xy"), f.lpad("s", n, ""), f.rpad("s", n + 4, "é日"))
    yield from (
        f.concat("s"),
        f.concat("s", "s2", lit("!")),
        f.concat_ws("-", "s", "s2"),
        f.concat_ws("", lit(None).cast("string"), "s"),
        f.concat_ws("-"),
    )
    yield from (
        f.replace(c("s"), lit("b"), lit("QQ")),
        f.replace(c("s"), lit("")),
        f.replace(c("s"), c("s2")),
        f.instr("s", "b"),
        f.instr("s", c("s2")),
    )
    for name in ("startswith", "endswith", "contains"):
        for part in ("", "a", "é", "b", "%", c("s2"), lit(None).cast("string")):
            yield Call(by_name(name), (c("s"), part if isinstance(part, Expr) else lit(part)))
    for pattern in ("", "%", "a%", "%b", "_", "a_b", r"a\_b", r"a\%b", "%日%", "_b%", "a%c", "bad\\x", "trailing\\"):
        yield c("s").like(pattern)
    yield Call(by_name("like"), (c("s"), c("s2")))
    for regex in GOOD_REGEX:
        for name in ("rlike", "regexp", "regexp_like"):
            yield Call(by_name(name), (c("s"), lit(regex)))
    for name in (
        "year",
        "quarter",
        "month",
        "day",
        "dayofmonth",
        "dayofyear",
        "dayofweek",
        "weekday",
        "weekofyear",
        "last_day",
        "to_date",
        "hour",
        "minute",
        "second",
    ):
        yield from (Call(by_name(name), (c("e"),)), Call(by_name(name), (c("z"),)))
    for unit in (
        "year",
        "YYYY",
        "yy",
        "quarter",
        "month",
        "mm",
        "mon",
        "week",
        "day",
        "dd",
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
        "eon",
    ):
        yield from (f.date_trunc(unit, "z"), f.date_trunc(unit, "e"))
    for name in ("date_add", "date_sub"):
        yield from (Call(by_name(name), (c("e"), c(n))) for n in "bh")
        yield Call(by_name(name), (c("e"), lit(-40)))
    yield from (Call(by_name(n), (c(a), c(b + "2"))) for n in ("datediff", "date_diff") for a in "ez" for b in "ez")
    yield from (
        f.unix_seconds("z"),
        f.unix_millis("z"),
        f.unix_micros("z"),
        f.unix_date("e"),
        f.date_from_unix_date("h"),
    )
    yield from (Call(by_name(f"timestamp_{u}"), (c(a),)) for u in ("seconds", "millis", "micros") for a in "bhi")
    yield f.timestamp_seconds(when(c("l") > 10**9, c("l")))


class _Frame:
    """Columns of the test frame by their own names."""

    def column(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(name)

    def lifetime(self, part: str) -> Column:
        raise AssertionError(part)


def never(part: str) -> pa.Array:
    raise AssertionError(part)


def distinct(found: Iterator[Expr]) -> list[Expr]:
    """Those that the evaluator takes, each once; at least what it refuses must be a refusal."""
    kept = {}
    for expr in found:
        try:
            check(expr, SCHEMA, "test")
        except (NeedsSpark, TypeMismatch):
            continue
        kept[expr.digest] = expr
    return list(kept.values())


def exact(array: pa.Array) -> list[Any]:
    """Values that compare by the last bit: -0.0 is not 0.0, NaN is NaN."""
    if pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
        return [None if empty else b for empty, b in zip(array.is_null().to_pylist(), bits.tolist(), strict=True)]
    if pa.types.is_temporal(array.type):
        return array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).to_pylist()
    return array.to_pylist()


@pytest.mark.parametrize("group", [operators, lazy, casts, calls], ids=lambda g: g.__name__)
def test_values_types_and_errors_are_sparks(spark: SparkSession, group: Any) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    columns = nasty()
    exprs = distinct(group())
    values = [attempt(e, SCHEMA, columns, never, ROWS) for e in exprs]
    bad = [np.logical_or.reduce([x.rows for x in v.faults]) if v.faults else np.zeros(ROWS, bool) for v in values]
    masks = {f"bad{k}": pa.array(b) for k, b in enumerate(bad) if b.any()}
    frame = spark.createDataFrame(pa.table({**columns, **masks}))
    wrong: list[str] = []
    made = []
    for k, expr in enumerate(exprs):
        column = to_spark(expr, _Frame())
        made.append((F.when(~F.col(f"bad{k}"), column) if f"bad{k}" in masks else column).alias(f"r{k}"))
    for first in range(0, len(made), 150):
        part = frame.select(made[first : first + 150])
        answer = part.toArrow().combine_chunks()
        for k, field in enumerate(part.schema.fields, first):
            ours = values[k].array
            if field.dataType != infer(exprs[k], SCHEMA, "test") or ours.type != arrow_type(field.dataType):
                wrong.append(
                    f"{show(exprs[k])}: {ours.type}, {infer(exprs[k], SCHEMA, 'test')} is in Spark {field.dataType}"
                )
                continue
            theirs = answer.column(field.name).chunk(0).cast(ours.type) if ours.type != pa.null() else ours
            rows = zip(exact(ours), exact(theirs), bad[k], strict=True)
            different = [(n, a, b) for n, (a, b, skipped) in enumerate(rows) if a != b and not skipped]
            if different:
                n, a, b = different[0]
                inputs = {name: columns[name][n].as_py() for name in sorted(columns_of(exprs[k]))}
                wrong.append(f"{show(exprs[k])} on {inputs}: {a!r} is in Spark {b!r}; {len(different)} rows differ")
    one = spark.sql("SELECT 1")
    raising = [k for k in range(len(exprs)) if bad[k].any()]
    for k in raising[:: max(1, len(raising) // 30)]:
        # Over constants the optimizer alone evaluates the row, which spares a job for each.
        n = int(np.flatnonzero(bad[k])[k % bad[k].sum()])
        row = {name: Lit(columns[name][n].as_py(), SCHEMA.type_of(name)) for name in columns_of(exprs[k])}
        try:
            found = one.select(to_spark(substitute(exprs[k], row), _Frame())).collect()
            wrong.append(f"{show(exprs[k])} on {row} is no error in Spark: {found}")
        except PySparkException:
            pass
    assert not wrong, "\n".join(wrong[:80]) + f"\n{len(wrong)} of {len(exprs)}"


def test_the_last_bit_of_many_doubles(spark: SparkSession) -> None:
    chosen = np.random.default_rng(5)
    wide = np.abs(chosen.standard_normal(8_000)) * 10.0 ** chosen.integers(-300, 300, 8_000)
    values = np.concatenate(
        [wide, chosen.uniform(-750, 715, 8_000), chosen.uniform(-3, 3, 8_000), 1 + chosen.uniform(-1e-6, 1e-6, 3_000)]
    )
    values = np.concatenate([values, np.round(chosen.uniform(-1e6, 1e6, 8_000), 3)])
    schema = Schema((Field("d", t.DoubleType()),), "integer")
    exprs = [
        f.exp("d"),
        f.ln("d"),
        f.log10("d"),
        f.log2("d"),
        f.sqrt("d"),
        f.round("d", 2),
        f.round("d", 0),
        c("d") % 0.7,
    ]
    table = pa.table({"d": pa.array(values)})
    answer = (
        spark.createDataFrame(table)
        .select([to_spark(e, _Frame()).alias(f"r{k}") for k, e in enumerate(exprs)])
        .toArrow()
    )
    for k, expr in enumerate(exprs):
        ours = attempt(expr, schema, {"d": table["d"]}, never, len(values)).array
        pairs = zip(values.tolist(), exact(ours), exact(answer.column(f"r{k}").combine_chunks()), strict=True)
        wrong = [p for p in pairs if p[1] != p[2]]
        assert not wrong, f"{show(expr)}: {len(wrong)}: {wrong[:3]}"


def test_fields_are_called_after_the_columns_given(spark: SparkSession) -> None:
    """Also where the rules put something else in the columns' place."""
    source = sq.events([(1, 3, {"v": 1})]).select(w=col("v") + 1, a=f.array("v"))
    made = source.select(s=f.struct("w", sq.start()), z=f.arrays_zip("a"))
    assert made.to_df().toArrow().to_pylist() == [{"s": {"w": 2, "start": 1}, "z": [{"a": 1}], "start": 1, "end": 3}]


def test_means_of_decimals_are_sparks(spark: SparkSession) -> None:
    """In-process and in batch, with the digits that Spark's own has, whatever the digits of the quotient of sum and count."""
    numbers = [Decimal(v) for v in ("0.01", "0.02", "-0.07", "0.00005", "0.03", "0.09999")]
    for kind in ("decimal(5,5)", "decimal(11,5)", "decimal(12,6)", "decimal(20,5)", "decimal(38,18)", "decimal(38,38)"):
        rows = [(i, i + 1, {"v": v}) for i, v in enumerate((*numbers, None))]
        query = sq.events(rows, schema={"v": kind}).tumbling_window(100).select(x=sq.avg("v"))
        plain = spark.createDataFrame([(v,) for v in numbers], f"v {kind}").agg(F.avg("v").alias("x")).toArrow()
        for found in (query.to_arrow(), query.to_df().toArrow()):
            assert found.select(["x"]).cast(plain.schema) == plain, kind
            assert found.schema.field("x").type == plain.schema.field("x").type, kind


def test_pyspark_columns_that_are_no_value_of_one_event(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, [1])], "at long, v long, xs array<int>")
    source = sq.points(frame, time="at")
    window = source.tumbling_window(5)
    hint = r"found spark\[.*sum\(v\).*\]\. Use sq\.sum in a window's select\."
    for verb in (
        lambda: window.select(y=F.sum("v")),
        lambda: window.select(y=F.sum("v") + 1),
        lambda: source.group_by("v").tumbling_window(5).select(y=F.sum("v")),
        lambda: window.select(y=sq.sum(F.sum("v"))),
        lambda: source.where(F.sum("v") > 3),
        lambda: source.select(y=F.sum("v")),
        lambda: window.top_k(1, by=F.sum("v")),
    ):
        with pytest.raises(TypeMismatch, match=f"a pyspark Column that is no value of one event; {hint}"):
            verb()
    with pytest.raises(TypeMismatch, match=r"kurtosis.*In a window's select there are sq\.avg, "):
        window.select(y=F.kurtosis("v"))
    for column in (F.row_number().over(Window.orderBy("v")), F.explode("xs")):
        with pytest.raises(TypeMismatch, match="a pyspark Column that is no value of one event"):
            source.select(y=column)
    found = window.select(y=sq.sum(F.col("v") * 2)).to_df().toArrow().to_pylist()
    assert found == [{"y": 4, "start": 0, "end": 5}]
    assert source.select(y=F.size("xs")).to_df().toArrow().to_pylist() == [{"y": 1, "start": 1, "end": 2}]
    with pytest.raises(TypeMismatch, match=r"The source has read column 'at'"):
        source.where(F.col("at") > 1)


def called() -> set[str]:
    """The functions that the expressions here call."""
    groups = (operators, lazy, casts, calls)
    return {n.function.name for group in groups for e in distinct(group()) for n in nodes(e) if isinstance(n, Call)}


def test_refused_functions_are_sparks_aggregates_windows_and_generators(spark: SparkSession) -> None:
    rows = spark.sql("SHOW FUNCTIONS").collect()
    assert rows
    scala = spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    registry = getattr(getattr(scala.analysis, "FunctionRegistry$"), "MODULE$").builtin()
    wrong = []

    for name in F.__all__:
        info = registry.lookupFunction(scala.FunctionIdentifier(name))
        group = info.get().getGroup() if info.isDefined() else ""
        expected = {"agg_funcs": AGGREGATES, "window_funcs": WINDOWED, "generator_funcs": GENERATORS}.get(group)
        if expected is not None and name not in expected:
            wrong.append((name, group))
    assert wrong == []
