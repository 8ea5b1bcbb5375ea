"""Hints of error messages: the streamq form of names that Python, pandas or PySpark have and streamq has not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

from streamq.errors import nearest
from streamq.plan.spark_names import AGGREGATES, ELSEWHERE, EXACTLY, OURS, function_names

_OF_OTHER_NAMES = {
    "strip": "trim", "lstrip": "ltrim", "rstrip": "rtrim", "capitalize": "initcap", "title": "initcap", "casefold": "lower",
    "find": "instr", "index": "instr", "zfill": "lpad", "rjust": "lpad", "ljust": "rpad", "join": "concat_ws",
    "format": "format_string", "removeprefix": "regexp_replace", "removesuffix": "regexp_replace", "sub": "regexp_replace",
    "len": "length", "splitlines": "split", "match": "rlike", "strftime": "date_format", "isoformat": "date_format",
    "timestamp": "unix_seconds", "date": "to_date", "microsecond": "date_part", "total_seconds": "date_part",
    "substr": "substring", "fillna": "coalesce", "fill_null": "coalesce", "clip": "greatest", "append": "array_append",
    "keys": "map_keys", "values": "map_values", "items": "map_entries", "std": "stddev", "nunique": "count_distinct",
    "n_unique": "count_distinct", "quantile": "percentile", "withField": "struct",
    "dropFields": "struct", "tz_convert": "from_utc_timestamp",
}  # fmt: skip
"""Methods of strings, dates, pandas and PySpark, and the streamq function that does the same."""

_PARTS = "sq.functions.year(x), sq.functions.month(x), sq.functions.hour(x), ..."
INSTEAD = {
    "pmod": "(x % n + n) % n",
    **dict.fromkeys(("pow", "power"), "x * x, x * x * x, ... for whole powers"),
    "negate": "-x",
    "try_divide": "sq.when(y != 0, x / y)",
    "try_mod": "sq.when(y != 0, x % y)",
    **dict.fromkeys(("locate", "position"), "sq.functions.instr(x, part)"),
    "regexp_replace": "sq.functions.replace(x, part, by) for a plain text",
    **dict.fromkeys(("extract", "date_part", "datepart", "date_format"), _PARTS),
    "dateadd": "sq.functions.date_add(x, days)",
    "unix_timestamp": "sq.functions.unix_seconds(x)",
}
"""Functions that run on Spark alone, and an expression with the same value that also runs in-process."""

ON_SPARK = "start a session by sq.session(), and call to_df(), which runs on Spark"
"""Advice for a query over literal events or Arrow tables that needs Spark."""


def for_spark_alone(name: str) -> str:
    """Return the in-process replacement of a function that runs on Spark alone, and how to get a Spark session."""
    if name in INSTEAD:
        return f"Write {INSTEAD[name]}; or {ON_SPARK}."
    return f"{ON_SPARK[0].upper()}{ON_SPARK[1:]}; docs/expressions.md lists the functions that run in-process."


_TIME = "A stream's rows are ordered by time alone: sq.first and sq.last in a window's select go by it."
_EARLIER = "Other events are seen through a window, a join or a scan."
_OWN = 'Make it a function of expressions: sq.udf("double")(function)("v").'
_BITS = "Make the Column with PySpark and pass that."
_WRITE = {
    "str": "String functions are sq.functions.upper, sq.functions.trim, ...: there is no accessor.",
    "dt": "Functions of dates and times are sq.functions.year, sq.functions.hour, ...: there is no accessor.",
    "list": "Functions of arrays are sq.functions.array_contains, sq.functions.size, ...: there is no accessor.",
    **dict.fromkeys(("getItem", "getField", "get_item", "get_field"), "Write expression[key]."),
    **dict.fromkeys(("isna", "isnull", "is_none"), "Write .is_null()."),
    **dict.fromkeys(("notna", "notnull"), "Write .is_not_null()."),
    **dict.fromkeys(("is_in", "in_"), "Write .isin(...)."),
    **dict.fromkeys(("when", "otherwise"), "Begin with sq.when(condition, value)."),
    **dict.fromkeys(("apply", "map", "transform", "pipe"), _OWN),
    **dict.fromkeys(("over", "rolling", "expanding", "resample"), "Windows are a stream's, as s.tumbling_window(...)."),
    **dict.fromkeys(("shift", "diff", "cumsum", "pct_change", "lag", "lead", "rank"), _EARLIER),
    **dict.fromkeys(("asc", "desc", "asc_nulls_first", "asc_nulls_last", "desc_nulls_first", "desc_nulls_last"), _TIME),
    **dict.fromkeys(("bitwiseAND", "bitwiseOR", "bitwiseXOR"), _BITS),
    **dict.fromkeys(("sort_values", "sort", "sort_index"), _TIME),
}
"""Methods that no single function replaces, and what to write."""


def for_method(name: str, argument: str, methods: list[str]) -> str:
    """Return what to write instead of ``expression.name``; ``argument`` is the expression as code.

    ``methods``: those of expressions, among which the nearest is suggested; if none is near, the hint is about fields of structs.
    """
    if name in _WRITE:
        return _WRITE[name]
    wanted = _OF_OTHER_NAMES.get(name, name)
    if wanted in OURS:
        return f"Use sq.{OURS[wanted]}({argument}) in a window's select."
    functions_there = function_names()
    for function in (wanted, wanted.lower(), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", wanted).lower()):
        if function in functions_there:
            return f"Write sq.functions.{function}({argument}{', ...' if _takes_more(function) else ''})."
    return nearest(name, [*methods, *functions_there]) or f"A field of a struct is expression[{name!r}]."


def for_function(name: str, functions: Sequence[str]) -> str:
    """Return what to write instead of ``sq.functions.name``, which is none of ``functions``."""
    wanted = _OF_OTHER_NAMES.get(name)
    return f"Did you mean {wanted!r}?" if wanted in functions else nearest(name, functions)


_ROWS = "Rows are events without an order of their own: to_arrow() and to_pandas() give all of them, show(n) the first n by time."
_VERBS = {
    **dict.fromkeys(("head", "take", "limit", "collect", "tail", "sample", "iterrows", "toPandas", "to_list"), _ROWS),
    **dict.fromkeys(("sort", "orderBy", "order_by", "sort_values"), _ROWS),
    **dict.fromkeys(("withColumn", "assign"), "Write with_columns(name=expression)."),
    **dict.fromkeys(
        ("dropDuplicates", "drop_duplicates", "distinct"), "Rows delivered again are told by id= of the source."
    ),
    **dict.fromkeys(
        ("writeStream", "write", "start"), "Write run(sink=..., checkpoint=...), or to_stream().writeStream."
    ),
    **dict.fromkeys(
        ("window", "rolling", "resample"), "Windows are tumbling_window, hopping_window, session_window, ..."
    ),
}
"""Methods of DataFrames that a stream does not have, and what to write."""


def for_verb(name: str, verbs: Sequence[str]) -> str:
    """Return what to write instead of ``stream.name``, which is none of ``verbs``; "" if nothing is like it."""
    if name in _VERBS:
        return _VERBS[name]
    aggregate = "count" if name == "agg" else OURS.get(_OF_OTHER_NAMES.get(name, name))
    if name == "top_k":
        return "It is a window's: tumbling_window(...).top_k(...), of last rows snapshot_window().top_k(...)."
    if aggregate is not None:
        call = "count()" if aggregate == "count" else f"{aggregate}(...)"
        return f"Aggregates are a window's: tumbling_window(...).select(x=sq.{call})."
    return nearest(name, verbs)


_OF_MEMBERS = {
    **{name: name for name in (*OURS.values(), "time_weighted_avg")}, **OURS, **EXACTLY,
    "len": "count", "size": "count", "nunique": "count_distinct", "list": "collect", "set": "collect",
}  # fmt: skip
"""The names of aggregates in streamq, Spark, Python and pandas, each with streamq's name."""


