"""Hints of error messages: the streamq form of names that Python, pandas, PySpark, Polars and Flink have and streamq has not.

The tables have the names that their users try first, each with the code to write here. In the code ``s``, ``a`` and ``b`` are
streams with a key ``k`` and a value (``v``, in ``b`` ``w``), ``t`` is a table, and ``function`` is the user's own. All of it
runs as it stands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import functions

from streamq.errors import nearest
from streamq.plan.spark_types import AGGREGATES, ELSEWHERE, EXACTLY, OURS, WINDOWED, function_names
from streamq.time import TIMESTAMP, length


class Instead(NamedTuple):
    """Code to write instead of a name, and what to know besides; either may be empty."""

    code: str
    remark: str = ""

    def __str__(self) -> str:
        return " ".join([f"Write {self.code}."] * bool(self.code) + [self.remark] * bool(self.remark))


def _entries(code: str, names: str, remark: str = "") -> dict[str, Instead]:
    """Return the same for each of the names, which are separated by spaces."""
    return dict.fromkeys(names.split(), Instead(code, remark))


_UNORDERED = (
    "Rows are events without an order of their own: show(n) has the first n by time, to_arrow() and to_pandas() all."
)
_ROWS_OUT = {
    **_entries("s.show(5)", "head tail take limit first last sample fetch slice offset nth print", _UNORDERED),
    **_entries("s.to_pandas()", "toPandas to_frame to_dataframe iterrows itertuples to_numpy"),
    **_entries("s.to_arrow()", "to_polars toArrow collect_batches", "polars.from_arrow takes it."),
    **_entries("s.to_arrow().to_pylist()", "collect to_list to_dict to_dicts rows iter_rows toLocalIterator execute_and_collect"),
    **_entries("s.to_arrow().num_rows", "shape size height isEmpty is_empty empty"),
    **_entries('s.to_pandas().sort_values("v")', "sort orderBy order_by sort_values sort_by sort_index sortWithinPartitions",
            "A stream has no order but time; s.show(n) has the first n by time."),
    **_entries('s.to_pandas().to_csv("rows.csv")', "to_csv to_excel to_sql to_html to_string to_markdown write_csv"),
    **_entries('s.to_pandas().to_parquet("rows.parquet")', "to_parquet write_parquet"),
    **_entries("s.schema", "printSchema print_schema dtypes info"),
    **_entries('s.tumbling_window("1 hour").select(n=sq.count(), least=sq.min("v"), mean=sq.avg("v"), most=sq.max("v"))',
            "describe summary"),
    **_entries('s.run(sink="out", checkpoint="checkpoint")',
            "writeStream write writeTo start execute execute_insert insert_into insertInto sink_parquet sink_csv sinkTo sink_to "
            "add_sink addSink saveAsTable toTable to_table", "A DataFrame for a writeStream of your own is s.to_stream()."),
    **_entries('s.run(sink=function, checkpoint="checkpoint")', "foreach foreachBatch foreach_batch"),
    **_entries('s.run(sink="out", checkpoint="checkpoint", late_sink="late")',
            "sideOutputLateData side_output_late_data get_side_output getSideOutput"),
    **_entries("s.to_df()", "createOrReplaceTempView createTempView create_temporary_view registerTempTable rdd",
            "It is a DataFrame of Spark's."),
}  # fmt: skip

_COLUMNS = {
    **_entries('s.with_columns(x=sq.col("v") * 2)',
            "withColumn withColumns with_column assign mutate add_columns addColumns add_or_replace_columns eval insert"),
    **_entries('s.rename(v="x")', "withColumnRenamed withColumnsRenamed rename_columns renameColumns toDF set_axis"),
    **_entries('s.select("k", "v")', "selectExpr sql sql_query get select_dtypes project", "Computed columns are x=expression."),
    **_entries('s.where(sq.col("v") > 0)', "query loc iloc mask having"),
    **_entries('s.where(sq.col("v").is_not_null())', "dropna drop_nulls dropNulls na notna"),
    **_entries('s.with_columns(v=sq.functions.coalesce("v", sq.lit(0)))', "fillna fill_null fill_nan"),
    **_entries('s.to_signal("k")', "ffill bfill pad forward_fill interpolate", "So a value holds until the next one of its key."),
    **_entries('s.with_columns(v=sq.when(sq.col("v") == 1, 0).otherwise(sq.col("v")))', "replace replace_strict case"),
    **_entries('s.with_columns(v=sq.col("v").cast("double"))', "astype cast"),
    **_entries('s.with_columns(x=sq.udf("bigint")(function)("v"))',
            "map apply applymap map_elements map_rows map_batches mapPartitions mapInPandas mapInArrow"),
    **_entries("s.pipe(lambda s: s.where(sq.col('v') > 0))", "transform"),
    **_entries('s.explode("xs")', "flatMap flat_map flatten unnest join_lateral joinLateral melt unpivot explode_outer"),
}  # fmt: skip

_JOINS = {
    **_entries('s.join(b, on="k")', "merge inner_join innerJoin cogroup coGroup connect"),
    **_entries('s.join(b, on="k", how="left")', "left_join leftJoin left_outer_join leftOuterJoin"),
    **_entries('b.join(s, on="k", how="left")', "right_join rightJoin right_outer_join rightOuterJoin"),
    **_entries('s.join(b, on="k", how="left")', "full_join fullJoin outer_join full_outer_join fullOuterJoin",
            'No join keeps what is alone on both sides: b.left_anti_join(s, on="k") has the rest, for a union.'),
    **_entries('s.join(b, on="k", how="semi")', "semi_join semiJoin left_semi_join"),
    **_entries('s.left_anti_join(b, on="k")', "anti_join antiJoin"),
    **_entries('s.join(b.select("w"))', "cross_join crossJoin cross"),
    **_entries('s.join(b.to_signal("k"), on="k")', "asof_join join_asof joinAsOf merge_asof merge_ordered temporal_join"),
    **_entries('s.set_duration("5 minutes 1 microsecond").join(b, on="k")',
            "interval_join intervalJoin join_where window_join join_within"),
    **_entries('s.join_table(t.select(["k"]), on="k")', "lookup lookup_join broadcast_join map_join"),
    **_entries("s.union(a)", "unionAll union_all unionByName concat append vstack"),
    **_entries('s.join(a, on=["k", "v"], how="semi", suffixes=("", "_a"))', "intersect intersectAll intersect_all"),
    **_entries("s.except_(a)", "subtract minus minus_all exceptAll except_all difference"),
}  # fmt: skip

_WINDOWS = {
    **_entries('s.tumbling_window("10 minutes").select(n=sq.count())',
            "window Window resample tumble Tumble tumbling time_window upsample asfreq TumblingEventTimeWindows",
            "Windows are tumbling_window, hopping_window, sliding_window, session_window, snapshot_window, ..."),
    **_entries('s.hopping_window("1 hour", "10 minutes").select(n=sq.count())',
            "hop Hop hopping slide Slide SlidingEventTimeWindows group_by_dynamic groupby_dynamic"),
    **_entries('s.sliding_window("10 minutes").select(total=sq.sum("v"))', "rolling moving rolling_sum rolling_mean",
            "Of the last three rows: s.rows_window(3)."),
    **_entries('s.join(s.group_by("k").sliding_window("10 minutes 1 microsecond").select(total=sq.sum("v")), on="k")',
            "over Over"),
    **_entries('s.session_window("5 minutes").select(n=sq.count())', "session Session sessionize EventTimeSessionWindows"),
    **_entries('s.landmark_window("10 minutes", period="1 day").select(total=sq.sum("v"))',
            "cumulate Cumulate expanding cumsum cum_sum cumcount cum_count cummax cum_max cummin cum_min",
            "A result a row is a scan's."),
    **_entries("s.rows_window(3).select(n=sq.count())", "countWindow count_window_all window_all windowAll"),
    **_entries('s.rows_window(2).select(v=sq.last("v"), before=sq.first("v"))', "lag lead diff pct_change",
            "Other events are seen through a window, a join or a scan."),
    **_entries('s.tumbling_window("10 minutes").top_k(3, by="v")',
            "top_k topk top nlargest nsmallest rank row_number dense_rank ntile percent_rank cume_dist nth_value max_by min_by "
            "arg_max arg_min argmax argmin idxmax idxmin bottom_k",
            "Of the last 100 rows: s.last_rows(100).snapshot_window().top_k(3, by=\"v\")."),
    **_entries('s.group_by("v").tumbling_window("10 minutes").select(n=sq.count()).per_window().top_k(1, by="n")', "mode"),
    **_entries('s.group_by("v").tumbling_window("10 minutes").select(n=sq.count())', "value_counts"),
    **_entries('s.group_by("k").tumbling_window("10 minutes").select(n=sq.count())',
            "groupBy groupby key_by keyBy partition_by partitionBy rollup cube"),
    **_entries('s.tumbling_window("10 minutes").select(a=sq.sum("v", where=sq.col("k") == "a"))', "pivot pivot_table crosstab",
            "A column each."),
    **_entries('s.distinct_ids("10 minutes", id="k")',
            "distinct unique dropDuplicates drop_duplicates duplicated is_duplicated dedup deduplicate "
            "dropDuplicatesWithinWatermark", "Rows that a source delivers twice are one by id= of the source."),
    **_entries('s.group_by("k").scan(sq.udso("n bigint", initial=0)(lambda n, v: (n + 1, [n + 1]))("v"))',
            "process process_function transformWithState transformWithStateInPandas applyInPandasWithState mapGroupsWithState "
            "flatMapGroupsWithState ewm ewm_mean fold ProcessFunction KeyedProcessFunction StatefulProcessor"),
    **_entries('sq.sequence(s.alias("a"), b.alias("b"), within="10 minutes")', "match_recognize detect pattern Pattern CEP"),
}  # fmt: skip

_PROGRESS = {
    **_entries('sq.points(t, time="ts", progress=sq.generate("10 minutes"))',
            "withWatermark with_watermark assignTimestampsAndWatermarks assign_timestamps_and_watermarks allowed_lateness "
            "allowedLateness WatermarkStrategy watermark Watermark"),
    **_entries("", "cache persist unpersist checkpoint repartition coalesce rebalance rescale broadcast hint localCheckpoint",
            "Leave it out: what is used twice is computed once, and the state's partitions are buckets= of run."),
}  # fmt: skip


OF_STREAMS = {**_ROWS_OUT, **_COLUMNS, **_JOINS, **_WINDOWS, **_PROGRESS}
"""Methods of DataFrames, of Flink's tables and streams, and of what they group."""

