"""Filters of lifetimes as filters of a table's time columns, which the scan of a batch can take.

A source computes ticks of its time columns, and through this Spark sees neither the folders of a partitioned table nor the
statistics of its files. So what a filter above a source asks of starts and ends is asked of the columns, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import Invalid
from streamq.functions.logic import EQUAL, GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, conjuncts
from streamq.operators.source import AS_END, AS_START, InsertSource
from streamq.plan.expr import Call, Expr, Lifetime, Lit
from streamq.plan.function import Function
from streamq.plan.schema import quote
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, instant_ticks

DAY = 86_400_000_000
"""The ticks of a day."""


@dataclass(frozen=True)
class Range:
    """The instants from ``first`` to ``last``, in ticks, both included."""

    first: int = MINUS_INFINITY
    last: int = INFINITY

    def __and__(self, other: Range) -> Range:
        return Range(max(self.first, other.first), min(self.last, other.last))


MIRRORED: Mapping[Function, Function] = {
    LESS: GREATER,
    GREATER: LESS,
    LESS_OR_EQUAL: GREATER_OR_EQUAL,
    GREATER_OR_EQUAL: LESS_OR_EQUAL,
    EQUAL: EQUAL,
}
"""Each comparison, and the one that holds with the operands in the other order."""


def lifetime_ranges(predicates: Iterable[Expr], axis: str) -> dict[str, Range]:
    """Return the range that comparisons with constants leave of each part of a lifetime, by its name, if all of them hold."""
    ranges: dict[str, Range] = {}
    for conjunct in chain.from_iterable(map(conjuncts, predicates)):
        match conjunct:
            case Call(function=function, args=(Lifetime(part=part), Lit(value=value))) if function in MIRRORED:
                sign = function
            case Call(function=function, args=(Lit(value=value), Lifetime(part=part))) if function in MIRRORED:
                sign = MIRRORED[function]
            case _:
                continue
        if isinstance(value, datetime if axis == TIMESTAMP else int) and not isinstance(value, bool):
            at = instant_ticks(value, axis)
            assert at is not None
            first = at if sign in (EQUAL, GREATER_OR_EQUAL) else at + 1 if sign == GREATER else MINUS_INFINITY
            last = at if sign in (EQUAL, LESS_OR_EQUAL) else at - 1 if sign == LESS else INFINITY
            ranges[part] = ranges.get(part, Range()) & Range(first, last)
    return ranges


def narrowed(source: InsertSource, table: DataFrame, predicates: Iterable[Expr]) -> DataFrame:
    """Return a source's table without rows that predicates on its events drop for their start or end; itself if they drop none.

    A missing end is NULL to a comparison, as in the query. Under ``invalid="fail"`` rows without a start stay, so that they fail;
    rows that are no events for another reason are looked for among those that stay. A source with ids is filtered by the start
    alone, as rows of an id and start meet.
    """
    kinds = {field.name: field.type for field in source.columns}
    ranges: Mapping[str, Range] = lifetime_ranges(predicates, source.schema.axis)
    for name, role in source.roles.items():
        part = {AS_START: "start", AS_END: "end"}.get(role)
        if part is None or part not in ranges or (part == "end" and source.ids):
            continue
        is_inside = _inside(F.col(quote(name)), kinds[name], ranges[part])
        if is_inside is not None:
            keeps_missing = part == "start" and source.policy.invalid_in(False) == Invalid.FAIL
            table = table.where(is_inside | F.col(quote(name)).isNull() if keeps_missing else is_inside)
    return table


def _inside(column: Column, kind: t.DataType, wanted: Range) -> Column | None:
    """Return the condition that a time column lies in a range; None if there is none, or none that Spark can write."""
    is_date = isinstance(kind, t.DateType)
    condition = None
    for at, is_first in ((wanted.first, True), (wanted.last, False)):
        if MINUS_INFINITY < at < INFINITY:
            bound = _instant(-(-at // DAY) if is_date and is_first else at // DAY if is_date else at, kind)
            if bound is None:
                continue
            side = column >= bound if is_first else column <= bound
            condition = side if condition is None else condition & side
    return condition


def _instant(at: int, kind: t.DataType) -> Column | None:
    """Return an instant as a constant of a time column's type: in ticks, for dates in days; None where Spark writes none."""
    if isinstance(kind, t.DateType):
        return F.expr(f"date_from_unix_date({at})") if abs(at) < 2**31 else None
    if isinstance(kind, t.TimestampType):
        return F.expr(f"timestamp_micros({at}L)")
    if isinstance(kind, t.TimestampNTZType):
        try:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=at)
        except OverflowError:
            return None
        return F.expr(f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ')}'")
    return F.lit(at)
