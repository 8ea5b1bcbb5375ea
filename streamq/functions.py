"""Every function of ``pyspark.sql.functions`` under its own name, as a builder of expressions: ``f.upper("name")``.

Needs neither a SparkSession nor a JVM: PySpark's signatures say which arguments are columns. A string where PySpark
takes a column or its name becomes a column, so that plans know what is read; a format, a flag or a length stays as it
is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, sentence
from streamq.plan.hints import for_aggregate, for_function

if TYPE_CHECKING:
    from streamq.plan.expr import Call

Builder = Callable[..., "Call"]


class UnknownFunction(PlanError, AttributeError):
    """A name that is no function an expression can call; an AttributeError too, so that ``hasattr`` works."""


OURS = {
    "avg": "avg", "mean": "avg", "count": "count", "max": "max", "min": "min", "sum": "sum", "var_pop": "var_pop",
    "stddev_pop": "stddev_pop", "std": "stddev", "stddev": "stddev", "stddev_samp": "stddev", "variance": "var",
    "var_samp": "var", "array_agg": "collect", "collect_list": "collect", "corr": "corr", "count_distinct": "count_distinct",
    "covar_pop": "covar_pop", "covar_samp": "covar", "first": "first", "first_value": "first", "last": "last",
    "last_value": "last", "median": "median", "percentile": "percentile",
}  # fmt: skip
"""Spark's aggregates that streamq has, and streamq's names of them."""

AGGREGATES = frozenset(OURS) | frozenset({
    "any_value", "approx_count_distinct", "approx_percentile", "bit_and", "bit_or", "bit_xor",
    "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_set",
    "collect_union", "count_if", "count_min_sketch", "every", "grouping", "grouping_id", "histogram_numeric",
    "hll_sketch_agg", "hll_union_agg",
    "kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint",
    "kll_sketch_agg_double", "kll_sketch_agg_float", "kurtosis", "listagg",
    "listagg_distinct", "max_by", "min_by", "mode", "percentile_approx", "product",
    "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
    "regr_syy", "schema_of_variant_agg", "skewness", "some", "string_agg", "string_agg_distinct", "sum_distinct",
    "theta_intersection_agg", "theta_sketch_agg", "theta_union_agg", "try_avg", "try_sum",
    "tuple_intersection_agg_double", "tuple_intersection_agg_integer", "tuple_sketch_agg_double",
    "tuple_sketch_agg_integer", "tuple_union_agg_double", "tuple_union_agg_integer", "vector_avg", "vector_sum",
})  # fmt: skip
WINDOWED = frozenset({
    "counter_diff", "cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank",
    "row_number",
})  # fmt: skip
GENERATORS = frozenset({
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "stack",
})  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(("col", "column"), "Use sq.col, or s[name]."),
    "lit": "Use sq.lit.",
    "when": "Use sq.when.",
    **dict.fromkeys(
        ("window", "session_window", "window_time"), "Use the windows of a stream, as s.tumbling_window(...)."
    ),
    **dict.fromkeys(
        ("expr", "call_function", "call_udf", "udf", "pandas_udf", "arrow_udf", "udtf", "arrow_udtf"),
        "Make the Column with PySpark and pass that.",
    ),
    **dict.fromkeys(
        ("asc", "asc_nulls_first", "asc_nulls_last", "desc", "desc_nulls_first", "desc_nulls_last"),
        "Streams have no order but time.",
    ),
    **dict.fromkeys(("years", "months", "days", "hours", "bucket"), "It partitions tables and computes no value."),
    "broadcast": "It takes a DataFrame.",
}
"""What ``pyspark.sql.functions`` holds besides functions of a row's values."""

NAMING = frozenset({"arrays_zip", "struct"})
"""Functions that call the fields of their result after the columns they are given."""


@cache
def _names() -> tuple[str, ...]:
    from pyspark.sql import functions as F

    refused = AGGREGATES | WINDOWED | GENERATORS | _ELSEWHERE.keys()
    return tuple(sorted(n for n in F.__all__ if inspect.isfunction(getattr(F, n)) and n not in refused))


def __dir__() -> list[str]:
    return list(_names())


def __getattr__(name: str) -> Builder:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _builder(name)