OF_WINDOWS = {
    **_entries('s.tumbling_window("10 minutes").select(x=sq.uda("double")(function)("v"))',
            "apply aggregate reduce process map transform pipe applyInPandas apply_in_pandas"),
    **_entries('s.tumbling_window("10 minutes").select(first=sq.first("v"), last=sq.last("v"))', "head tail"),
}  # fmt: skip
"""Methods of pandas', PySpark's and Flink's windows and groups, where they differ from those of streams."""

OF_MODULE = {
    **_entries('sq.points(sq.files("rows/"), time="ts")',
            "read_parquet scan_parquet from_parquet readStream read_stream read scan from_path read_table"),
    **_entries('sq.points(sq.files("rows.csv", format="csv", schema="ts timestamp, v double"), time="ts")',
            "read_csv scan_csv from_csv"),
    **_entries('sq.points(sq.files("rows/", format="json", schema="ts timestamp, v double"), time="ts")',
            "read_json scan_ndjson read_ndjson"),
    **_entries('sq.points(t, time="ts")',
            "from_arrow from_dataframe from_polars createDataFrame DataFrame LazyFrame Table from_table from_data_stream source"),
    **_entries('sq.points(df, time="ts")', "from_pandas"),
    **_entries('sq.events([(1, 5, {"k": "a", "v": 3})])',
            "from_dict from_dicts from_records from_rows from_list from_elements from_collection fromElements fromCollection"),
    **_entries('s.where(sq.col("v") > 0).select("k", "v")', "sql sql_query execute_sql sqlQuery SQLContext",
            "There is no SQL; the language of patterns is sq.cedr(text)."),
    **_entries("sq.session()", "SparkSession builder getOrCreate StreamExecutionEnvironment TableEnvironment "
            "StreamTableEnvironment get_execution_environment create"),
    **_entries('sq.functions.upper("k")', "F fn funcs expr", "Functions of values are in sq.functions."),
    **_entries('sq.generate("10 minutes")', "for_bounded_out_of_orderness forBoundedOutOfOrderness for_monotonous_timestamps"),
    **_entries('sq.count(where=sq.col("v") > 0)', "count_if countIf"),
    **_entries('sq.functions.array_distinct(sq.collect("v"))', "collect_set set_agg"),
    **_entries('sq.uda("double")(function)("v")', "udaf pandas_udaf AggregateFunction Aggregator"),
    **_entries('sq.udf("double")(function)("v")', "pandas_udf arrow_udf ScalarFunction"),
    **_entries('s.tumbling_window("10 minutes").select(sq.udo("x double")(function)("v"))', "udtf TableFunction"),
}  # fmt: skip
"""Functions and classes of other packages' first level."""

