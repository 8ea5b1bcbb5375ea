"""Scenarios are queries with parts left out; the transformer fills them in, and composes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError, TimeError, UnknownVerb
from streamq.operators import Clip, Join, Source, ToSignal, Where, WindowAggregate
from streamq.plan.node import nodes
from streamq.sources.insert_only import Points
from streamq.testing.arrival import is_event
from tests.drawn.queries import composition

ANY = t.ANY
few = settings(max_examples=20, suppress_health_check=list(HealthCheck))
any_of_many = settings(max_examples=1_000, phases=[Phase.generate], database=None)

EQUI_JOIN = t.stream(disorder="high").join(t.stream(), on="k")


@pytest.mark.slow
@few
@given(t.concrete(EQUI_JOIN))
def test_an_equi_join_over_out_of_order_streams(case: t.Case) -> None:
    joins = [n for n in nodes(case.plan) if isinstance(n, Join)]
    assert [j.on for j in joins] == [(("k", "k"),)] and len(case.sources) == 2
    assert case.plan.schema.names == ("k", "v", "v_r")


@pytest.mark.slow
@few
@given(t.concrete(EQUI_JOIN.clip(EQUI_JOIN.shift(ANY), on=ANY).tumbling_window(ANY).select(n=ANY)))
def test_scenarios_compose(case: t.Case) -> None:
    kinds = [type(n) for n in nodes(case.plan)]
    assert kinds.count(Clip) == 1 and kinds.count(WindowAggregate) == 1
    # one scenario is one node, however often it is used
    assert kinds.count(Join) == 1 and len(case.sources) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "wanted"),
    [
        (t.stream().where(ANY), lambda plan: isinstance(plan, Where)),
        (t.stream().tumbling_window(ANY).select(n=ANY), lambda plan: plan.window.size == 7),
        (t.stream().join(ANY, on=ANY, how=ANY), lambda plan: plan.how == "anti" and plan.on),
        (t.stream().join(ANY, on=ANY, where=ANY, how=ANY), lambda plan: plan.how == "left" and plan.where is not None),
        (composition(1, 1), lambda plan: isinstance(plan, WindowAggregate)),
        (composition(1, 1), lambda plan: isinstance(plan, Clip)),
        (t.stream(shape="signal"), lambda plan: isinstance(plan, ToSignal) and isinstance(plan.input, Points)),
    ],
)
def test_what_is_left_out_is_sampled(scenario: t.Scenario, wanted: Callable[[Any], bool]) -> None:
    def found(case: t.Case) -> bool:
        return bool(wanted(case.plan))

    find(t.concrete(scenario, t.Intent(events=2, speculation=False, duplicates=False)), found, settings=any_of_many)


@few
@given(
    t.concrete(t.stream(shape="intervals", columns="zone string, fare decimal(7,2), at timestamp", duration="short"))
)
def test_columns_and_data_of_a_stream(case: t.Case) -> None:
    assert case.plan.schema.names == ("zone", "fare", "at")
    assert all(
        i.end is not None and i.end - i.start <= 5
        for _, i in case.arrival
        if case.plan.schema.axis == "integer" and is_event(i)
    )


@pytest.mark.slow
@few
@given(t.concrete(t.stream(axis="timestamp").tumbling_window("10 minutes").select(n=sq.count())))
def test_durations_of_ones_own_want_an_axis(case: t.Case) -> None:
    """And events lie as far apart as the query's windows do."""
    starts = [i.start for _, i in case.arrival if is_event(i)]
    assert case.plan.schema.axis == "timestamp"
    assert all(min(start % 150_000_000, -start % 150_000_000) < 100 for start in starts)


@few
@given(t.concrete(sq.events([(1, 5, {"k": "a", "v": 3})], name="mine").where(sq.col("v") > 100)))
def test_a_query_is_a_scenario_with_nothing_left_out_but_its_data(case: t.Case) -> None:
    assert list(case.sources) == ["mine"]
    # values around what the query compares with, and the ends of their type
    there = (None, 0, 1, 2, 3, 7, -4, 99, 100, 101, -(2**63), 2**63 - 1)
    assert all(i.payload["v"] in there for _, i in case.arrival)


@pytest.mark.slow
def test_a_concrete_stream_is_a_node_of_a_scenario() -> None:
    mine = sq.events([(1, 5, {"k": "a", "v": 3})], name="mine")

    @few
    @given(t.concrete(t.stream(columns="k string, v bigint").union(mine)))
    def run(case: t.Case) -> None:
        assert set(case.sources) == {"a", "mine"}
        assert {type(n) for n in nodes(case.plan) if isinstance(n, Source)} >= {type(mine.plan)}

    run()


