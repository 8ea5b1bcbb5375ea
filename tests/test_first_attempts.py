"""What users of pandas, PySpark, Polars and Flink try first: every message says what to write, and what it says runs."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

import streamq as sq
from streamq import functions
from streamq.errors import NeedsSpark, PlanError, UnknownVerb, nearest
from streamq.operators.windowed_stream import WindowedStream
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Expr
from streamq.plan.first_attempts import OF_EXPRESSIONS, OF_MODULE, OF_STREAMS, OF_WINDOWS, SAME_FUNCTION, Instead
from streamq.plan.hints import for_function, for_method, for_name, for_verb
from streamq.plan.spark_types import AGGREGATES, EXACTLY, GENERATORS, OURS, WINDOWED, function_names
from streamq.stream import Stream
from tests.coming_from import T, W

LISTS = T.append_column("xs", pa.array([[1, 2]] * T.num_rows))
ON_SPARK = ("s.run(", "s.to_df(", "sq.session(", "sq.read_stream(")
"""What starts Spark, so that its arguments are judged here and the call is not made."""

AS_CODE = [
    Instead(code.format(argument='"v"', column='sq.col("v")'), remark) for code, remark in OF_EXPRESSIONS.values()
]
EVERY = list(dict.fromkeys([*OF_STREAMS.values(), *OF_WINDOWS.values(), *OF_MODULE.values(), *AS_CODE]))


def names(code: str) -> dict[str, Any]:
    """What the names in a hint stand for."""
    lists = LISTS if "xs" in code else T
    s = sq.points(lists, time="ts", name="s")
    return {
        "sq": sq, "pyarrow": pa, "t": T, "df": T.to_pandas(), "s": s,
        "a": sq.points(T, time="ts", name="a"), "b": sq.points(W, time="ts", name="b"),
        "function": list if "udo" in code else max if "uda" in code else lambda *values: values[-1],
    }  # fmt: skip


@pytest.mark.parametrize("instead", EVERY, ids=str)
def test_what_a_hint_says_runs(instead: Instead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pa.parquet.write_table(T, "rows.parquet")
    pa.csv.write_csv(T, "rows.csv")
    Path("rows.json").write_text('{"ts": 1, "k": "a", "v": 2}\n', encoding="utf-8")
    if instead.code.startswith(ON_SPARK):
        call = ast.parse(instead.code, mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        owner = Stream if instead.code.startswith("s.") else sq
        function = inspect.signature(getattr(owner, call.func.attr))
        function.bind(*[None] * (owner is Stream), *call.args, **{str(word.arg): word.value for word in call.keywords})
    elif instead.code:
        answer(eval(instead.code, names(instead.code)), names(instead.code)["s"])
    for verb in re.findall(r"\b[sab]\.(\w+)\(", instead.remark):
        assert hasattr(Stream, verb), verb
    for name in re.findall(r"\bsq\.(\w+)", instead.remark):
        assert hasattr(sq, name), name


def answer(value: Any, s: Stream) -> Any:
    """Compute what a hint's code stands for; an expression in a select, an aggregate in that of a window."""
    if isinstance(value, Stream):
        return value.to_arrow()
    if isinstance(value, Expr):
        try:
            is_aggregate = isinstance(value, Aggregate) or any(isinstance(part, Aggregate) for part in value.children)
            return answer((s.tumbling_window("1 hour") if is_aggregate else s).select(x=value), s)
        except NeedsSpark:  # a function that Spark alone has
            return None
    return value


def test_no_entry_is_about_a_name_that_exists() -> None:
    assert [name for name in OF_STREAMS if hasattr(Stream, name)] == []
    assert [name for name in OF_WINDOWS if hasattr(WindowedStream, name)] == []
    assert [name for name in OF_MODULE if name in sq.__all__] == []
    assert [name for name in OF_EXPRESSIONS if hasattr(Expr, name)] == []
    assert len({*OF_STREAMS, *OF_WINDOWS, *OF_MODULE, *OF_EXPRESSIONS, *SAME_FUNCTION}) > 300


def test_functions_of_other_names_exist() -> None:
    known = dir(functions)
    for name, function in SAME_FUNCTION.items():
        assert function in OURS or function in known, name
        assert for_method(name, '"v"', [])


@pytest.mark.parametrize("name", sorted({*OURS, *EXACTLY} - set(dir(Stream)) - OF_STREAMS.keys()))
def test_an_aggregate_of_a_stream_is_a_window_s(name: str) -> None:
    code = re.match(r"Write (.*)\. Aggregates are a window's\.$", for_verb(name, []))
    assert code is not None
    assert eval(code[1], names("")).to_arrow().num_rows


def test_whatever_spark_has_has_a_hint() -> None:
    """Spark's aggregates and window functions that are no functions of a row say what to write."""
    assert [name for name in sorted(AGGREGATES | WINDOWED) if not for_function(name, function_names())] == []
    for name in GENERATORS:
        with pytest.raises(functions.UnknownFunction, match=r"s\.explode\(column\)"):
            getattr(functions, name)("v")