_EARLIER = OF_STREAMS["lag"]
OF_EXPRESSIONS = {
    **_entries("sq.functions.coalesce({argument}, sq.lit(0))", "fillna fill_null fill_nan ifnull"),
    **_entries("{column}[0]", "getItem getField get_item get_field"),
    **_entries("{column}.is_null()", "isna isnull is_none"),
    **_entries("{column}.is_not_null()", "notna notnull is_not_none"),
    **_entries("{column}.isin([1, 2])", "is_in in_"),
    **_entries("~{column}.isin([1, 2])", "not_in is_not_in"),
    **_entries("{column}.between(1, 2)", "is_between"),
    **_entries("{column} == 1", "eq equals equalTo"),
    **_entries("{column} != 1", "ne neq not_equal"),
    **_entries("{column} > 1", "gt"), **_entries("{column} >= 1", "ge"),
    **_entries("{column} < 1", "lt"), **_entries("{column} <= 1", "le"),
    **_entries("{column} + 1", "add plus"), **_entries("{column} - 1", "sub minus"), **_entries("{column} * 2", "mul times"),
    **_entries("{column} / 2", "div truediv"),
    **_entries("sq.when({column} > 1, 1).otherwise(0)", "when otherwise"),
    **_entries('sq.udf("double")(function)({argument})', "apply map transform pipe map_elements map_batches"),
    **_entries('sq.sum("v", where=sq.col("v") > 0)', "filter", "An aggregate's filter is where=, a stream's is s.where(...)."),
    **{name: OF_STREAMS[name] for name in ("over", "rolling", "expanding", "resample", "cumsum", "cum_sum", "cumcount", "ewm",
                                           "lag", "lead", "diff", "pct_change", "rank", "mode", "max_by", "min_by", "arg_max",
                                           "arg_min", "top_k", "value_counts", "unique", "ffill", "explode_outer", "pivot")},
    "explode": OF_STREAMS["flatten"], "shift": _EARLIER,
    **_entries("s.show(5)",
            "asc desc asc_nulls_first asc_nulls_last desc_nulls_first desc_nulls_last sort_values sort sort_index",
            "A stream's rows are ordered by time alone: sq.first and sq.last in a window's select go by it."),
    **_entries("", "bitwiseAND bitwiseOR bitwiseXOR", "Make the Column with PySpark and pass that."),
    **_entries("sq.functions.upper({argument})", "str", "There is no accessor: those of texts are sq.functions.upper, trim, ..."),
    **_entries("sq.functions.hour({argument})", "dt", "There is no accessor: those of times are sq.functions.year, hour, ..."),
    **_entries("sq.functions.size({argument})", "list arr", "There is no accessor: those of arrays are sq.functions.size, ..."),
}  # fmt: skip
"""Methods of columns; ``{argument}`` and ``{column}`` stand for the column, as an argument of a function and by itself."""

