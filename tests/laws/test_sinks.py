"""What a sink has been handed, once or twice, is read back as the answer of the query, whatever the sink and the output."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from streamq import testing as t
from streamq.choices import OutputForm
from streamq.errors import NeedsSpark, PlanError, QueryFailed
from streamq.operators.input_table import table_fields
from streamq.plan.schema import Field
from streamq.run.rehearsal import Rehearsal
from streamq.run.sink_arguments import SinkArgument
from streamq.run.transactional_sink import TransactionalSink
from streamq.stream import Stream
from streamq.testing.case import Case
from streamq.testing.drawn_expressions import exact
from streamq.testing.history import assert_same_history
from streamq.testing.progress_policies import timeless
from tests.drawn.queries import WINDOWS, composition, of_key
from tests.laws.test_latest_rows import order, plain
from tests.places import VALUES
from tests.targets import TARGETS, TRANSACTIONAL, Target, begun, columns_of, commit, committing, servers_of

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

OF_SINKS = {**VALUES, "binary": [b"\x00\xff", b"x", None], "smallint": [-(2**15), 0, 2**15 - 1, None]}
"""The types of payload columns, and values of them."""

ONCE, TWICE, LATER = "once", "twice", "after an attempt that fails"


@st.composite
def cases(draw: Any, target: type[Target], output: OutputForm) -> Case:
    """A query that has rows of that output; rows are on time, so that it does not matter how they are cut."""
    types = [draw(st.sampled_from([kind for kind in OF_SINKS if kind not in target.lacks])) for _ in "kv"]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip("kv", types, strict=True))
    axis = draw(st.sampled_from(["integer", "timestamp"]))
    streams = [t.stream(columns=columns, axis=axis) for _ in "ab"]
    if output == OutputForm.UPSERT:
        window = draw(st.sampled_from(sorted(WINDOWS)))
        query: Any = of_key(WINDOWS[window])(streams[0], t.ANY)
    else:
        query = composition(1, 3, *streams)
    payload = {name: OF_SINKS[kind] for name, kind in zip("kv", types, strict=True)}
    return draw(on_time(query, payload)).coarser(3)


@st.composite
def on_time(draw: Any, query: Any, payload: Mapping[str, Any]) -> Case:
    """A case of a scenario whose answer is the same, however rows are cut."""
    case: Case = draw(t.concrete(query, t.Intent(late="none", invalid=False, payload=payload)))
    assume(not case.follows_clock)
    return timeless(replace(case, until=None))


def written_columns(query: Stream, output: OutputForm) -> tuple[Field, ...]:
    """The columns of what a sink keeps of an output."""
    schema = columns_of(query).schema
    assert schema is not None
    fields = tuple(Field(f.name, f.dataType) for f in schema)
    if output != OutputForm.CHANGELOG:
        return fields
    kind, time = Field("kind", table_fields(pa.table({"kind": ["x"]}))[0].type), fields[-1].type
    return (kind, *fields, Field("new_end", time))


def latest_of(history: pa.Table, payload: list[str], key: tuple[str, ...]) -> pa.Table:
    """Of each key the row that starts last, of these that of the longest lifetime, then the greatest payload."""
    rows = [(row["start"], row["end"], *(plain(row[name]) for name in payload)) for row in history.to_pylist()]
    places = [2 + payload.index(name) for name in key]
    in_order = sorted(range(len(rows)), key=lambda n: [order(value) for value in rows[n]])
    last = {tuple(rows[n][place] for place in places): n for n in in_order}
    return history.take(pa.array(last.values(), pa.int64()))


def assert_reads(target: Target, query: Stream, output: OutputForm, key: tuple[str, ...], expected: pa.Table) -> None:
    """A reader of the place finds the answer."""
    if output == OutputForm.LATEST:
        expected = latest_of(t.history(expected), query.columns, key)
    assert_same_history(t.history(target.rows(written_columns(query, output), key)), expected)


def fail(sink: Any, number: int, rows: pa.Table) -> None:
    """An attempt that ends when all rows have been sent, and before they are committed."""

    def batches() -> Any:
        yield from rows.to_batches()
        raise OSError("the worker is gone")

    # deltalake raises an error of its own
    with pytest.raises(BaseException, match="the worker is gone"):
        list(committing(begun(sink), number)(batches()))


def check(case: Case, output: OutputForm, key: list[str], attempts: list[str], target: Target) -> None:
    """Each micro-batch is handed over once, twice by the same number, or after an attempt that fails.

    Where rows may be taken back they are, as they come early.
    """
    query = case.query
    if output != OutputForm.LATEST:
        key = []
    try:
        columns = columns_of(query, output, key)
        run = Rehearsal(query, output, key=key, early=output != OutputForm.FINAL)
        sink = target.opened(columns)
    except (PlanError, NeedsSpark):
        assume(False)
    try:
        expected = case.answer()
        written = [run.arrive(**{name: rows.num_rows for name, rows in batch.items()}) for batch in case.batches]
        written.append(run.finish())
    except QueryFailed:
        return
    for number, rows in enumerate(written):
        how = attempts[number % len(attempts)]
        if how == LATER and rows.num_rows:
            fail(sink, number, rows)
        for _ in range(2 if how == TWICE else 1):
            commit(sink, number, rows)
    assert_reads(target, query, output, columns.key, expected)


def judge(name: str, output: str, servers: Any = None, examples: int = 200 if SOAK else 8) -> None:
    """Try so many queries whose rows of an output go into a sink."""
    attempts = st.lists(st.sampled_from([ONCE, TWICE, LATER]), min_size=1)

    @settings(max_examples=examples, derandomize=not SOAK, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(cases(TARGETS[name], OutputForm(output)), st.data(), attempts)
    def law(case: Case, data: Any, attempts: list[str]) -> None:
        # a sum that is rounded is no key
        exact_ones = [name for name in case.query.columns if name in exact(case.plan)]
        assume(exact_ones)
        key = data.draw(st.lists(st.sampled_from(exact_ones), min_size=1, max_size=2, unique=True))
        with tempfile.TemporaryDirectory() as folder:
            check(case, OutputForm(output), key, attempts, TARGETS[name](Path(folder), servers))

    law()


@pytest.mark.slow
@pytest.mark.parametrize("output", OutputForm)
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_what_is_written_is_the_answer(name: str, output: OutputForm, request: pytest.FixtureRequest) -> None:
    """In a transaction a micro-batch, whose number is in it."""
    judge(name, output, servers_of(request), **({"examples": 4} if "kafka" in name and not SOAK else {}))


def test_every_sink_that_lasts_is_tried() -> None:
    assert {TARGETS[name].transactional for name in TRANSACTIONAL} == {*TransactionalSink.__subclasses__()}
    assert {kind.says for kind in TARGETS.values()} == {kind for kind in get_args(SinkArgument) if is_dataclass(kind)}
