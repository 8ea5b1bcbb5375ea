"""Late items of physical streams and edges: no CTI is broken, no cut tells, and from c on an adjusted answer is right."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.policies import MIDDLE, Level
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.testing.history import assert_same_history, net
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled

PHYSICAL, EDGES = "kind string, start bigint, end bigint, new_end bigint, k string", "at bigint, edge string, k string"
Row = tuple[Any, ...]
Groups = list[tuple[list[Row], int]]
"""Rows, and what is promised after them."""


def physical(**given: Any) -> sq.Stream:
    return sq.physical(t.table(PHYSICAL, []), name="s", **given)


def edges(**given: Any) -> sq.Stream:
    return sq.edges(t.table(EDGES, []), time="at", edge="edge", key="k", name="s", **given)


@st.composite
def moved(draw: st.DrawFn) -> list[Row]:
    """Events whose ends move to and fro, with all that is said of each in order."""
    found: list[Row] = []
    for n in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, 30))
        ends = draw(st.lists(st.one_of(st.none(), st.integers(start + 1, start + 40)), min_size=1, max_size=4))
        found.append(("insert", start, ends[0], None, str(n)))
        found += [("retract", start, a, b, str(n)) for a, b in itertools.pairwise(ends) if a != b]
    return found


@st.composite
def marked(draw: st.DrawFn) -> list[Row]:
    """Edges of two keys, starts and ends as it happens: some end nothing."""
    times = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["start", "end"])), max_size=7, unique=True)
    return [(at, edge, k) for k in "ab" for at, edge in draw(times)]


@st.composite
def grouped(draw: st.DrawFn, items: st.SearchStrategy[list[Row]]) -> Groups:
    """Rows in any order, with promises between them that many break."""
    left = draw(items.flatmap(st.permutations))
    found, c = [], 0
    while left:
        n = draw(st.integers(1, 4))
        c += draw(st.sampled_from([0, 0, 3, 12]))
        found.append((left[:n], c))
        left = left[n:]
    return found


def played(
    query: sq.Stream,
    schema: str,
    groups: Groups,
    one_by_one: bool,
    level: Level = MIDDLE,
    invalid: list[int] | None = None,
) -> Iterator[pa.Table]:
    """The changelog of each micro-batch, no row of it behind a CTI before it; nothing is left in state at the end."""
    run = LocalRun(compiled(query.plan, OutputForm.CHANGELOG, buckets=2, ctis=True, level=level))
    told = MINUS_INFINITY
    for rows, c in groups:
        parts = [[row] for row in rows] if one_by_one else [rows]
        for i, part in enumerate(parts):
            out = run.batch({"s": t.table(schema, part)}, [("s", c)] if i == len(parts) - 1 else [])
            assert all(sync(row) >= told for row in changelog_rows(out).to_pylist()), f"behind the CTI {told}"
            told = run.cti
            yield out
    yield run.finish()
    assert all(set(store) == {"manifest"} for store in run.stores.values())
    if invalid is not None:
        invalid += [totals.get("s|invalid", 0) for totals in run.totals.values()]


def sync(row: dict[str, Any]) -> int:
    return (
        row["start"]
        if row["kind"] == "insert"
        else min(INFINITY if e is None else e for e in (row["end"], row["new_end"]))
    )


def alive(history: pa.Table, at: int) -> Counter[str]:
    return Counter(r["k"] for r in history.to_pylist() if r["start"] <= at < r["end"])


Case = tuple[Callable[..., sq.Stream], str]
CASES = {"physical": (physical, PHYSICAL), "edges": (edges, EDGES)}
ANY = {name: grouped(items()) for name, items in (("physical", moved), ("edges", marked))}


@pytest.mark.slow
@pytest.mark.parametrize("late", ["drop", "adjust"])
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_late_items_break_no_cti_and_no_cut_tells(name: str, late: str, data: st.DataObject) -> None:
    """Of edges, in one micro-batch or one by one; retractions may find other events in another order, with the same effect."""
    source, schema = CASES[name]
    groups = data.draw(ANY[name])
    query = source(progress=sq.generate(10**6), late=late, invalid="drop")
    invalid: list[int] = []
    whole, apart = (net([*played(query, schema, groups, one_by_one, invalid=invalid)]) for one_by_one in (False, True))
    if name == "edges":
        assert_same_history(apart, whole)
    # a retraction that names what c says cannot come any more is an error of the source, whatever comes
    if late == "adjust" and (name == "edges" or not any(invalid)):
        last = groups[-1][1] if groups else 0
        for at in range(last, last + 60):
            assert alive(apart, at) == alive(whole, at) == truth(name, groups, at)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@given(data=st.data(), remember=st.sampled_from([0, 5, 20]))
def test_a_weak_level_is_right_from_where_it_remembers(name: str, remember: int, data: st.DataObject) -> None:
    """Whatever the source's policies are: it breaks no promise of its own."""
    source, schema = CASES[name]
    groups = [(rows, MINUS_INFINITY) for rows, _ in data.draw(ANY[name])]
    query = source(progress=sq.generate(10**6), late="fail", invalid="drop")
    found = net([*played(query, schema, groups, False, Level(0, remember))])
    starts = [row[1] if name == "physical" else row[0] for rows, _ in groups for row in rows if row[1] != "end"]
    for at in range(max(starts, default=0) - remember, 90):
        assert alive(found, at) == truth(name, groups, at)


