"""Expressions that convert timestamps and dates to ticks."""

from __future__ import annotations

from pyspark.sql import types as t

from streamq.functions.dates import EXTRACT, HOUR, MINUTE, UNIX_DATE, UNIX_MICROS
from streamq.plan.expr import Call, Cast, Expr, Lit


def instant_as_ticks(expr: Expr, kind: t.DataType) -> Expr:
    """Convert an expression of time type ``kind`` to ticks: microseconds since the epoch in UTC, in any session time zone.

    Integers are ticks already and become bigint.
    """
    if isinstance(kind, t.TimestampType):
        return Call(UNIX_MICROS, (expr,))
    if isinstance(kind, t.DateType):
        return Cast(Call(UNIX_DATE, (expr,)), t.LongType()) * 86_400_000_000
    if isinstance(kind, t.TimestampNTZType):
        days = Cast(Call(UNIX_DATE, (Cast(expr, t.DateType()),)), t.LongType())
        minutes = (days * 24 + Call(HOUR, (expr,))) * 60 + Call(MINUTE, (expr,))
        seconds = Call(EXTRACT, (Lit("SECOND"), expr))
        return minutes * 60_000_000 + Cast(seconds * 1_000_000, t.LongType())
    return Cast(expr, t.LongType())
