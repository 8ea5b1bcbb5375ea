"""Any evaluator can be asked for a part of its result: for some groups, by their histories alone, and for a range of windows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamq.choices import JoinKind, Stamp
from streamq.runtime.arrow.columnar import codes, concat, ints
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.evaluators.joins import ClipEvaluator, ExceptEvaluator, JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.evaluators.spans import ChopEvaluator, DistinctIdsEvaluator, LastRowsEvaluator, SignalEvaluator
from streamq.runtime.evaluators.window_evaluator import Ranking, TopKEvaluator, WindowEvaluator
from streamq.runtime.groups import number_groups
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Calendar, Count, Hopping, Landmark, Rows, Session, Snapshot
from tests.each import each

GRID = Hopping(6, 2, 1)
WINDOWS = (GRID, Snapshot(), Count(2), Rows(3, 2, ("v",)), Session(4), Landmark(5, 0, 20), Calendar(1, "day", "UTC"))
ASSIGNERS = tuple(window.assigner(("k", "v")) for window in WINDOWS)
ON = (("k", "k2"),)

GREATEST = Ranking(k=1, by="v", desc=True, ties="keep", payload=("k", "v"), rank="rank")

EVALUATORS: list[Evaluator] = [
    *(
        JoinEvaluator(how, ON, None, ("k", "v"), ("w",), ("k", "v"))
        for how in (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
    ),
    WindowedJoinEvaluator(GRID.grid, JoinEvaluator(JoinKind.INNER, ON, None, ("k", "v"), ("w",), ())),
    ExceptEvaluator(("k",)),
    ClipEvaluator(("k", "v"), ON),
    SignalEvaluator(("k",)),
    LastRowsEvaluator(("k",), 3, 2, ("v", "k")),
    ChopEvaluator(Hopping(3, 3).grid),
    DistinctIdsEvaluator(("k",), ("k", "v"), 3),
    *(
        WindowEvaluator(w.assigner(("k", "v")), ("k",), "full", stamp, False)
        for w in WINDOWS
        for stamp in (Stamp.ALIGN, Stamp.POINT_AT_END)
    ),
    *(TopKEvaluator(w.assigner(("k", "v")), ("k",), "full", Stamp.ALIGN, False, ranking=GREATEST) for w in WINDOWS),
]
"""One of every operator that an evaluator hosts, over columns ``k`` and ``v``, and ``k2`` and ``w`` of a second input."""

IDS = [f"{type(e).__name__} {getattr(e, 'how', '') or type(getattr(e, 'window', None)).__name__}" for e in EVALUATORS]


def history(seed: int, names: tuple[str, str]) -> pa.Table:
    """Forty events of four groups; one group is NULL."""
    random = np.random.default_rng(seed)
    group, start = random.integers(0, 4, 40), random.integers(0, 60, 40)
    key = pa.array(group, mask=group == 3)
    end = start + random.integers(1, 12, 40)
    return pa.table({names[0]: key, names[1]: random.integers(0, 5, 40), LE: start, RE: end})


def inputs(evaluator: Evaluator, seed: int) -> list[pa.Table]:
    left, right = history(seed, ("k", "v")), history(seed + 100, ("k2", "w"))
    if isinstance(evaluator, ExceptEvaluator):
        right = right.rename_columns(["k", "v", LE, RE])
    return number_groups([left, right][: len(evaluator.group_columns)], evaluator.group_columns)


def bag(rows: pa.Table, since: int = MINUS_INFINITY) -> Counter[Any]:
    """The rows that end after an instant, without the evaluator's own columns."""
    names = [n for n in rows.column_names if n in (LE, RE) or not n.startswith("__") or n == "__n"]
    return Counter(tuple(row[n] for n in sorted(names)) for row in rows.to_pylist() if row[RE] > since)


def parted(tables: list[pa.Table], by: tuple[tuple[str, ...], ...]) -> list[list[pa.Table]]:
    """The histories of each group."""
    if not by[0]:
        return [tables]
    names = [f"g{i}" for i in range(len(by[0]))]
    keys = [t.select(list(columns)).rename_columns(names) for t, columns in zip(tables, by, strict=True)]
    number, _ = codes(concat(keys), names)
    ends = np.cumsum([t.num_rows for t in tables])
    numbers = np.split(number, ends[:-1])
    return [
        [t.filter(pa.array(mine == group)) for t, mine in zip(tables, numbers, strict=True)]
        for group in np.unique(number)
    ]


@each(EVALUATORS, range(3))
def test_the_results_of_the_groups_add_up_to_the_result(evaluator: Evaluator, seed: int) -> None:
    tables = inputs(evaluator, seed)
    groups = parted(tables, evaluator.group_columns)
    assert len(groups) > 1
    parts = [bag(evaluator.rows(group, MINUS_INFINITY, INFINITY)) for group in groups]
    whole = bag(evaluator.rows(tables, MINUS_INFINITY, INFINITY))
    assert whole and sum(parts, Counter()) == whole


@each(EVALUATORS, [5, 30, 58])
def test_a_range_of_windows_gives_those_that_end_in_it(evaluator: Evaluator, since: int) -> None:
    tables = inputs(evaluator, 7)
    whole = evaluator.rows(tables, MINUS_INFINITY, INFINITY)
    assert bag(evaluator.rows(tables, since, INFINITY), since) == bag(whole, since)


ON_GRIDS = [e for e in EVALUATORS if e.progress_rule.grid is not None or isinstance(e, ChopEvaluator)]


@pytest.mark.parametrize("upto", [5, 30, 58])
@pytest.mark.parametrize("evaluator", ON_GRIDS, ids=lambda evaluator: type(evaluator).__name__)
def test_a_range_of_windows_of_a_grid_gives_those_that_start_in_it(evaluator: Evaluator, upto: int) -> None:
    tables = inputs(evaluator, 7)
    rows = evaluator.rows(tables, MINUS_INFINITY, upto)
    whole = evaluator.rows(tables, MINUS_INFINITY, INFINITY)
    at_end = getattr(evaluator, "stamp", Stamp.ALIGN) == Stamp.POINT_AT_END
    start = ints(whole, LE) - (GRID.size if at_end else 0)
    assert bag(rows) == bag(whole.filter(pa.array(start < upto)))