def truth(name: str, groups: Groups, at: int) -> Counter[str]:
    """What is alive at an instant by all that was said."""
    rows = [row for rows, _ in groups for row in rows]
    found: Counter[str] = Counter()
    if name == "edges":
        for k in "ab":
            passed = sorted((time, edge == "start") for time, edge, key in rows if key == k and time <= at)
            found[k] += bool(passed) and passed[-1][1]
        return +found
    for kind, start, end, new_end, k in rows:
        for until, weight in ((end, 1),) if kind == "insert" else ((end, -1), (new_end, 1)):
            found[k] += weight * (start <= at and (until is None or at < until))
    return +found


@pytest.mark.slow
@given(groups=grouped(marked()))
def test_nothing_is_said_of_edges_before_it_is_due_at_the_strong_level(groups: Groups) -> None:
    """After each micro-batch the answer is what the edges before c make, as if none had come after."""
    rows = [row for part, _ in groups for row in part]
    c, kept = 0, []
    # only promises that are kept
    for i, (part, _) in enumerate(groups):
        c = max(c, min((row[0] for part, _ in groups[i + 1 :] for row in part), default=50))
        kept.append((part, c))
    strong = played(edges(progress=sq.generate(10**6), invalid="drop"), EDGES, kept, False, Level(None))
    out: list[pa.Table] = []
    for (_, c), table in zip(kept, strong, strict=False):
        out.append(table)
        found = Counter((r["k"], r["start"], r["end"]) for r in net(out).to_pylist())
        assert found == lifetimes([row for row in rows if row[0] < c])


def lifetimes(rows: Sequence[Row]) -> Counter[Row]:
    """The lifetimes of edges: a start opens one, the next start or end of the key closes it."""
    found: Counter[Row] = Counter()
    for k in "ab":
        chain = sorted((at, edge == "start") for at, edge, key in rows if key == k)
        for (at, starts), (end, _) in itertools.pairwise([*chain, (INFINITY, False)]):
            found[k, at, end] += starts
    return +found


@pytest.mark.parametrize("late", ["drop", "adjust"])
@given(
    groups=grouped(marked()),
    level=st.sampled_from([MIDDLE, Level(None), Level(0), Level(3)]),
    payload=st.sampled_from(["start", "end"]),
    one_by_one=st.booleans(),
)
def test_every_edge_is_in_the_history_or_counted(
    late: str, groups: Groups, level: Level, payload: str, one_by_one: bool
) -> None:
    """At every level: a start begins a lifetime and an end ends one, or the late output has it, with a reason."""
    query = edges(progress=sq.generate(10**6), late=late, invalid="drop", payload=payload)
    program = compiled(query.plan, OutputForm.CHANGELOG, buckets=2, level=level, late_output=True)
    run, out = LocalRun(program), []
    for rows, c in groups:
        parts = [[row] for row in rows] if one_by_one else [rows]
        for i, part in enumerate(parts):
            out.append(run.batch({"s": t.table(EDGES, part)}, [("s", c)] if i == len(parts) - 1 else []))
    history = net([*out, run.finish()]).to_pylist()
    counted = [(json.loads(row["payload"])["k"], row["start"]) for table in run.late for row in table.to_pylist()]
    for k, at in {(k, at) for rows, _ in groups for at, _, k in rows}:
        there = {edge for rows, _ in groups for time, edge, key in rows if (key, time) == (k, at)}
        acting = ("start" in there) and any((r["k"], r["start"]) == (k, at) for r in history)
        acting += ("end" in there) and any((r["k"], r["end"]) == (k, at) for r in history)
        assert acting + counted.count((k, at)) >= len(there), (k, at)
