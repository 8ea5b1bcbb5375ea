"""Modules are checked as they are decorated and called: their methods, their parameters, their promises and their place."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamq as sq
from streamq.errors import PlanError, TypeMismatch

S = sq.events([(1, 4, {"k": "a", "v": 4, "x": 1.5})], name="s", schema={"k": "string", "v": "bigint", "x": "double"})
WINDOW: Any = S.tumbling_window(3)
UDA: Any = sq.uda("double", name="own")
UDO: Any = sq.udo("x double", name="own")
UDF: Any = sq.udf("double", name="own")
UDSO: Any = sq.udso("x double", name="own")
TIMED_UDA: Any = sq.uda("double", name="own", time_sensitive=True)
TIMED_UDO: Any = sq.udo("x double", name="own", time_sensitive=True)
TIMED_UDSO: Any = sq.udso("x double", name="own", time_sensitive=True)
STEP: Any = sq.udso("x double", name="own", initial=0)(lambda state, v, k=1: (state, None))


def methods(own: dict[str, Any], changed: dict[str, Any]) -> type:
    return type("Own", (), {n: method for n, method in {**own, **changed}.items() if method is not None})


def states(**changed: Any) -> Any:
    """A class with the methods of an aggregate, of which some are others, or, if None, missing."""
    own = {"initial": lambda self: 0, "add": lambda self, state, v: state, "result": lambda self, state: 1.0}
    return methods(own, changed)


def steps(**changed: Any) -> Any:
    return methods({"initial": lambda self: 0, "step": lambda self, state, v: (state, None)}, changed)


class Above(states()):  # type: ignore[misc]
    def __init__(self, limit: int):
        self.limit = limit


def made(limit: int = 3) -> Any:
    """A class with an option that has a default."""
    return type("Own", (states(),), {"__init__": lambda self, limit=limit: None})


pair: Any = UDA(lambda v, w, k=1: 1.0)
plain: Any = sq.udo("v bigint", name="plain")(list)
by_value: Any = sq.udf("double", name="by_value")(lambda v, scale=1: v)
columns: Any = sq.uda("string", time_sensitive=True, name="columns")(lambda events, window: ", ".join(events.columns))
named: Any = sq.uda("string", time_sensitive=True, name="named", columns=["value"])(columns.code)
kept_name: Any = lambda events: 1.0  # noqa: E731
lock = threading.Lock()

REFUSED: list[tuple[Any, str]] = [
    # methods
    (
        lambda: UDA(states(result=None, reslut=lambda self, state: 1.0)),
        "own: it has no result(state); found add, initial, reslut. Is 'reslut' meant to be 'result'?",
    ),
    (
        lambda: UDA(states(initial=None, add=None, result=None, merge=lambda self, a, b: a)),
        "own: it has no initial(), add(state, *values), result(state); found merge",
    ),
    (lambda: UDA(states(initial=0)), "initial is a method; found 0"),
    (lambda: UDO(states(initial=None)()), "own: it has no initial()"),
    (
        lambda: UDA(type("Own", (), {"zero": 0, "reduce": lambda self, b, v: b, "finsh": lambda self, b: 1.0})),
        "own: it has no merge(a, b), finish(buffer); found finsh, reduce, zero. Is 'finsh' meant to be",
    ),
    (
        lambda: UDSO(steps(step=None, steps=lambda self, state, v: (state, None))),
        "own: it has no step(state, *values); found initial, steps. Is 'steps' meant to be 'step'?",
    ),
    (lambda: UDSO(steps(step=lambda self: None)), "step is called with (state, *values); it is step()"),
    (
        lambda: TIMED_UDSO(steps(step=lambda self, state: None)),
        "step is called with (state, start, *values); it is step(state)",
    ),
    (lambda: UDA(states(add=lambda self: 0)), "add is called with (state, *values); it is add()"),
    (
        lambda: UDA(states(result=lambda self, state, window: 1.0)),
        "(state); it is result(state, window). With time_sensitive=True it gets the window.",
    ),
    (
        lambda: TIMED_UDA(states()),
        "own: result is called with (state, window); it is result(state). It is time-sensitive.",
    ),
    (
        lambda: TIMED_UDA(states(result=lambda self, state, window: 1.0, merge=lambda self, a, b: a)),
        "own: it has merge(a, b); a time-sensitive aggregate cannot be merged. Leave merge out",
    ),
    # parameters
    (lambda: pair("v"), "own: it is called with 1 column; it takes 2 to 3. It is own(v, w, k=1)."),
    (lambda: pair("v", "v", "v", k=3), "own: it is called with 3 columns; it takes 2"),
    (lambda: pair("v", "w", kk=3), "own: no parameter 'kk'. Did you mean 'k'"),
    (
        lambda: UDO(states())("v", "w"),
        "own: it is called with 2 columns; it takes 1. Its add is add(state, v)",
    ),
    (
        lambda: UDA(lambda v, *, k: 1.0)("v"),
        "own: it cannot be called so; missing a required",
    ),
    (lambda: by_value(), "by_value: it is called without a column"),
    (lambda: UDA(len)(), "own: it is called without a column"),
    (lambda: UDA(made())("v", limits=2), "own: no parameter 'limits'. Did you mean 'limit'? It is own(limit=3)"),
    (lambda: UDA(Above)("v"), "own: it cannot be made; "),
    (lambda: UDA(Above(3))("v", limit=3), "uda: an object takes no parameters; found limit"),
    *(
        (
            lambda decorate=decorate: decorate(lambda events, window: 1.0),
            "events and a window are asked for; it is not time-sensitive. With time_sensitive=True it gets",
        )
        for decorate in (UDA, UDO)
    ),
    (lambda: UDO(lambda e, window: 1.0)("v"), "With time_sensitive=True it gets (events, window)"),
    (
        lambda: TIMED_UDO(kept_name),
        "a time-sensitive function is called with (events, window); it takes 1 argument",
    ),
    (lambda: TIMED_UDA(lambda events, window, k: 1.0)("v"), "missing a required argument: 'k'"),
    # columns and values
    *(
        (
            lambda module=module: module("v", k=sq.col("v")),
            "own: k is a plain value; found a column. Columns come by position",
        )
        for module in (UDA(lambda v, k=1: 1.0), UDO(lambda v, k=1: 1.0), STEP, UDF(lambda v, k=1: v))
    ),
    *(
        (lambda module=module: module("v", 3), "own: a plain value by position; found 3. Plain values come by keyword")
        for module in (UDA(lambda v, k=1: 1.0), UDO(lambda v, k=1: 1.0), STEP)
    ),
    *(
        (lambda module=module, value=value: module(value), "outside of one call own.code")
        for module in (UDF(lambda v: v), UDA(np.median), UDO(np.median), STEP)
        for value in (pd.Series([1]), [1], np.array([1]))
    ),
    (lambda: columns(sq.col("v") * 2), "columns: an argument without a name; found v * 2. Name it"),
    (lambda: named("v", "w"), "named: 2 arguments; it takes value"),
    (lambda: columns("v", "v"), "columns: arguments of one name; found v, v, start, end"),
    (lambda: WINDOW.select(plain(sq.sum("v"))), "plain: an aggregate of an aggregate"),
    # declarations
    (lambda: sq.uda(lambda v: 1), "uda: no type of the value; found <function"),  # type: ignore[arg-type]
    (lambda: sq.udf(len), "udf: no type of the results; found <built-in function len>. Write @sq.udf"),  # type: ignore[arg-type]
    *(
        (
            lambda decorator=decorator: decorator(np.median),
            f"{decorator.__name__}: not the columns of rows; found <function",
        )
        for decorator in (sq.udo, sq.udso)
    ),
    (lambda: sq.udo("bigint"), "udo: not the columns of rows; found 'bigint'"),
    (lambda: sq.udo("end bigint"), "a payload column called 'end'"),
    (lambda: sq.uda("duble"), "no such type; found 'duble'"),
    (lambda: sq.uda("double", arguments="dubble"), "uda: no such type; found 'dubble'"),
    (lambda: UDA(3), "uda: not code; found 3"),
    (lambda: UDF(3), "udf: not a function; found 3"),
    (
        lambda: sq.udf("double", takes="seris"),
        "udf: takes is 'values', 'series' or 'arrays'; found 'seris'. Did you mean",
    ),
    (lambda: sq.uda("double", time_limit=-1), "uda: time_limit is a number of seconds above 0; found -1"),
    (lambda: sq.uda("double", on_error="ignore"), "uda: on_error is 'fail' or 'quarantine'; found 'ignore'"),
    (
        lambda held=lock: UDF(lambda v: v if held else 0),
        "own: what it holds cannot be pickled; TypeError: cannot pickle '_thread",
    ),
    (
        lambda: sq.uda("double", time_sensitive=True, columns=["start"])(np.median),
        "uda: 'start' is reserved for the lifetime; found columns=",
    ),
    (
        lambda: sq.uda("double", columns=["v"])(np.median),
        "uda: columns= names what time-sensitive code reads; this is not time-sensitive",
    ),
    # promises
    (lambda: sq.uda("double", properties=["mergable"]), "uda: not a property of modules; found 'mergable'"),  # type: ignore[list-item]
    (
        lambda: sq.uda("double", properties=[sq.mergeable], name="own")(len),
        "own: it is declared mergeable; it cannot be merged",
    ),
    (
        lambda: sq.udo("v double", name="own", properties=[sq.time_bound])(list),
        "own: time_bound is a promise about lifetimes of its rows; it is not time-sens",
    ),
    *(
        (
            lambda promise=promise: sq.uda("double", properties=[promise]),
            f"uda: {promise.name} is a promise of operators; found {promise}. Operators are made with @sq.udo",
        )
        for promise in (sq.time_bound, sq.one_output_per_group, sq.filters_on("v"))
    ),
    (
        lambda: sq.udo("n bigint", name="few", properties=[sq.filters_on("n", "k")])(len),
        "few: filters_on names no column of its rows; found k, there are: n",
    ),
    # options that a decorator does not have
    (
        lambda: sq.udf("int", time_sensitive=True),  # type: ignore[call-arg]
        "udf: no parameter 'time_sensitive'; there are: returns, takes, arguments, name, time_limit, checked, on_error, "
        "version, compatible_with. It is an option of uda and udo and udso.",
    ),
    (lambda: sq.udso("x int", columns=["k"]), "It is an option of uda and udo."),  # type: ignore[call-arg]
    (lambda: sq.uda("int", time_limits=3), "Did you mean 'time_limit'?"),  # type: ignore[call-arg]
    (lambda: sq.udo("x int", takes="series"), "It is an option of udf."),  # type: ignore[call-arg]
    # where it stands
    *(
        (lambda call=call: call(UDA(np.median)), "own is a module without columns; found <uda own")
        for call in (lambda own: WINDOW.select(x=own), S.select, S.where)
    ),
    (lambda: S.select(STEP("v")), "found own(v), which .scan(...) takes"),
    (lambda: S.to_points().scan(UDA(np.median)("v")), "stand in a window's select: .select(own(v))"),
    (lambda: WINDOW.select(x=lambda v: v.maximum()), 'is made an aggregate by sq.uda("double")(function)'),
    (lambda: WINDOW.select(lambda v: v.max()), 'is made an aggregate by sq.uda("double")(function)'),
    (
        lambda: WINDOW.select(plain("v"), n=sq.count()),
        "select: plain makes rows of its own; found n beside it. Write .select(plain(v))",
    ),
    (
        lambda: WINDOW.select(x=plain("v")),
        "found x=plain(v). Its rows have the columns v: write .select(plain(v))",
    ),
    (lambda: WINDOW.select(plain("v"), plain("v")), "found plain(v) beside it."),
    *(
        (call, "select: plain makes rows of its own; found x=plain")
        for call in (
            lambda: WINDOW.select(plain("v").alias("x")),
            lambda: WINDOW.select(x=plain("v") + 1),
            lambda: WINDOW.select(x=lambda e: plain(e.v)),
        )
    ),
    (
        lambda: S.select(plain("v")),
        "select: plain is of a window's events; there is no window. Make a window first",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_what_is_refused_where_it_is_written(call: Any, text: str) -> None:
    with pytest.raises((PlanError, TypeMismatch)) as raised:
        call()
    assert text in str(raised.value)


def test_types_and_objects_that_are_called_are_functions() -> None:
    class Scaled:
        def __call__(self, v: pd.Series) -> float:
            return float(v.sum()) * 2

    one = functools.partial(np.quantile, q=0.5)
    for code in (list, set, pd.Series, np.add, np.median, pd.Series.skew, Scaled(), max, one):
        assert UDA(code).code is code
    for code in (lambda *columns: 1.0, max):
        assert len(UDA(code)("v", "w").args) == 2
    assert TIMED_UDA(states(result=lambda self, state, window: 1.0)).time_sensitive
    assert len(STEP("v", sq.lit(3)).args) == 2
    filtering = sq.udo("k string", columns=["k"], properties=[sq.filters_on("k")], name="own")(list)
    assert filtering.columns == ("k",)


def test_scalars_of_numpy_are_plain_values() -> None:
    top = sq.uda("double", name="of_numpy")(lambda v, k=1: float(k))
    query = WINDOW.select(x=top("v", k=np.int64(3)))
    assert query.plan == WINDOW.select(x=top("v", k=3)).plan
    assert sq.from_json(query.to_json(), s=S).to_arrow().column("x").to_pylist() == [3.0, 3.0]


# types of arguments

TYPED = {
    "udf": lambda own: S.select(y=own(sq.udf, "double")(lambda x: x)("v")),
    "uda": lambda own: WINDOW.select(y=own(sq.uda, "double")(lambda x: 1.0)("v")),
    "udo": lambda own: WINDOW.select(own(sq.udo, "y double")(lambda x: [1.0])("v")),
    "udso": lambda own: S.to_points().scan(own(sq.udso, "y double")(steps())("v")),
}


@pytest.mark.parametrize("kind", TYPED)
def test_an_argument_of_another_type_than_declared_is_an_error_where_the_query_is_written(kind: str) -> None:
    with pytest.raises(TypeMismatch) as raised:
        TYPED[kind](lambda decorator, returns: decorator(returns, arguments="double", name="own"))
    assert str(raised.value) == 'own: argument 1 is double; found bigint. Cast it, as in sq.col("v").cast("double").'


def test_the_last_type_is_that_of_further_arguments_and_null_is_of_any() -> None:
    own = sq.uda("double", arguments=["string", "double"], name="own")(lambda *values: 1.0)
    assert WINDOW.select(y=own("k", "x", "x")).schema.names == ("y",)
    assert WINDOW.select(y=own("k", sq.col("v").cast("double"), sq.lit(None))).schema.names == ("y",)
    with pytest.raises(TypeMismatch, match="own: argument 3 is double; found bigint"):
        WINDOW.select(y=own("k", "x", "v"))
