"""The validator agrees with a slow check by definition, over legal and corrupted streams; our own output is legal."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import InvalidEvent
from streamq.operators import Source
from streamq.plan.node import nodes, number_sources
from streamq.plan.schema import Field
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.testing.arrival import TICKS, comparable
from streamq.testing.folding import fold_physical
from streamq.testing.generate import cuts
from streamq.testing.intent import Intent
from streamq.testing.payload_values import value_types
from streamq.testing.payloads import rows as payloads
from streamq.testing.sources.physical import physical_items
from streamq.testing.sources.room import ArrivalPlan
from streamq.testing.validator import check_stream, find_breaches
from streamq.time import INFINITY, MINUS_INFINITY
from tests.judges.kernels import watch_kernels
from tests.programs import compiled
from tests.testing.test_validator import broken

pytestmark = pytest.mark.slow

Row = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """Rows, the micro-batch of each, and whether they have ids."""

    rows: list[Row]
    batches: list[int]
    ids: bool

    def parts(self) -> list[list[Row]]:
        found = zip(self.batches, self.rows, strict=True)
        return [[row for _, row in part] for _, part in itertools.groupby(found, key=lambda pair: pair[0])]


def slow(recording: Recording) -> set[str]:
    """The rules that a recording breaks, by definition and one event at a time."""
    found: set[str] = set()
    so_far: list[Row] = []
    c = greatest = -INFINITY
    living: Counter[Any] = Counter()
    totals: Counter[Any] = Counter()
    for part in recording.parts():
        syncs = list(changed(recording, part))
        if any(sync < c for sync in syncs) or any(row["start"] < c for row in part if row["kind"] == "cti"):
            found.add("cti")
        if any(sync < greatest for sync in syncs):
            found.add("full")
        greatest = max([greatest, *syncs])
        c = max([c, *(row["start"] for row in part if row["kind"] == "cti")])
        if not takes_turns(recording, part, living):
            found |= {"full", "chain"}
        for row in part:
            for place, weight in deltas(recording, row):
                totals[place] += weight
        living = +totals
        so_far += part
        if any(n < 0 and start < c for (_, start, _), n in totals.items()):
            found.add("match")
    try:
        fold_physical(so_far, "id" if recording.ids else None)
    except InvalidEvent:
        found.add("match")
    return found


def whose(recording: Recording, row: Row) -> Any:
    return row["id"] if recording.ids else tuple(comparable(row[name]) for name in "kv")


def deltas(recording: Recording, row: Row) -> Iterator[tuple[Any, int]]:
    if row["kind"] == "cti":
        return
    event = whose(recording, row), row["start"]
    end, new_end = (INFINITY if row[name] is None else row[name] for name in ("end", "new_end"))
    if row["kind"] == "insert":
        yield (*event, end), 1
    else:
        yield (*event, end), -1
        if new_end > row["start"]:
            yield (*event, new_end), 1


def changed(recording: Recording, part: list[Row]) -> Iterator[int]:
    """The earliest instants that a micro-batch changes, an event each."""
    by_event: dict[Any, list[Row]] = {}
    for row in part:
        if row["kind"] != "cti":
            by_event.setdefault((whose(recording, row), row["start"]), []).append(row)
    for (_, start), rows in by_event.items():
        if len(rows) == 1:
            ends = [INFINITY if rows[0][name] is None else rows[0][name] for name in ("end", "new_end")]
            yield start if rows[0]["kind"] == "insert" else min(ends)
            continue
        net: Counter[int] = Counter()
        for row in rows:
            for (_, _, end), weight in deltas(recording, row):
                net[end] += weight
        ends = [end for end, weight in net.items() if weight]
        if ends:
            yield start if sum(net.values()) else min(ends)


def takes_turns(recording: Recording, part: list[Row], living: Counter[Any]) -> bool:
    """Whether the retractions of a micro-batch can be made one after the other."""
    there = Counter(living)
    moves = []
    for row in part:
        changes = list(deltas(recording, row))
        if row["kind"] == "insert":
            there[changes[0][0]] += 1
        elif row["kind"] == "retract":
            moves.append(changes)
    seen: set[Any] = set()

    def made(there: Counter[Any], left: tuple[int, ...]) -> bool:
        if not left:
            return True
        # which retractions are left says which events there are
        if left in seen:
            return False
        seen.add(left)
        for i in left:
            (place, _), *new = moves[i]
            if there[place] > 0:
                after = Counter(there)
                after[place] -= 1
                for end, _ in new:
                    after[end] += 1
                if made(after, tuple(j for j in left if j != i)):
                    return True
        return False

    return made(there, tuple(range(len(moves))))


@st.composite
def recordings(draw: Any, corrupted: bool, ids: bool | None = None) -> Recording:
    """A legal stream, row by row or in micro-batches; maybe with some rows lost, doubled, moved or changed."""
    ids = draw(st.booleans()) if ids is None else ids
    columns = [Field("k", t.StringType()), Field("v", draw(value_types())[1])]
    # what comes again is no breach of a source with ids; of a recorded stream, which nobody has taken in, it is one
    intent = Intent(events=5, duplicates=False if ids else None)
    items = draw(physical_items(ArrivalPlan(payloads(columns, intent), intent, TICKS, id="id" if ids else None)))
    rows = [item.plain for item in items]
    for _ in range(draw(st.integers(1, 3)) if corrupted else 0):
        if rows:
            rows = corrupt(rows, draw)
    cut = draw(st.one_of(st.just((1,) * len(rows)), cuts(len(rows))))
    return Recording(rows, [n for n, length in enumerate(cut) for _ in range(length)], ids)


def corrupt(rows: list[Row], draw: Any) -> list[Row]:
    at, other = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(rows) - 1))
    row, by = rows[at], draw(st.sampled_from([-3, -1, 1, 2, 5]))
    match draw(st.sampled_from(["lose", "double", "move", "swap", "new_end", "cti"])):
        case "lose":
            return rows[:at] + rows[at + 1 :]
        case "double":
            return rows[:other] + [row] + rows[other:]
        case "move":
            rest = rows[:at] + rows[at + 1 :]
            return rest[:other] + [row] + rest[other:]
        case "swap":
            rows = list(rows)
            rows[at], rows[other] = rows[other], rows[at]
            return rows
        case "new_end" if row["kind"] == "retract":
            end = row["new_end"]
            new_end = row["start"] + 1 if end is None else max(row["start"], end + by)
            return rows[:at] + [{**row, "new_end": new_end}] + rows[at + 1 :]
        case "cti" if row["kind"] == "cti":
            return rows[:at] + [{**row, "start": row["start"] + by}] + rows[at + 1 :]
    return rows


def found_in(recording: Recording, order: str | None = None) -> set[str]:
    rows = [{**row, "batch": n} for row, n in zip(recording.rows, recording.batches, strict=True)]
    found = find_breaches(rows, id="id" if recording.ids else None, batch="batch", order=order)
    assert found.ok == (not found.breaches)
    assert str(found)
    return set(found.counts)


@given(recordings(corrupted=False))
def test_a_legal_stream_breaks_nothing(recording: Recording) -> None:
    assert found_in(recording) == set()


@given(recordings(corrupted=True))
def test_a_corrupted_stream_is_found_out_where_it_is_illegal(recording: Recording) -> None:
    """Lost, doubled and moved rows, wrong ends, hasty CTIs: whether a rule is broken is what a slow check by definition says."""
    expected = slow(recording)
    assert found_in(recording) == expected & {"match", "cti"}
    if "match" not in expected:
        for order in ("chain", "full"):
            assert ("order" in found_in(recording, order)) == (order in expected)


@given(recordings(corrupted=True))
def test_forms_and_the_place_of_the_micro_batches_change_nothing(recording: Recording) -> None:
    rows = [{**row, "n": n} for row, n in zip(recording.rows, recording.batches, strict=True)]
    kinds = {"kind": pa.string(), **dict.fromkeys(["start", "end", "new_end", "n"], pa.int64())}
    kinds |= {"k": pa.string(), "v": None} | ({"id": pa.int64()} if recording.ids else {})
    table = pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()})
    declared = {"batch": "n", "id": "id" if recording.ids else None, "most": 1000}
    found = find_breaches(rows, **declared)
    same = find_breaches(table, **declared)
    assert [(b.rule, b.position) for b in same.breaches] == [(b.rule, b.position) for b in found.breaches]
    assert find_breaches(table.sort_by([("n", "descending")]), **declared).counts == found.counts


def test_dropping_an_insert_that_has_a_retraction_is_found() -> None:
    """Each insert of a long chain of events, each of which is taken back."""
    rows = [item for n in range(20) for item in (sq.insert(n, None, v=n), sq.retract(n, None, n + 3, v=n), sq.cti(n))]
    check_stream(rows, order="chain")
    for n in range(20):
        assert broken(rows[: 3 * n] + rows[3 * n + 1 :]) == [("match", 3 * n)]


# our own output


CORRECTED: dict[str, Callable[[sq.Stream, sq.Stream], sq.Stream]] = {
    "to_signal": lambda s, t: s.to_signal("k"),
    "last_rows": lambda s, t: s.last_rows(3, 2, key="k"),
    "clip": lambda s, t: s.clip(t, on="k"),
    "anti join": lambda s, t: s.join(t, on="k", how="anti"),
    "left join": lambda s, t: s.join(t, on="k", how="left", suffixes=("", "_t")),
    "except": lambda s, t: s.except_(t),
    "snapshot": lambda s, t: s.snapshot_window().select(n=sq.count()),
    "session": lambda s, t: s.set_duration(1).group_by("k", "v").session_window(3, stamp="align").select(n=sq.count()),
    "hopping": lambda s, t: s.hopping_window(4, 2).select(n=sq.count()),
}
"""Queries whose rows are taken back, or get other ends, while late events come in."""


def disordered(seed: int) -> list[tuple[int, int | None, dict[str, Any]]]:
    """Events that come up to ten ticks behind the latest; some never end."""
    rng = random.Random(seed)
    starts = sorted(range(40), key=lambda n: n + rng.random() * 10)
    return [(n, rng.choice([None, n + 1, n + rng.randint(1, 12)]), {"k": rng.choice("ab"), "v": n % 2}) for n in starts]


@pytest.mark.parametrize("name", CORRECTED)
def test_our_own_changelog_breaks_nothing(name: str) -> None:
    """Five events a micro-batch, with the CTI of the result."""
    made = [sq.events(disordered(seed), name=f"s{seed}", progress=sq.generate(10)) for seed in (1, 2)]
    query = CORRECTED[name](*made)
    tables = {source.table: query.tables[source.table] for source in nodes(query.plan) if isinstance(source, Source)}
    run = LocalRun(watch_kernels(compiled(number_sources(query.plan)[0], OutputForm.CHANGELOG, buckets=1, ctis=True)))
    names = query.plan.schema.names
    rows: list[Row] = []
    for number, at in enumerate(range(0, 40, 5)):
        made = run.batch({n: table.slice(at, 5) for n, table in tables.items()})
        rows += [{**row, "batch": number} for row in changelog_rows(made).to_pylist()]
        if run.cti > MINUS_INFINITY:
            promise = {"kind": "cti", "start": run.cti, "batch": number}
            rows.append(dict.fromkeys(("end", "new_end", *names)) | promise)
    rows += [{**row, "batch": 8} for row in changelog_rows(run.finish()).to_pylist()]
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["retract"] > 2
    assert kinds["cti"] > 2
    declared = {"shape": "signal", "key": "k"} if name == "to_signal" else {}
    check_stream(rows, batch="batch", order="chain", **declared)