@cache
def _builder(name: str) -> Builder:
    from pyspark.sql import functions as F

    verb = f"functions.{name}"
    if name in AGGREGATES:
        raise UnknownFunction(sentence(verb, "an aggregate is no function of one event", "", for_aggregate(f"{name}(")))
    if name in WINDOWED:
        raise UnknownFunction(
            sentence(verb, "a SQL window function is no function of one event", "", "Use the windows of a stream.")
        )
    if name in GENERATORS:
        raise UnknownFunction(
            sentence(verb, "it makes several rows of one", "", "Do it to the DataFrame the source is made from.")
        )
    if name in _ELSEWHERE:
        raise UnknownFunction(sentence(verb, "not a function of an event's values", "", _ELSEWHERE[name]))
    if name not in _names():
        hint = for_function(name, _names())
        raise UnknownFunction(sentence("functions", f"no function {name!r}", "looked in pyspark.sql.functions", hint))
    function = getattr(F, name)
    signature = inspect.signature(function)

    def build(*args: Any, **kwargs: Any) -> Call:
        from streamq.plan.expr import Call

        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise PlanError(sentence(verb, str(error), f"it is {name}({', '.join(signature.parameters)})")) from None
        found = _positional(verb, signature, bound)
        return Call(name, tuple(map(_named, found) if name in NAMING else found))

    build.__name__ = build.__qualname__ = name
    build.__doc__ = inspect.getdoc(function)
    build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def _named(given: Any) -> Any:
    """An argument that keeps its name whatever a rule writes in its place."""
    from streamq.plan.expr import Alias, Col, Lifetime, show

    match given:
        case Col(name=name):
            return Alias(given, name)
        case Lifetime():
            return Alias(given, show(given).removesuffix("()"))
    return given


def _positional(verb: str, signature: inspect.Signature, bound: inspect.BoundArguments) -> list[Any]:
    """The arguments in the order of the signature; what was skipped before a keyword argument has its default."""
    out: list[Any] = []
    given = 0
    for name, parameter in signature.parameters.items():
        kind = str(parameter.annotation)
        if name not in bound.arguments:
            out.append(parameter.default if parameter.kind is not parameter.VAR_POSITIONAL else None)
            continue
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            if len(value) == 1 and isinstance(value[0], list | tuple) and "Sequence" in kind:
                value = value[0]
            out.extend(_argument(verb, name, kind, v) for v in value)
        else:
            out.append(_argument(verb, name, kind, value))
        given = len(out)
    return out[:given]


def _argument(verb: str, name: str, kind: str, value: Any) -> Any:
    """One argument: an expression, or a plain value that a plan can hold as JSON."""
    from pyspark.sql.types import DataType

    from streamq.plan.expr import Col, Expr, Lit, as_expr, plain_value

    if isinstance(value, DataType):
        return value.json()
    value = plain_value(value)
    if callable(value) and not isinstance(value, Expr):
        shown = getattr(value, "__name__", type(value).__name__)
        hint = f"Pass a pyspark Column instead: pyspark.sql.{verb}(...)."
        raise PlanError(sentence(verb, "a Python function inside an expression", f"found {name}={shown}", hint))
    if isinstance(value, list | tuple | set | frozenset | dict):
        raise PlanError(sentence(verb, f"{name} is one value", f"found {value!r}", "Pass a pyspark Column instead."))
    if "ColumnOrName" in kind:
        if isinstance(value, str):
            return Col(value)
        plain = (value is None and "Optional" in kind) or (
            isinstance(value, int | float) and ("int" in kind or "float" in kind)
        )
        return value if plain and not isinstance(value, bool) else as_expr(value)
    if isinstance(value, str | int | float | bool) or value is None:
        # Only a Column is taken, as the field of extract(): the string is meant as a constant.
        return value if kind not in _COLUMN_ONLY else None if value is None else Lit(value)
    found = as_expr(value)
    if "Column" in kind or "Any" in kind:
        return found
    if isinstance(found, Lit) and isinstance(found.value, str | int | float | bool):
        return found.value
    raise PlanError(
        sentence(verb, f"{name} is a plain value in PySpark", f"found {value!r}", "Give a Python constant.")
    )


_COLUMN_ONLY = frozenset({
    "Column", "<class 'pyspark.sql.column.Column'>", "typing.Optional[pyspark.sql.column.Column]",
    "typing.Optional[ForwardRef('Column')]",
})  # fmt: skip

__all__ = ["AGGREGATES", "GENERATORS", "WINDOWED", "UnknownFunction"]