S = sq.events([(1, 2, {"k": "a", "v": 1})], name="s")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("asof_join", 's.join(b.to_signal("k"), on="k")'),
        ("dropna", 's.where(sq.col("v").is_not_null())'),
        ("merge", 's.join(b, on="k")'),
        ("to_polars", "s.to_arrow()"),
        ("fillna", 'sq.functions.coalesce("v", sq.lit(0))'),
        ("dedup", "s.distinct_ids("),
        ("interval_join", "set_duration("),
        ("lag", "rows_window(2)"),
        ("slect", "Did you mean 'select'?"),
        ("unoin", "Did you mean 'union'?"),
        ("tumble_window", "Did you mean 'tumbling_window'?"),
        ("toPoints", "Did you mean 'to_points'?"),
        ("quack", "no verb 'quack'."),
    ],
)
def test_names_of_a_stream(name: str, hint: str) -> None:
    with pytest.raises(UnknownVerb) as error:
        getattr(S, name)
    assert hint in str(error.value)
    assert ("Did you mean" in str(error.value)) == hint.startswith("Did you mean")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mean", 'select(x=sq.avg("v"))'),
        ("rolling", "sliding_window("),
        ("apply", "sq.uda("),
        ("pivot", "where=sq.col("),
        ("shift", "Call select(...) first"),
    ],
)
def test_names_of_a_window(name: str, hint: str) -> None:
    with pytest.raises(UnknownVerb, match=re.escape(hint)):
        getattr(S.tumbling_window(5), name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mean", 'select(x=sq.avg("v"))'),
        ("rolling", "sliding_window("),
        ("head", 'sq.first("v")'),
        ("where", "Add a window first"),
    ],
)
def test_names_of_a_group(name: str, hint: str) -> None:
    with pytest.raises(UnknownVerb, match=re.escape(hint)):
        getattr(S.group_by("k"), name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("read_parquet", "pyarrow.parquet.read_table("),
        ("sql", "There is no SQL"),
        ("mode", ".per_window().top_k(1, by="),
        ("max_by", ".top_k(3, by="),
        ("lag", "rows_window(2)"),
        ("collect_set", "array_distinct(sq.collect("),
        ("udaf", "sq.uda("),
        ("distinct", "s.distinct_ids("),
        ("head", "s.show(5)"),
        ("countDistinct", "Write sq.count_distinct(...)."),
        ("percentile_approx", "Write sq.percentile(...), which is exact."),
        ("window", "Windows are tumbling_window, hopping_window"),
        ("pionts", "Did you mean 'points'?"),
        ("upper", "Write sq.functions.upper(...)."),
    ],
)
def test_names_of_the_package(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(sq, name)
    assert hint in str(error.value) == for_name(name, sq.__all__)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lag", "rows_window(2)"),
        ("row_number", ".top_k("),
        ("mode", ".per_window()"),
        ("max_by", ".top_k("),
        ("count_if", "where="),
    ],
)
def test_functions_that_are_none_of_a_row(name: str, hint: str) -> None:
    with pytest.raises(functions.UnknownFunction, match=re.escape(hint)):
        getattr(functions, name)("v")


@pytest.mark.parametrize(
    ("name", "near"),
    [("valu", "value"), ("vlaue", "value"), ("VALUE", "value"), ("val_ue", "value"), ("values", "value")],
)
def test_a_misspelling_is_near(name: str, near: str) -> None:
    assert nearest(name, ["other", near]) == f"Did you mean {near!r}?"


@pytest.mark.parametrize(
    ("name", "far"),
    [
        ("asof_join", "to_json"),
        ("lag", "avg"),
        ("dropna", "drop"),
        ("mode", "modules"),
        ("max_by", "max"),
        ("merge", "where"),
        ("", "v"),
    ],
)
def test_another_word_is_not(name: str, far: str) -> None:
    assert nearest(name, [far]) == ""


def test_top_k_goes_by_one_expression() -> None:
    with pytest.raises(
        PlanError, match=r"top_k: rows go by one column or expression; found by=\['v', 'k'\]\. Of rows equal"
    ):
        S.tumbling_window(5).top_k(2, by=["v", "k"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("write", "hint"),
    [
        (lambda s: s.select(x=sq.start() + "10 seconds"), "A duration is dt.timedelta(seconds=10)"),
        (lambda s: s.select(x="10 seconds" + sq.end()), "A duration is dt.timedelta(seconds=10)"),
        (lambda s: s.where(sq.start() > "2024-01-01"), "An instant is dt.datetime(2024, 5, 1, 12, 30)"),
        (lambda s: s.where(sq.end() - sq.start() > "1 day"), "A duration is dt.timedelta(seconds=10)"),
        (lambda s: s.where(sq.duration() > sq.end() - sq.start()), "sq.end() - sq.start() is a duration"),
        (lambda s: s.where(sq.col("v") > "1"), "Cast one side."),
        (lambda s: s.select("*", x=1), "with_columns(x=expression) keeps all columns."),
        (lambda s: s.select("v + 1"), "an expression is Python"),
    ],
)
def test_texts_that_are_no_values(write: Any, hint: str) -> None:
    with pytest.raises(PlanError, match=re.escape(hint)):
        write(sq.points(T, time="ts"))
