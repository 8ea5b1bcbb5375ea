"""The aggregates, defined a second time as SQL over all members of a window, without anything from the product's definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark.sql import types as t

from streamq.aggregates.basic import AVG, COUNT, FIRST, LAST, MAX, MIN, SUM
from streamq.aggregates.holistic import COLLECT, COUNT_DISTINCT, PERCENTILE, TIME_WEIGHTED_AVG, WINDOW_END, WINDOW_START
from streamq.aggregates.variances import CORR, COVAR, COVAR_POP, STDDEV, STDDEV_POP, VAR, VAR_POP
from streamq.plan.aggregate import AggregateFunction
from streamq.testing.oracle.values import floating, has_own_key, key, sql_type
from streamq.time import TIMESTAMP


class SumOverflow(Enum):
    """The sums of integers or decimals for which a query fails because they do not fit their type."""

    TOTAL = "those of all values of a window"
    ON_THE_WAY = "also those of its positive or of its negative values, because values may be added in any order"
    NONE = "none: a sum that does not fit is NULL"


@dataclass(frozen=True)
class Arguments:
    """The inputs of a definition: the columns of its arguments, their types, and the aggregate's options.

    For members that the aggregate's filter drops, the columns are NULL already; of two arguments both are NULL if one is.
    ``v`` is the first column, ``w`` the second. ``passes``: the filter as a FILTER clause, or "", for definitions
    that count NULLs, too; ``order``: the order of members; ``clip``: how lifetimes are cut; ``axis``: the time axis;
    ``overflow``: the sums that fail. SQL may also read the columns ``le``, ``re`` (not cut), ``w_le``, ``w_re`` and, if it
    declares so, the means of its arguments.
    """

    columns: Sequence[str]
    types: tuple[t.DataType, ...]
    options: tuple[Any, ...]
    passes: str
    order: str
    clip: str
    axis: str
    overflow: SumOverflow

    @property
    def v(self) -> str:
        """The column of the first argument."""
        return self.columns[0]

    @property
    def w(self) -> str:
        """The column of the second argument, if there is one, else of the first."""
        return self.columns[-1]


@dataclass(frozen=True)
class Oracle:
    """A definition; ``reads_means``: its SQL reads the group's means ``{v}_mean``, ``{w}_mean``."""

    sql: Callable[[Arguments], str]
    reads_means: bool = False


def _count(a: Arguments) -> str:
    return f"count({a.v})" if a.types else f"count(*) {a.passes}"


def _count_distinct(a: Arguments) -> str:
    keys = ", ".join(key(column, kind) for column, kind in zip(a.columns, a.types, strict=True))
    are_there = " AND ".join(f"{column} IS NOT NULL" for column in a.columns)
    return f"count(DISTINCT ROW({keys})) FILTER (WHERE {are_there})"


def _extreme(name: str) -> Callable[[Arguments], str]:
    """Return the definition of the least or greatest value in Spark's order; ``name`` is "min" or "max"."""

    def sql(a: Arguments) -> str:
        (kind,) = a.types
        return f"arg_{name}({a.v}, {key(a.v, kind)})" if has_own_key(kind) else f"{name}({a.v})"

    return sql


def sum_type(kind: t.DataType) -> t.DataType:
    """Return the type of a sum: ten digits more for a decimal, a bigint for integers, else a double."""
    if isinstance(kind, t.DecimalType):
        return t.DecimalType(min(kind.precision + 10, 38), kind.scale)
    return t.LongType() if isinstance(kind, t.IntegralType) else t.DoubleType()


def _sum(a: Arguments) -> str:
    """Return SQL of the sum, NULL for no values, that fails as ``a.overflow`` says; floats are summed as doubles."""
    (kind,), v = a.types, a.v
    if floating(kind):
        return f"sum(CAST({v} AS DOUBLE))"
    to = sql_type(sum_type(kind))
    match a.overflow:
        case SumOverflow.ON_THE_WAY:
            above, below = (f"coalesce(CAST(sum({v}) FILTER (WHERE {v} {sign} 0) AS {to}), 0)" for sign in "><")
            return f"CASE WHEN count({v}) > 0 THEN CAST({above} AS {to}) + CAST({below} AS {to}) END"
        case SumOverflow.NONE:
            return f"TRY_CAST({_exact_sum(v, kind)} AS {to})"
    return f"CAST({_exact_sum(v, kind)} AS {to})"


def _exact_sum(v: str, kind: t.DataType) -> str:
    """Return SQL of a sum of integers or decimals that may be wider than its type: a HUGEINT, or digits with a point."""
    if not isinstance(kind, t.DecimalType):
        return f"sum({v})"
    # a sum on the way may exceed even a HUGEINT, hence two halves
    half, unit = f"{10**19}::HUGEINT", _units(v)
    high, low = f"sum({unit} // {half})", f"sum({unit} % {half})"
    whole = _digits(f"({high} * {half} + {low})", kind.scale)
    return f"CASE WHEN abs({high}) > {half} THEN repeat('9', 40) ELSE {whole} END"


def _units(v: str) -> str:
    """Return SQL of a decimal as a HUGEINT, in units of its last digit."""
    return f"CAST(replace(CAST({v} AS VARCHAR), '.', '') AS HUGEINT)"


def _digits(units: str, scale: int) -> str:
    """Return SQL of the text of a decimal, from a HUGEINT in units of the last of its digits after the point."""
    one = f"{10**scale}::HUGEINT"
    after = f"lpad(CAST(abs({units}) % {one} AS VARCHAR), {scale}, '0')"
    return f"CASE WHEN {units} < 0 THEN '-' ELSE '' END || (abs({units}) // {one}) || '.' || {after}"


