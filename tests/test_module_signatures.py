"""Modules are checked as they are decorated and called: their methods, their parameters, and what a call gives them."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamq as sq
from streamq.errors import ModuleFailed, PlanError, TypeMismatch
from tests.pairwise import covering

DECORATORS: dict[str, Any] = {"uda": sq.uda("double", name="own"), "udo": sq.udo("x double", name="own")}
STEPS: Any = sq.udso("x double", name="own")


def refused(decorate: Any, code: Any) -> str:
    with pytest.raises(PlanError) as raised:
        decorate(code)
    return str(raised.value)


def of_methods(**methods: Any) -> type:
    """A class with these methods, and those of an aggregate beside them; None leaves one out."""
    own = {"initial": lambda self: 0, "add": lambda self, state, v: state, "result": lambda self, state: 1.0}
    return type("Own", (), {n: method for n, method in {**own, **methods}.items() if method is not None})


def steps(**methods: Any) -> type:
    own = {"initial": lambda self: 0, "step": lambda self, state, v: (state, None)}
    return type("Own", (), {n: method for n, method in {**own, **methods}.items() if method is not None})


# methods


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_class_has_all_methods(decorator: str) -> None:
    decorate = DECORATORS[decorator]
    text = refused(decorate, of_methods(result=None, reslut=lambda self, state: 1.0))
    assert text == "own: it has no result(state); found add, initial, reslut. Is 'reslut' meant to be 'result'?"
    text = refused(decorate, of_methods(initial=None, result=None))
    assert text == "own: it has no initial(), result(state); found add."
    text = refused(decorate, of_methods(initial=None, add=None, result=None, merge=lambda self, a, b: a))
    assert text.startswith("own: it has no initial(), add(state, *values), result(state); found merge")
    assert "initial is a method; found 0" in refused(decorate, of_methods(initial=0))
    assert "own: it has no initial()" in refused(decorate, of_methods(initial=None)())
    spark = {"zero": 0, "reduce": lambda self, b, v: b, "finsh": lambda self, b: 1.0}
    text = refused(decorate, type("Own", (), spark))
    assert text.startswith(
        "own: it has no merge(a, b), finish(buffer); found finsh, reduce, zero. Is 'finsh' meant to be"
    )


def test_a_stateful_operator_has_all_methods() -> None:
    text = refused(STEPS, steps(step=None, steps=lambda self, state, v: (state, None)))
    assert text == "own: it has no step(state, *values); found initial, steps. Is 'steps' meant to be 'step'?"
    assert "own: it has no initial(); found step" in refused(STEPS, steps(initial=None))
    assert "step is called with (state, *values); it is step()" in refused(STEPS, steps(step=lambda self: None))
    timed = sq.udso("x double", name="own", time_sensitive=True)
    assert "step is called with (state, start, *values); it is step(state)" in refused(
        timed, steps(step=lambda self, state: None)
    )


def test_methods_take_what_they_are_called_with() -> None:
    decorate = DECORATORS["uda"]
    assert "add is called with (state, *values); it is add()" in refused(decorate, of_methods(add=lambda self: 0))
    assert "merge is called with (a, b); it is merge(a)" in refused(decorate, of_methods(merge=lambda self, a: a))
    text = refused(decorate, of_methods(result=lambda self, state, window: 1.0))
    assert text.endswith("(state); it is result(state, window). With time_sensitive=True it gets the window.")
    timed = sq.uda("double", name="own", time_sensitive=True)
    text = refused(timed, of_methods())
    assert text == "own: result is called with (state, window); it is result(state). It is time-sensitive."
    assert timed(of_methods(result=lambda self, state, window: 1.0)).time_sensitive


def test_types_and_objects_that_are_called_are_functions() -> None:
    class Scaled:
        def __call__(self, v: pd.Series) -> float:
            return float(v.sum()) * 2

    one = functools.partial(np.quantile, q=0.5)
    for code in (list, set, pd.Series, np.add, np.median, pd.Series.skew, Scaled(), max, one):
        assert sq.uda("double", name="own")(code).code is code


# parameters


def test_a_call_has_as_many_columns_as_the_function_takes() -> None:
    for decorate in DECORATORS.values():
        pair = decorate(lambda v, w, k=1: 1.0)
        assert refused(pair, "v") == "own: it is called with 1 column; it takes 2 to 3. It is own(v, w, k=1)."
        with pytest.raises(PlanError, match="own: it is called with 3 columns; it takes 2"):
            pair("v", "v", "v", k=3)
        with pytest.raises(PlanError, match="own: no parameter 'kk'. Did you mean 'k'"):
            pair("v", "w", kk=3)
        summed = decorate(of_methods())
        with pytest.raises(
            PlanError, match=r"own: it is called with 2 columns; it takes 1. Its add is add\(state, v\)"
        ):
            summed("v", "w")
    with pytest.raises(PlanError, match="own: it cannot be called so; missing a required .*argument: 'k'"):
        DECORATORS["uda"](lambda v, *, k: 1.0)("v")
    for code in (lambda *columns: 1.0, max):
        assert len(DECORATORS["uda"](code)("v", "w").args) == 2


def test_options_of_a_class_are_those_it_is_made_with() -> None:
    class Above:
        def __init__(self, limit: int = 3):
            self.limit = limit

        def initial(self) -> int:
            return 0

        def add(self, state: int, v: pd.Series) -> int:
            return state

        def result(self, state: int) -> float:
            return 0.0

    with pytest.raises(PlanError, match=r"own: no parameter 'limits'. Did you mean 'limit'\? It is own\(limit=3\)"):
        DECORATORS["uda"](Above)("v", limits=2)


def test_who_asks_for_a_window_says_that_it_is_time_sensitive() -> None:
    for decorate in DECORATORS.values():
        text = refused(decorate, lambda events, window: 1.0)
        assert "events and a window are asked for; it is not time-sensitive. With time_sensitive=True it gets" in text
        assert "With time_sensitive=True it gets (events, window)" in refused(decorate(lambda e, window: 1.0), "v")
    for timed in (sq.uda("double", time_sensitive=True), sq.udo("x double", time_sensitive=True)):
        named: Any = lambda events: 1.0  # noqa: E731
        assert "a time-sensitive function is called with (events, window); it takes 1 argument" in refused(timed, named)
        assert "missing a required argument: 'k'" in refused(timed(lambda events, window, k: 1.0), "v")


# what a call gives


def test_columns_come_by_position_and_plain_values_by_keyword() -> None:
    called: list[Any] = [decorate(lambda v, k=1: 1.0) for decorate in DECORATORS.values()]
    called.append(sq.udso("x double", name="own", initial=0)(lambda state, v, k=1: (state, None)))
    for module in called:
        with pytest.raises(PlanError, match=r"own: k is a plain value; found a column. Columns come by position"):
            module("v", k=sq.col("v"))
        with pytest.raises(PlanError, match="own: a plain value by position; found 3. Plain values come by keyword"):
            module("v", 3)
        assert len(module("v", sq.lit(3)).args) == 2


def test_scalars_of_numpy_are_plain_values() -> None:
    top = sq.uda("double", name="of_numpy")(lambda v, k=1: float(k))
    windows = sq.events([(1, 2, {"v": 1})]).tumbling_window(4)
    query = windows.select(x=top("v", k=np.int64(3)))
    assert query.plan == windows.select(x=top("v", k=3)).plan
    assert sq.from_json(query.to_json(), {"#1": next(iter(query.tables.values()))}).to_arrow().column(
        "x"
    ).to_pylist() == [3.0]


def test_names_of_arguments_are_for_those_who_read_them() -> None:
    with pytest.raises(PlanError, match="uda: 'start' is reserved for the lifetime; found columns="):
        sq.uda("double", time_sensitive=True, columns=["start"])(np.median)
    with pytest.raises(
        PlanError, match="uda: columns= names what time-sensitive code reads; this is not time-sensitive"
    ):
        sq.uda("double", columns=["v"])(np.median)
    filtering = sq.udo("k string", columns=["k"], properties=[sq.filters_on("k")], name="own")(list)
    assert filtering.columns == ("k",)


def test_only_rows_with_lifetimes_can_be_time_bound() -> None:
    with pytest.raises(
        PlanError, match="own: time_bound is a promise about lifetimes of its rows; it is not time-sens"
    ):
        sq.udo("v double", name="own", properties=[sq.time_bound])(list)


def test_values_themselves_are_for_the_code() -> None:
    called: list[Any] = [sq.udf("double", name="own")(lambda v: v), *(d(np.median) for d in DECORATORS.values())]
    called.append(sq.udso("x double", name="own", initial=0)(lambda state, v: (state, None)))
    for module in called:
        for value in (pd.Series([1]), [1], np.array([1])):
            with pytest.raises(
                PlanError, match=r"own: values instead of columns; found .* outside of one call own.code"
            ):
                module(value)


def test_a_module_is_called_with_columns() -> None:
    s = sq.events([(1, 2, {"v": 1})])
    own = DECORATORS["uda"](np.median)
    for call in (lambda: s.tumbling_window(2).select(x=own), lambda: s.select(own), lambda: s.where(own)):
        with pytest.raises(PlanError, match=r"own is a module without columns; found <uda own.*as own\(.v.\)"):
            call()
    with pytest.raises(PlanError, match=r"found d\(v\), which .scan\(...\) takes"):
        s.select(sq.udso("x int", name="d", initial=0)(lambda state, v: (state, None))("v"))
    with pytest.raises(PlanError, match=r"stand in a window's select: .select\(own\(v\)\)"):
        s.to_points().scan(own("v"))


def test_functions_instead_of_aggregates_are_pointed_to_uda() -> None:
    window: Any = sq.events([(1, 2, {"v": 1})]).tumbling_window(2)
    for call in (lambda: window.select(x=lambda v: v.maximum()), lambda: window.select(lambda v: v.max())):
        with pytest.raises(PlanError, match=r"is made an aggregate by sq.uda\(.double.\)\(function\)"):
            call()


def test_decorators_say_what_they_are_given() -> None:
    own: Any = np.median
    for decorator in (sq.udo, sq.udso):
        verb = decorator.__name__
        with pytest.raises(PlanError, match=rf"{verb}: not the columns of rows; found <function .* Write @sq.{verb}\("):
            decorator(own)
    for decorator in (sq.udf, sq.uda):
        with pytest.raises(PlanError, match=rf"Write @sq.{decorator.__name__}\(.double.\) above the function"):
            decorator(own)
        with pytest.raises(PlanError, match=f"{decorator.__name__}: no such type; found 'float64'. Write 'double'"):
            decorator("float64")
    with pytest.raises(PlanError, match="udo: no such type; found 'str'. Write 'string'"):
        sq.udo("x str")


@pytest.mark.parametrize(
    ("decorator", "option", "message"),
    [
        (
            sq.udf,
            "time_sensitive",
            r"udf: no parameter 'time_sensitive'; there are: returns, takes, .* It is an option of uda and udo and udso.",
        ),
        (
            sq.udso,
            "columns",
            "udso: no parameter 'columns'; there are: returns, initial, .* It is an option of uda and udo.",
        ),
        (sq.uda, "time_limits", "uda: no parameter 'time_limits'; .* Did you mean 'time_limit'?"),
        (sq.udo, "takes", "udo: no parameter 'takes'; .* It is an option of udf."),
    ],
)
def test_options_that_a_decorator_does_not_have(decorator: Any, option: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decorator("x int", **{option: True})


# Values that a module gives and may not: they are shown readably, with what to write instead.

WINDOW = sq.events([(1, 4, {"v": 2}), (3, 4, {"v": 6})]).tumbling_window(5)


def failure(code: Any, returns: str = "double") -> str:
    with pytest.raises(ModuleFailed) as raised:
        WINDOW.select(x=sq.uda(returns, name="own")(code)("v")).to_arrow()
    return str(raised.value)


def test_a_value_of_another_type_fails() -> None:
    assert "'one' is no double; window [0, 5)" in failure(lambda v: "one")
    assert "1.5 is no bigint (write int(...)); window [0, 5)" in failure(lambda v: 1.5, "bigint")
    assert "300 is no tinyint" in failure(lambda v: 300, "tinyint")
    assert "a Series of 2 values is no double (a list is an array<...>); window" in failure(lambda v: v)
    assert "[2, 6] is no double (a list is an array<...>)" in failure(lambda v: v.tolist())
    assert "a Series of 2 values is no array<string> (write .tolist())" in failure(lambda v: v, "array<string>")
    assert "[(1, 2)] is no double (@sq.udo makes rows)" in failure(lambda v: [(1, 2)])
    assert "a DataFrame of 1 rows is no double (@sq.udo makes rows)" in failure(lambda v: pd.DataFrame({"x": [1]}))
    assert "a generator is no double (return a value; @sq.udo makes rows)" in failure(lambda v: (yield 1))
    assert "5 is no string (write str(...))" in failure(lambda v: np.int64(5), "string")
    assert "inf is no bigint; window" in failure(lambda v: float("inf"), "bigint")

    async def later(v: pd.Series) -> float:
        return 1.0

    assert "a coroutine is no double (write def, not async def)" in failure(later)


MOMENT = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
NANOSECONDS = pd.Timestamp(MOMENT) + pd.Timedelta(7, "ns")
NO_INSTANTS = {
    "integer": [4500.5, 2**70, -(2**63), float("inf"), "4500", True, pd.Timestamp(MOMENT), MOMENT, dt.date(2024, 5, 1)],
    "timestamp": [1, 4500.0, 2**70, "2024-05-01", dt.date(2024, 5, 1), pd.Timedelta("1h"), NANOSECONDS],
}


@pytest.mark.slow
@pytest.mark.parametrize("axis", NO_INSTANTS)
def test_what_is_no_instant_of_the_axis_is_refused(axis: str) -> None:
    """As a start and as an end, of a row in a list and in a DataFrame, by every stamp that keeps lifetimes; every two meet."""
    span = (1, 4) if axis == "integer" else (MOMENT, MOMENT + dt.timedelta(seconds=3))
    source = sq.events([(*span, {"v": 2})])
    stamps, places, forms = ("unchanged", "clip", "time_bound"), ("start", "end"), ("list", "DataFrame")
    every = list(itertools.product(enumerate(NO_INSTANTS[axis]), stamps, places, forms))
    for (_, instant), stamp, place, form in covering(every, lambda one: (one[0][0], *one[1:])):
        row = (instant, span[1], 1) if place == "start" else (span[0], instant, 1)
        rows = [row] if form == "list" else pd.DataFrame([row], columns=["start", "end", "x"], dtype=object)
        code = sq.udo("x int", time_sensitive=True, properties=[sq.time_bound], name="own")
        window = source.tumbling_window(5 if axis == "integer" else "5 seconds", stamp=stamp)
        with pytest.raises(ModuleFailed, match="is no instant of the query"):
            window.select(code(lambda events, window, rows=rows: rows)("v")).to_arrow()


def test_instants_of_an_axis() -> None:
    """Of every type that stands for one, and an end that is infinite."""

    @sq.udo("x int", time_sensitive=True)
    def own(events: Any, window: Any) -> Any:
        yield from [(np.int32(1), 4.0, 1), (2, None, 2), (3, float("nan"), 3), (4, pd.NaT, 4)]

    rows = WINDOW.select(own("v")).to_arrow().to_pylist()
    assert sorted((r["start"], r["end"]) for r in rows) == [(1, 4), (2, None), (3, None), (4, None)]

    late = MOMENT + dt.timedelta(hours=1)

    @sq.udo("x int", time_sensitive=True)
    def moments(events: Any, window: Any) -> Any:
        yield from [(window.start, late, 1), (np.datetime64("2024-05-01T12:00"), late.replace(tzinfo=None), 2)]

    answer = sq.events([(MOMENT, late, {"v": 1})]).tumbling_window("1 hour").select(moments("v")).to_arrow()
    assert {(r["start"], r["end"]) for r in answer.to_pylist()} == {(MOMENT, late)}


@pytest.mark.parametrize("takes", ["values", "series", "arrays"])
def test_an_events_result_does_not_depend_on_the_events_beside_it(takes: str) -> None:
    """Zero, NULL and NaN divided by themselves, alone and beside each other; a result of NaN is NULL."""
    forms = {
        "values": lambda v: None if v is None else (float("nan") if v == 0 or v != v else v / v),
        "series": lambda v: v / v,
        "arrays": lambda v: pc.divide(v, v),
    }
    for kind in (pa.float64(), pa.int32()):
        ratio = sq.udf("double", takes=takes, name="ratio")(
            lambda v: forms[takes](v.cast(pa.float64()) if takes == "arrays" else v)
        )
        values: list[Any] = [0, None, 2, 0, 5] + ([float("nan")] if kind == pa.float64() else [])
        expected = [None if v in (0, None) or v != v else 1.0 for v in values]
        for first in range(len(values)):
            for last in range(first + 1, len(values) + 1):
                table = pa.table({"start": range(last - first), "v": pa.array(values[first:last], kind)})
                results = sq.points(table, time="start").select(x=ratio("v")).to_arrow().sort_by("start")
                assert results.column("x").to_pylist() == expected[first:last]


def test_an_aggregate_that_reads_lifetimes_has_no_merge() -> None:
    merging = of_methods(
        add=lambda self, state, events: state, result=lambda self, state, window: 1.0, merge=lambda self, a, b: a
    )
    text = refused(sq.uda("double", name="own", time_sensitive=True), merging)
    assert text.startswith("own: it has merge(a, b); a time-sensitive aggregate cannot be merged. Leave merge out")


# types of arguments

OF_TYPES = sq.events(
    [(1, 4, {"k": "a", "v": 4, "x": 1.5})], name="s", schema={"k": "string", "v": "bigint", "x": "double"}
)
TYPED = {
    "udf": lambda: OF_TYPES.select(y=sq.udf("double", arguments="double", name="own")(lambda x: x)("v")),
    "uda": lambda: OF_TYPES.tumbling_window(3).select(
        y=sq.uda("double", arguments="double", name="own")(lambda x: 1.0)("v")
    ),
    "udo": lambda: OF_TYPES.tumbling_window(3).select(
        sq.udo("y double", arguments="double", name="own")(lambda x: [1.0])("v")
    ),
    "udso": lambda: OF_TYPES.to_points().scan(sq.udso("y double", arguments="double", name="own")(steps())("v")),
}


@pytest.mark.parametrize("kind", TYPED)
def test_an_argument_of_another_type_than_declared_is_an_error_where_the_query_is_written(kind: str) -> None:
    with pytest.raises(TypeMismatch) as raised:
        TYPED[kind]()
    assert str(raised.value) == 'own: argument 1 is double; found bigint. Cast it, as in sq.col("v").cast("double").'


def test_the_last_type_is_that_of_further_arguments_and_null_is_of_any() -> None:
    own = sq.uda("double", arguments=["string", "double"], name="own")(lambda *values: 1.0)
    window = OF_TYPES.tumbling_window(3)
    assert window.select(y=own("k", "x", "x")).schema.names == ("y",)
    assert window.select(y=own("k", sq.col("v").cast("double"), sq.lit(None))).schema.names == ("y",)
    with pytest.raises(TypeMismatch, match="own: argument 3 is double; found bigint"):
        window.select(y=own("k", "x", "v"))
    with pytest.raises(TypeMismatch, match="uda: no such type; found 'dubble'"):
        sq.uda("double", arguments="dubble")
