"""Differential: every form of merging agrees with evaluating each window from its events, in Python."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DecimalType, DoubleType, LongType, StringType, StructType

from streamq.operators.merging import choose_form, merge_partials
from streamq.plan.partial import SparkPartial
from streamq.runtime.partials.built_in_partials import PartialCount, PartialMax, PartialMin, PartialSum
from streamq.runtime.partials.deviation_partials import PartialComoments, PartialMoments
from streamq.runtime.partials.ordered_partials import SparkFirst, SparkLast

ORDER = StructType().add("_0", LongType()).add("_1", StringType())
EXACT = (
    PartialCount("events", "", LongType()),
    PartialSum("whole sum", "", LongType()),
    PartialSum("price.sum", "", DecimalType(20, 2)),
)
PARTIALS = (
    *EXACT,
    PartialSum("v", "", DoubleType()),
    PartialMin("low", "", DoubleType()),
    PartialMax("high", "", DoubleType()),
    PartialMax("name", "", StringType()),
    PartialMoments("spread", "", DoubleType()),
    PartialComoments("both", "", DoubleType(), ""),
    SparkFirst("one", "", StringType(), "", (), ORDER),
    SparkLast("other", "", StringType(), "", (), ORDER),
)
PARTIALS_DDL = (
    "`case` bigint, `the key` string, __lo bigint, __hi bigint, __n bigint, events bigint, "
    "`whole sum` bigint, `whole sum__n` bigint, `price.sum` decimal(20,2), `price.sum__n` bigint, "
    "v double, v__n bigint, low double, high double, name string, "
    "spread__n bigint, spread__mean double, spread__m2 double, "
    "both__n bigint, both__x double, both__y double, both__xx double, both__yy double, both__xy double, "
    "one string, one__order struct<_0 bigint, _1 string>, other string, other__order struct<_0 bigint, _1 string>"
)
KEYS = ["case", "the key"]


@dataclass(frozen=True)
class Event:
    """A range of windows, and a payload."""

    lo: int
    hi: int
    whole: int | None
    price: Decimal | None
    v: float | None
    name: str | None


def greatest(values: Sequence[float]) -> float | None:
    return max(values, key=lambda v: (math.isnan(v), v), default=None)


def least(values: Sequence[float]) -> float | None:
    return min(values, key=lambda v: (math.isnan(v), v), default=None)


def aggregate(events: Sequence[Event]) -> dict[str, Any]:
    """Every slot over a bag of events; moments in exact arithmetic."""
    wholes = [e.whole for e in events if e.whole is not None]
    prices = [e.price for e in events if e.price is not None]
    floats = [e.v for e in events if e.v is not None]
    row: dict[str, Any] = {
        "events": len(wholes),
        "whole sum": sum(wholes) if wholes else None,
        "whole sum__n": len(wholes),
        "price.sum": sum(prices, Decimal(0)) if prices else None,
        "price.sum__n": len(prices),
        "v": math.fsum(floats) if floats else None,
        "v__n": len(floats),
        "low": least(floats),
        "high": greatest(floats),
        "name": max((e.name for e in events if e.name is not None), default=None),
        "spread__n": len(floats),
        "spread__mean": None,
        "spread__m2": None,
    }
    if floats and all(map(math.isfinite, floats)):
        exact = [Fraction(v) for v in floats]
        mean = sum(exact) / len(exact)
        row |= {"spread__mean": float(mean), "spread__m2": float(sum((v - mean) ** 2 for v in exact))}
    elif floats:
        row |= {"spread__mean": math.nan, "spread__m2": math.nan}
    row |= comoments([(e.v, float(e.whole % 97)) for e in events if e.v is not None and e.whole is not None])
    orders = sorted(
        ((e.whole, e.name) for e in events if e.whole is not None), key=lambda pair: (pair[0], pair[1] or "")
    )
    for name, at in (("one", 0), ("other", -1)):
        best = orders[at] if orders else None
        row |= {name: best and best[1], f"{name}__order": best}
    return row


def apart(values: list[Fraction]) -> list[Fraction]:
    """The deviations from the mean."""
    return [value - sum(values) / len(values) for value in values]


def comoments(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The parts of two columns' deviations, in exact arithmetic; NaN where a value is not finite."""
    names = ("both__x", "both__y", "both__xx", "both__yy", "both__xy")
    if not pairs:
        return {"both__n": 0, **dict.fromkeys(names)}
    x, y = ([Fraction(v) for v in side] if all(map(math.isfinite, side)) else None for side in zip(*pairs, strict=True))

    def product(a: list[Fraction] | None, b: list[Fraction] | None) -> float:
        return (
            math.nan if a is None or b is None else float(sum(u * v for u, v in zip(apart(a), apart(b), strict=True)))
        )

    means = (math.nan if side is None else float(sum(side) / len(side)) for side in (x, y))
    values = (*means, product(x, x), product(y, y), product(x, y))
    return {"both__n": len(pairs), **dict(zip(names, values, strict=True))}


