"""A result has its rows, final ones in the same micro-batch, whichever other results stand beside it in the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.stages import compile_stages
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import WEIGHT, net_deltas
from tests.laws.test_sharing import KEYS, STEPS, source

C = sq.col
pytestmark = pytest.mark.filterwarnings("ignore:.*overlapping windows:streamq.errors.StreamqWarning")
Beside = Callable[[sq.Stream], sq.Stream]


@sq.udf("bigint", on_error="quarantine")
def whole_tenth(n: int) -> int:
    return 10 // (5 - n)


@sq.uda("bigint", on_error="quarantine")
def shares(n: pd.Series) -> int:
    return sum(10 // (5 - int(value)) for value in n.dropna())


ALL_STEPS = STEPS | {
    "values set aside": lambda s, _: s.select("k", n=whole_tenth("n")),
    "windows set aside": lambda s, _: s.group_by("k").hopping_window(6, 3).select(n=shares("n")),
}
"""Steps of queries, among them those that set events aside."""

PATTERNS = {
    "a sequence": "SEQUENCE(S AS x, T AS y, 6)",
    "a sequence that consumes": "SEQUENCE(S AS x FIRST CONSUME, T AS y LAST, 6)",
    "a negation": "UNLESS(S AS x, T AS y, 4)",
    "at least two": "ATLEAST(2, S AS x, T AS y, S AS z, 5)",
}
FIRST_STEPS = ALL_STEPS | {
    name: lambda s, t, text=text: sq.cedr(
        f"EVENT E WHEN {text} WHERE CorrelationKey(k, EQUAL) OUTPUT x.k AS k, x.n AS n", S=s, T=t
    )
    for name, text in PATTERNS.items()
}
"""The first steps of queries: what patterns go by is two streams as they come."""

BESIDE: dict[str, Beside] = {
    "itself": lambda q: q,
    "a filter of it": lambda q: q.where(C("n") > 1),
    "windows over it": lambda q: q.tumbling_window(6).select(n=sq.count()),
    "snapshots of it": lambda q: q.snapshot_window().select(n=sq.sum("n")),
    "a join with it": lambda q: q.join(q.shift(1), on="n", suffixes=("", "_r")).select("n"),
    "what it lacks": lambda q: q.left_anti_join(q.shift(2), on="n"),
}


@st.composite
def on_time(draw: st.DrawFn) -> list[dict[str, pa.Table]]:
    """Micro-batches of rows of two sources, none of them late: what is late by a window's end is not by an instant."""
    kinds = {"at": pa.int64(), "k": pa.string(), "n": pa.int64()}
    parts, last = [], dict.fromkeys("st", 0)
    for _ in range(draw(st.integers(1, 5))):
        part = {}
        for name in "st":
            row = st.tuples(
                st.integers(max(0, last[name] - 3), last[name] + 6), st.sampled_from(KEYS), st.integers(0, 5)
            )
            rows = draw(st.lists(row, max_size=6))
            last[name] = max(last[name], *(at for at, *_ in rows), 0)
            part[name] = pa.Table.from_pylist([dict(zip(kinds, row, strict=True)) for row in rows], pa.schema(kinds))
        parts.append(part)
    return parts


def sent(
    queries: Sequence[sq.Stream], outputs: Sequence[OutputForm], parts: Sequence[Any], level: Level
) -> tuple[list[list[Any]], list[str]]:
    """The net deltas of each result, sorted, a list a micro-batch; and the rows of the late output, sorted."""
    root, _ = number_sources(Results.from_plans([query.plan for query in queries]))
    options = Options(egresses=tuple(Egress(output) for output in outputs), buckets=2, level=level, late_output=True)
    run = LocalRun(compile_stages(root, options))
    rows = []
    for part in parts:
        run.batch(part)
        rows.append(run.deltas)
    run.finish()
    late = [repr(row) for table in run.late for row in table.to_pylist()]
    results = zip(*rows, run.deltas, strict=True)
    return [[sorted(map(repr, net_deltas(table).to_pylist())) for table in each] for each in results], sorted(late)


FEW = [
    [(1, "a", 2), (2, "b", 3)],
    [(5, "a", 1), (6, "b", 4)],
    [(9, "a", 2), (10, "b", 5)],
    [(14, "b", 2), (15, "a", 3)],
    [(40, "a", 1)],
]
"""Rows of both sources, on time, a list a micro-batch."""


