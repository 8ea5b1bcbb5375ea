"""check_module: right modules keep the laws, with what they declare; each wrong one is refuted by the law that it breaks."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import PlanError, TypeMismatch
from streamq.plan.lowering import ship_runtime
from streamq.testing.modules import LawBroken, check_module
from tests.window_modules import BOUND, FORMS, MODULES, at_last, lived

SCALE = max(1, settings().max_examples // 40)
"""`make soak` tries more."""

V = sq.col("v")
SMALL = st.sampled_from([0, 1, 2, 3, 4, None])
WHOLE = ("answers", "deterministic", "pure")
STEPS = (*WHOLE, "zero", "add")
PARTS = (*STEPS, "order")
LAWS = {
    "function": WHOLE,
    "incremental": (*PARTS, "remove"),
    "merging": (*PARTS, "remove", "merge"),
    "adding": PARTS,
}
TIMED: dict[str, Any] = {"time_sensitive": True, "name": "own"}


def law_broken_by(module: Any, types: str = "bigint", **more: Any) -> LawBroken:
    with pytest.raises(LawBroken) as found:
        check_module(module, types, **more)
    return found.value


# right modules


class Total:
    """An exact sum of integers: what is added can be taken off again."""

    def initial(self) -> Any:
        return 0, 0

    def add(self, state: Any, values: pd.Series) -> Any:
        return state[0] + int(values.sum()), state[1] + int(values.count())

    def remove(self, state: Any, values: pd.Series) -> Any:
        return state[0] - int(values.sum()), state[1] - int(values.count())

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]

    def result(self, state: Any) -> Any:
        return state[0] if state[1] else None


class Values:
    """A mean of floats that can lose some: it keeps them, and adds up what is left."""

    def initial(self) -> Counter[float]:
        return Counter()

    def add(self, state: Counter[float], values: pd.Series) -> Counter[float]:
        return state + Counter(values.dropna())

    def remove(self, state: Counter[float], values: pd.Series) -> Counter[float]:
        return state - Counter(values.dropna())

    def merge(self, a: Counter[float], b: Counter[float]) -> Counter[float]:
        return a + b

    def result(self, state: Counter[float]) -> float | None:
        return float(np.mean(sorted(state.elements()))) if state else None


class Longest:
    """Spark's Aggregator, over two arguments; it changes its buffer, as it may."""

    zero: dict[str, Any] = {"text": None, "n": -1}

    def reduce(self, buffer: dict[str, Any], row: tuple[str | None, int | None]) -> dict[str, Any]:
        text, n = row
        if text is not None and n is not None and (n, text) > (buffer["n"], buffer["text"] or ""):
            buffer["text"], buffer["n"] = text, n
        return buffer

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return self.reduce(a, (b["text"], b["n"]))

    def finish(self, buffer: dict[str, Any]) -> str | None:
        return buffer["text"]


def latest(values: pd.Series) -> Any:
    return values.iloc[-1]


size = sq.udf("string", name="size")(lambda toll, limit=10: None if toll is None else str(toll > limit))


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


def scan(step: Any, initial: Any = 0, **more: Any) -> Any:
    return sq.udso("x bigint", name="own", initial=initial, **more)(step)


