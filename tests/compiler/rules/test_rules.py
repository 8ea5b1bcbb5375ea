"""The rules, each by its table in ``tests/golden/rules/``: what it makes has the schema, the traits and the history, too."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq import expressions, operators, start, windows
from streamq.choices import ClipInput, JoinKind, LengthKind, Stamp
from streamq.compiler.estimates import LikelyFlows
from streamq.compiler.results import Egress, Results
from streamq.compiler.rewriter import rewrite
from streamq.compiler.rules import RULES, Rule
from streamq.functions.catalogue import function_of
from streamq.functions.logic import conjunction
from streamq.operators import (
    AlterLifetime,
    Explode,
    Join,
    MergePartials,
    Select,
    Union,
    Where,
    WindowAggregate,
    WindowedJoin,
)
from streamq.operators.alter_lifetime import Length, Start
from streamq.operators.windowed_stream import rows_of
from streamq.plan.expr import Call, Col, Expr, Lit, Opaque
from streamq.plan.node import Node, nodes
from streamq.run.batch.answers import local_history
from streamq.runtime.partials.built_in_partials import PartialMax
from streamq.stream import Stream
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from streamq.windows import Hopping, Window
from tests.compiler.rules.law import HOPPING, MORE, STAYS, TABLES, TRIPS, drawn, history
from tests.golden_table import check_table, read_table
from tests.window_modules import WINDOWS

K, V, W, V2, X, Y, TOTAL = map(Col, ("k", "v", "w", "v2", "x", "y", "total"))
RANDOM, UUID = Call(function_of("rand"), ()).cast("double"), Call(function_of("uuid"), ())
OPAQUE, PRICE = Opaque(None, "v > 0"), Lit(Decimal("1.50"))
LARGE = conjunction([V + i > 0 for i in range(40)])
N, S, M = sq.count(), sq.sum("v"), sq.max("w")
INNER, LEFT, SEMI, ANTI = JoinKind
MERGEABLE = {
    f"{name}_{column}": getattr(sq, name)(column)
    for name in ("count", "sum", "avg", "min", "max", "var", "var_pop", "stddev", "stddev_pop")
    for column in "vw"
}
PAIR = {"n": N, "m": sq.max("x"), "a": sq.avg("w"), "s": sq.stddev("v")}
MORE_STAYS = AlterLifetime(MORE, Start(), Length(LengthKind.FIXED, 3))
trips, stays, more = Stream(TRIPS, TABLES), Stream(STAYS, TABLES), Stream(MORE, TABLES).rename(v="x", w="y")


def select(source: Node, **columns: Expr) -> Node:
    return Select(source, tuple(columns.items()))


def window(source: Node, *keys: str, stamp: Stamp = Stamp.ALIGN, **aggregates: Any) -> Node:
    return WindowAggregate(source, keys, HOPPING, tuple(aggregates.items()), stamp=stamp)


LISTS = window(TRIPS, "k", "v", all=sq.collect("w"))


def wider(below: Node) -> Node:
    """Windows over windows."""
    return WindowAggregate(below, (), Hopping(8, 8), (("most", sq.max("n")),))


def merged(source: Node) -> Node:
    partial = PartialMax("__max0", "__arg0", t.LongType())
    return MergePartials(source, ("k",), HOPPING, (("__arg0", V),), (partial,))


def named(source: Node) -> Node:
    """The columns by other names, and one that is dear."""
    return select(source, key=K, x=V + 1, long=Call(function_of("upper"), (K,)))


def shifted(source: Node) -> Node:
    return AlterLifetime(source, Start(by=3), Length(by=2))


def lasting(source: Node) -> Node:
    """As long as v says: events whose v is not positive are gone."""
    return AlterLifetime(source, Start(), Length(LengthKind.GIVEN, expr=V))


def elements(source: Node) -> Node:
    return Explode(source, "all")


def join(left: Node, right: Node, where: Expr | None = None, how: JoinKind = INNER) -> Node:
    return Join(left, right, (("k", "k"),), where, how, (("k", "k"), ("v", "v"), ("w", "w")), (("v", "v2"),))


def in_windows(left: Node, right: Node, where: Expr | None = None) -> Node:
    return WindowedJoin(left, right, HOPPING, (("k", "k"),), where, (("k", "k"), ("v", "v")), (("v", "v2"),))


def pairs(**how: Any) -> Stream:
    return trips.windowed_join(more, **{"on": "k", "size": 7, "hop": 3, "offset": 1, **how})


def aggregated(query: Stream) -> Node:
    """The aggregates of a query, which selects may rename."""
    return next(n for n in reversed(nodes(query.plan)) if isinstance(n, WindowAggregate))


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


@sq.udo("k bigint, v string", properties=PER_K)
def crossed(k: pd.Series, v: pd.Series) -> Any:
    return zip(k.astype(object).where(k.notna(), None), v, strict=True)


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


def rows(operator: Any, source: Node = TRIPS, window: Window = HOPPING, keys: tuple[str, ...] = ()) -> Node:
    """The rows of an operator over windows, whose place in time is still in columns of their own."""
    plan = rows_of(operator, source, keys, window, ClipInput.FULL, None)
    while not isinstance(plan, Explode):
        (plan,) = plan.children
    return plan


def results(*queries: Node, output: str = "final", ctis: bool = False) -> Node:
    """The results of a stream, written in one form, of which no windows share yet."""
    unshared = [rule for rule in RULES if not rule.name.startswith("share_")]
    return Results(
        tuple(rewrite(query, unshared).plan for query in queries), (Egress(output, ctis=ctis),) * len(queries)
    )


def hopping(source: Node, size: int, hop: int, **aggregates: Any) -> Node:
    return WindowAggregate(source, ("k",), Hopping(size, hop), tuple(aggregates.items()))


RARE, long, other = stays.rename(v="p", w="q"), trips.set_duration(6), more.set_duration(8)
EXPECTED = sq.Expected(rows={"trips": 1_000, "more": 100, "stays": 1}, every=10, distinct={"k": 3})


def in_turn(*streams: Stream, where: Expr | None = None, on: Any = "k") -> Stream:
    """Streams joined on each other, the first two without a condition."""
    first, second, *others = streams
    joined = first.join(second, on=on)
    for other in others:
        joined = joined.join(other, on=on, where=where)
    return joined


NAMES = {**vars(expressions), **vars(operators), **vars(windows), **globals()}
"""What the calls of the tables may name."""


def applied(rule: Rule, call: str) -> str:
    """What a rule makes of a plan, as text, and why it does no more; the history must stay that of the plan by the oracle."""
    left = eval(call, NAMES)
    likely = (LikelyFlows(EXPECTED),) * rule.reads_rates
    made, reason = rule.function(left, *likely), rule.why_not and rule.why_not(left, *likely)
    if made is not None:
        assert (made.schema, made.traits) == (left.schema, left.expansion.traits)
    if made is not None and "RANDOM" not in call:
        # only streamq itself can say what a user's code gives, and what partial results are
        is_own = rule.name == "push_where_below_udo" or isinstance(left, MergePartials | Results)
        plans = [(left, made)] if not isinstance(left, Results) else zip(left.children, made.children, strict=True)
        for before, after in plans:
            expected = history(before) if is_own else oracle(before, TABLES)
            assert expected.num_rows
            assert_same_history(history(after), expected)
    return "\n".join(["stays" if made is None else f"=> {drawn(made)}", *([f"because {reason}"] if reason else [])])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_makes_the_plans_of_its_table(rule: Rule) -> None:
    """It states its law, and there are cases in which it fires and in which it does not."""
    left, _, right = rule.law.partition(" => ")
    assert "" not in (left, right)
    check_table(f"rules/{rule.name}.txt", partial(applied, rule))
    assert {text[:2] for text in read_table(f"rules/{rule.name}.txt").values()} == {"=>", "st"}


def test_names_are_unique() -> None:
    assert len({r.name for r in RULES}) == len(RULES)


def test_a_filter_over_rows_with_lifetimes_of_their_own_comes_to_the_source() -> None:
    """It passes select, alter_lifetime and explode; the window then has the other events no more."""
    own = rows_of(firsts("k", "v"), TRIPS, ("w",), HOPPING, ClipInput.FULL, Stamp.CLIP)
    done = rewrite(Where(own, K == "a"))
    (below,) = [n for n in nodes(done.plan) if isinstance(n, WindowAggregate)]
    assert isinstance(below.input, Where)


def test_what_two_read_is_not_computed_twice() -> None:
    shared = rows(totals("k", "v"))
    done = rewrite(Union((Where(shared, K == "a"), Where(shared, K == "b"))))
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
        filters = [K == "a", K.is_null(), (K == "b") | K.is_null(), TOTAL > 1, start() > 6]
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
