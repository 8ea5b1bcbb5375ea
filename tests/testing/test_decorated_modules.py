"""check_module of what ``sq.uda``, ``sq.udo`` and ``sq.udso`` have made: with the properties and options that they declare."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import PlanError
from streamq.testing.modules import LawBroken, check_module
from tests.window_modules import BOUND, FORMS, MODULES, at_last, lived

SMALL = st.sampled_from([0, 1, 2, 3, 4, None])
WHOLE = ("answers", "deterministic", "pure")
PARTS = (*WHOLE, "zero", "add", "order")
LAWS = {
    "function": WHOLE,
    "incremental": (*PARTS, "remove"),
    "merging": (*PARTS, "remove", "merge"),
    "adding": PARTS,
}


def law_broken_by(module: Any, types: str = "bigint", **more: Any) -> LawBroken:
    with pytest.raises(LawBroken) as raised:
        check_module(module, types, **more)
    return raised.value


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_modules_of_every_form_keep_the_laws(form: str) -> None:
    for kind in ("uda", "udo"):
        assert check_module(MODULES[kind, form, False], "bigint", values=SMALL, examples=10) == LAWS[form]
    operator = MODULES["udo", form, True]("v")
    of_lifetimes = tuple(law for law in LAWS[form] if law != "merge")
    assert check_module(operator, "bigint", values=SMALL, examples=10) == of_lifetimes


def test_declared_options_and_properties_count() -> None:
    @sq.uda("double", name="scaled", properties=[sq.order_insensitive])
    def scaled(v: pd.Series, by: int = 1) -> float:
        return float(v.iloc[0] * by) if by > 1 else float(v.count())

    assert check_module(scaled, "bigint", values=SMALL.filter(lambda v: v is not None), examples=10)[-1] == "order"
    broken = law_broken_by(scaled.with_options({"by": 2}), values=st.integers(0, 3))
    assert (broken.law, broken.values) == ("order", {"first": [0], "then": [1]})


def test_results_must_be_of_the_type() -> None:
    broken = law_broken_by(sq.uda("bigint", name="half")(lambda v: len(v) / 2))
    assert (broken.law, broken.values) == ("answers", {"events": [1]})
    assert "0.5 is no bigint" in str(broken)


@pytest.mark.slow
def test_a_time_sensitive_module_reads_lifetimes_within_a_window_of_either_axis() -> None:
    @sq.uda("double", name="weighted", time_sensitive=True, columns=["value"])
    def weighted(events: pd.DataFrame, window: Any) -> float:
        assert ((window.start <= events.start) & (events.end <= window.end) & (events.start < events.end)).all()
        return float((events.value * ((events.end - events.start) / window.duration)).sum())

    for axis in ("integer", "timestamp"):
        assert check_module(weighted, "double", values=st.sampled_from([1.0, 2.5]), examples=20, axis=axis) == WHOLE

    def ahead(events: pd.DataFrame, window: Any) -> float:
        return float(events.value.sum())

    broken = law_broken_by(weighted, "double", values=st.just(1.0), reference=ahead)
    assert broken.law == "reference"
    ((row,),) = broken.values.values()
    assert {*row} == {"start", "end", "value"}


@pytest.mark.slow
def test_lifetimes_that_are_not_taken_back_are_found() -> None:
    class Forgets:
        def initial(self) -> int:
            return 0

        def add(self, state: int, events: pd.DataFrame) -> int:
            return state + int((events.end - events.start).sum())

        def remove(self, state: int, events: pd.DataFrame) -> int:
            return state - len(events)

        def result(self, state: int, window: Any) -> int:
            return state

    broken = law_broken_by(sq.uda("bigint", name="forgets", time_sensitive=True, columns=["v"])(Forgets))
    assert broken.law == "remove"


@pytest.mark.slow
@pytest.mark.parametrize("result", [lived, at_last])
def test_a_promise_to_be_time_bound_that_is_kept(result: Any) -> None:
    assert "time_bound" in check_module(BOUND["incremental", result]("v"), "bigint", values=SMALL, examples=20)


def test_a_promise_to_be_time_bound_that_is_broken() -> None:
    @sq.udo("n bigint", name="counts", time_sensitive=True, properties=[sq.time_bound], columns=["v"])
    def counts(events: pd.DataFrame, window: Any) -> Iterator[Any]:
        yield window.start, window.end, len(events)

    broken = law_broken_by(counts, values=SMALL)
    assert broken.law == "time_bound"
    assert "events that start at 0 or later change no row before that" in str(broken)


PER_K = {"properties": [sq.filters_on("k")], "name": "own"}


def sums(k: pd.Series, v: pd.Series) -> Iterator[Any]:
    """The sum of v for each k."""
    for one in k.drop_duplicates():
        of_one = k.isna() if pd.isna(one) else k.eq(one).fillna(False)
        yield one, int(v[of_one].sum())


def shares(k: pd.Series, v: pd.Series) -> Iterator[Any]:
    """How much each k has of all, which goes by the others."""
    for one, total in sums(k, v):
        yield one, total * 100 // int(v.sum() or 1)


def shifted(k: pd.Series, v: pd.Series) -> Iterator[Any]:
    """Each sum under the k that comes next."""
    rows = list(sums(k, v))
    return ((after[0], row[1]) for row, after in zip(rows, [*rows[1:], rows[0]], strict=True))


def with_total(k: pd.Series, v: pd.Series) -> Iterator[Any]:
    """A row of a k that no event has."""
    yield from sums(k, v)
    yield "total", int(v.sum())


@pytest.mark.parametrize("wrong", [shares, *(pytest.param(w, marks=pytest.mark.slow) for w in (shifted, with_total))])
def test_a_promise_to_filter_on_a_column(wrong: Any) -> None:
    texts = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3))
    kept = sq.udo("k string, n bigint", **PER_K)(sums)
    assert check_module(kept, "string, bigint", values=texts, examples=20)[-1] == "filters_on"
    broken = law_broken_by(sq.udo("k string, n bigint", **PER_K)(wrong), "string, bigint", values=texts)
    assert broken.law == "filters_on"
    # the query that goes wrong by it
    events = sq.events([(1, 2, {"k": k, "v": v}) for k, v in (("a", 1), ("b", 2))]).to_points()
    rows = events.tumbling_window(4).select(sq.udo("k string, n bigint", **PER_K)(wrong)("k", "v"))
    of_one = rows.where(sq.col("k") == ("total" if wrong is with_total else "a")).to_arrow()
    assert of_one.to_pylist() != [row for row in rows.to_arrow().to_pylist() if row["k"] in ("a", "total")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bigint", "double", "float", "timestamp", "boolean", "decimal(10, 2)", "string"])
def test_a_promise_that_is_kept_is_not_refuted_whatever_the_column(kind: str) -> None:
    @sq.udo(f"k {kind}, n bigint", name="own", time_sensitive=True, columns=["k"], properties=[sq.filters_on("k")])
    def counts(events: pd.DataFrame, window: Any) -> Iterator[Any]:
        # what is missing is NaN, NA, NaT or None by the type, and both zeros are one value
        return iter(Counter(None if pd.isna(k) else k for k in events.k).items())

    assert check_module(counts, kind, examples=30)[-1] == "filters_on"


def test_what_is_refused() -> None:
    load = sq.uda("double", name="load", time_sensitive=True)(lambda events, window: 1.0)
    with pytest.raises(
        PlanError, match=r"the argument names of load are not known; found 1 types, 0 names. Declare it with columns="
    ):
        check_module(load, "double")
    with pytest.raises(PlanError, match="check_module: axis is 'integer' or 'timestamp'; found 'days'"):
        check_module(load, "double", axis="days")


# from event to event


def stateful(step: Any, initial: Any = 0, **more: Any) -> Any:
    return sq.udso("x bigint", name="own", initial=initial, **more)(step)


def test_stateful_operators_keep_the_laws() -> None:
    @sq.udso("gap bigint, total bigint", time_sensitive=True)
    class Gaps:
        def __init__(self, by: int = 1):
            self.by = by

        def initial(self) -> tuple[int | None, int]:
            return None, 0

        def step(self, state: Any, start: int, v: int | None) -> Any:
            last, total = state
            total += (v or 0) * self.by
            return (start, total), [] if last is None else [(start - last, total)]

    laws = (*WHOLE, "zero", "add")
    assert check_module(Gaps, "bigint", values=SMALL, examples=20) == laws
    assert check_module(Gaps("v", by=2), "bigint", values=SMALL, examples=20) == laws
    seen = stateful(lambda seen, v: ({*seen, v}, [len(seen)]), initial=frozenset())
    assert check_module(seen, "string", examples=20) == laws
    hours = sq.udso("hour int", name="own", initial=None, time_sensitive=True)(lambda s, start: (s, [start.hour]))
    assert check_module(hours(), axis="timestamp", examples=5) == laws


def test_a_step_raises_nothing_and_gives_rows_of_its_columns() -> None:
    broken = law_broken_by(stateful(lambda n, v: (n + 1, [10 // (v - 3)])), values=st.just(3))
    assert (broken.law, broken.values) == ("answers", {"events": [3]})
    assert "'x' is no bigint" in str(law_broken_by(stateful(lambda n, v: (n, ["x"]))))
    assert "cannot pickle" in str(law_broken_by(stateful(lambda n, v: (threading.Lock(), None))))


def test_a_step_is_deterministic() -> None:
    calls: list[int] = []

    def counted(n: int, v: int) -> tuple[int, list[int]]:
        calls.append(1)
        return n, [len(calls)]

    assert law_broken_by(stateful(counted)).law == "deterministic"


def test_a_step_leaves_its_state_and_keeps_nothing() -> None:
    def changing(state: list[int], v: int) -> tuple[list[int], list[int]]:
        state.append(v)
        return state, [len(state)]

    broken = law_broken_by(stateful(changing, initial=[]), values=SMALL)
    assert (broken.law, str(broken.expected)) == ("pure", "{'state': [0]}")

    @sq.udso("x bigint", name="own")
    class Shared:
        first: list[int] = []

        def initial(self) -> list[int]:
            return self.first

        def step(self, state: list[int], v: int) -> tuple[list[int], None]:
            self.first.append(1)
            return [], None

    assert law_broken_by(Shared).law in ("pure", "deterministic")


def test_what_only_aggregates_have_is_not_asked_of_a_stateful_operator() -> None:
    numbered = stateful(lambda n, v: (n + 1, [n]))
    with pytest.raises(PlanError, match="check_module: reference and order_insensitive apply to aggregates only"):
        check_module(numbered, order_insensitive=True)
    with pytest.raises(PlanError, match="own is applied to other columns; found 2 types, 1 columns"):
        check_module(numbered("v"), "int, int")
    with pytest.raises(PlanError, match="own: it is called with 2 columns; it takes 1"):
        check_module(numbered, "int, int")


# what takes no column


class Counting:
    """How many members there are."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, events: pd.DataFrame) -> int:
        return state + len(events)

    def result(self, state: int, window: Any) -> Any:
        return state


