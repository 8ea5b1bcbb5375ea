"""The lineage of events against the oracle: an effect is what SQL answers otherwise without the event."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from hypothesis import strategies as st

from streamq import testing as t
from streamq.errors import PlanError, StreamqError
from streamq.operators import Source
from streamq.runtime.deltas import LE, RE
from streamq.testing import Difference, assert_same_history, same_history
from streamq.testing.arrival import comparable
from streamq.testing.case import Case
from streamq.testing.oracle import TooMuch, oracle
from streamq.testing.scenario import concrete
from streamq.time import MINUS_INFINITY
from streamq.tracing.lineage import Lineage
from streamq.tracing.recorded_run import Recording, history_rows, record_run
from tests.drawn.queries import composition
from tests.laws.test_what_fails import SOAK

few = settings(
    max_examples=500 if SOAK else 3,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
)


def recorded(case: Case) -> Recording:
    """The recording of a case; one that the query fails over is none."""
    try:
        return record_run(case.plan, case.static, case.batches, case.until)
    except StreamqError:
        reject()


ON_TIME = t.Intent(late="none", invalid=False, speculation=False, duplicates=False)
INSERT_ONLY = composition(1, 4, t.stream(shape="points"), t.stream(shape="intervals"))


def in_ticks(rows: pa.Table, recording: Recording) -> pa.Table:
    """The answer of a recording's query as a history."""
    return rows.select([LE, RE, *recording.plan.schema.names]).rename_columns(
        ["start", "end", *recording.plan.schema.names]
    )


def oracle_history(recording: Recording, source: int, place: int) -> pa.Table:
    """The oracle's answer over the events that the sources gave, but for one."""
    tables = dict(recording.static)
    for one in recording.sources:
        assert isinstance(one.node, Source)
        table = recording.history(one.number)
        # copied: DuckDB refuses structs of a table that begins inside another one
        rest = [row for row in range(table.num_rows) if (one.number, row) != (source, place)]
        table = table.take(pa.array(rest, pa.int64()))
        # the columns of times by their names in the table: a start, and of intervals an end
        times = dict(zip(("start", "end"), one.node.consumed, strict=False))
        shown = history_rows(table, one.node.schema)
        named = shown.rename_columns([times.get(name, name) for name in shown.column_names])
        tables[one.node.table] = named.select([column.name for column in one.node.columns])
    reach = {name: at for name, at in recording.reach.items() if at != MINUS_INFINITY}
    return oracle(recording.plan, tables, recording.until, reach)


@pytest.mark.slow
@few
@given(t.concrete(INSERT_ONLY, ON_TIME), st.randoms(use_true_random=False))
def test_without_an_event_a_query_answers_what_the_oracle_does_and_its_effects_are_the_difference(
    case: Case, draw: Any
) -> None:
    recording = recorded(case)
    lineage = Lineage(recording)
    assume(lineage.events)
    event = draw.randrange(len(lineage.events))
    try:
        expected = oracle_history(recording, *lineage.events[event])
    except (TooMuch, PlanError):
        reject()
    last = recording.operators[-1].number
    without = in_ticks(lineage.answers([event])[last], recording)
    assert_same_history(without, expected)
    effects = lineage.effects([event])
    difference = same_history(without, in_ticks(recording.history(last), recording)) or Difference()
    assert len({tuple(map(comparable, row)) for row in difference.missing}) == len(effects.caused.get(last, ()))
    assert len(difference.extra) == (effects.prevented[last].num_rows if last in effects.prevented else 0)


@pytest.mark.slow
@few
@given(t.concrete(composition(1, 4)))
def test_all_events_together_give_what_the_recording_has_and_effects_go_along_the_plan(case: Case) -> None:
    """Over all kinds of sources, late and taken back items included."""
    recording = recorded(case)
    lineage = Lineage(recording)
    nothing = lineage.effects([])
    assert (nothing.caused, nothing.prevented) == ({}, {})
    readers: dict[int, set[int]] = {one.number: {one.number} for one in recording.operators}
    for one in reversed(recording.operators):
        for below in one.inputs:
            readers[below] |= readers[one.number]
    for number, (source, place) in enumerate(lineage.events[:2]):
        effects = lineage.effects([number])
        assert {*effects.caused, *effects.prevented} <= readers[source]
        assert effects.caused[source] == {lineage.place_of_row(source)[place]}


MONOTONE = (
    t.stream().where(t.ANY).select("k", v=t.ANY),
    t.stream().union(t.stream().shift(t.ANY)),
    t.stream().join(t.stream(), on=t.ANY, where=t.ANY, how="inner"),
    t.stream().join(t.stream(), on=t.ANY, where=t.ANY, how="semi"),
)


@few
@given(st.one_of(*(concrete(scenario, t.Intent(events=4)) for scenario in MONOTONE)))
def test_the_causes_of_a_row_are_enough_for_it_where_more_events_only_give_more_rows(case: Case) -> None:
    recording = recorded(case)
    lineage = Lineage(recording)
    last = recording.operators[-1].number
    for place in range(min(3, lineage.distinct(last).num_rows)):
        causes = lineage.causes((last, place)) or lineage.joint_causes((last, place))
        others = [event for event in range(len(lineage.events)) if event not in causes]
        assert causes
        if lineage.causes((last, place)):
            row = in_ticks(lineage.distinct(last).slice(place, 1), recording)
            alone = in_ticks(lineage.answers(others)[last], recording)
            assert same_history(alone, row) is None or not same_history(alone, row).missing
        else:
            # none of a minimal set can be spared
            spared = [lineage.effects(set(causes) - {one}).caused.get(last, ()) for one in causes]
            assert all(place not in caused for caused in spared)
