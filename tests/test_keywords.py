"""A keyword that a verb, a function or a decorator does not have is an error with those that it has, at the user's line."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError, StreamqError, check_keywords
from streamq.operators.grouped_stream import GroupedStream
from streamq.operators.windowed_stream import WindowedStream
from streamq.patterns.pattern import Pattern
from streamq.plan.expr import Expr
from streamq.run.batch.answers import Quarantine
from streamq.run.running import Run

CALLED_BY_USERS = (sq.Stream, GroupedStream, WindowedStream, Pattern, Run, Quarantine, Expr)
OF_STREAMQ = {"is_exact", "shown_over", "with_children"}
"""The methods of expressions that only streamq calls."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions and methods that take no other keywords than their own."""
    for module in (sq, t):
        every = {name: getattr(module, name) for name in module.__all__}
        yield from ((name, function) for name, function in every.items() if inspect.isfunction(function))
    for cls in CALLED_BY_USERS:
        every = {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}
        yield from (
            (f"{cls.__name__}.{n}", f) for n, f in every.items() if inspect.isfunction(f) and n not in OF_STREAMQ
        )


def takes_any(function: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


STRICT = {name: function for name, function in functions() if not takes_any(function)}


def test_every_verb_names_its_own_keywords() -> None:
    """Before it looks at anything else: no verb answers an unknown keyword by Python's TypeError."""
    assert len(STRICT) > 150 and {"Stream.windowed_join", "WindowedStream.top_k", "Run.finish", "points"} <= {*STRICT}
    for name, function in STRICT.items():
        verb = inspect.unwrap(function).__name__
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_POSITIONAL]
        names = ", ".join(p.name for p in parameters if p.name != "self" and p.kind is not p.POSITIONAL_ONLY)
        with pytest.raises(PlanError) as error:
            function(plausible=1)
        wrong = f"{verb}: no parameter 'plausible'; there are{f': {names}' if names else ' none'}."
        assert str(error.value) == wrong, name


S = sq.events([(1, 5, {"k": "a", "v": 1})], name="s")
W = S.tumbling_window(5)


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda: W.top_k(1, by="v", ascending=True), "top_k: no parameter 'ascending'; there are: k, by, .* 'desc'?"),
        (lambda: S.windowed_join(S, on="k", size=5, how="left"), "windowed_join: no parameter 'how'; there are: other, on"),
        (lambda: S.join(S, left_on="k", right_on="k"), "join: no parameter 'left_on'; .* Did you mean 'on'?"),
        (lambda: S.where(condition=sq.col("v") > 1), "where: no parameter 'condition'; there are: "),
        (lambda: S.show(truncate=False), "show: no parameter 'truncate'; there are: n, until"),
        (lambda: S.run(outputMode="append"), "run: no parameter 'outputMode'; .* Did you mean 'output'?"),
        (lambda: t.verify(S, example=3), "verify: no parameter 'example'; .* Did you mean 'examples'?"),
        (lambda: sq.start(unit="s"), "start: no parameter 'unit'; there are none"),
    ],
)  # fmt: skip
def test_a_keyword_of_pyspark_or_pandas(call: Callable[[], Any], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        call()


def test_a_missing_argument_is_told_by_python_with_the_users_name_of_the_verb() -> None:
    with pytest.raises(
        TypeError, match=re.escape("Stream.distinct_ids() missing 1 required keyword-only argument: 'id'")
    ):
        S.distinct_ids(5)


def test_a_function_that_takes_any_keyword_gets_it() -> None:
    def own(**options: int) -> int:
        return len(options)

    assert check_keywords(own)(any=1, other=2) == 2


def test_every_public_function_shows_its_errors_at_the_users_line() -> None:
    """All that users call goes through ``check_keywords``, which leaves out the frames inside streamq."""
    for name, function in functions():
        layers = [function]
        while hasattr(layers[-1], "__wrapped__"):
            layers.append(layers[-1].__wrapped__)
        assert "check_keywords" in {layer.__code__.co_qualname.partition(".")[0] for layer in layers}, name


def _misspelt(events: sq.Stream) -> sq.Stream:
    return events.where(sq.col("vv") > 1)


@pytest.mark.parametrize(
    ("call", "own"),
    [
        (lambda: S.where(sq.col("vv") > 1), 0),
        (lambda: S.where(lambda e: e.vv > 1), 1),
        (lambda: S.pipe(_misspelt), 1),
        (lambda: S.group_by("k").apply(lambda g: g.tumbling_window(5).select(n=sq.sum("vv"))), 1),
        (lambda: S.tumbling_window(5).select(n=sq.sum("vv")), 0),
        (lambda: S.select(x=sq.udf("bigint")(lambda v: v.missing)("v")).show(), 0),
        (lambda: sq.cedr("EVENT X WHEN SEQ(A a)", A=S), 0),
        (lambda: S.join(S.alias("t"), on="vv"), 0),  # type: ignore[arg-type]
    ],
)
def test_a_traceback_has_the_users_lines_alone(call: Callable[[], Any], own: int) -> None:
    with pytest.raises(StreamqError) as caught:
        call()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files == [__file__] * (2 + own), "this function, the line in the table, and the functions that it passes"


def test_advice_comes_before_the_nearest() -> None:
    def own(value: int) -> int:
        return value

    checked = check_keywords(own, lambda name: f"Ask for {name}." if name == "values" else "")
    assert checked(3) == checked(value=3) == 3
    with pytest.raises(PlanError, match=r"own: no parameter 'values'; there are: value. Ask for values."):
        checked(values=3)
    with pytest.raises(PlanError, match="Did you mean 'value'?"):
        checked(valu=3)
