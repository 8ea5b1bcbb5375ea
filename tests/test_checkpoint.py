"""The identity of a query in its checkpoint, and the folders that a run takes."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq import testing
from streamq.compiler.rewriter import rewrite
from streamq.errors import PlanError
from streamq.operators import Union
from streamq.policies import Level
from streamq.run.run_options import ResultRequest, RunOptions
from streamq.run.storage.checkpoint import identity_of
from streamq.runtime.hosts.identity import Identity, fit_to_state
from tests.programs import compiled

A = sq.events([(1, 2, {"k": "x", "v": 1})], name="a")
SLOWER = sq.events([(1, 2, {"k": "x", "v": 1})], name="a", progress=sq.generate(5), late="adjust", invalid="fail")


def counted(stream: sq.Stream, size: int = 10) -> sq.Stream:
    return stream.group_by("k").tumbling_window(size).select(n=sq.count())


def identity(query: sq.Stream, **options: Any) -> Identity:
    program = compiled(rewrite(query.plan).plan, **options)
    return identity_of(program)


def test_the_identity_names_what_state_depends_on() -> None:
    """Neither the level, unless it holds rows back, nor the policies of sources."""
    mine = identity(counted(A))
    assert (mine.stages, mine.sources, mine.buckets) == (1, ("a",), 32)
    (window,) = mine.operators
    assert (window.form, window.title) == ("final", "hopping size=10, hop=10 by k: count(*)")
    assert mine.results[0].operators == (window.name,)
    assert identity(counted(SLOWER)).mark == identity(counted(A), level=Level(7)).mark == mine.mark
    changelog = identity(counted(A), output="changelog", level=Level(7))
    assert changelog.blocks and changelog.mark != identity(counted(A), output="changelog").mark
    assert identity(counted(A, 20)).names != mine.names


def test_a_clock_is_a_source_of_spark_and_so_of_the_checkpoint() -> None:
    rows = testing.table("at timestamp", [])
    plain, timed = (
        sq.points(rows, time="at", name="a", progress=progress).tumbling_window("1 s").select(n=sq.count())
        for progress in (sq.generate(), sq.clock("1 s"))
    )
    fit = fit_to_state(identity(plain), identity(timed))
    assert fit.misfits == ("Spark reads no clock beside the sources there, now a clock",)


def test_one_table_is_read_in_one_way() -> None:
    """What a run knows of a source it knows by its table."""
    for other in (SLOWER, sq.intervals(A.tables["a"].drop_columns(["k"]), "start", "end", name="a")):
        both = sq.Stream(Union((A.select("v").plan, other.select("v").plan)), A.tables)
        with pytest.raises(
            PlanError, match="two sources of one table, a; they read it in different ways. Give each its own"
        ):
            compiled(both.plan)


def arguments(*sinks: Any, **others: Any) -> RunOptions:
    return RunOptions(verb="run", results=tuple(ResultRequest(query=A, sink=sink) for sink in sinks), **others)


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
        with pytest.raises(PlanError, match="a late sink, results of run_all and the trigger 'adaptive' need a folder"):
            arguments(sink, late_sink="a/late", checkpoint="a/cp").check()
