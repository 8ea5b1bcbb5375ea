"""The kernel of the windowed join: the pairs that it evaluates, what it holds, and a bound that moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.staged_plan import StagedPlan
from streamq.plan.node import number_sources
from streamq.runtime.deltas import LE
from streamq.runtime.evaluators.joins import PairCondition
from streamq.runtime.state.baskets import Baskets, BinSizes, DictStore
from streamq.testing.history import net
from tests.programs import compiled, with_sizes

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, k bigint, v bigint"
SIZE, HOP = 10, 2


def source(name: str) -> sq.Stream:
    return sq.physical(t.table(COLUMNS, []), name=name)


def program(*, size: int = SIZE, hop: int = HOP, **options: Any) -> StagedPlan:
    """Pairs of unequal values in windows."""
    left, right = source("a"), source("b").rename(v="w")
    query = left.windowed_join(right, on="k", size=size, hop=hop, where=lambda a, b: a.v != b.w)
    options = {"output": OutputForm.CHANGELOG, "buckets": 1, **options}
    return with_sizes(compiled(number_sources(query.plan)[0], **options), BinSizes(split_above=8, whole_upto=4))


def run(**options: Any) -> LocalRun:
    return LocalRun(program(**options))


def insert(start: int, end: int | None, k: int = 0, v: int = 0) -> tuple[Any, ...]:
    return "insert", start, end, None, k, v


def retract(start: int, end: int | None, new_end: int, k: int = 0, v: int = 0) -> tuple[Any, ...]:
    return "retract", start, end, new_end, k, v


def send(live: LocalRun, left: Sequence[Any], right: Sequence[Any], c: int) -> pa.Table:
    return live.batch({"a": t.table(COLUMNS, list(left)), "b": t.table(COLUMNS, list(right))}, [(None, c)])


def held(live: LocalRun) -> Counter[str]:
    """The rows in the join's baskets, by name."""
    rows: Counter[str] = Counter()
    for store in live.stores.values():
        for name, bins in Baskets(DictStore(store)).counts.items():
            rows[name.rpartition(".")[2]] += sum(bin.rows for bin in bins.values())
    return rows


# each pair once


def pairs_evaluated(batches: int) -> int:
    """The pairs that the condition sees in micro-batches of a point on both sides, with windows of 20 of them."""
    live, seen = run(size=20, hop=1), 0
    holds = PairCondition.holds

    def watched(condition: PairCondition, pairs: pa.Table) -> Any:
        nonlocal seen
        seen += pairs.num_rows
        return holds(condition, pairs)

    with patch.object(PairCondition, "holds", watched):
        for n in range(batches):
            send(live, [insert(n, n + 1)], [insert(n, n + 1, v=n)], n)
    return seen


def test_a_pair_is_evaluated_once_in_however_many_windows_it_is() -> None:
    assert 0.5 * 12 * 12 < pairs_evaluated(12) <= 12 * 12


# state


def test_members_wait_unpaired_until_their_first_window_is_due() -> None:
    live = run(output=OutputForm.FINAL, size=100, hop=100)
    send(live, [insert(n, n + 1, v=n) for n in range(30)], [insert(n, n + 1, v=40) for n in range(30)], 50)
    assert held(live) == {"waiting0": 30, "waiting1": 30}
    assert send(live, [], [], 100).num_rows == 900
    assert held(live) == {}, "of a final window nothing is left"


def test_a_pair_is_held_as_one_row_until_its_last_window() -> None:
    live = run(output=OutputForm.FINAL)
    send(live, [insert(1, 400, v=1)], [insert(5, None, v=2), insert(2, 300, v=2)], 20)
    assert held(live)["pairs"] == 2
    assert send(live, [], [], 30).num_rows == 10, "of both pairs five more windows"
    assert held(live)["pairs"] == 2
    send(live, [], [], 350)
    assert held(live)["pairs"] == 1
    send(live, [], [], 450)
    assert held(live)["pairs"] == 0


def check_members() -> None:
    """A member is held as long as one of its windows is not final: until then others may come and pair with it."""
    live = run(output=OutputForm.FINAL, size=10, hop=10)
    send(live, [insert(1, 15)], [], 10)
    assert held(live)["side0"] == 1
    assert send(live, [], [insert(12, 13, v=1)], 20).num_rows == 1
    assert held(live) == {}


def test_members_are_held_until_their_last_window_is_final() -> None:
    check_members()


def test_a_late_row_reads_the_other_side_of_its_group() -> None:
    live = run(output=OutputForm.CHANGELOG)
    some = [insert(1, 60, k, v) for k in range(30) for v in range(3)]
    send(live, some, some, 0)
    send(live, [insert(50, 51, 40)], [], 0)
    before = sum(k.evaluated or 0 for k in live.readings.of_kernels.values())
    sent = send(live, [insert(2, 3, 7, 9)], [], 0)
    evaluated = sum(k.evaluated or 0 for k in live.readings.of_kernels.values()) - before
    assert sent.num_rows == 3 * 5, "its windows, which have been sent, have three pairs each"
    assert evaluated <= 20


def as_rows(table: pa.Table) -> Counter[Any]:
    start = LE if LE in table.column_names else "start"
    return Counter((row[start], row["v"], row["w"]) for row in table.to_pylist())


def test_the_bound_of_endless_pairs_may_go_back_while_rows_are_sent_at_once() -> None:
    live = run(early=True, size=10, hop=10)
    first = send(live, [insert(1, None), insert(2, 95, 1)], [insert(1, None, v=1)], 0)
    assert as_rows(first) == Counter({(at, 0, 1): 1 for at in range(0, 90 + 1, 10)})
    sent = [first, send(live, [retract(2, 95, 31, 1)], [], 5)]
    assert as_rows(net(sent)) == Counter({(at, 0, 1): 1 for at in (0, 10, 20, 30)})
    for n, end in enumerate([52, 121]):
        sent.append(send(live, [insert(9, end, 1)], [], 6 + n))
        assert as_rows(net(sent)) == Counter({(at, 0, 1): 1 for at in range(0, end, 10)})