@pytest.mark.slow
def test_errors() -> None:
    with pytest.raises(
        UnknownVerb, match="scenario: no verb 'wheer'; there are: .*, union, .*where, .*Did you mean 'where'?"
    ):
        t.stream().wheer(ANY)
    for name in ("show", "to_df", "columns"):
        with pytest.raises(UnknownVerb, match=rf"no verb '{name}'; parts of it are left out. t.concrete\(scenario\)"):
            getattr(t.stream(), name)
    with pytest.raises(PlanError, match="no such disorder; found 'wild'"):
        t.stream(disorder="wild")
    with pytest.raises(PlanError, match="stream: shape is 'points', 'intervals', .* or 'signal'; found 'round'"):
        t.stream(shape="round")
    with pytest.raises(PlanError, match="stream: axis is 'integer' or 'timestamp'; found 'time'"):
        t.stream(axis="time")
    with pytest.raises(PlanError, match="it does not end in a stream; found stream\\(\\).tumbling_window\\(ANY\\)"):
        t.verify(t.stream().tumbling_window(ANY), profile="fast")
    with pytest.raises(PlanError, match="pipe: not a function of a stream; found ANY"):
        t.stream().pipe(ANY)
    with pytest.raises(PlanError, match="argument 'sub_plan' of apply cannot be drawn. Give it a value."):
        t.verify(t.stream().group_by("k").apply(ANY), profile="fast")
    # what the user wrote is wrong whatever is filled in: the error is that of the verb
    with pytest.raises(PlanError, match="where: no column 'x'"):
        t.verify(t.stream().where(sq.col("x") > 1), profile="fast")


@pytest.mark.slow
def test_a_size_says_the_axis() -> None:
    for size, axis in ((10, "integer"), ("10 min", "timestamp")):
        with pytest.raises(
            TimeError, match=rf'tumbling_window: .* axis; found .*{size}.*say which: t.stream\(axis="{axis}"\)'
        ):
            t.verify(t.stream().tumbling_window(size).select(n=sq.count()), profile="fast", examples=9)
    # said, and wrong all the same
    with pytest.raises(TimeError, match="found 10. Write '10 seconds' or a timedelta"):
        t.verify(t.stream(axis="timestamp").shift(10), profile="fast")
    with pytest.raises(TimeError, match=r"found 0\.$"):
        t.verify(t.stream().tumbling_window(0).select(n=sq.count()), profile="fast")


def test_scenarios_and_what_they_leave_out_come_first() -> None:
    mine = sq.events([(1, 5, {"k": "a", "v": 3})])
    for verb in ("join", "union", "except_", "clip", "windowed_join"):
        more = {"on": "k"} if verb == "clip" else {"size": 3} if verb == "windowed_join" else {}
        with pytest.raises(
            PlanError, match=rf"{verb}: not a stream; found Scenario. Begin .* scenario.{verb}\(stream\)"
        ):
            getattr(mine, verb)(t.stream(), **more)
    with pytest.raises(PlanError, match="found ANY. t.ANY stands in scenarios only: begin with t.stream"):
        mine.where(t.ANY)
    with pytest.raises(
        PlanError, match="join: a key is .*; found ANY. t.ANY stands in scenarios only: begin with t.stream"
    ):
        mine.join(mine, on=t.ANY)


def test_what_cannot_be_made_concrete() -> None:
    wrong: Any = 5
    with pytest.raises(PlanError, match="concrete: not a scenario and not a stream; found int. Begin with t.stream"):
        t.concrete(wrong)
    with pytest.raises(PlanError, match="concrete: not an intent; found int. Give t.Intent"):
        t.concrete(t.stream(), wrong)


@pytest.mark.slow
def test_a_function_of_streams_is_one_of_scenarios() -> None:
    def counted(stream: Any, *keys: str) -> Any:
        return stream.group_by(*keys).snapshot_window().select(n=sq.count())

    scenario = t.stream().pipe(counted, "k")
    assert repr(scenario) == "stream().group_by('k').snapshot_window().select(n=count(*))"
    assert t.verify(scenario, profile="fast", examples=2).cases == 2


@pytest.mark.slow
@few
@given(t.concrete(t.stream(columns="ID string, id_ double", shape="physical_ids")))
def test_a_stream_with_ids_may_have_a_column_of_that_name(case: t.Case) -> None:
    (source,) = (node for node in nodes(case.plan) if isinstance(node, Source))
    assert "id2" in [f.name for f in source.columns] and case.plan.schema.names == ("ID", "id_")


@pytest.mark.slow
@few
@given(t.concrete(t.stream(shape="physical_ids").join(t.stream(shape="physical_ids"), on="k")))
def test_two_streams_with_ids_are_two_sources(case: t.Case) -> None:
    assert set(case.sources) == {"a", "b"}


@sq.udf("double", name="reciprocal_of_any", takes="series")
def reciprocal(values: Any) -> Any:
    """A function to which 0.0 and -0.0 are two values."""
    return 1 / values


NUMBERS = t.stream(columns="v double", shape="physical", axis="integer")


@pytest.mark.slow
@pytest.mark.parametrize("x", [reciprocal("v"), sq.col("v").cast("string"), sq.functions.pow("v", sq.lit(-1.0))])
def test_equal_values_have_equal_bits_if_a_query_can_tell(x: sq.Expr) -> None:
    """A retraction changes either of two equal events, so that 0.0 beside -0.0 would leave two right answers."""
    signs: set[float] = set()

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(t.concrete(NUMBERS.select(x=x)))
    def have_one_sign(case: t.Case) -> None:
        zeros = {math.copysign(1, item.payload["v"]) for _, item in case.arrival if item.payload.get("v") == 0}
        assert len(zeros) < 2
        signs.update(zeros)

    have_one_sign()
    assert signs == {1.0, -1.0}


@pytest.mark.slow
def test_equal_values_differ_in_their_bits_elsewhere() -> None:
    def has_two_zeros(case: t.Case) -> bool:
        return {str(item.payload["v"]) for _, item in case.arrival if item.payload.get("v") == 0} == {"0.0", "-0.0"}

    find(t.concrete(NUMBERS.where(sq.col("v") >= 0)), has_two_zeros, settings=any_of_many)
