"""The names in pyspark.sql.functions: those that are functions of a row's values, and what the others are."""

from __future__ import annotations

import inspect
from functools import cache

OURS = {
    "avg": "avg", "mean": "avg", "count": "count", "max": "max", "min": "min", "sum": "sum", "var_pop": "var_pop",
    "stddev_pop": "stddev_pop", "std": "stddev", "stddev": "stddev", "stddev_samp": "stddev", "variance": "var",
    "var_samp": "var", "array_agg": "collect", "collect_list": "collect", "corr": "corr", "count_distinct": "count_distinct",
    "covar_pop": "covar_pop", "covar_samp": "covar", "first": "first", "first_value": "first", "last": "last",
    "last_value": "last", "median": "median", "percentile": "percentile",
}  # fmt: skip
"""Spark's aggregates that streamq has too, with streamq's names."""

EXACTLY = {
    **dict.fromkeys(("approx_percentile", "percentile_approx"), "percentile"),
    **{f"kll_sketch_agg_{kind}": "percentile" for kind in ("bigint", "double", "float")},
    **dict.fromkeys(("approx_count_distinct", "hll_sketch_agg", "theta_sketch_agg"), "count_distinct"),
}  # fmt: skip
"""Spark's aggregates that estimate a result, or keep a sketch of it, with streamq's that compute it."""

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
ELSEWHERE = {
    **dict.fromkeys(("col", "column"), "Use sq.col, or s[name]."),
    "lit": "Use sq.lit.",
    "when": "Use sq.when.",
    **dict.fromkeys(
        ("window", "session_window", "window_time"), "Use the windows of a stream, as s.tumbling_window(...)."
    ),
    **dict.fromkeys(
        ("expr", "call_function", "call_udf", "udtf", "arrow_udtf"), "Make the Column with PySpark and pass that."
    ),
    **dict.fromkeys(("udf", "pandas_udf", "arrow_udf"), 'Write @sq.udf("double") above the function.'),
    **dict.fromkeys(
        ("asc", "asc_nulls_first", "asc_nulls_last", "desc", "desc_nulls_first", "desc_nulls_last"),
        "Streams have no order but time.",
    ),
    **dict.fromkeys(("years", "months", "days", "hours", "bucket"), "It partitions tables and computes no value."),
    "broadcast": "It takes a DataFrame.",
}
"""The names in ``pyspark.sql.functions`` that are not functions of a row's values."""


@cache
def function_names() -> tuple[str, ...]:
    """Return the names of the functions of a row's values."""
    from pyspark.sql import functions as F

    refused = AGGREGATES | WINDOWED | GENERATORS | ELSEWHERE.keys()
    return tuple(sorted(n for n in F.__all__ if inspect.isfunction(getattr(F, n)) and n not in refused))