def _avg(a: Arguments) -> str:
    (kind,) = a.types
    return _decimal_mean(a.v, kind) if isinstance(kind, t.DecimalType) else f"avg(CAST({a.v} AS DOUBLE))"


def _decimal_mean(v: str, kind: t.DecimalType) -> str:
    """Return SQL of the exact mean with four more digits, at most 38, rounded half away from 0, in units of the last digit."""
    precision, scale = min(38, kind.precision + 4), min(38, kind.scale + 4)
    units = _units(f"sum({v})")
    n, finer = f"nullif(count({v}), 0)", 10 ** (scale - kind.scale)
    rounded = f"(abs({units}) // {n} * {finer} + (2 * {finer} * (abs({units}) % {n}) + {n}) // (2 * {n}))"
    return f"CAST({_digits(f'sign({units})::HUGEINT * {rounded}', scale)} AS DECIMAL({precision}, {scale}))"


def _products(v: str, w: str) -> str:
    """Return SQL of the sum of the products of deviations from the means."""
    return f"sum((CAST({v} AS DOUBLE) - {v}_mean) * (CAST({w} AS DOUBLE) - {w}_mean))"


def _deviation(root: str = "", *, is_sample: bool) -> Callable[[Arguments], str]:
    """Return the definition of a variance or a covariance, or of its root by the function ``root``.

    It is NULL for no members or, of a sample, for one.
    """

    def sql(a: Arguments) -> str:
        n = f"count({a.v})"
        return f"CASE WHEN {n} > {int(is_sample)} THEN {root}({_products(a.v, a.w)} / ({n} - {int(is_sample)})) END"

    return sql


def _correlation(a: Arguments) -> str:
    """Return SQL of the correlation, NULL for fewer than two pairs and if an argument has no deviations.

    The query fails if the product of the deviations is rounded to 0.
    """
    xx, yy = _products(a.v, a.v), _products(a.w, a.w)
    spread = f"sqrt({xx} * {yy})"
    small = f"WHEN {spread} = 0 THEN error('division by zero')"
    none = f"count({a.v}) < 2 OR {xx} = 0 OR {yy} = 0"
    return f"CASE WHEN {none} THEN NULL {small} ELSE {_products(a.v, a.w)} / {spread} END"


def _outermost(name: str) -> Callable[[Arguments], str]:
    return lambda a: f"{name}({a.v} ORDER BY {a.order}) {a.passes}"


def _collect(a: Arguments) -> str:
    return f"coalesce(list({a.v} ORDER BY {a.order}) FILTER (WHERE {a.v} IS NOT NULL), [])"


def _percentile(args: Arguments) -> str:
    """Return SQL of Spark's percentile: ``a + (b - a) * share`` of the two nearest values, also if they are infinite.

    Two equal ones are the result themselves; NULL for no values.
    """
    v, fraction = args.v, float(args.options[0])
    ordered = f"list(CAST({v} AS DOUBLE) ORDER BY {v}) FILTER (WHERE {v} IS NOT NULL)"
    place = f"((count({v}) - 1) * CAST('{fraction!r}' AS DOUBLE))"
    a, b = (f"({ordered})[CAST({side}({place}) AS BIGINT) + 1]" for side in ("floor", "ceil"))
    return f"CASE WHEN {a} = {b} THEN {a} ELSE {a} + ({b} - {a}) * ({place} - floor({place})) END"


def _time_weighted_avg(a: Arguments) -> str:
    """Return SQL of the sum of values times their lifetimes, clipped as ``clip`` says, divided by the window's whole length.

    An instant without a value counts as 0; NULL if no member has a value.
    """
    start = "greatest(le, w_le)" if a.clip in ("full", "left") else "le"
    end = "least(re, w_re)" if a.clip in ("full", "right") else "re"
    lasts = f"greatest(CAST({end} AS DOUBLE) - CAST({start} AS DOUBLE), 0)"
    length = "(CAST(any_value(w_re) AS DOUBLE) - CAST(any_value(w_le) AS DOUBLE))"
    return f"sum(CAST({a.v} AS DOUBLE) * {lasts}) / {length}"


def _bound(at: str) -> Callable[[Arguments], str]:
    return lambda a: f"make_timestamp({at})" if a.axis == TIMESTAMP else at


ORACLE_OF: Mapping[AggregateFunction, Oracle] = {
    COUNT: Oracle(_count),
    COUNT_DISTINCT: Oracle(_count_distinct),
    MIN: Oracle(_extreme("min")),
    MAX: Oracle(_extreme("max")),
    SUM: Oracle(_sum),
    AVG: Oracle(_avg),
    VAR: Oracle(_deviation(is_sample=True), reads_means=True),
    VAR_POP: Oracle(_deviation(is_sample=False), reads_means=True),
    STDDEV: Oracle(_deviation("sqrt", is_sample=True), reads_means=True),
    STDDEV_POP: Oracle(_deviation("sqrt", is_sample=False), reads_means=True),
    COVAR: Oracle(_deviation(is_sample=True), reads_means=True),
    COVAR_POP: Oracle(_deviation(is_sample=False), reads_means=True),
    CORR: Oracle(_correlation, reads_means=True),
    FIRST: Oracle(_outermost("first")),
    LAST: Oracle(_outermost("last")),
    COLLECT: Oracle(_collect),
    PERCENTILE: Oracle(_percentile),
    TIME_WEIGHTED_AVG: Oracle(_time_weighted_avg),
    WINDOW_START: Oracle(_bound("w_le")),
    WINDOW_END: Oracle(_bound("w_re")),
}
"""The definition of each built-in aggregate."""
