"""The physical kernel: late items by policy, and what follows them translated (SEMANTICS section 7)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.plan import numbered
from streamq.compiler.program import CHANGELOG, Options
from streamq.compiler.stages import compile_stages
from streamq.errors import LateEvent


def run(late: str, *batches: list[Any]) -> tuple[LocalRun, list[list[tuple[Any, ...]]]]:
    live: LocalRun | None = None
    out = []
    for items in batches:
        # a pad of every kind gives all micro-batches the same columns; the retraction of nothing is never matched
        s = sq.events([*items, sq.retract(999, 1000, 999, v=0)], late=late, name="p")
        if live is None:
            live = LocalRun(compile_stages(numbered(s.plan)[0], Options(output=CHANGELOG, buckets=1)))
        table = s.tables["p"]
        assert isinstance(table, pa.Table)
        found = live.batch({"p": table.slice(0, table.num_rows - 1)})
        out.append(
            sorted(
                (r["v"], r["__w"], r["__le"], None if r["__re"] == 2**63 - 1 else r["__re"]) for r in found.to_pylist()
            )
        )
    assert live is not None
    return live, out


def test_a_retraction_is_a_pair_of_deltas() -> None:
    _, out = run("drop", [sq.insert(1, None, v=3)], [sq.retract(1, None, 10, v=3)], [sq.retract(1, 10, 1, v=3)])
    assert out == [[(3, 1, 1, None)], [(3, -1, 1, None), (3, 1, 1, 10)], [(3, -1, 1, 10)]]


def test_what_belongs_to_a_dropped_insert_goes_with_it() -> None:
    live, out = run("drop", [sq.insert(30, 40, v=1), sq.cti(20)], [sq.insert(5, 50, v=2)], [sq.retract(5, 50, 45, v=2)])
    assert out[1:] == [[], []]
    assert live.totals[(0, 0)] == {"p|dropped": 2}


def test_an_adjusted_insert_acts_from_c_on_and_is_followed() -> None:
    live, out = run(
        "adjust", [sq.insert(30, 40, v=1), sq.cti(20)], [sq.insert(5, 50, v=2)], [sq.retract(5, 50, 45, v=2)]
    )
    assert out[1:] == [[(2, 1, 20, 50)], [(2, -1, 20, 50), (2, 1, 20, 45)]]
    assert live.totals[(0, 0)] == {"p|adjusted": 1}


def test_a_late_retraction() -> None:
    start = [sq.insert(5, 50, v=2), sq.cti(20)]
    live, out = run("drop", start, [sq.retract(5, 50, 10, v=2)])
    assert out[1] == [] and live.totals[(0, 0)] == {"p|dropped": 1}
    live, out = run("adjust", start, [sq.retract(5, 50, 10, v=2)])
    assert out[1] == [(2, -1, 5, 50), (2, 1, 5, 20)] and live.totals[(0, 0)] == {"p|adjusted": 1}
    with pytest.raises(LateEvent):
        run("fail", start, [sq.retract(5, 50, 10, v=2)])


def test_settled_events_are_forgotten() -> None:
    live, _ = run("drop", [sq.insert(1, 5, v=1), sq.insert(1, 50, v=2), sq.cti(6)], [sq.cti(60)])
    assert set(live.stores[(0, 0)]) == {"manifest"}
