"""What a checkpoint says has changed; which folders a run takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import streamq as sq
from streamq import testing
from streamq.compiler.results import Results
from streamq.compiler.rewriter import rewrite
from streamq.errors import PlanError
from streamq.operators import Union
from streamq.policies import Level
from streamq.run.checkpoint import identity_of
from streamq.run.run_arguments import ResultRequest, RunArguments
from streamq.runtime.identity import STATE_VERSION, Identity, identity_differences, read_identity
from tests.programs import compiled

A = sq.events([(1, 2, {"k": "x", "v": 1})], name="a")
SLOWER = sq.events([(1, 2, {"k": "x", "v": 1})], name="a", progress=sq.generate(5), late="adjust", invalid="fail")


def counted(stream: sq.Stream, size: int = 10) -> sq.Stream:
    return stream.group_by("k").tumbling_window(size).select(n=sq.count())


def identity(query: sq.Stream, version: int = STATE_VERSION, folder: str = "out", **options: Any) -> Identity:
    program = compiled(rewrite(query.plan).plan, **options)
    return replace(identity_of(Results((query.plan,)), program), version=version, folders=(folder,))


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (identity(counted(A)), []),
        (identity(counted(A), level=Level(7)), []),
        (identity(counted(A), version=1), [f"the layout of state (version 1, now {STATE_VERSION})"]),
        # buckets by another hash
        (identity(counted(A), version=6), [f"the layout of state (version 6, now {STATE_VERSION})"]),
        (identity(counted(A), buckets=4), ["buckets (4, now 32)"]),
        (identity(counted(A), folder="other"), ["the folders written into (other, now out)"]),
        (
            identity(counted(A), output="changelog", ctis=True),
            ["output ('changelog', now 'final')", "ctis (True, now False)"],
        ),
        (
            identity(counted(A, 20)),
            ["the query (hopping size=20, hop=20 by k: n = count(*), now hopping size=10, hop=10 by k: n = count(*))"],
        ),
        (identity(counted(SLOWER)), []),
    ],
)
def test_what_has_changed_is_named(before: Identity, told: list[str]) -> None:
    assert identity_differences(read_identity(before.to_json()), identity(counted(A))) == told


def test_a_long_change_is_cut_short() -> None:
    long = A
    for i in range(6):
        long = long.where(sq.col("v") > i)
    (told,) = identity_differences(identity(A), identity(long))
    assert told == "the query (nothing, now where v > 5; where v > 4; where v > 3; 3 more)"


def test_a_clock_is_a_source_of_spark_and_so_of_the_checkpoint() -> None:
    rows = testing.table("at timestamp", [])
    plain, timed = (
        sq.points(rows, time="at", name="a", progress=progress).tumbling_window("1 s").select(n=sq.count())
        for progress in (sq.generate(), sq.clock("1 s"))
    )
    assert identity_differences(identity(plain), identity(timed)) == ["a clock that sources follow (none, now there)"]
    written = json.loads(identity(plain).to_json())
    del written["clock"]
    assert read_identity(json.dumps(written)) == identity(plain), "as checkpoints have it that never had a clock"


def test_one_table_is_read_in_one_way() -> None:
    """What a run knows of a source it knows by its table."""
    for other in (SLOWER, sq.intervals(A.tables["a"].drop_columns(["k"]), "start", "end", name="a")):
        both = sq.Stream(Union((A.select("v").plan, other.select("v").plan)), A.tables)
        with pytest.raises(
            PlanError, match="two sources of one table, a; they read it in different ways. Give each its own"
        ):
            compiled(both.plan)


def arguments(*sinks: Any, **others: Any) -> RunArguments:
    return RunArguments(verb="run", results=tuple(ResultRequest(query=A, sink=sink) for sink in sinks), **others)


def test_folders_are_told_apart() -> None:
    for sink, late, which in (("a/out", None, "sink"), (None, "a/late", "late_sink")):
        with pytest.raises(PlanError, match=f"run: no checkpoint; the {which} lasts longer than this process"):
            arguments(sink, late_sink=late).check()
    assert arguments("a/out", late_sink="a/late").folders == ["a/out", "a/late"]
    assert arguments({"format": "json", "path": "a/out"}).folders == ["a/out"]
    for sink in ({"format": "delta", "path": "a/out"}, "noop", print):
        assert arguments(sink).folders == []
    for sink, late in (("a/out", "a/out/"), ("a/cp", None), ("a/out", "a/cp")):
        with pytest.raises(PlanError, match="sinks, late_sink and checkpoint must be different folders; found 'a/"):
            arguments(sink, late_sink=late, checkpoint="a/cp").check()
    for sink in ("memory", "console", {"format": "kafka", "topic": "t"}):
        with pytest.raises(PlanError, match="a late sink, and results of run_all, need a folder"):
            arguments(sink, late_sink="a/late", checkpoint="a/cp").check()


def test_a_module_that_has_changed_is_named() -> None:
    """By its name, wherever it is called; a docstring more is no change."""

    def queries(code: Any) -> list[sq.Stream]:
        scan = sq.udso("x int", initial=0, name="run")(lambda state, value: (state, [code(value)]))
        mapped, total = sq.udf("int", name="mapped")(code), sq.uda("int", name="total")(code)
        points = A.to_points()
        return [A.select(x=mapped("v")), A.tumbling_window(5).select(x=total("v")), points.scan(scan("v"))]

    def before(value: Any) -> Any:
        return value

    def described(value: Any) -> Any:
        """Give it back."""
        return value

    def now(value: Any) -> Any:
        return value + 1

    for name, was, same, other in zip(("mapped", "total", "run"), *map(queries, (before, described, now)), strict=True):
        if name != "run":
            assert identity_differences(identity(was), identity(same)) == []
        (told,) = identity_differences(identity(was), identity(other))
        assert told.startswith(f"the query (module {name}: code ") and f", now module {name}: code " in told
