"""Ingress of an insert-only source without a window: final rows, late policies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamq.compiler.local import LocalRun
from streamq.compiler.operators import Points
from streamq.compiler.program import FINAL, Options
from streamq.compiler.stages import compile_stages
from streamq.errors import LateEvent
from streamq.literal import table_fields
from streamq.policies import SourcePolicy

SCHEMA = pa.schema([("t", pa.int64()), ("v", pa.int64())])


def times(late: str, *batches: list[int]) -> tuple[LocalRun, list[list[Any]]]:
    live = LocalRun(
        compile_stages(
            Points("p", table_fields(SCHEMA.empty_table()), "t", SourcePolicy(10, late)),
            Options(output=FINAL, late_output=True),
        )
    )
    out = [live.batch({"p": pa.table([b, [0] * len(b)], schema=SCHEMA)}).column("__le").to_pylist() for b in batches]
    return live, out


def test_rows_of_an_insert_only_source_are_final_at_once() -> None:
    live, out = times("drop", [5, 30], [21, 20, 19])
    assert [sorted(o) for o in out] == [[5, 30], [20, 21]]
    assert [r["start"] for t in live.late for r in t.to_pylist()] == [19]


def test_for_points_adjust_is_drop() -> None:
    live, out = times("adjust", [30], [19])
    assert out[1] == [] and sum(t.get("p|dropped", 0) for t in live.totals.values()) == 1


def test_fail() -> None:
    with pytest.raises(LateEvent):
        times("fail", [30], [19])
