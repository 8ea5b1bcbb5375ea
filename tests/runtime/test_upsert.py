"""Results as upserts: the latest row of each key, and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.egress import egress
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.runtime.egress import upsert_rows
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.testing.difference import assert_same_history
from streamq.testing.oracle import oracle
from streamq.time import INFINITY
from tests.programs import compiled

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


@pytest.mark.parametrize("name", COUNTED)
def test_a_table_kept_by_an_upsert_is_the_answer(name: str) -> None:
    """One row a key and micro-batch, written over by key: what is left are the final rows."""
    # two of a group that goes again, and what makes time pass before it does
    gone = [(t, t + 1, {"k": "c", "v": t}) for t in (1, 2)]
    more = [(t, t + 1 + t % 4, {"k": "ab"[t % 2], "v": t}) for t in (3, 1, 8, 20, 6, 2, 12, 9, 5, 15)]
    items = [sq.insert(start, end, **payload) for start, end, payload in (*gone, *more)]
    items += [sq.retract(start, end, start, **payload) for start, end, payload in gone]
    query = COUNTED[name](sq.events(items, name="s").group_by("k"))
    out = egress(query.plan, OutputForm.UPSERT, verb="run")
    assert out.key == (("key" if name == "renamed" else "k"), "start")
    run = LocalRun(compiled(rewrite(query.plan).plan, OutputForm.UPSERT, buckets=2))
    kept: dict[Any, dict[str, Any]] = {}
    seen = {"upsert": 0, "delete": 0}
    parts = [run.batch({"s": query.tables["s"].slice(at, 2)}) for at in range(0, len(items), 2)]
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
    assert_same_history(pa.Table.from_pylist(list(kept.values())), oracle(query.plan, query.tables))
