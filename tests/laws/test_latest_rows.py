"""Latest rows: after each micro-batch a table that takes them is what the changelog says that holds, at every level.

The oracle is the meaning: of the rows of a key that the changelog has not taken back the one that starts last; of these that of
the longest lifetime, then the greatest payload by its columns in their order.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import col
from streamq.errors import PlanError
from streamq.run.rehearsal import Rehearsal
from streamq.runtime.state.baskets import Baskets, DictStore
from tests.algebra import QUERIES, SIZES, intervals

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

Row = tuple[Any, ...]


def plain(value: Any) -> Any:
    """A value that equals itself, NaN too, and -0.0 as 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value


def order(value: Any) -> Any:
    """A value's place in Spark's ascending order: NULL first, NaN last."""
    if isinstance(value, tuple):
        return (1, [order(item) for item in value])
    if value is None:
        return (0, 0)
    return (2, 0) if value == "NaN" else (1, value)


class Oracle:
    """The rows that a changelog has sent and not taken back, and of each key the latest."""

    def __init__(self, payload: list[str], key: tuple[str, ...]):
        self.payload, self.key = payload, key
        self.rows: Counter[Row] = Counter()

    def take(self, changelog: pa.Table) -> None:
        for row in changelog.to_pylist():
            values = tuple(plain(row[name]) for name in self.payload)
            end, new_end = (math.inf if row[name] is None else row[name] for name in ("end", "new_end"))
            if row["kind"] == "insert":
                self.rows[(row["start"], end, *values)] += 1
            else:
                self.rows[(row["start"], end, *values)] -= 1
                if new_end > row["start"]:
                    self.rows[(row["start"], new_end, *values)] += 1

    def latest(self) -> dict[Row, Row]:
        found: dict[Row, Row] = {}
        places = [2 + self.payload.index(name) for name in self.key]
        for row in sorted((row for row, count in self.rows.items() if count), key=lambda r: [order(v) for v in r]):
            found[tuple(row[place] for place in places)] = row
        return found


class Table:
    """A table that takes upserts and deletions by a key, as a database does."""

    def __init__(self, payload: list[str], key: tuple[str, ...]):
        self.payload, self.key = payload, key
        self.rows: dict[Row, Row] = {}

    def take(self, upserts: pa.Table) -> None:
        for row in upserts.to_pylist():
            key = tuple(plain(row[name]) for name in self.key)
            if row["op"] == "delete":
                assert self.rows.pop(key)
                assert {name for name, value in row.items() if value is not None} <= {"op", *self.key}
            else:
                end = math.inf if row["end"] is None else row["end"]
                new = (row["start"], end, *(plain(row[name]) for name in self.payload))
                assert self.rows.get(key) != new, "what stays is not sent again"
                self.rows[key] = new


def sources(rng: random.Random) -> tuple[sq.Stream, sq.Stream]:
    """Two streams out of order; events behind the CTI are dropped. One of them takes rows back."""
    tables = [intervals(rng.randrange(1 << 30), rng.randrange(5, 25)).to_pylist() for _ in range(2)]
    for rows in tables:
        rows.sort(key=lambda row: row["from"] + rng.choice([0, 0, 3, 12]))
    first, second = (pa.Table.from_pylist(rows, schema=intervals(0).schema) for rows in tables)
    progress = sq.generate(rng.choice([0, 5, 20]))
    s = sq.intervals(first, start="from", end="to", name="s", progress=progress)
    t = sq.intervals(second, start="from", end="to", name="t", progress=progress)
    return s, t


def check(query: sq.Stream, key: tuple[str, ...], rng: random.Random, *, early: bool, level: Any) -> int:
    """Compare both after each micro-batch of a run; give the number of rows that were replaced or deleted."""
    how: Any = {"consistency": level, "early": early}
    changelog = Rehearsal(query, "changelog", **how)
    latest = Rehearsal(query, "latest", key=key, **how)
    oracle, table, changes = Oracle(query.columns, key), Table(query.columns, key), 0
    names = [name for name in ("s", "t") if name in changelog._named]
    left = {name: changelog._tables[changelog._named[name]].num_rows for name in names}
    while any(left.values()):
        counts = {name: min(left[name], rng.randrange(9)) for name in names}
        left = {name: left[name] - count for name, count in counts.items()}
        oracle.take(changelog.arrive(**counts))
        before = dict(table.rows)
        table.take(latest.arrive(**counts))
        changes += sum(before[one] != table.rows.get(one) for one in before)
        assert table.rows == oracle.latest()
    oracle.take(changelog.finish())
    table.take(latest.finish())
    assert table.rows == oracle.latest()
    return changes


LEVELS = ["middle", "strong", sq.weak(10), sq.level(4, 12)]


