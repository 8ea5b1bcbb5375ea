"""Joins and sequences give the oracle's answer in whatever order the rates that are told make of them, at every level."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.testing.case import Case
from streamq.testing.execution import LITERAL, STREAM, Execution
from streamq.testing.trial import check
from tests.changed_query import ChangingRun
from tests.patterns.pattern_cases import crowded

SOAK = bool(os.environ.get("STREAMQ_SOAK"))
NAMES = "abcd"
SCHEMA = {"k": "string", "j": "bigint", "v": "bigint"}
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


def check_all(kind: Any, seeds: range, examples: int) -> None:
    """Assert that queries of a kind give the oracle's answer for any rates, and that many are joined in another order."""
    reordered, with_rows = 0, 0
    for seed in seeds:
        query = kind(random.Random(seed))

        @some(examples)
        @given(case=t.concrete(query, DATA), told=st.permutations(RATES).map(tuple))
        def judge(case: Case, told: tuple[int, ...]) -> None:
            nonlocal reordered, with_rows
            check(case, [Execution(**{**vars(how), "told": told}) for how in WAYS])
            rows = dict(zip(case.sources, told, strict=False))
            done = rewrite(number_sources(case.plan)[0], expected=sq.Expected(rows=rows, every=10))
            reordered += any(firing.rule.reads_rates for firing in done.firings)
            with_rows += case.answer().num_rows > 0

        judge()
    many = len(seeds) * examples * (20 if SOAK else 1)
    assert reordered >= many / 4 and with_rows >= many / 10


@pytest.mark.parametrize("kind", [chain, sequence], ids=lambda kind: kind.__name__)
def test_any_order_gives_the_answer(kind: Any) -> None:
    check_all(kind, range(4), 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [chain, sequence], ids=lambda kind: kind.__name__)
def test_any_order_of_many_gives_the_answer(kind: Any) -> None:
    check_all(kind, range(100, 120), 4)


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
            told: frozenset(ChangingRun(query, expected=how).identity.names)
            for told, how in {"nothing": None, "rising": rising, "falling": falling}.items()
        }
        assert names["rising"] == names["nothing"] != names["falling"]
        for begun in (None, rising, falling):
            run = ChangingRun(query, expected=begun)
            rows = partial(t.table, columns)
            run.batch({"a": rows([(0, 1)]), "b": rows([(1, 1)])})
            before = run.identity.names
            for told in (falling, None, rising):
                run = run.changed(query, expected=told)
                assert run.identity.names == before
            out = [*run.batch({"c": rows([(2, 1)])}), *run.finish()]
            assert sum(table.num_rows for table in out) == 1