class CountingRows(Counting):
    def result(self, state: int, window: Any) -> Any:
        return [state]


class Steps:
    def initial(self) -> int:
        return 0

    def step(self, state: int, *start: Any) -> Any:
        return state + 1, [state]


def length(events: pd.DataFrame, window: Any) -> int:
    return len(events)


TIMED: dict[str, Any] = {"time_sensitive": True, "name": "own"}
LIFETIMES_ALONE = {
    "uda, a function": (sq.uda("bigint", **TIMED)(length), WHOLE),
    "uda, a class": (sq.uda("bigint", **TIMED)(Counting), PARTS),
    "udo, a function": (sq.udo("n bigint", **TIMED)(lambda events, window: [len(events)]), WHOLE),
    "udo, a class": (sq.udo("n bigint", **TIMED)(CountingRows), PARTS),
    "udso, a function": (sq.udso("n bigint", initial=0, name="own")(lambda s: (s + 1, [s])), (*WHOLE, "zero", "add")),
    "udso, of starts": (
        sq.udso("n bigint", initial=0, **TIMED)(lambda s, start: (s + 1, [s])),
        (*WHOLE, "zero", "add"),
    ),
    "udso, a class": (sq.udso("n bigint", name="own")(Steps), (*WHOLE, "zero", "add")),
    "udso, a class of starts": (sq.udso("n bigint", **TIMED)(Steps), (*WHOLE, "zero", "add")),
}


