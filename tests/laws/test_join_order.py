"""Joins and sequences give the oracle's answer in whatever order the rates that are told make of them, at every level."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.run.batch.answers import local_history
from streamq.runtime.deltas import WEIGHT
from streamq.testing.case import Case
from streamq.testing.execution import LITERAL, STREAM, Execution
from streamq.testing.history import as_history, assert_same_history
from streamq.testing.oracle import oracle
from streamq.testing.trial import check
from tests.changed_query import ChangingRun
from tests.patterns.pattern_cases import crowded

SOAK = bool(os.environ.get("STREAMQ_SOAK"))
NAMES = "abcd"
SCHEMA = {"k": "string", "j": "bigint", "v": "bigint"}
Kind = Callable[[random.Random], sq.Stream]
RATES = (1, 5, 50, 400, 3_000, 20_000)

PAYLOAD = {"k": ["a"] * 4 + ["b", None], "j": [0, 0, 1, None], "v": [0, 1, 2]}
DATA = t.Intent(pattern=crowded, late="none", invalid=False, payload=PAYLOAD)
"""Disorder, corrections and deletions, over keys that are mostly equal."""

WAYS = (
    Execution(LITERAL),
    Execution(STREAM, OutputForm.FINAL, restart=True, buckets=2),
    Execution(STREAM, OutputForm.CHANGELOG, restart=True, buckets=2, blocks=(0, None, 5), ctis=True),
)


def source(name: str, chance: random.Random) -> sq.Stream:
    """A stream whose rows may be taken back, or points, of some length."""
    rows = [sq.insert(1, 4, k="a", j=0, v=3), sq.retract(1, 4, 1, k="a", j=0, v=3), sq.cti(2)]
    stream = sq.events(rows, name=name, schema=SCHEMA)
    if chance.random() < 0.5:
        stream = sq.points(t.table("at bigint, k string, j bigint, v bigint", []), "at", name=name)
    return chance.choice([stream, stream.set_duration(chance.randrange(2, 9))])


def joined(left: sq.Stream, right: sq.Stream, chance: random.Random) -> sq.Stream:
    """A join by some keys, perhaps with a condition, and perhaps with a filter or other columns behind it."""
    columns = [[c for c in side.columns if c[0] == "j"] for side in (left, right)]
    on: list[Any] = ["k"] if "k" in left.columns and "k" in right.columns else []
    if not on or chance.random() < 0.4:
        on.append((chance.choice(columns[0]), chance.choice(columns[1])))
    v, w = (chance.choice([c for c in side.columns if c[0] == "v"]) for side in (left, right))
    where = (lambda one, other: one[v] <= other[w]) if chance.random() < 0.4 else None
    pairs = left.join(right, on=on, where=where)
    if chance.random() < 0.3:
        pairs = pairs.where(sq.col(v) != sq.col(w))
    if chance.random() < 0.3:
        own = [c for c in pairs.columns if c[0] != "v" or chance.random() < 0.7 or c == v]
        pairs = pairs.select(*chance.sample(own, len(own)))
    return pairs


def chain(chance: random.Random) -> sq.Stream:
    """Three or four streams that are joined in some order, not all of them by one key."""
    parts = []
    for name in NAMES[: chance.choice([3, 3, 4])]:
        own = {} if chance.random() < 0.7 else {"k": f"k{name}"}
        parts.append(source(name, chance).rename(j=f"j{name}", v=f"v{name}", **own))
    while len(parts) > 1:
        chance.shuffle(parts)
        parts.append(joined(parts.pop(), parts.pop(), chance))
    return parts[0]


def sequence(chance: random.Random) -> sq.Stream:
    """Three or four parts, one of which may be a sequence itself, with conditions on some of them."""
    parts: list[Any] = [source(name, chance).alias(name) for name in NAMES[: chance.choice([3, 3, 4])]]
    if chance.random() < 0.3:
        parts[-1] = sq.sequence(source("e", chance).alias("e"), source("f", chance).alias("f"), within=4)
    query = sq.sequence(*parts, within=chance.randrange(3, 15))
    if chance.random() < 0.6:
        query = query.where("CorrelationKey(k, EQUAL)")
    if chance.random() < 0.4:
        query = query.where(lambda a, b: a.v <= b.v)
    if chance.random() < 0.4:
        query = query.where(lambda b, a: a.j == b.j)
    return query.select(*query.columns[: chance.randrange(1, 9)], "root")


def some(examples: int) -> settings:
    return settings(
        max_examples=examples * (20 if SOAK else 1),
        derandomize=not SOAK,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def judged(kind: Kind, seed: int, examples: int) -> Counter[str]:
    """Assert that a query of a kind gives the oracle's answer for some rates; count other orders, and answers with rows."""
    chance = random.Random(seed)
    query, rates = kind(chance), tuple(chance.sample(RATES, len(RATES)))
    counts = Counter[str]()

    @some(examples)
    @given(t.concrete(query, DATA))
    def judge(case: Case) -> None:
        check(case, [replace(how, rates=rates) for how in WAYS])
        rows = dict(zip(case.sources, rates, strict=False))
        done = rewrite(number_sources(case.plan)[0], expected=sq.Expected(rows=rows, every=10))
        counts["other orders"] += any(firing.rule.reads_rates for firing in done.firings)
        counts["with rows"] += case.answer().num_rows > 0

    judge()
    return counts