RIGHT: dict[str, tuple[Any, str, dict[str, Any], tuple[str, ...]]] = {
    "a class": (Total, "bigint", {}, LAWS["merging"]),
    "an object": (Values(), "double", {}, LAWS["merging"]),
    "an Aggregator": (Longest, "string, int", {}, (*PARTS, "merge")),
    "a function of any order": (pd.Series.median, "double", {"order_insensitive": True}, (*WHOLE, "order")),
    "a function": (latest, "string", {}, WHOLE),
    "udf": (size, "double", {}, (*WHOLE, "apart")),
    "udf with an option": (size("v", limit=3), "double", {}, (*WHOLE, "apart")),
    "udf of an expression": (size(V + 1), "double", {}, (*WHOLE, "apart")),
    "udf of two Series": (
        sq.udf("double", takes="series", name="own")(lambda v, w: v * 2 + w),
        "double, double",
        {},
        (*WHOLE, "apart"),
    ),
    "udso": (Gaps, "bigint", {"values": SMALL}, STEPS),
    "udso with an option": (Gaps("v", by=2), "bigint", {"values": SMALL}, STEPS),
    "udso of a set": (scan(lambda seen, v: ({*seen, v}, [len(seen)]), frozenset()), "string", {}, STEPS),
    "udso of instants": (
        sq.udso("hour int", initial=None, **TIMED)(lambda s, start: (s, [start.hour]))(),
        "double",
        {"axis": "timestamp"},
        STEPS,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_modules_of_every_shape_keep_the_laws(name: str) -> None:
    module, types, options, laws = RIGHT[name]
    assert check_module(module, types, examples=10 * SCALE, **options) == laws


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_modules_over_windows_of_every_form_keep_the_laws(form: str) -> None:
    for kind in ("uda", "udo"):
        assert check_module(MODULES[kind, form, False], "bigint", values=SMALL, examples=10) == LAWS[form]
    of_lifetimes = tuple(law for law in LAWS[form] if law != "merge")
    assert check_module(MODULES["udo", form, True]("v"), "bigint", values=SMALL, examples=10) == of_lifetimes


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["integer", "timestamp"])
def test_a_time_sensitive_module_reads_lifetimes_within_a_window_of_either_axis(axis: str) -> None:
    @sq.uda("double", columns=["value"], **TIMED)
    def weighted(events: pd.DataFrame, window: Any) -> float:
        assert ((window.start <= events.start) & (events.end <= window.end) & (events.start < events.end)).all()
        return float((events.value * ((events.end - events.start) / window.duration)).sum())

    assert check_module(weighted, "double", values=[1.0, 2.5], examples=20, axis=axis) == WHOLE
    reference: Any = lambda events, window: float(events.value.sum())  # noqa: E731
    broken = law_broken_by(weighted, "double", values=[1.0], axis=axis, reference=reference)
    ((row,),) = broken.values.values()
    assert broken.law == "reference" and {*row} == {"start", "end", "value"}


# wrong modules, each by the law that it breaks


def variant(name: str, base: type = Total, /, **methods: Any) -> type:
    """A class that differs from another in these methods, which are without ``self``; None: it has none."""
    own = {method: code and staticmethod(code) for method, code in methods.items()}
    return type(name, (base,), own)


def mean(state: Any) -> Any:
    return state[0] / state[1] if state[1] else None


def appended(state: Any, values: pd.Series) -> Any:
    state.extend(values.dropna())
    return state


def clips(values: pd.Series) -> Any:
    values[values > 1] = 1
    return values.sum()


def mean_of_means(a: Any, b: Any) -> Any:
    if not a[1] or not b[1]:
        return a if a[1] else b
    return (a[0] / a[1] + b[0] / b[1]) / 2, 1


def running(state: Any, values: pd.Series) -> Any:
    own = values.dropna().mean() if values.count() else None
    return state if own is None else (own if not state[1] else (state[0] + own) / 2, 1)


def inverted(state: float, values: pd.Series) -> float:
    if not (values.abs() > 0).all():
        raise ValueError("no zeros")
    return state + float((1 / values).sum())


class KeepsOnSelf(Total):
    def __init__(self) -> None:
        self.total = 0

    def add(self, state: Any, values: pd.Series) -> Any:
        self.total += int(values.sum())
        return self.total, state[1] + 1


class WrongAt(Total):
    """Wrong in one result, or in every third: a law that is broken now and holds when it is tried again."""

    def __init__(self, call: int = 200) -> None:
        self.call, self.calls = call, 0

    def result(self, state: Any) -> Any:
        self.calls += 1
        return self.calls % 3 if self.call == 3 else state[0] + (self.calls == self.call)


SUBTRACTS = variant(
    "Subtracts",
    initial=lambda: (0.0, 0),
    add=lambda state, v: (state[0] + v.sum(), state[1] + v.count()),
    remove=lambda state, v: (state[0] - v.sum(), state[1] - v.count()),
)
DISTINCT = variant(
    "Distinct",
    initial=frozenset,
    add=lambda state, values: state | {v for v in values.tolist() if v == v},
    remove=lambda state, values: state - set(values.tolist()),
    merge=None,
    result=len,
)
MEANS = variant("Means", SUBTRACTS, remove=None, merge=mean_of_means, result=mean)
FORGETS = variant("Forgets", remove=None, merge=None, result=lambda state: state[0] / state[1])
REFUSES = variant(
    "Refuses", initial=float, add=inverted, remove=None, merge=lambda a, b: a + b, result=lambda state: state
)


WRONG = [
    (DISTINCT, "double", "remove"),
    (DISTINCT, "int", "remove"),
    (SUBTRACTS, "double", "remove"),
    (SUBTRACTS, "float", "remove"),
    (variant("StartsAtOne", initial=lambda: (1, 0)), "bigint", "zero"),
    (variant("LeftWins", Values, remove=None, merge=lambda a, b: a or b), "double", "merge"),
    (MEANS, "double", "merge"),
    (variant("RunningMean", MEANS, merge=None, add=running), "double", "add"),
    (variant("Appends", initial=list, add=appended, remove=None, merge=None, result=len), "double", "pure"),
    (clips, "double", "pure"),
    (KeepsOnSelf, "bigint", "deterministic"),
    (WrongAt(3), "bigint", "deterministic"),
    (WrongAt(), "int", "deterministic"),
    (lambda values: random.random(), "string", "deterministic"),
    (variant("CountsNullsIn", add=lambda s, v: (s[0] + int(v.sum()), s[1] + len(v)), result=mean), "int", "remove"),
    (FORGETS, "int", "answers"),
    (REFUSES, "double", "answers"),
    (
        variant(
            "TakesTheLast",
            add=lambda state, v: (int(v.dropna().iloc[-1]), 1) if v.count() else state,
            remove=None,
            merge=None,
        ),
        "int",
        "order",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "kind", "law"), WRONG)
def test_wrong_modules_are_refuted_by_the_law_they_break(module: Any, kind: str, law: str) -> None:
    assert law_broken_by(module, kind).law == law


def test_a_float_taken_out_of_a_running_sum_is_shown_with_the_smallest_values() -> None:
    broken = law_broken_by(SUBTRACTS, "double")
    assert broken.values == {"rest": [1.0], "removed": [1e16]}
    assert (broken.module, broken.found, broken.expected) == ("Subtracts", 0.0, 1.0)
    assert str(broken) == (
        "check_module: Subtracts breaks the law of remove: adding events and removing them changes nothing; "
        "found 0.0, expected 1.0. The smallest values that show it: rest = [1.0]; removed = [1e+16]"
    )


def ready_after_a_call() -> Any:
    """A function that begins in its first call, which has another result."""
    calls: list[int] = []

    def counted(values: pd.Series) -> int:
        calls.append(1)
        return len(values) if len(calls) > 1 else 0

    return counted


def relative_to_the_first() -> Any:
    """A function that keeps the values of its first call, and repeats each call as it was."""
    first: dict[str, int] = {}
    return lambda values: len(values) - first.setdefault("length", len(values))


def class_that_is_loaded() -> Any:
    """A class whose first object loads what all have."""

    class Loaded(Total):
        factor = 0

        def result(self, state: Any) -> Any:
            own, type(self).factor = type(self).factor, 1
            return state[1] * own

    return Loaded


@pytest.mark.parametrize("made", [ready_after_a_call, relative_to_the_first, class_that_is_loaded])
def test_a_first_call_that_differs_is_seen_whatever_the_code_keeps(made: Any) -> None:
    """Of plain code, and of what is decorated and applied: each gets copies that were never called."""
    broken = law_broken_by(made(), "int")
    assert broken.law == "deterministic" and "the first call of the code" in str(broken)
    assert law_broken_by(sq.uda("bigint", name="own")(made())("v"), "int").law == "deterministic"


def test_a_first_call_that_differs_is_seen_of_functions_and_scans() -> None:
    first, second = ready_after_a_call(), ready_after_a_call()
    assert law_broken_by(sq.udf("bigint", name="own")(lambda v: first([v])), "int").law == "deterministic"
    assert law_broken_by(scan(lambda state, v: (state, [second([v])])), "int").law == "deterministic"


def test_what_code_holds_of_streamq_is_not_copied() -> None:
    """Spark sends streamq to workers with the queries; a copy of code shares it, as where it is installed."""
    ship_runtime()
    assert check_module(lambda values: float(values.sum()) if isinstance(V, type(sq.col("v"))) else np.nan) == WHOLE


def test_copies_leave_the_code_as_it_is() -> None:
    """States may be of classes of the code, of which a copy has its own."""

    class Step:
        count = 0

    class Steps:
        def initial(self) -> Step:
            return Step()

        def step(self, state: Step, v: Any) -> Any:
            return Step(), [1]

    step = Steps.step
    assert check_module(sq.udso("n bigint", name="own")(Steps), "int", examples=5)[:3] == WHOLE
    assert Steps.step is step and type(Steps().initial()) is Step


# what is declared


def test_a_class_with_parameters_is_checked_as_one_without() -> None:
    def weighed(base: type) -> Any:
        class Weighed(base):  # type: ignore[misc]
            def __init__(self, by: float = 1.0):
                self.by = by

            def result(self, state: Any) -> Any:
                return state[0] * self.by if state[1] else None

        return sq.uda("double", name="weighed")(Weighed)

    right, wrong = weighed(Total), weighed(SUBTRACTS)
    assert check_module(right("v", by=2.0), "bigint", examples=10) == check_module(right, "bigint", examples=10)
    for applied in (wrong("v", by=2.0), wrong(V + 0, by=2.0, where=V > 0)):
        broken = law_broken_by(applied, "double")
        assert (broken.law, broken.values) == ("remove", {"rest": [1.0], "removed": [1e16]})


def test_declared_options_and_properties_count() -> None:
    @sq.uda("double", name="scaled", properties=[sq.order_insensitive])
    def scaled(v: pd.Series, by: int = 1) -> float:
        return float(v.iloc[0] * by) if by > 1 else float(v.count())

    assert check_module(scaled, "bigint", values=[0, 1, 2], examples=10)[-1] == "order"
    for broken in (
        law_broken_by(scaled.with_options({"by": 2}), values=st.integers(0, 3)),
        law_broken_by(latest, values=st.integers(0, 3), order_insensitive=True),
    ):
        assert (broken.law, broken.values) == ("order", {"first": [0], "then": [1]})


def test_results_must_be_of_the_type() -> None:
    broken = law_broken_by(sq.uda("bigint", name="half")(lambda v: len(v) / 2))
    assert (broken.law, broken.values) == ("answers", {"events": [1]})
    assert "0.5 is no bigint" in str(broken)


def test_what_a_module_raises_is_told() -> None:
    broken = law_broken_by(FORGETS, "int")
    assert broken.values == {"events": [None]}
    assert isinstance(broken.__cause__, ZeroDivisionError)
    assert "found ZeroDivisionError('division by zero'), expected 'a result'" in str(broken)


def test_what_raises_on_purpose_is_checked_over_the_values_that_it_is_for() -> None:
    told = str(law_broken_by(REFUSES, "double"))
    assert "pass those that it accepts, as a list or a Hypothesis strategy: values=[...]" in told
    for values in ([1.0, 2.0, 4.0], st.sampled_from((1.0, 2.0, 4.0))):
        assert check_module(REFUSES, values=values, examples=20)[:3] == WHOLE


def test_a_reference_says_what_laws_cannot() -> None:
    doubled = variant("Doubled", result=lambda state: 2 * state[0] if state[1] else None)

    def total(values: pd.Series) -> Any:
        return int(values.sum()) if values.count() else None

    assert check_module(Total, "int", reference=total, examples=20)[-1] == "reference"
    broken = law_broken_by(doubled, "int", reference=total)
    assert (broken.law, broken.values, broken.found, broken.expected) == ("reference", {"events": [1]}, 2, 1)
    wrong = law_broken_by(sq.udf("bigint", name="wrong")(lambda v: 1), reference=lambda v: 2)
    assert (wrong.law, wrong.found, wrong.expected) == ("reference", [1], [2])


def test_values_may_be_given_and_shown_by_argument() -> None:
    def lost(x: pd.Series, y: pd.Series) -> int:
        return int((x > 9).sum() - (y > 9).sum() * (len(y) > 1)) if (x > 9).any() else 1 // 0

    small = st.tuples(st.integers(10, 20), st.integers(0, 5))
    assert check_module(lost, "int, int", values=small, examples=20) == WHOLE
    assert law_broken_by(lost, "int, int").values == {"events": [{"x": 1, "x1": 1}]}


@pytest.mark.slow
def test_seeds_and_tolerance() -> None:
    rounded = variant("Rounded", add=lambda s, v: (round(s[0] + float(v.sum()), 1), s[1] + int(v.count())))
    numbers = st.sampled_from((0.25, 0.5, 1.0))
    assert law_broken_by(rounded, "double", values=numbers, seed=1).law in LAWS["merging"][3:]
    assert check_module(rounded, values=numbers, seed=2, tolerance=2.0, examples=20) == LAWS["merging"]


# promises of operators


@pytest.mark.slow
@pytest.mark.parametrize("result", [lived, at_last])
def test_a_promise_to_be_time_bound_that_is_kept(result: Any) -> None:
    assert "time_bound" in check_module(BOUND["incremental", result]("v"), "bigint", values=SMALL, examples=20)


def test_a_promise_to_be_time_bound_that_is_broken() -> None:
    @sq.udo("n bigint", properties=[sq.time_bound], columns=["v"], **TIMED)
    def counts(events: pd.DataFrame, window: Any) -> Iterator[Any]:
        yield window.start, window.end, len(events)

    broken = law_broken_by(counts, values=SMALL)
    assert broken.law == "time_bound"
    assert "events that start at 0 or later change no row before that" in str(broken)


@pytest.mark.slow
def test_lifetimes_that_are_not_taken_back_are_found() -> None:
    forgets = variant(
        "Forgets",
        initial=int,
        add=lambda state, events: state + int((events.end - events.start).sum()),
        remove=lambda state, events: state - len(events),
        merge=None,
        result=lambda state, window: state,
    )
    assert law_broken_by(sq.uda("bigint", columns=["v"], **TIMED)(forgets)).law == "remove"


def per_k(code: Any) -> Any:
    return sq.udo("k string, n bigint", properties=[sq.filters_on("k")], name="own")(code)


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
    assert check_module(per_k(sums), "string, bigint", values=texts, examples=20)[-1] == "filters_on"
    assert law_broken_by(per_k(wrong), "string, bigint", values=texts).law == "filters_on"
    # the query that goes wrong by it
    events = sq.events([(1, 2, {"k": k, "v": v}) for k, v in (("a", 1), ("b", 2))]).to_points()
    rows = events.tumbling_window(4).select(per_k(wrong)("k", "v"))
    of_one = rows.where(sq.col("k") == ("total" if wrong is with_total else "a")).to_arrow()
    assert of_one.to_pylist() != [row for row in rows.to_arrow().to_pylist() if row["k"] in ("a", "total")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bigint", "double", "float", "timestamp", "boolean", "decimal(10, 2)", "string"])
def test_a_promise_that_is_kept_is_not_refuted_whatever_the_column(kind: str) -> None:
    @sq.udo(f"k {kind}, n bigint", columns=["k"], properties=[sq.filters_on("k")], **TIMED)
    def counts(events: pd.DataFrame, window: Any) -> Iterator[Any]:
        # what is missing is NaN, NA, NaT or None by the type, and both zeros are one value
        return iter(Counter(None if pd.isna(k) else k for k in events.k).items())

    assert check_module(counts, kind, examples=30)[-1] == "filters_on"


# from event to event, and of one event


def test_a_step_raises_nothing_and_gives_rows_of_its_columns() -> None:
    broken = law_broken_by(scan(lambda n, v: (n + 1, [10 // (v - 3)])), values=[3])
    assert (broken.law, broken.values) == ("answers", {"events": [3]})
    assert "'x' is no bigint" in str(law_broken_by(scan(lambda n, v: (n, ["x"]))))
    assert "cannot pickle" in str(law_broken_by(scan(lambda n, v: (threading.Lock(), None))))


def test_a_step_leaves_its_state_and_keeps_nothing() -> None:
    broken = law_broken_by(scan(lambda state, v: (state, [state.append(v) or len(state)]), []), values=SMALL)
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


def test_what_a_function_makes_of_other_events_is_found() -> None:
    centred = sq.udf("double", takes="series", name="centred")(lambda v: v - v.mean())
    broken = law_broken_by(centred, "double", values=st.integers(0, 3).map(float))
    assert (broken.law, broken.found, broken.expected) == ("apart", [-0.5, 0.5], [0.0, 0.0])
    failing = sq.udf("bigint", name="failing")(lambda v: 1 // v)
    assert law_broken_by(failing, values=st.integers(0, 3)).law == "answers"


# what takes no column


class Counting:
    """How many members there are."""

    def initial(self) -> int:
        return 0

    def add(self, state: int, events: pd.DataFrame) -> int:
        return state + len(events)

    def result(self, state: int, window: Any) -> Any:
        return state


class Steps:
    def initial(self) -> int:
        return 0

    def step(self, state: int, *start: Any) -> Any:
        return state + 1, [state]


def at_random(*given: Any) -> Any:
    return random.randrange(10**9)


LIFETIMES_ALONE: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "uda, a function": (sq.uda("bigint", **TIMED), lambda events, window: len(events), WHOLE),
    "uda, a class": (sq.uda("bigint", **TIMED), Counting, PARTS),
    "udo, a function": (sq.udo("n bigint", **TIMED), lambda events, window: [len(events)], WHOLE),
    "udo, a class": (
        sq.udo("n bigint", **TIMED),
        variant("Rows", Counting, result=lambda state, window: [state]),
        PARTS,
    ),
    "udso, a function": (sq.udso("n bigint", initial=0, name="own"), lambda s: (s + 1, [s]), STEPS),
    "udso, of starts": (sq.udso("n bigint", initial=0, **TIMED), lambda s, start: (s + 1, [s]), STEPS),
    "udso, a class": (sq.udso("n bigint", name="own"), Steps, STEPS),
    "udso, a class of starts": (sq.udso("n bigint", **TIMED), Steps, STEPS),
}


@pytest.mark.parametrize("kind", LIFETIMES_ALONE)
def test_modules_that_take_no_column_are_checked(kind: str) -> None:
    decorate, code, laws = LIFETIMES_ALONE[kind]
    module = decorate(code)
    assert check_module(module, "", examples=5) == laws
    assert check_module(module(), examples=5) == laws
    wrong: dict[str, Any] = {
        "uda": at_random,
        "udo": lambda *given: [at_random()],
        "udso": lambda state, *start: (state, [at_random()]),
    }
    if kind in ("uda, a function", "udo, a function", "udso, a function", "udso, of starts"):
        assert law_broken_by(decorate(wrong[kind.partition(",")[0]])(), "").law == "deterministic"


class Scaled:
    """A module whose objects differ."""

    def __init__(self, by: int):
        self.by = by

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: Any) -> int:
        return state + len(values)

    def result(self, state: int) -> int:
        return state * self.by


numbered = scan(lambda n, v: (n + 1, [n]))
REFUSED: list[tuple[Any, str, dict[str, Any], str]] = [
    (7, "int", {}, "check_module: not a module; found 7. Give a function of Series"),
    (sq.sum("v"), "int", {}, "check_module: not a module; found"),
    (size, "int", {"order_insensitive": True}, "order_insensitive applies to aggregates only; size is called for one"),
    (latest, "", {}, "check_module: no types; it is called with a Series for each argument"),
    (sq.uda("int", name="own")(len)("v"), "int, int", {}, "check_module: 2 types for 1 arguments; found own"),
    (latest, "int, text", {}, "^check_module: no such type; found 'text' in 'int, text'. Write 'string'"),
    (latest, "int", {"examples": 0}, "check_module: examples is not a whole number of at least 1; found 0"),
    (Scaled, "int", {}, r"Scaled: it cannot be made; .*'by'. It is Scaled\(by\)"),
    *(
        (REFUSES, "double", {"values": none}, r"check_module: no values; found values=.* Write a list, \[1.0, 2.0\]")
        for none in ([], 1.0, {1.0})
    ),
    (
        sq.uda("double", name="load", time_sensitive=True)(lambda events, window: 1.0),
        "double",
        {},
        r"the argument names of load are not known; found 1 types, 0 names. Declare it with columns=",
    ),
    (latest, "double", {"axis": "days"}, "check_module: axis is 'integer' or 'timestamp'; found 'days'"),
    (numbered, "int", {"order_insensitive": True}, "reference and order_insensitive apply to aggregates only"),
    (numbered("v"), "int, int", {}, "own is applied to other columns; found 2 types, 1 column"),
    (numbered, "int, int", {}, "own: it is called with 2 columns; it takes 1"),
    (sq.uda("bigint", name="own")(len), "", {}, "own: it is called without a column"),
    (sq.udo("n bigint", name="own")(lambda v: [len(v)]), "", {}, "own: it is called without a column"),
    (sq.udf("bigint", name="own")(lambda: 1), "", {}, "own: it is called without a column"),
]


@pytest.mark.parametrize(("module", "types", "options", "message"), REFUSED)
def test_what_is_refused(module: Any, types: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((PlanError, TypeMismatch), match=message):
        check_module(module, types, **options)
    assert "add" in check_module(Scaled(2), "int", examples=1)