@dataclass(frozen=True)
class Case:
    """One grid and its events, by key."""

    number: int
    n: int
    divides: bool
    events: dict[str | None, list[Event]]

    def partials(self) -> Iterator[tuple[Any, ...]]:
        for key, events in self.events.items():
            ranges: dict[tuple[int, int], list[Event]] = defaultdict(list)
            for event in events:
                ranges[event.lo, event.hi].append(event)
            for (lo, hi), members in ranges.items():
                yield (self.number, key, lo, hi, len(members), *aggregate(members).values())

    def windows(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for key, events in self.events.items():
            members: dict[int, list[Event]] = defaultdict(list)
            for event in events:
                for index in range(event.lo, event.hi + 1):
                    members[index].append(event)
            found |= {(self.number, key, index): aggregate(held) for index, held in members.items()}
        return found


def payload(rng: random.Random, base: float) -> tuple[int | None, Decimal | None, float | None, str | None]:
    v = rng.choice([None, math.nan, *(base + rng.choice([-1.0, 0.0, 1.0, rng.random()]) for _ in range(20))])
    whole = rng.choice([None, rng.randint(-(2**40), 2**40)])
    price = rng.choice([None, Decimal(rng.randint(-(10**6), 10**6)).scaleb(-2)])
    return whole, price, v, rng.choice([None, "a", "b", "ab"])


@cache
def cases(shape: str, size: int, hop: int) -> tuple[Case, ...]:
    """Random histories of one grid: negative times, gaps, NULL keys and columns, an event a century away."""
    rng = random.Random(f"{shape} {size} {hop}")
    n, divides = -(-size // hop), size % hop == 0
    made = []
    for number in range(10):
        offset, span = rng.randint(-50, 50), rng.choice([5, 60, 400])
        base = rng.choice([0.0, 1e9, -1e9])
        groups: dict[str | None, list[Event]] = {}
        for key in ("a", None, "b")[: rng.randint(1, 3)]:
            events = []
            for _ in range(rng.choice([1, 3, 25])):
                le = rng.randint(-span, span) + (10**9 if rng.random() < 0.05 else 0)
                length = 1 if shape == "points" else rng.choice([1, 2, rng.randint(1, 3 * span)])
                lo = (le - offset - size) // hop + 1
                hi = (le + length - 1 - offset) // hop
                if lo <= hi:
                    events.append(Event(lo, hi, *payload(rng, base)))
            groups[key] = events
        made.append(Case(number, n, divides, groups))
    return tuple(made)


GRIDS = [(3, 7), (10, 10), (20, 10), (25, 10), (64, 1)]


def check(rows: list[Any], expected: dict[tuple[Any, ...], dict[str, Any]], partials: Sequence[SparkPartial]) -> None:
    answer = {(row["case"], row["the key"], row["__i"]): row.asDict() for row in rows}
    assert len(answer) == len(rows)
    assert answer.keys() == expected.keys()
    for window, row in answer.items():
        for name in [name for name in row if name not in (*KEYS, "__i", "__n")]:
            assert same(row[name], expected[window][name], name), (window, name, row[name], expected[window][name])


def same(got: Any, wanted: Any, name: str) -> bool:
    if got is None or wanted is None:
        return got is wanted
    if isinstance(wanted, float):
        if math.isnan(wanted):
            return math.isnan(got)
        # squares of deviations of values near 1e9 that differ by 1: a sum of squares would be wrong by hundreds
        is_product = name in ("spread__m2", "both__xx", "both__yy", "both__xy")
        loose = {"rel_tol": 1e-6, "abs_tol": 1e-5} if is_product else {"rel_tol": 1e-12, "abs_tol": 1e-6}
        return math.isclose(got, wanted, **loose)
    return tuple(got) == wanted if isinstance(got, Row) else type(got) is type(wanted) and got == wanted


def table(spark: SparkSession, made: Sequence[Case]) -> DataFrame:
    return spark.createDataFrame([row for case in made for row in case.partials()], PARTIALS_DDL)


def renumbered(made: Sequence[Case], by: int) -> list[Case]:
    return [Case(case.number + by, case.n, case.divides, case.events) for case in made]


@pytest.mark.parametrize(("form", "partials"), [("difference", EXACT), ("explode", PARTIALS), ("dyadic", PARTIALS)])
def test_any_ranges(spark: SparkSession, form: str, partials: Sequence[SparkPartial]) -> None:
    made: list[Case] = []
    for size, hop in GRIDS:  # the forms for any ranges do not read n: all grids are one job
        for shape in ("points", "intervals"):
            made += renumbered(cases(shape, size, hop), len(made))
    merged = merge_partials(table(spark, made), KEYS, partials, 1, form)
    expected = {window: row for case in made for window, row in case.windows().items()}
    check(merged.collect(), expected, partials)


@pytest.mark.parametrize(("size", "hop"), [(3, 7), (64, 1), (25, 10)])
def test_blocks(spark: SparkSession, size: int, hop: int) -> None:
    made = cases("points", size, hop)
    merged = merge_partials(table(spark, made), KEYS, PARTIALS, made[0].n, "blocks")
    expected = {window: row for case in made for window, row in case.windows().items()}
    check(merged.collect(), expected, PARTIALS)


@pytest.mark.parametrize("form", ["difference", "blocks", "explode", "dyadic"])
def test_columns_keep_their_types_and_no_keys_are_keys(spark: SparkSession, form: str) -> None:
    made = cases("points", 20, 10)[:1]
    df = table(spark, made).where("`the key` = 'a'")
    partials = EXACT if form == "difference" else PARTIALS
    merged = merge_partials(df, [], partials, made[0].n, form)
    kept = {field.name: field.dataType for field in df.schema.fields}
    assert merged.columns[:2] == ["__i", "__n"]
    assert all(field.dataType == kept[field.name] for field in merged.schema.fields if field.name != "__i")
    wanted = {index: row for (_, key, index), row in made[0].windows().items() if key == "a"}
    for row in merged.collect():
        assert all(same(row[name], wanted[row["__i"]][name], name) for name in merged.columns[2:])
        del wanted[row["__i"]]
    assert not wanted


def sums(spark: SparkSession, rows: Sequence[tuple[int, int, int]]) -> DataFrame:
    filled = [(lo, hi, 1, value, 1) for lo, hi, value in rows]
    return spark.createDataFrame(filled, "__lo bigint, __hi bigint, __n bigint, s bigint, s__n bigint")


def test_difference_overflows_only_where_a_window_does(spark: SparkSession) -> None:
    big, total = 2**62 + 2**61, [PartialSum("s", "", LongType())]
    rows = [(0, 0, big), (0, 1, big), (0, 1, -big), (1, 2, big), (2, 3, -big), (3, 3, -(2**61)), (4, 4, -(2**63))]
    merged = merge_partials(sums(spark, rows), [], total, 2, "difference").collect()
    assert {row["__i"]: row["s"] for row in merged} == {0: big, 1: big, 2: 0, 3: -(2**63), 4: -(2**63)}
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        merge_partials(sums(spark, [(0, 1, big), (1, 2, big)]), [], total, 2, "difference").collect()


def test_a_form_that_does_not_fit_is_an_error(spark: SparkSession) -> None:
    df = sums(spark, [(0, 1, 1)])
    with pytest.raises(ValueError, match="s cannot be subtracted"):
        merge_partials(df, [], [PartialSum("s", "", DoubleType())], 2, "difference")
    with pytest.raises(ValueError, match="no form 'direct' for partials"):
        merge_partials(df, [], [PartialSum("s", "", LongType())], 2, "direct")


@pytest.mark.parametrize(
    ("shape", "n", "partials", "form"),
    [
        ("point", 1, PARTIALS, "direct"),
        ("point", 4, PARTIALS, "direct"),
        ("point", 24, PARTIALS, "explode"),
        ("point", 25, PARTIALS, "blocks"),
        ("point", 9, EXACT, "difference"),
        ("interval", 1, EXACT, "difference"),
        ("interval", 1, PARTIALS, "dyadic"),
    ],
)
def test_the_form_where_nothing_is_expected(shape: str, n: int, partials: Sequence[SparkPartial], form: str) -> None:
    assert choose_form(shape, n, partials).form == form
