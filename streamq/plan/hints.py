"""Hints of error messages: the streamq form of names that Python, pandas or PySpark have and streamq has not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import functions

from streamq.errors import nearest
from streamq.plan.first_attempts import OF_EXPRESSIONS, OF_MODULE, OF_STREAMS, OF_WINDOWS, SAME_FUNCTION, Instead
from streamq.plan.spark_types import AGGREGATES, ELSEWHERE, EXACTLY, OURS, WINDOWED, function_names
from streamq.time import TIMESTAMP, length

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


def for_method(name: str, argument: str, methods: list[str]) -> str:
    """Return what to write instead of ``expression.name``; ``argument`` is the expression as code.

    ``methods``: those of expressions, among which the nearest is suggested; if none is near, the hint is about fields of structs.
    """
    if name in OF_EXPRESSIONS:
        column = f"sq.col({argument})" if argument.startswith('"') else argument
        code, remark = OF_EXPRESSIONS[name]
        return str(Instead(code.format(argument=argument, column=column), remark))
    wanted = SAME_FUNCTION.get(name, name)
    if wanted in OURS:
        return f"Use sq.{OURS[wanted]}({argument}) in a window's select."
    functions_there = function_names()
    for function in (wanted, wanted.lower(), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", wanted).lower()):
        if function in functions_there:
            return f"Write sq.functions.{function}({argument}{', ...' if _takes_more(function) else ''})."
    return nearest(name, [*methods, *functions_there]) or f"A field of a struct is expression[{name!r}]."


def for_function(name: str, functions: Sequence[str]) -> str:
    """Return what to write instead of ``sq.functions.name``; ``functions`` are those there are.

    The name is none of them: of no function at all, or of one of Spark's that does not go by a single event.
    """
    wanted = SAME_FUNCTION.get(name)
    if wanted in functions:
        return f"Did you mean {wanted!r}?"
    if name in WINDOWED:
        return _written(name, OF_STREAMS) or "Other events are seen through a window, a join or a scan."
    if name not in AGGREGATES and name in OF_STREAMS:
        return str(OF_STREAMS[name])
    return for_aggregate(f"{wanted or name}(") or nearest(name, functions)


def for_verb(name: str, verbs: Sequence[str], axis: str = TIMESTAMP) -> str:
    """Return what to write instead of ``stream.name``, which is none of ``verbs``; "" if nothing is like it."""
    return on_axis(_of_aggregate(name) or _written(name, OF_STREAMS), axis) or nearest(name, verbs)


def for_window(name: str, axis: str = TIMESTAMP) -> str:
    """Return what to write instead of ``name`` of a window or a group, which lacks it; "" for a verb of streams."""
    return on_axis(_of_aggregate(name) or _written(name, OF_WINDOWS, OF_STREAMS), axis)


def for_item(key: object, columns: Sequence[str]) -> str:
    """Return what to write instead of ``stream[key]``, where ``key`` is no name of a column."""
    if isinstance(key, list | tuple) and key and all(isinstance(name, str) for name in key):
        return f"Write s.select({', '.join(map(repr, key))})."
    if isinstance(key, int | slice):
        return f"Rows have no numbers. {OF_STREAMS['head']}"
    return f"Write s.where(sq.col({columns[0]!r}) > 0)." if columns else "Write s.where(sq.start() > 0)."


def for_group(keys: Sequence[str], axis: str) -> str:
    """Return how to write the select of a group that has no window."""
    grouped = f"s.group_by({', '.join(map(repr, keys))})"
    code = f'{grouped}.tumbling_window("10 minutes").select(n=sq.count())'
    return on_axis(f"Write {code}, for results of windows {grouped}.per_window().select(...).", axis)


def on_axis(hint: str, axis: str) -> str:
    """Return a hint for a time axis: on that of integers its durations are ticks, one for each minute, at least one.

    >>> on_axis('Write s.tumbling_window("10 minutes 1 microsecond").', "integer")
    'Write s.tumbling_window(11).'
    """
    return hint if axis == TIMESTAMP else _DURATION.sub(lambda text: str(-(-length(text[1]) // 60_000_000)), hint)


_DURATION = re.compile(r'"(\d+ (?:microsecond|second|minute|hour|day)[^"]*)"')


def _written(name: str, *tables: Mapping[str, Instead]) -> str:
    """Return the hint of the first of some tables that has a name; "" if none has it."""
    return next((str(table[name]) for table in tables if name in table), "")


def _of_aggregate(name: str) -> str:
    """Return how a window's select has an aggregate that other systems have as a method; "" for any other name."""
    aggregate = "count" if name == "agg" else OURS.get(SAME_FUNCTION.get(name, name), EXACTLY.get(name))
    if aggregate is None or name in OF_STREAMS:
        return ""
    others = {"count": "", "percentile": '"v", 0.5', **dict.fromkeys(("corr", "covar", "covar_pop"), '"v", "v"')}
    arguments = others.get(aggregate, '"v"')
    remark = "Aggregates are a window's."
    return str(Instead(f's.tumbling_window("10 minutes").select(x=sq.{aggregate}({arguments}))', remark))


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
    ours = OURS.get(SAME_FUNCTION.get(name, name))
    if name in EXACTLY:
        hint = f"Write sq.{EXACTLY[name]}(...), which is exact."
    elif ours is not None:
        hint = f"Write sq.{ours}(...)."
    elif (function := SAME_FUNCTION.get(name, name)) in function_names() and name not in OF_MODULE:
        hint = f"Write sq.functions.{function}(...)."
    else:
        hint = _written(name, OF_MODULE, OF_STREAMS) or ELSEWHERE.get(name) or nearest(name, public)
    return f"streamq has no {name!r}{'. ' if hint else ''}{hint}"


def _takes_more(function: str) -> bool:
    """True if a function needs more than one argument."""
    parameters = inspect.signature(getattr(functions, function)).parameters.values()
    return sum(p.default is p.empty for p in parameters) > 1


def for_aggregate(text: str) -> str:
    """Return what to write instead of an aggregating pyspark Column, judged by its text; "" if that shows no aggregate."""
    called = next((n for n in re.findall(r"\b([a-z_0-9]+)\(", text) if n in AGGREGATES), None)
    if called is None:
        return ""
    if called in OF_MODULE or called in OF_STREAMS:
        return _written(called, OF_MODULE, OF_STREAMS)
    if called in EXACTLY:
        return f"Use sq.{EXACTLY[called]}, which is exact, in a window's select."
    return f"Use sq.{OURS[called]} in a window's select." if called in OURS else _aggregates()


def _aggregates() -> str:
    return f"In a window's select there are {', '.join(f'sq.{n}' for n in sorted(set(OURS.values())))}."
