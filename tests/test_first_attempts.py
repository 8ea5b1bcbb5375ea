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
from streamq.errors import NeedsSpark, PlanError, nearest
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Expr
from streamq.plan.hints import (
    OF_EXPRESSIONS,
    OF_MODULE,
    OF_STREAMS,
    OF_WINDOWS,
    SAME_FUNCTION,
    Instead,
    for_function,
    for_method,
    for_verb,
)
from streamq.plan.spark_types import AGGREGATES, EXACTLY, GENERATORS, OURS, WINDOWED, function_names
from streamq.stream import Stream
from tests.coming_from import T, W

LISTS = T.append_column("xs", pa.array([[1, 2]] * T.num_rows))
ON_SPARK = ("s.run(", "s.to_df(", "sq.session(", "sq.points(sq.files(")
"""Calls that start Spark or read files: their arguments are judged here, and they are not made."""

OF_COLUMN = {
    name: Instead(code.format(argument='"v"', column='sq.col("v")'), remark)
    for name, (code, remark) in OF_EXPRESSIONS.items()
}
EVERY = {*OF_STREAMS.values(), *OF_WINDOWS.values(), *OF_MODULE.values(), *OF_COLUMN.values()}


def names(code: str) -> dict[str, Any]:
    """What the names in a hint stand for."""
    lists = LISTS if "xs" in code else T
    s = sq.points(lists, time="ts", name="s")
    return {
        "sq": sq, "pyarrow": pa, "t": T, "df": T.to_pandas(), "s": s,
        "a": sq.points(T, time="ts", name="a"), "b": sq.points(W, time="ts", name="b"),
        "function": list if "udo" in code else max if "uda" in code else lambda *values: values[-1],
    }  # fmt: skip


@pytest.mark.parametrize("instead", sorted(EVERY), ids=str)
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


def test_functions_of_other_names_exist() -> None:
    known = dir(functions)
    for name, function in SAME_FUNCTION.items():
        assert function in OURS or function in known, name
        assert for_method(name, '"v"', [])


def test_an_aggregate_of_a_stream_is_a_window_s() -> None:
    for name in sorted({*OURS, *EXACTLY} - set(dir(Stream)) - OF_STREAMS.keys()):
        code = re.match(r"Write (.*)\. Aggregates are a window's\.$", for_verb(name, []))
        assert code is not None
        assert eval(code[1], names("")).to_arrow().num_rows


def test_whatever_spark_has_has_a_hint() -> None:
    """Spark's aggregates and window functions that are no functions of a row say what to write."""
    assert [name for name in sorted(AGGREGATES | WINDOWED) if not for_function(name, function_names())] == []
    for name in GENERATORS:
        with pytest.raises(functions.UnknownFunction, match=r"s\.explode\(column\)"):
            getattr(functions, name)("v")


S = sq.points(T, time="ts", name="s")
WINDOW, GROUP = S.tumbling_window("1 hour"), S.group_by("k")
OF_GROUP = {name: instead for name, instead in OF_WINDOWS.items() if name != "apply"}


@pytest.mark.parametrize(
    ("owner", "entries"),
    [(S, OF_STREAMS), (WINDOW, OF_WINDOWS), (GROUP, OF_GROUP), (sq, OF_MODULE), (sq.col("v"), OF_COLUMN)],
    ids=["stream", "window", "group", "package", "expression"],
)
def test_every_name_of_a_table_is_none_of_its_owner_and_has_its_hint(owner: Any, entries: dict[str, Instead]) -> None:
    for name, instead in entries.items():
        with pytest.raises(AttributeError, match=re.escape(str(instead))):
            getattr(owner, name)


@pytest.mark.parametrize(
    ("owner", "name", "hint"),
    [
        (S, "slect", "Did you mean 'select'?"),
        (S, "tumble_window", "Did you mean 'tumbling_window'?"),
        (S, "toPoints", "Did you mean 'to_points'?"),
        (S, "quack", "no verb 'quack'."),
        (WINDOW, "mean", 'select(x=sq.avg("v"))'),
        (WINDOW, "shift", "Call select(...) first"),
        (GROUP, "head", 'sq.first("v")'),
        (GROUP, "where", "Add a window first"),
        (sq, "lag", "rows_window(2)"),
        (sq, "head", "s.show(5)"),
        (sq, "countDistinct", "Write sq.count_distinct(...)."),
        (sq, "percentile_approx", "Write sq.percentile(...), which is exact."),
        (sq, "window", "Windows are tumbling_window, hopping_window"),
        (sq, "pionts", "Did you mean 'points'?"),
        (sq, "upper", "Write sq.functions.upper(...)."),
        (functions, "lag", "rows_window(2)"),
        (functions, "row_number", ".top_k("),
        (functions, "mode", ".per_window()"),
        (functions, "max_by", ".top_k("),
        (functions, "count_if", "where="),
    ],
    ids=str,
)
def test_names_that_are_in_no_table_of_their_owner(owner: Any, name: str, hint: str) -> None:
    with pytest.raises((AttributeError, functions.UnknownFunction), match=re.escape(hint)) as error:
        getattr(owner, name)("v")
    assert ("Did you mean" in str(error.value)) == hint.startswith("Did you mean")


def test_a_misspelling_is_near_and_another_word_is_not() -> None:
    for name in ("valu", "vlaue", "VALUE", "val_ue", "values"):
        assert nearest(name, ["other", "value"]) == "Did you mean 'value'?"
    for name, far in (
        ("asof_join", "to_json"),
        ("lag", "avg"),
        ("dropna", "drop"),
        ("mode", "modules"),
        ("max_by", "max"),
    ):
        assert nearest(name, [far]) == ""
    assert nearest("", ["v"]) == ""


def test_top_k_goes_by_one_expression() -> None:
    with pytest.raises(
        PlanError, match=r"top_k: rows go by one column or expression; found by=\['v', 'k'\]\. Of rows equal"
    ):
        WINDOW.top_k(2, by=["v", "k"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("write", "hint"),
    [
        (lambda s: s.select(x=sq.start() + "10 seconds"), "A duration is dt.timedelta(seconds=10)"),
        (lambda s: s.select(x="10 seconds" + sq.end()), "A duration is dt.timedelta(seconds=10)"),
        (lambda s: s.where(sq.start() > "2024-01-01"), "An instant is dt.datetime(2024, 5, 1, 12, 30)"),
        (lambda s: s.where(sq.start().cast("date") == "2024-05-01"), "A day is dt.date(2024, 5, 1)"),
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
