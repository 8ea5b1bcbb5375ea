"""Aggregates written in Python, that merge or do not: by hand, by the laws; ``host_cases.py`` runs them on all hosts."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

import streamq as sq
from streamq.aggregates.basic import apply_aggregate, check_numbers
from streamq.errors import PlanError
from streamq.plan.aggregate import AggregateFunction, Application, Partials
from streamq.plan.expr import Col, Expr
from streamq.plan.partial import (
    COUNT,
    CopiedMembers,
    Ints,
    MemberReduction,
    Partial,
    ReducedColumn,
    Reduction,
    RowWindow,
    Values,
    no_row_window,
)

# one that merges: its partial results are bytes that only it can read


def packed(counters: Sequence[Counter[int]]) -> pa.Array:
    return pa.array([pickle.dumps(counter) for counter in counters], pa.binary())


@dataclass(frozen=True)
class PickledCounts(Partial):
    """How often each value occurs, as pickled Counters."""

    title = "counts"

    @property
    def grouped(self) -> dict[str, str]:
        return {}

    def of_events(self, table: pa.Table) -> Values:
        values = table.column(self.arg).to_pylist()
        return {self.name: packed([Counter([v] if v is not None else []) for v in values])}

    def from_weighted(self, table: pa.Table) -> pa.Table:
        rows = zip(table.column(self.name).to_pylist(), table.column(COUNT).to_pylist(), strict=True)
        counters = [Counter({v: n} if v is not None and n > 0 else {}) for v, n in rows]
        return table.set_column(table.schema.get_field_index(self.name), self.name, packed(counters))

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        counters: dict[int, Counter[int]] = {int(i): Counter() for i in at}
        for i, state in zip(number.tolist(), table.column(self.name).to_pylist(), strict=True):
            counters[i] += pickle.loads(state)
        return {self.name: packed([counters[int(i)] for i in at])}

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        modes = [most_frequent(pickle.loads(state)) for state in table.column(self.name).to_pylist()]
        return table.set_column(table.schema.get_field_index(self.name), self.name, pa.array(modes, pa.int64()))


def most_frequent(counter: Counter[int]) -> int | None:
    return min(counter, key=lambda v: (-counter[v], v), default=None)


class Mode(AggregateFunction):
    """The value that occurs most often, of several the least."""

    name = "mode"

    def result(self, of: Application) -> t.DataType:
        check_numbers(of)
        return t.LongType()

    def split(self, of: Application, partials: Partials) -> Expr | None:
        return Col(partials.partial(PickledCounts, of.args[0], t.LongType()).name)


# one that does not: it wants all members at once, in their order


@dataclass(frozen=True)
class LongestRise(MemberReduction):
    def over_members(self, members: CopiedMembers) -> pa.Array:
        values: list[list[Any]] = [[] for _ in range(members.n)]
        column = members.rows.column(self.column.args[0]).to_pylist()
        passes = self.passes(members.rows)
        for row in members.order.tolist():
            if passes[row]:
                values[int(members.number[row])].append(column[row])
        return pa.array([longest_rise(v) for v in values], pa.int32())


def longest_rise(values: Sequence[int | None]) -> int:
    longest = length = 0
    before: int | None = None
    for value in values:
        length = 0 if value is None else length + 1 if before is not None and length and value > before else 1
        longest, before = max(longest, length), value
    return longest


class Rise(AggregateFunction):
    """How many members in a row have greater and greater values."""

    name = "rise"
    ordered = True
    filters_arguments = False

    def result(self, of: Application) -> t.DataType:
        check_numbers(of)
        return t.IntegerType()

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return LongestRise(column)


MODE, RISE = Mode(), Rise()

ROWS: list[tuple[int, int | None, dict[str, Any]]] = [
    (1, 4, {"k": "a", "v": 3}),
    (1, 9, {"k": "b", "v": None}),
    (2, 3, {"k": "a", "v": 7}),
    (3, None, {"k": "a", "v": 3}),
    (4, 8, {"k": "b", "v": 5}),
    (5, 6, {"k": "b", "v": 6}),
    (6, 12, {"k": "a", "v": 7}),
    (8, 9, {"k": "b", "v": 5}),
    (11, 13, {"k": "a", "v": 7}),
]


def modes(s: Any) -> Any:
    return s.select(x=apply_aggregate(MODE, "v"), few=apply_aggregate(MODE, "v", where=sq.col("v") > 3), n=sq.count())


def rises(s: Any) -> Any:
    return s.select(
        x=apply_aggregate(RISE, "v"),
        few=apply_aggregate(RISE, "v", where=sq.col("v") > 3),
        mode=apply_aggregate(MODE, "v"),
    )


WINDOWS = {
    "hopping": lambda s: s.group_by("k").hopping_window(6, 2),
    "snapshot": lambda s: s.group_by("k").snapshot_window(),
    "count": lambda s: s.group_by("k").count_window(2),
}


def by_hand(start: int, end: int, key: str) -> list[int | None]:
    """The values of the members of a window, in their order."""
    members = [(le, p["v"]) for le, re, p in ROWS if p["k"] == key and le < end and (re is None or re > start)]
    return [v for _, v in sorted(members, key=lambda m: (m[0], m[1] is not None, m[1] or 0))]


@pytest.mark.parametrize("window", ["hopping", "snapshot"])
def test_in_process_they_are_what_they_are_by_hand(window: str) -> None:
    s = WINDOWS[window](sq.events(ROWS))
    for row in modes(s).to_arrow().to_pylist():
        values = by_hand(row["start"], row["end"] or 99, row["k"])
        assert row["x"] == most_frequent(Counter(v for v in values if v is not None))
        assert row["few"] == most_frequent(Counter(v for v in values if v is not None and v > 3))
    for row in rises(s).to_arrow().to_pylist():
        values = by_hand(row["start"], row["end"] or 99, row["k"])
        assert row["x"] == longest_rise(values)
        assert row["few"] == longest_rise([v for v in values if v is not None and v > 3])


def test_one_that_merges_is_split_into_basic_windows_and_neither_is_written_as_json() -> None:
    queries = [modes(WINDOWS["hopping"](sq.events(ROWS))), rises(WINDOWS["hopping"](sq.events(ROWS)))]
    assert ["counts(v)" in q.explanation("incremental") for q in queries] == [True, False]
    for query in queries:
        with pytest.raises(PlanError, match="to_json: an aggregate of your own cannot be written; found (mode|rise)"):
            query.to_json()
