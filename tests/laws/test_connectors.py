"""A query over rows that a connector reads has the answer that it has over the same rows in a table, whatever the connector."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.connectors.connector import Connector
from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.outside_table import OutsideTable
from streamq.connectors.stored_files import Files
from streamq.errors import NeedsSpark, PlanError, QueryFailed
from streamq.operators.source import Source
from streamq.plan.expr import fold
from streamq.plan.node import Node
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.execution import Execution, executions
from streamq.testing.expectation import outside_ctis
from streamq.testing.history import assert_same_history, sum_deltas
from streamq.testing.progress_policies import timeless
from streamq.testing.replay import case_from_json, case_to_json
from streamq.testing.trial import Answers, adapt, fails_on_the_way
from tests.drawn.queries import composition
from tests.places import PLACES, VALUES, Place, TopicPlace
from tests.programs import compiled

SOAK = bool(os.environ.get("STREAMQ_SOAK"))


@st.composite
def cases(draw: Any, place: type[Place]) -> Case:
    """A query of some steps over one or two sources that read such places; rows may be late, invalid, repeated, corrected."""
    axis = draw(st.sampled_from(place.axes))
    types = [draw(st.sampled_from(place.types)) for _ in "kv"]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip("kv", types, strict=True))
    streams = [t.stream(columns=columns, axis=axis, shape=draw(st.sampled_from(place.shapes or (None,)))) for _ in "ab"]
    payload = {name: VALUES[kind] for name, kind in zip("kv", types, strict=True)}
    intent = t.Intent(late=("none", "drop", "adjust"), payload=payload)
    if place.is_on_time:
        intent = intent.but(late="none", invalid=False, duplicates=False)
    case = draw(t.concrete(composition(1, 3, *streams), intent))
    assume(all(place.reads(source) and place.holds(case.tables[name]) for name, source in case.sources.items()))
    return timeless(case)


def put(case: Case, kind: type[Place], folder: Path, broker: Any) -> tuple[dict[str, Place], list[dict[str, pa.Table]]]:
    """The places of a case's sources with all rows, and the micro-batches as a stream reads them."""
    places = {name: kind(folder / name, source, broker) for name, source in case.sources.items()}
    for place in places.values():
        place.folder.mkdir(exist_ok=True)
    read = []
    for batch in case.batches or [case._tables(())]:
        for name, place in places.items():
            place.put(batch[name])
        read.append({name: place.put_last() for name, place in places.items()})
    return places, read


def over(case: Case, streams: Mapping[str, Stream]) -> Stream:
    """The query of a case over other sources."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        return streams[node.table].plan if isinstance(node, Source) else node.with_children(inputs)

    tables = {name: table for stream in streams.values() for name, table in stream.tables.items()}
    return Stream(fold(case.plan, visit), {**tables, **case.static})


def streamed(
    plan: Node, case: Case, how: Execution, batches: Sequence[Mapping[str, pa.Table]]
) -> tuple[pa.Table, Counter[str]]:
    """The history of a stream in-process, and the counts of rows that are set aside."""
    options: dict[str, Any] = {"ctis": how.ctis, "early": how.early, "late_output": how.late_output}
    levels = how.levels[: len(batches) + 1] if how.restart else how.levels[:1]
    programs = itertools.cycle(
        compiled(rewrite(plan).plan, how.output, level=level, buckets=how.buckets, **options) for level in levels
    )
    run, out = LocalRun(next(programs), static=case.static), []
    for batch, ctis, now in zip(batches, outside_ctis(case, how), case.times, strict=False):
        out.append(run.batch(batch, ctis, now=now))
        if how.restart:
            run = run.go_on(next(programs))
    out.append(run.finish(case.until))
    return sum_deltas(out, how.output, case.axis), sum(map(Counter, run.totals.values()), Counter[str]())


def check(case: Case, how: Execution, kind: type[Place], folder: Path, broker: Any = None) -> None:
    """All at once, and in micro-batches, as the oracle says of the rows; plans in JSON and saved cases have the same query."""
    answers = Answers(case)
    try:
        expected, whole = answers.answer(how), case.answer()
    except QueryFailed:
        return
    places, batches = put(case, kind, folder, broker)
    query = over(case, {name: place.stream for name, place in places.items()})
    for one in (query, sq.from_json(query.to_json(), tables=case.static)):
        assert_same_history(one.to_arrow(case.instant), whole)
        assert one.to_json() == query.to_json()
    saved, _ = case_from_json(case_to_json(replace(case, plan=query.plan), how))
    assert saved.plan == query.plan
    assert_same_history(saved.query.to_arrow(case.instant), whole)
    try:
        literal, counts = streamed(case.plan, case, how, case.batches)
    except QueryFailed:
        assert fails_on_the_way(case, how)
        return
    read, counts_there = streamed(query.plan, case, how, batches)
    assert_same_history(literal, expected)
    assert_same_history(read, expected)
    assert counts_there == counts


EXAMPLES = 400 if SOAK else 6


def judge(name: str, broker: Any = None, examples: int = EXAMPLES) -> None:
    """Try so many queries over a kind of place."""
    outputs = st.sampled_from([OutputForm.FINAL, OutputForm.CHANGELOG])

    @settings(max_examples=examples, derandomize=not SOAK, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(cases(PLACES[name]), outputs.flatmap(executions))
    def law(case: Case, how: Execution) -> None:
        case, (how,) = adapt((case, (how,)))
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(case, how, PLACES[name], Path(folder), broker)
            except NeedsSpark:
                with pytest.raises(NeedsSpark):
                    case.query.to_arrow(case.instant)

    law()


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
def test_rows_of_a_connector_are_the_rows(name: str, request: pytest.FixtureRequest) -> None:
    """At every level of consistency, in every output, whatever the cut."""
    judge(name, request.getfixturevalue("kafka") if issubclass(PLACES[name], TopicPlace) else None)


def test_every_connector_is_tried() -> None:
    assert {kind.kind for kind in PLACES.values()} == {*Connector.__subclasses__()}


PASSWORD: Mapping[type[Connector], Callable[[dict[str, str]], Connector]] = {
    Files: lambda options: sq.files("trips", schema="at bigint", **options),
    KafkaTopic: lambda options: sq.kafka("host:9092", "trips", schema="at bigint", options=options),
    OutsideTable: lambda options: sq.table("delta", "trips", options=options),
}


def test_no_secret_is_in_a_plan() -> None:
    """The name of an environment variable is none."""
    assert PASSWORD.keys() == {
        kind for kind in Connector.__subclasses__() if "options" in {f.name for f in fields(kind)}
    }
    for connector in PASSWORD.values():
        for name in ("password", "fs.s3a.secret.key", "kafka.sasl.jaas.config"):
            with pytest.raises(PlanError, match=f"to_json: option '{name}' may be a secret; .* Set it in the session"):
                connector({name: "mine"}).to_json()
            assert connector({name: "${MINE}"}).to_json()["options"] == {name: "${MINE}"}
