from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import streamq as sq
from streamq.choices import ClipInput, Stamp
from streamq.compiler.rewriter import rewrite
from streamq.compiler.rules.filters_below_state import push_where_below_udo
from streamq.expressions import start
from streamq.functions.catalogue import function_of
from streamq.operators import Explode, Union, Where, WindowAggregate
from streamq.operators.windowed_stream import rows_of
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.node import Node, nodes
from streamq.run.batch.answers import local_history
from streamq.stream import Stream
from streamq.user_code.udo import UserOperator
from streamq.windows import Landmark, Snapshot, Window
from tests.compiler.rules.law import HOPPING, STAYS, TRIPS, holds_in_process, why_not
from tests.window_modules import WINDOWS

K, T = Col("k"), Col("total")
PER_K = [sq.filters_on("k")]


@sq.udo("k string, total bigint", properties=PER_K)
def totals(k: pd.Series, v: pd.Series) -> Iterator[tuple[str | None, int]]:
    """A row for each k of a window: the sum of its v."""
    for one in dict.fromkeys(None if pd.isna(x) else x for x in k):
        yield one, int(v[k.isna() if one is None else k == one].sum())


@sq.udo("k string, total bigint", time_sensitive=True, columns=["k", "v"], properties=PER_K)
def firsts(events: pd.DataFrame, window: Any) -> Iterator[tuple[Any, ...]]:
    """The first event of each k, from where it starts."""
    for event in events.drop_duplicates("k").itertuples():
        yield max(event.start, window.start), window.end, event.k, None if pd.isna(event.v) else int(event.v)


@sq.udo("k string", properties=PER_K, on_error="quarantine")
def ks(k: pd.Series) -> Any:
    return k.drop_duplicates()


@sq.udo("k bigint, total double", properties=[sq.filters_on("k", "total")])
class Casting:
    """Rows whose k is of another type than the argument, and a filter on a float."""

    def initial(self) -> int:
        return 0

    def add(self, s: int, k: pd.Series, total: pd.Series) -> int:
        return s + len(k)

    def result(self, s: int) -> list[tuple[int, float]]:
        return [(s, 0.0)]


@sq.udf("string", name="upper_k")
def upper(k: str | None) -> str | None:
    return None if k is None else k.upper()


@sq.udo("k string", properties=PER_K)
def of_any(*values: pd.Series) -> Any:
    return values[0]


def exploded(
    operator: UserOperator,
    source: Node,
    *args: Any,
    keys: tuple[str, ...] = (),
    window: Window = HOPPING,
    **options: Any,
) -> Explode:
    """The rows of an operator over windows, whose place in time is still in columns of their own."""
    plan = rows_of(operator(*args, **options), source, keys, window, ClipInput.FULL, None)
    while not isinstance(plan, Explode):
        (plan,) = plan.children
    return plan


def test_a_filter_goes_below_as_one_on_the_arguments() -> None:
    for p in (K == "a", K.is_null() | (K > "a")):
        right = exploded(totals, Where(TRIPS, p), "k", "v")
        holds_in_process(push_where_below_udo, Where(exploded(totals, TRIPS, "k", "v"), p), right)
    text = Col("v").cast("string")
    left = Where(exploded(totals, TRIPS, text, "v"), K > "1")
    holds_in_process(push_where_below_udo, left, exploded(totals, Where(TRIPS, text > "1"), text, "v"))


def test_arguments_are_told_by_what_the_code_calls_them() -> None:
    @sq.udo("k bigint, v string", properties=[sq.filters_on("k")])
    def crossed(k: pd.Series, v: pd.Series) -> Any:
        return zip(k.astype(object).where(k.notna(), None), v, strict=True)

    left = Where(exploded(crossed, TRIPS, "v", "k"), K > 1)
    holds_in_process(push_where_below_udo, left, exploded(crossed, Where(TRIPS, Col("v") > 1), "v", "k"))


def test_the_rest_stays_above_and_keys_may_be_read_too() -> None:
    left = Where(exploded(firsts, TRIPS, "k", "v"), (T > 1) & (K == "a"))
    holds_in_process(push_where_below_udo, left, Where(exploded(firsts, Where(TRIPS, K == "a"), "k", "v"), T > 1))
    p = (K == "a") | (Col("v") > 3)
    left = Where(exploded(totals, TRIPS, "k", "v", keys=("v",)), p)
    holds_in_process(push_where_below_udo, left, exploded(totals, Where(TRIPS, p), "k", "v", keys=("v",)))


def test_members_that_its_own_filter_leaves_out_stay_out() -> None:
    left = Where(exploded(totals, TRIPS, "k", "v", where=Col("v") > 0), K == "a")
    holds_in_process(push_where_below_udo, left, exploded(totals, Where(TRIPS, K == "a"), "k", "v", where=Col("v") > 0))


@pytest.mark.parametrize(
    ("source", "window"), [(STAYS, HOPPING), (STAYS, Snapshot()), (TRIPS, Snapshot()), (TRIPS, Landmark(4))]
)
def test_where_all_events_place_a_window_its_operator_alone_takes_those_that_pass(source: Node, window: Window) -> None:
    left = Where(exploded(totals, source, "k", "v", window=window), (K == "a") & (T > 0))
    right = Where(exploded(totals, source, "k", "v", window=window, where=K == "a"), T > 0)
    holds_in_process(push_where_below_udo, left, right)
    left = Where(exploded(totals, source, "k", "v", window=window, where=Col("v") > 0), K == "a")
    right = exploded(totals, source, "k", "v", window=window, where=(Col("v") > 0) & (K == "a"))
    holds_in_process(push_where_below_udo, left, right)