@pytest.mark.parametrize("kind", LIFETIMES_ALONE)
def test_modules_that_take_no_column_are_checked(kind: str) -> None:
    module, laws = LIFETIMES_ALONE[kind]
    assert check_module(module, "", examples=5) == laws
    assert check_module(module(), examples=5) == laws


@pytest.mark.parametrize("kind", LIFETIMES_ALONE)
def test_what_is_wrong_of_one_that_takes_no_column_is_found(kind: str) -> None:
    calls: list[int] = []

    def at_random(*given: Any) -> Any:
        calls.append(1)
        return len(calls)

    code: Any = {
        "uda": at_random,
        "udo": lambda *given: [at_random()],
        "udso": lambda state, *start: (state, [at_random()]),
    }[kind.partition(",")[0]]
    decorator = {"uda": sq.uda, "udo": sq.udo, "udso": sq.udso}[kind.partition(",")[0]]
    more: dict[str, Any] = {"initial": 0} if decorator is sq.udso else {}
    timed = decorator is not sq.udso or "starts" in kind
    returns = "bigint" if decorator is sq.uda else "n bigint"
    module = decorator(returns, name="own", time_sensitive=timed, **more)(code)
    assert law_broken_by(module(), "").law == "deterministic"


def test_what_must_take_a_column_says_so() -> None:
    plain = {"uda": sq.uda("bigint", name="own")(len), "udo": sq.udo("n bigint", name="own")(lambda v: [len(v)])}
    for module in plain.values():
        with pytest.raises(PlanError, match="own: it is called without a column"):
            check_module(module, "")
    with pytest.raises(PlanError, match="own: it is called without a column"):
        check_module(sq.udf("bigint", name="own")(lambda: 1), "")