@pytest.mark.parametrize("name", QUERIES)
def test_a_table_of_latest_rows_is_what_holds(name: str) -> None:
    """Keys are any columns of a result."""
    for _ in range(100 if SOAK else 1):
        rng = random.Random(random.randrange(1 << 30) if SOAK else name)
        query = QUERIES[name](*sources(rng), SIZES)
        key = tuple(rng.sample(query.columns, min(len(query.columns), rng.choice([1, 1, 2]))))
        early = rng.random() < 0.5
        check(query, key, rng, early=early, level=rng.choice(LEVELS[::2] if early else LEVELS))


def test_the_current_value_of_each_key() -> None:
    """Replaced by the next window, corrected by what comes late, and deleted where nothing is left."""
    s = sq.events(
        [
            (1, 2, {"k": "a", "v": 1}),
            (12, 13, {"k": "a", "v": 5}),
            (11, 12, {"k": "a", "v": 1}),
            (30, 31, {"k": "b", "v": 1}),
        ],
        name="s",
        progress=sq.generate(100),
    )
    sums = s.group_by("k").tumbling_window(10).select(total=sq.sum("v")).where(col("total") < 6)
    run = Rehearsal(sums, "latest", early=True)
    assert run.arrive(s=1).to_pylist() == [{"op": "upsert", "k": "a", "total": 1, "start": 0, "end": 10}]
    assert run.arrive(s=1).to_pylist() == [{"op": "upsert", "k": "a", "total": 5, "start": 10, "end": 20}]
    assert run.arrive(s=1).to_pylist() == [{"op": "upsert", "k": "a", "total": 1, "start": 0, "end": 10}]
    assert run.arrive(s=1).to_pylist() == [{"op": "upsert", "k": "b", "total": 1, "start": 30, "end": 40}]
    few = Rehearsal(sums.where(col("total") > 1), "latest", early=True)
    few.arrive(s=2)
    assert few.arrive(s=1).to_pylist() == [{"op": "delete", "k": "a", "total": None, "start": None, "end": None}]


def test_a_key_is_the_groups_or_named() -> None:
    s, _ = sources(random.Random(1))
    for query, key, wrong in (
        (s, (), "output='latest' needs a key; found intervals. Name its columns beside output"),
        (s.tumbling_window(5).select(n=sq.count()), (), "output='latest' needs a key; the result has no groups"),
        (s, "x", "no column 'x'; there are: k, v, w"),
        (s, 5, "key is a column name or a list of them; found 5"),
    ):
        with pytest.raises(PlanError, match=f"rehearsal: {wrong}"):
            Rehearsal(query, "latest", key=key)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="rehearsal: key goes with output='latest'; found output='upsert'"):
        Rehearsal(s.group_by("k").tumbling_window(5).select(n=sq.count()), "upsert", key="k")


def corrections(rng: random.Random) -> list[Any]:
    """A physical stream of two keys: rows that are taken back, shortened and lengthened from the CTI on, which rises."""
    items: list[Any] = []
    alive: list[tuple[int, int, dict[str, Any]]] = []
    c = 0
    for _ in range(60):
        what = rng.random()
        open_rows = [row for row in alive if row[1] >= c]
        if what < 0.1:
            c += rng.randrange(4)
            items.append(sq.cti(c))
        elif what < 0.5 and open_rows:
            start, end, payload = row = rng.choice(open_rows)
            new_end = start if start >= c and rng.random() < 0.7 else max(start + 1, c, end + rng.randrange(-2, 3))
            if new_end != end:
                alive.remove(row)
                alive += [(start, new_end, payload)] if new_end > start else []
                items.append(sq.retract(start, end, new_end, **payload))
        else:
            start = c + rng.randrange(5)
            end, payload = start + rng.randrange(1, 4), {"k": rng.choice("ab"), "v": rng.randrange(3)}
            alive.append((start, end, payload))
            items.append(sq.insert(start, end, **payload))
    return items


@pytest.mark.parametrize("seed", range(2_000 if SOAK else 12))
def test_rows_that_are_taken_back_show_those_before_them(seed: int) -> None:
    """Of rows that have started before the CTI the last one of each key may be shown again."""
    rng = random.Random(seed)
    s = sq.events(corrections(rng), name="s")
    early = rng.random() < 0.5
    assert check(s, ("k",), rng, early=early, level="middle" if early else rng.choice(LEVELS))


def test_rows_that_another_has_followed_before_the_cti_are_forgotten() -> None:
    """State is a row a key and what may still be taken back, however long the stream."""
    values = [(n // 2, n // 2 + 1, {"k": "ab"[n % 2], "v": n}) for n in range(400)]
    run = Rehearsal(sq.events(values, name="s", progress=sq.generate(3)), "latest", key="k")
    held = []
    for _ in range(40):
        run.arrive(s=10)
        stores = (Baskets(DictStore(store)) for store in run._local.stores.values())
        kept = [store.scoped(name) for store in stores for name in store.scopes if name.startswith("latest")]
        held.append(sum(rows.num_rows for one in kept if (rows := one.read_all("rows")) is not None))
    assert 2 <= max(held[5:]) <= 20