def check(name: str, beside: str, other: str) -> None:
    """Raise AssertionError if rows of a step's result wait for another result, which has the output ``other``."""
    names = ("at", "k", "n")
    tables = [pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]) for rows in FEW]
    parts = [dict.fromkeys("st", table) for table in tables]
    query = ALL_STEPS[name](source("s", False), source("t", False))
    outputs = [OutputForm.FINAL, OutputForm(other)]
    (alone,), aside = sent([query], outputs[:1], parts, MIDDLE)
    assert len([rows for rows in alone if rows]) > 1, "rows in several micro-batches"
    (rows, _), aside_beside = sent([query, BESIDE[beside](query)], outputs, parts, MIDDLE)
    assert (rows, aside_beside) == (alone, aside)


@pytest.mark.parametrize(
    ("name", "beside", "other"),
    [
        ("sessions", "windows over it", "final"),
        ("left", "snapshots of it", "final"),
        ("hopping", "itself", "changelog"),
        ("no key", "a filter of it", "changelog"),
        ("windows set aside", "itself", "changelog"),
        ("windows set aside", "a filter of it", "changelog"),
    ],
)
def test_no_row_of_these_waits_for_another_result(name: str, beside: str, other: str) -> None:
    check(name, beside, other)


@pytest.mark.slow
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("other", [OutputForm.FINAL, OutputForm.CHANGELOG])
@given(
    names=st.lists(st.sampled_from(list(ALL_STEPS)), min_size=1, max_size=3),
    ids=st.booleans(),
    parts=on_time(),
    level=st.sampled_from([MIDDLE, Level(0, 6)]),
)
def test_a_final_row_waits_for_no_other_result(
    other: OutputForm, beside: str, names: list[str], ids: bool, parts: list[dict[str, pa.Table]], level: Level
) -> None:
    query, joined = source("s", ids), source("t", False)
    for name in names:
        query = ALL_STEPS[name](query, joined)
    outputs = [OutputForm.FINAL, other]
    (alone,), _ = sent([query], outputs[:1], parts, level)
    assert sent([query, BESIDE[beside](query)], outputs, parts, level)[0][0] == alone


def history(batches: Sequence[Sequence[str]]) -> Counter[str]:
    """The rows of a result, over all its micro-batches, of which later ones take back some of earlier ones."""
    rows: Counter[str] = Counter()
    for text in (text for batch in batches for text in batch):
        row = eval(text)
        rows[repr(sorted(row.items() - {(WEIGHT, row[WEIGHT])}))] += row[WEIGHT]
    return rows


@pytest.mark.slow
@given(
    names=st.lists(
        st.tuples(st.sampled_from(list(FIRST_STEPS)), st.lists(st.sampled_from(list(ALL_STEPS)), max_size=2)),
        min_size=2,
        max_size=3,
    ),
    outputs=st.lists(st.sampled_from([OutputForm.FINAL, OutputForm.CHANGELOG]), min_size=3, max_size=3),
    ids=st.booleans(),
    parts=on_time(),
    level=st.sampled_from([MIDDLE, Level(None), Level(3), Level(0, 6)]),
)
def test_the_results_of_a_run_are_those_of_each_alone(
    names: list[tuple[str, list[str]]],
    outputs: list[OutputForm],
    ids: bool,
    parts: list[dict[str, pa.Table]],
    level: Level,
) -> None:
    """Whatever the queries: windows, joins and patterns over the same streams, final or as they change."""
    left, right = source("s", ids), source("t", False)
    queries = []
    for first, names_of_more in names:
        query = FIRST_STEPS[first](left, right)
        for name in names_of_more:
            query = ALL_STEPS[name](query, right)
        queries.append(query)
    outputs = outputs[: len(queries)]
    together, _ = sent(queries, outputs, parts, level)
    for query, output, rows in zip(queries, outputs, together, strict=True):
        ((alone,), _) = sent([query], [output], parts, level)
        # a level that blocks holds rows back at the source, and so for all of its readers
        if output == OutputForm.FINAL and level.block == 0:
            assert rows == alone
        else:
            assert history(rows) == history(alone)