# of one event


@pytest.mark.slow
def test_functions_of_one_event_are_checked() -> None:
    laws = (*WHOLE, "apart")
    size = sq.udf("string", name="size")(lambda toll, limit=10: None if toll is None else str(toll > limit))
    assert check_module(size, "double", examples=20) == laws
    assert check_module(size("v", limit=3), "double", examples=20) == laws
    assert check_module(size(sq.col("v") + 1), "double", examples=20) == laws
    doubled = sq.udf("double", takes="series", name="doubled")(lambda v, w: v * 2 + w)
    assert check_module(doubled, "double, double", examples=20) == laws


def test_what_a_function_makes_of_other_events_is_found() -> None:
    centred = sq.udf("double", takes="series", name="centred")(lambda v: v - v.mean())
    broken = law_broken_by(centred, "double", values=st.integers(0, 3).map(float))
    assert (broken.law, broken.found, broken.expected) == ("apart", [-0.5, 0.5], [0.0, 0.0])
    failing = sq.udf("bigint", name="failing")(lambda v: 1 // v)
    assert law_broken_by(failing, "bigint", values=st.integers(0, 3)).law == "answers"
    wrong = law_broken_by(sq.udf("bigint", name="wrong")(lambda v: 1), "bigint", reference=lambda v: 2)
    assert (wrong.law, wrong.found, wrong.expected) == ("reference", [1], [2])
