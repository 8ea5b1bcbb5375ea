"""Calls of every function that runs in-process, on columns of nasty values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

from pyspark.sql import types as t

from streamq import functions as f
from streamq.errors import NeedsSpark, TypeMismatch
from streamq.expressions import col, lit, when
from streamq.functions.catalogue import function_of
from streamq.functions.text import IdText
from streamq.plan.expr import Call, Expr, Lit
from streamq.plan.passes import expression_nodes
from streamq.runtime.arrow.arrow_casts import can_cast
from streamq.runtime.arrow.arrow_expr import check_in_process
from tests.spark.nasty_values import NAN, POOLS, SCHEMA

NUMBERS = "bhilxd"
GOOD_REGEX = [
    *("^a", "b$", "^$", ".", "a.c", "[a-c]+$", r"\d+", r"\s", r"\w{2,3}", "(ab|A)c?", r"[^a-z]", r"\.", "a*?b"),
    *(r"[\d.]+e\d", "x$", "k$"),
]
OF_NUMBERS = "abs negative positive sign signum rint floor ceil ceiling sqrt ln log10 isnan exp log2 log"
OF_TEXTS = "upper ucase lower lcase length char_length character_length octet_length trim btrim ltrim rtrim reverse"
OF_TIME = "year quarter month day dayofmonth dayofyear dayofweek weekday weekofyear last_day to_date hour minute second"
UNITS = "year YYYY yy quarter month mm mon week day dd hour minute second millisecond microsecond eon"


def c(name: str) -> Expr:
    return col(name)


def operators() -> Iterator[Expr]:
    for a in NUMBERS + "m":
        for b in NUMBERS + "mn":
            for op in "+-*/%":
                yield Call(function_of(op), (c(a), c(b + "2")))
            yield Call(function_of("<"), (c(a), c(b + "2")))
            yield Call(function_of("<=>"), (c(a), c(b + "2")))
    for name in POOLS:
        for op in ("==", "!=", "<", "<=", ">", ">=", "<=>"):
            yield Call(function_of(op), (c(name), c(name + "2")))
        yield c(name) == Lit(None)
        yield c(name).eq_null_safe(None)
        for function in ("isnull", "isnotnull"):
            yield Call(function_of(function), (c(name),))
        for function in ("coalesce", "greatest", "least", "nullif", "ifnull", "nvl", "equal_null"):
            yield Call(function_of(function), (c(name), c(name + "2")))
        yield when(c("p"), c(name)).when(c("p2"), c(name + "2"))
        yield when(c("p"), c(name)).otherwise(c(name + "2"))
        yield Call(function_of("nvl2"), (c(name), c(name + "2"), c(name)))
        yield c(name).isin(*[v for v in POOLS[name][1][:4] if v is not None])
        yield c(name).isin(POOLS[name][1])
        yield c(name).isin(c(name + "2"), None)
    for a, b in ("bi", "il", "ix", "lx", "xd", "ld", "hd", "ez", "ze"):
        yield Call(function_of("coalesce"), (c(a), c(b)))
        yield Call(function_of("greatest"), (c(a), c(b), c(b + "2")))
        yield Call(function_of("nullif"), (c(a), c(b)))
        yield Call(function_of("<"), (c(a), c(b)))
        yield when(c("p"), c(a)).otherwise(c(b))
        yield c(a).isin(c(b), c(b + "2"))
    yield from (c("p") & c("p2"), c("p") | c("p2"), ~c("p"), c("p") & None, c("p") | None, c("i").isin())
    yield from (c("d").isin(*map(float, range(12)), NAN), c("d").isin(0.0, None), c("d").isin(NAN))
    yield c("s").isin("a", "", None)
    yield from (c("m") + 1, c("m") * 3, c("m") - Decimal("0.125"), c("m") / 3, c("m") / c("m2"), c("n") / c("m"))
    yield from (
        c("i") / c("n"),
        c("m") / c("l"),
        c("m").cast("decimal(38,10)") / c("l"),
        2 - c("n"),
        c("i") + lit(None),
    )
    yield from (c("n").cast("decimal(38,30)") / c("n2"), c("m") == 1, c("m") < c("i"), c("n") >= 1.5)
    yield from (c("z") + c("v"), c("v") + c("z"), c("z") - c("v"), c("z") - c("z2"), c("v") + c("v2"), c("v") - c("v2"))
    yield from (c("z") + dt.timedelta(hours=1), c("z") < dt.datetime(2000, 1, 1), c("e") == dt.date(2024, 2, 29))
    yield from (c("y") == b"abc", c("i") + 1, 1 - c("i"), c("b") * 2, c("l") / 3)
    yield from map(lit, (1, "a", None, 2**40, 1.5, Decimal("1.50"), True, dt.date(2000, 1, 1)))
    yield Lit(1, t.LongType())


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
    yield f.sequence(c("b").cast("bigint"), c("b2").cast("bigint"))
    yield f.sequence(lit(0).cast("bigint"), c("b").cast("bigint"))
    yield f.array(c("s"), c("s2"))
    yield f.array_compact(f.array(c("s"), c("s2"), c("s")))
    for name in OF_NUMBERS.split():
        for a in NUMBERS + "m":
            yield Call(function_of(name), (c(a),))
    for a in "bhild":
        yield f.round(c(a))
        for places in (1, 2, -1, -2, -5, -9, 400, -400):
            yield f.round(c(a), places)
    yield from (f.nanvl("d", "d2"), f.nanvl("x", "d"), f.nanvl("x", "x2"))
    for name in OF_TEXTS.split():
        yield Call(function_of(name), (c("s"),))
        yield Call(function_of(name), (lit(None).cast("string"),))
    yield from (f.length("y"), f.octet_length("y"))
    for name in ("trim", "btrim", "ltrim", "rtrim"):
        yield from (Call(function_of(name), (c("s"), other)) for other in (lit("a b"), c("s2"), lit("")))
    for at in (-3, -1, 0, 1, 2, 100):
        yield f.substr(c("s"), lit(at))
        for length in (-1, 0, 1, 2, 2**31 - 1):
            yield f.substring("s", at, length)
            yield f.substring("y", at, length)
    yield from (f.substring("s", "b", "b2"), f.substring("s", "i", "i2"), f.substr(c("s"), c("b"), c("b2")))
    for n in (-1, 0, 1, 3):
        yield from (f.left(c("s"), lit(n)), f.right(c("s"), lit(n)), f.left(c("y"), lit(n)), f.repeat("s", n))
        yield from (f.lpad("s", n, "xy"), f.rpad("s", n, "xy"), f.lpad("s", n, ""), f.rpad("s", n + 4, "é日"))
    yield from (f.concat("s"), f.concat("s", "s2", lit("!")), f.concat_ws("-", "s", "s2"), f.concat_ws("-"))
    yield f.concat_ws("", lit(None).cast("string"), "s")
    yield from (f.replace(c("s"), lit("b"), lit("QQ")), f.replace(c("s"), lit("")), f.replace(c("s"), c("s2")))
    yield from (f.instr("s", "b"), f.instr("s", c("s2")))
    for name in ("startswith", "endswith", "contains"):
        for part in ("", "a", "é", "b", "%", c("s2"), lit(None).cast("string")):
            yield Call(function_of(name), (c("s"), part if isinstance(part, Expr) else lit(part)))
    for pattern in ("", "%", "a%", "%b", "_", "a_b", r"a\_b", r"a\%b", "%日%", "_b%", "a%c", "bad\\x", "trailing\\"):
        yield c("s").like(pattern)
    yield Call(function_of("like"), (c("s"), c("s2")))
    for regex in GOOD_REGEX:
        for name in ("rlike", "regexp", "regexp_like"):
            yield Call(function_of(name), (c("s"), lit(regex)))
    for name in OF_TIME.split():
        yield from (Call(function_of(name), (c("e"),)), Call(function_of(name), (c("z"),)))
    for unit in UNITS.split():
        yield from (f.date_trunc(unit, "z"), f.date_trunc(unit, "e"))
    for name in ("date_add", "date_sub"):
        yield from (Call(function_of(name), (c("e"), c(n))) for n in "bh")
        yield Call(function_of(name), (c("e"), lit(-40)))
    yield from (Call(function_of(n), (c(a), c(b + "2"))) for n in ("datediff", "date_diff") for a in "ez" for b in "ez")
    yield from (
        f.unix_seconds("z"),
        f.unix_millis("z"),
        f.unix_micros("z"),
        f.unix_date("e"),
        f.date_from_unix_date("h"),
    )
    yield from (Call(function_of(f"timestamp_{u}"), (c(a),)) for u in ("seconds", "millis", "micros") for a in "bhi")
    yield f.timestamp_seconds(when(c("l") > 10**9, c("l")))


def identifying() -> Iterator[Expr]:
    """The texts that tell values apart, of every type."""
    yield from (Call(IdText(field.type), (c(field.name),)) for field in SCHEMA.fields)


def distinct(exprs: Iterator[Expr]) -> list[Expr]:
    """Those that the evaluator takes, each once; at least what it refuses must be a refusal."""
    kept = {}
    for expr in exprs:
        try:
            check_in_process(expr, SCHEMA, "test")
        except (NeedsSpark, TypeMismatch):
            continue
        kept[expr.digest] = expr
    return list(kept.values())


def called() -> set[str]:
    """The functions that the expressions here call."""
    groups = (operators, lazy, casts, calls)
    return {
        n.function.name
        for group in groups
        for e in distinct(group())
        for n in expression_nodes(e)
        if isinstance(n, Call)
    }
