"""What a checkpoint says has changed."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq.checkpoint import STATE_VERSION, changes
from streamq.compiler.explain import explained
from streamq.compiler.program import Options
from streamq.compiler.rewriter import rewrite
from streamq.compiler.stages import compile_stages
from streamq.runtime.consistency import Level

A = sq.events([(1, 2, {"k": "x", "v": 1})], name="a")
SLOWER = sq.events([(1, 2, {"k": "x", "v": 1})], name="a", progress=sq.generate(5))


def counted(stream: sq.Stream, size: int = 10) -> sq.Stream:
    return stream.group_by("k").tumbling_window(size).select(n=sq.count())


def identity(query: sq.Stream, version: int = STATE_VERSION, **options: Any) -> dict[str, Any]:
    program = compile_stages(rewrite(query.plan).plan, Options(**options))
    (part,) = explained(query.plan, ("logical",))
    return {"version": version, "fingerprint": program.fingerprint(), "plan": part.lines}


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (identity(counted(A)), []),
        (identity(counted(A), level=Level(7)), []),
        (identity(counted(A), version=1), [f"the layout of state (version 1, now {STATE_VERSION})"]),
        (identity(counted(A), buckets=4), ["buckets (4, now 32)"]),
        (
            identity(counted(A), output="changelog", ctis=True),
            ["output ('changelog', now 'final')", "ctis (True, now False)"],
        ),
        (
            identity(counted(A, 20)),
            ["the query (hopping size=20, hop=20 by k: n = count(*), now hopping size=10, hop=10 by k: n = count(*))"],
        ),
        (identity(counted(SLOWER)), ["the query (the policies of its sources)"]),
    ],
)
def test_what_has_changed_is_named(before: dict[str, Any], told: list[str]) -> None:
    assert changes(before, identity(counted(A))) == told


def test_a_long_change_is_cut_short() -> None:
    long = A
    for i in range(6):
        long = long.where(sq.col("v") > i)
    (told,) = changes(identity(A), identity(long))
    assert told == "the query (nothing, now where v > 5; where v > 4; where v > 3; 3 more)"
