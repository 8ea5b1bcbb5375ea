"""Results as upserts: the latest row of each key, and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.egress import choose_egress
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.errors import PlanError
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.result_rows import upsert_rows
from streamq.testing.difference import assert_same_history
from streamq.testing.oracle import oracle
from streamq.time import INFINITY
from tests.programs import compiled

pytestmark = pytest.mark.slow

# an upsert's rows


def upserts(*deltas: tuple[Any, ...], key: Sequence[str] = ("k",)) -> list[tuple[Any, ...]]:
    """Deltas ``(start, end, weight, k, n)`` as rows ``(op, start, end, k, n)``."""
    names = (LE, RE, WEIGHT, "k", "n")
    table = pa.table({n: pa.array([m[i] for m in deltas]) for i, n in enumerate(names)})
    return [tuple(r[n] for n in ("op", "start", "end", "k", "n")) for r in upsert_rows(table, key).to_pylist()]


def test_a_key_has_the_last_state() -> None:
    deltas = [
        *((0, 10, -1, "a", 1), (0, 10, 1, "a", 2)),
        *((0, 10, -1, "b", 7), (20, INFINITY, 1, "b", 7)),
        *((5, 9, 1, "c", 1), (5, 9, -1, "c", 1)),
        *((0, 10, -1, None, 1), (0, 8, 1, None, 1)),
    ]
    assert upserts(*deltas) == [
        ("upsert", 0, 10, "a", 2),
        ("upsert", 0, 8, None, 1),
        ("delete", 0, None, "b", None),
        ("upsert", 20, None, "b", 7),
    ]
    with pytest.raises(RuntimeError, match="upsert: two rows of one key and start"):
        upserts((0, 10, 1, "a", 1), (0, 10, 1, "a", 2))


COUNTED = {
    "hopping": lambda g: g.hopping_window(6, 2).select(n=sq.count()),
    "renamed": lambda g: g.tumbling_window(5).select(n=sq.count()).where(sq.col("n") > 1).select("n", key=sq.col("k")),
    "snapshot": lambda g: g.snapshot_window().select(n=sq.count()),
    "session": lambda g: g.session_window(3, stamp="align").select(n=sq.count()),
    "count": lambda g: g.count_window(2).select(n=sq.count(), s=sq.sum("v")),
    "landmark": lambda g: g.landmark_window(4, start=0).select(n=sq.count()),
}


def items() -> list[Any]:
    # two of a group that goes again, and what makes time pass before it does
    gone = [(t, t + 1, {"k": "c", "v": t}) for t in (1, 2)]
    more = [(t, t + 1 + t % 4, {"k": "ab"[t % 2], "v": t}) for t in (3, 1, 8, 20, 6, 2, 12, 9, 5, 15)]
    inserts = [sq.insert(start, end, **payload) for start, end, payload in (*gone, *more)]
    return inserts + [sq.retract(start, end, start, **payload) for start, end, payload in gone]


def kept_table(query: sq.Stream, key: tuple[str, ...]) -> pa.Table:
    """The table that upserts keep of a query: one row a key and micro-batch, written over by key."""
    out = choose_egress(query.plan, OutputForm.UPSERT, verb="run")
    assert out.key == key
    run = LocalRun(compiled(rewrite(query.plan).plan, OutputForm.UPSERT, buckets=2))
    kept: dict[Any, dict[str, Any]] = {}
    seen = {"upsert": 0, "delete": 0}
    parts = [run.batch({"s": query.tables["s"].slice(at, 2)}) for at in range(0, query.tables["s"].num_rows, 2)]
    for part in [*parts, run.finish()]:
        rows = upsert_rows(part, out.columns).to_pylist()
        keys = [tuple(row[n] for n in out.key) for row in rows]
        assert len(keys) == len(set(keys))
        for key, row in zip(keys, rows, strict=True):
            op = row.pop("op")
            seen[op] += 1
            if op == "upsert":
                kept[key] = row
            else:
                assert {n for n, value in kept.pop(key).items() if value is not None} > set(out.key)
                assert {n for n, value in row.items() if value is not None} == set(out.key)
    assert seen["delete"] > 0
    assert seen["upsert"] > len(kept) + seen["delete"], "some row is corrected"
    return pa.Table.from_pylist(list(kept.values()))


@pytest.mark.parametrize("name", COUNTED)
def test_a_table_kept_by_an_upsert_is_the_answer(name: str) -> None:
    query = COUNTED[name](sq.events(items(), name="s").group_by("k"))
    table = kept_table(query, ("key" if name == "renamed" else "k", "start"))
    assert_same_history(table, oracle(query.plan, query.tables))


@sq.udo("n bigint", properties=[sq.one_output_per_group])
def one_row(v: Any) -> list[int]:
    return [len(v)]


@sq.udo("n bigint", time_sensitive=True, properties=[sq.one_output_per_group])
def one_timed_row(events: Any, window: Any) -> list[int]:
    return [len(events)]


@sq.udo("n bigint")
def any_rows(v: Any) -> Any:
    return [len(v)]


@pytest.mark.parametrize("stamp", ["align", "point_at_end"])
def test_an_operator_that_promises_one_row_a_window_is_kept_as_its_aggregate_would_be(stamp: str) -> None:
    windows = sq.events(items(), name="s").group_by("k").tumbling_window(5, stamp=stamp)
    counted = windows.select(n=sq.count()).select("n", key=sq.col("k"))
    for operator in (one_row, one_timed_row):
        table = kept_table(windows.select(operator("v")).select("n", key=sq.col("k")), ("key", "start"))
        assert_same_history(table, oracle(counted.plan, counted.tables))


def test_other_operators_are_refused() -> None:
    windows = sq.events(items(), name="s").group_by("k").tumbling_window(5)
    refused = {
        "any_rows may give several rows a window. Declare properties=": windows.select(any_rows("v")),
        "rows of one_timed_row have lifetimes of their own. Say stamp='align'": windows.select(one_timed_row("v")),
        "found explode": windows.select(all=sq.collect("v")).explode("all"),
    }
    for wrong, query in refused.items():
        with pytest.raises(PlanError, match=wrong):
            choose_egress(query.plan, OutputForm.UPSERT, verb="run")