@pytest.mark.parametrize(
    ("plan", "p", "reason"),
    [
        (exploded(totals, TRIPS, "k", "v"), T > 1, "totals does not promise sq.filters_on('total')"),
        (exploded(totals, TRIPS, "k", "v"), start() > 1, None),
        (exploded(totals, TRIPS, "k", "v"), (K == "a") | (start() > 1), "k == 'a' or start() > 1 reads the lifetime"),
        (
            exploded(totals, TRIPS, "k", "v"),
            Call(function_of("uuid"), ()) > K,
            "uuid() > k is not known to be determin",
        ),
        (exploded(ks, TRIPS, "k"), K == "a", "what fails of ks is set aside with all members of its window"),
        (exploded(Casting, TRIPS, "k", "w"), K == 1, "k has another type as an argument of Casting than as its"),
        (exploded(Casting, TRIPS, "v", "w"), T == 1, "total is double: values that are equal may differ"),
        (exploded(Casting, TRIPS, "v", "w"), 1 / K == 1, "1 / v == 1 may fail, and would see events of no reported"),
        (exploded(of_any, TRIPS, "k"), K == "a", "no argument of of_any is called 'k': say columns= in its decorator"),
        (exploded(totals, TRIPS, upper("k"), "v"), K == "a", "k = upper_k(k) would be evaluated twice"),
    ],
)
def test_it_stays_above(plan: Explode, p: Expr, reason: str | None) -> None:
    assert push_where_below_udo(Where(plan, p)) is None
    found = why_not(push_where_below_udo, Where(plan, p))
    assert found is None if reason is None else (found or "").startswith(reason)


def test_elements_of_other_arrays_are_left_alone() -> None:
    lists = Stream(TRIPS, {}).tumbling_window(4).select(k=sq.collect("k")).plan
    assert push_where_below_udo(Where(Explode(lists, "k"), K == "a")) is None
    assert why_not(push_where_below_udo, Where(Explode(lists, "k"), K == "a")) is None


def test_a_filter_over_rows_with_lifetimes_of_their_own_comes_to_the_source() -> None:
    """It passes select, alter_lifetime and explode; the window then has the other events no more."""
    rows = rows_of(firsts("k", "v"), TRIPS, ("w",), HOPPING, ClipInput.FULL, Stamp.CLIP)
    done = rewrite(Where(rows, K == "a"))
    (window,) = [n for n in nodes(done.plan) if isinstance(n, WindowAggregate)]
    assert isinstance(window.input, Where)


def test_what_two_read_is_not_computed_twice() -> None:
    rows = exploded(totals, TRIPS, "k", "v")
    both = Where(rows, K == "a"), Where(rows, K == "b")
    done = rewrite(Union(both))
    assert not [f for f in done.firings if f.rule.name == "push_where_below_udo"]
    assert "push_where_below_udo" in {s.rule.name for s in done.skipped}


def drawn_rows(rng: random.Random) -> sq.Stream:
    """Events of a few values, NULLs among them: points, events that all end, and intervals, some without an end."""
    starts = [rng.randrange(20) for _ in range(rng.randrange(1, 14))]
    payloads = [
        {"k": rng.choice(["a", "b", None]), "z": rng.choice("xy"), "v": rng.choice([1, 2, None])} for _ in starts
    ]
    ends = [None if rng.random() < 0.1 else at + rng.randrange(1, 9) for at in starts]
    schema = {"k": "string", "z": "string", "v": "bigint"}
    stream = sq.events(list(zip(starts, ends, payloads, strict=True)), schema=schema)
    return rng.choice([stream, stream.set_duration(rng.randrange(1, 7))])


@pytest.mark.slow
def test_filters_over_an_operator_give_the_same_with_and_without_the_laws() -> None:
    """Whatever the windows, stamps and groups, through all laws: the law fires over windows of every kind."""
    rng = random.Random(7)
    fired: Counter[str] = Counter()
    for i in range(180 if os.environ.get("STREAMQ_SOAK") else 90):
        stream = drawn_rows(rng)
        grouped: Any = stream.group_by("z") if rng.random() < 0.5 else stream
        kind = [*WINDOWS][i % len(WINDOWS)]
        filters = [K == "a", K.is_null(), (K == "b") | K.is_null(), T > 1, start() > 6]
        filters += [] if grouped is stream else [Col("z") == "x", (Col("z") == "x") | (K == "b")]
        clip = "right" if kind == "ends" else "full"
        windows = WINDOWS[kind](grouped, clip_input=clip, stamp=rng.choice([None, "clip", "align", "point_at_end"]))
        query = windows.select(firsts("k", "v"))
        for p in rng.sample(filters, 2):
            query = query.where(p)
        done = rewrite(query.plan)
        fired[kind] += any(f.rule.name == "push_where_below_udo" for f in done.firings)
        with_laws, without = (local_history(plan, query.tables, ()) for plan in (done.plan, query.plan))
        assert Counter(map(str, with_laws.to_pylist())) == Counter(map(str, without.to_pylist()))
    assert all(fired[kind] > 2 for kind in WINDOWS)