SAME_FUNCTION = {
    "strip": "trim", "lstrip": "ltrim", "rstrip": "rtrim", "capitalize": "initcap", "title": "initcap", "casefold": "lower",
    "find": "instr", "index": "instr", "zfill": "lpad", "rjust": "lpad", "ljust": "rpad", "join": "concat_ws",
    "format": "format_string", "removeprefix": "regexp_replace", "removesuffix": "regexp_replace", "sub": "regexp_replace",
    "len": "length", "splitlines": "split", "match": "rlike", "strftime": "date_format", "isoformat": "date_format",
    "timestamp": "unix_seconds", "date": "to_date", "microsecond": "date_part", "total_seconds": "date_part",
    "substr": "substring", "clip": "greatest", "append": "array_append", "concat_str": "concat", "concat_list": "array",
    "keys": "map_keys", "values": "map_values", "items": "map_entries", "std": "stddev", "nunique": "count_distinct",
    "n_unique": "count_distinct", "countDistinct": "count_distinct", "quantile": "percentile", "any_value": "first",
    "mean": "avg", "withField": "struct", "dropFields": "struct", "tz_convert": "from_utc_timestamp",
    "to_datetime": "to_timestamp", "is_nan": "isnan", "to_lowercase": "lower", "to_uppercase": "upper", "is_empty": "length",
}  # fmt: skip
"""Names of functions elsewhere, and the function of ``sq.functions``, or aggregate of ``sq``, that does the same."""

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