def for_aggregate_of(name: str, value: object, columns: Sequence[str] = ()) -> str:
    """Return the aggregate to write as ``name=...`` instead of a text, a function, or pandas' ``("column", "sum")``.

    ``columns`` are those of the stream; if there are none, the hint is "" for a text that is no aggregate's name.
    """
    function, of = _named_aggregate(value)
    ours = _OF_MEMBERS.get(function)
    if ours == "count" and of in ("", "*", "1"):
        return f"Write {name}=sq.count()."
    if ours is not None:
        return f"Write {name}=sq.{ours}({repr(of) if of else '...'})."
    if not isinstance(value, str):
        return f"Write {name}=sq.count(), or another of sq's aggregates."
    of_column = f"{name}=sq.max({value!r}) or another aggregate of the column, " if value in columns else ""
    return f"Write {of_column}{name}=sq.lit({value!r}) for the text." if columns else ""


def _named_aggregate(value: object) -> tuple[str, str]:
    """Return the name of the aggregate that a text, a pair or a function stands for, and its argument; "" for what it lacks."""
    match value:
        case str():
            called = re.fullmatch(r"\s*(\w+)\s*\(\s*(.*?)\s*\)\s*", value)
            return (called[1].lower(), called[2]) if called else (value.lower(), "")
        case (str(of), str(function)):
            return function.lower(), of
    return getattr(value, "__name__", ""), ""


def for_name(name: str, public: Sequence[str]) -> str:
    """Return the message for ``sq.name``, which does not exist: it suggests a public name, or one of PySpark's."""
    ours = OURS.get(_OF_OTHER_NAMES.get(name, name))
    if name in EXACTLY:
        hint = f"Write sq.{EXACTLY[name]}(...), which is exact."
    elif ours is not None:
        hint = f"Write sq.{ours}(...)."
    elif name in function_names():
        hint = f"Write sq.functions.{name}(...)."
    else:
        hint = ELSEWHERE.get(name) or nearest(name, public)
    return f"streamq has no {name!r}{'. ' if hint else ''}{hint}"


def _takes_more(function: str) -> bool:
    """True if a function needs more than one argument."""
    from pyspark.sql import functions

    parameters = inspect.signature(getattr(functions, function)).parameters.values()
    return sum(p.default is p.empty for p in parameters) > 1


def for_aggregate(text: str) -> str:
    """Return what to write instead of an aggregating pyspark Column, judged by its text; "" if that shows no aggregate."""
    called = next((n for n in re.findall(r"\b([a-z_]+)\(", text) if n in AGGREGATES), None)
    if called is None:
        return ""
    if called in EXACTLY:
        return f"Use sq.{EXACTLY[called]}, which is exact, in a window's select."
    return f"Use sq.{OURS[called]} in a window's select." if called in OURS else _aggregates()


def _aggregates() -> str:
    return f"In a window's select there are {', '.join(f'sq.{n}' for n in sorted(set(OURS.values())))}."
