"""The identity of a query is read back from its JSON; what another version wrote is known by its version alone."""

from __future__ import annotations

import json
from dataclasses import replace

from streamq.runtime.identity import (
    STATE_VERSION,
    Identity,
    ModuleCode,
    OperatorState,
    OtherLayout,
    ResultState,
    read_identity,
)

WINDOW = OperatorState(
    name="window:a1",
    stage=0,
    title="hopping size=10",
    form="final",
    parts=("reads k string",),
    modules=(ModuleCode(name="size", version=2, code="c1", compatible_with=1),),
)
MINE = Identity(
    query="a1",
    operators=(WINDOW,),
    results=(ResultState(output="final", ctis=False, operators=("window:a1",)),),
    stages=1,
    sources=("s",),
    buckets=8,
    late_sink=False,
    early=False,
    folders=(("out", "final rows"),),
)


def test_an_identity_is_read_back() -> None:
    assert read_identity(MINE.to_json()) == MINE
    assert read_identity(json.dumps({"version": 8, "query": "a1"})) == OtherLayout(8)
    assert read_identity("{}") == OtherLayout()
    assert STATE_VERSION not in (8, None)


def test_the_mark_differs_where_the_state_does() -> None:
    """Not for other folders, or another clock: state knows neither."""
    others = (
        replace(MINE, query="a2"),
        replace(MINE, stages=2),
        replace(MINE, buckets=4),
        replace(MINE, blocks=True),
        replace(MINE, operators=(replace(WINDOW, stage=1),)),
        replace(MINE, results=(ResultState(output="changelog", ctis=True, operators=("window:a1",)),)),
    )
    assert len({one.mark for one in (MINE, *others)}) == 1 + len(others)
    assert replace(MINE, folders=(), clock=True).mark == MINE.mark