def check_all(kind: Kind, seeds: range, examples: int) -> None:
    """Assert the law for queries of a kind, of which many are joined in another order, and some give rows."""
    counts = sum((judged(kind, seed, examples) for seed in seeds), Counter[str]())
    assert counts["other orders"] >= len(seeds) * examples / 4
    assert counts["with rows"]


@pytest.mark.parametrize("kind", [chain, sequence], ids=lambda kind: kind.__name__)
def test_any_order_gives_the_answer(kind: Kind) -> None:
    check_all(kind, range(4), 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [chain, sequence], ids=lambda kind: kind.__name__)
def test_any_order_of_many_gives_the_answer(kind: Kind) -> None:
    check_all(kind, range(100, 140 if SOAK else 106), 2)


FALLING = sq.Expected(rows={"a": 1_000, "b": 10, "c": 1}, every=10)


def rows_in_order(query: sq.Stream) -> int:
    """The rows of the answer when streams of FALLING rates are joined from the last one on; it is the oracle's."""
    assert any(firing.rule.reads_rates for firing in rewrite(query.plan, expected=FALLING).firings)
    answer = as_history(local_history(query.plan, query.tables, expected=FALLING).drop_columns([WEIGHT]))
    assert_same_history(answer, oracle(query.plan, query.tables))
    return answer.num_rows


def points_of(name: str, columns: str, *rows: tuple[int, ...]) -> sq.Stream:
    return sq.points(t.table(f"at bigint, {columns}", list(rows)), "at", name=name)


def test_a_sequence_that_is_joined_from_its_end_has_its_parts_in_order() -> None:
    """An a that comes after the b, and before the c, is in no match."""
    a, b, c = (
        points_of("a", "v bigint", (1, 1), (5, 2)),
        points_of("b", "w bigint", (3, 1)),
        points_of("c", "x bigint", (8, 1)),
    )
    assert rows_in_order(sq.sequence(a.alias("a"), b.alias("b"), c.alias("c"), within=9)) == 1


def test_columns_of_one_input_that_equal_one_of_another_equal_each_other() -> None:
    """The other one, by which they do, comes last."""
    a, c = points_of("a", "k bigint", (1, 1), (1, 2)), points_of("c", "k bigint", (1, 1), (1, 2))
    b = points_of("b", "i bigint, j bigint", (1, 1, 1), (1, 1, 2), (1, 2, 1))
    assert rows_in_order(a.join(b, on=[("k", "i"), ("k", "j")]).join(c, on="k")) == 1


def test_a_checkpoint_keeps_the_order_with_which_it_has_begun() -> None:
    """Whatever is said later, and by whom: rates in the other order, none, or rates where there were none."""
    columns = "at bigint, k bigint"
    streams = [sq.points(t.table(columns, []), "at", name=name, progress=sq.generate(0)) for name in "abc"]
    lasting = [stream.set_duration(9) for stream in streams]
    first = lasting[0].join(lasting[1], on="k").join(lasting[2], on="k")
    pattern = sq.sequence(*(s.alias(f"{n}_") for s, n in zip(streams, "abc", strict=True)), within=9)
    rising, falling = (
        sq.Expected(rows=dict(zip("abc", rates, strict=True)), every=10) for rates in ((1, 9, 99), (99, 9, 1))
    )
    for query in (first, pattern.where("CorrelationKey(k, EQUAL)")):
        names = {
            name: frozenset(ChangingRun(query, expected=how).identity.names)
            for name, how in {"nothing": None, "rising": rising, "falling": falling}.items()
        }
        assert names["rising"] == names["nothing"] != names["falling"]
        for begun in (None, rising, falling):
            run = ChangingRun(query, expected=begun)
            rows = partial(t.table, columns)
            run.batch({"a": rows([(0, 1)]), "b": rows([(1, 1)])})
            before = run.identity.names
            for expected in (falling, None, rising):
                assert not run.fit(query, expected=expected).misfits
                run = run.changed(query, expected=expected)
                assert run.identity.names == before
            out = [*run.batch({"c": rows([(2, 1)])}), *run.finish()]
            assert sum(table.num_rows for table in out) == 1
