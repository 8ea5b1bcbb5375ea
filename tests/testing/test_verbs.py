"""Verbs are read once more, apart from what they make; by that reading ``verify`` sees a verb that makes another plan."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import streamq as sq
from streamq import col
from streamq import testing as t
from streamq.operators.grouped_stream import GroupedStream
from streamq.operators.windowed_stream import WindowedStream
from streamq.patterns.contributor import Contributor
from streamq.patterns.pattern import Pattern
from streamq.stream import Stream
from streamq.testing.drawn_scenarios import Filled, filled
from streamq.testing.operators.scan import RESETTING_SUM
from streamq.testing.replay import case_from_json, replay
from streamq.testing.scenario import VERBS
from streamq.testing.trial import check
from streamq.testing.verbs import NOT_READ
from streamq.testing.verbs.expressions import over
from streamq.testing.verbs.patterns import FUNCTIONS, Matches
from streamq.testing.verbs.pieces import Piece
from streamq.testing.verbs.streams import Events
from streamq.testing.verbs.text import text_of
from streamq.testing.verbs.windows import Groups, Windows
from tests.each import each
from tests.laws.test_operators import OPERATORS
from tests.mutation.first_modules import rises
from tests.mutation.mutants import MUTANTS
from tests.mutation.queries import QUERIES

READ = {Stream: Events, GroupedStream: Groups, WindowedStream: Windows, Pattern: Matches, Contributor: Piece}
"""What has verbs, and what has their readings."""

once = settings(max_examples=1, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))


def readings(columns: str = "k string, v double, w double", **more: Any) -> t.Scenario:
    return t.stream(columns=columns, axis="integer", **more)


def parts(*names: str) -> list[Any]:
    return [readings().alias(name) for name in names]


S: Any
TIMED: Any
S, POINTS, LISTS = readings(), readings(shape="points"), readings("k string, xs array<struct<a: int, b: string>>")
OTHER = readings("id string, K string, v double")
TIMED = t.stream(columns="k string, v double, at timestamp", axis="timestamp")
BY_KEY = S.group_by("k")
N = {"n": sq.count(), "total": sq.sum("v")}
BOUNDS = {"from_": sq.window_start(), "till": sq.window_end(), "lasts": sq.duration(), "at": sq.start()}
CITIES = pa.table({"k": ["a", None], "V": [1.0, 2.0], "city": ["Ulm", "Bonn"]})
OWN = {"clip_input": "left", "stamp": "align"}
x, y, z = parts("x", "y", "z")

CALLS: dict[str, Any] = {
    # the payload
    "where": S.where(lambda e: (e.v > 1) & (e["w"] < sq.end())),
    "filter": S.filter(predicate=col("v").is_null()),
    "select": S.select("k", col("v"), (col("v") * 2).alias("twice"), word="v", at=sq.start(), more=lambda e: e.v + e.w),
    "select of windows' results": BY_KEY.tumbling_window(4).select(**N).select("n", a=sq.window_start()),
    "with_columns": S.with_columns(v=col("w"), more=1, k=lambda e: e.k),
    "drop": S.drop("k", "w"),
    "rename": S.rename({"k": "v", "v": "k"}, w="x"),
    "explode": LISTS.explode("xs"),
    "explode, flatten": LISTS.explode(column="xs", flatten=True),
    "distinct_ids": S.distinct_ids(4, id=["k", "v"]).distinct_ids(within=0, id="k"),
    # lifetimes
    "shift": S.shift(by=-3).extend(by=2).extend(-1),
    "shift by a unit": TIMED.shift("1 minute").extend("-2 seconds").tumbling_window("1 hour", "5 minutes").select(**N),
    "points": S.to_points().to_points_at_end(),
    "set_duration": S.set_duration(None).set_duration(5).set_duration(duration=col("v").cast("int")),
    "set_duration as it was": S.set_duration(sq.duration()).set_duration(sq.duration() * 2),
    "alter_lifetime": S.alter_lifetime(sq.end(), 3).alter_lifetime().alter_lifetime(sq.start(), sq.duration()),
    "alter_lifetime by the payload": S.alter_lifetime(
        start=sq.start() - col("v").cast("bigint"), duration=col("w").cast("int"), within=7
    ),
    "alter_lifetime by instants": TIMED.alter_lifetime(
        start=col("at"), duration=sq.end() - sq.start(), within="1 day"
    ).alter_lifetime(duration="5 minutes"),
    "to_signal": S.to_signal(key=["k", "w"], order_by="v").to_signal("k").to_signal(),
    "last_rows": S.last_rows(3, 2, key=["k", "w"]).last_rows(n=2, order_by="v").last_rows(1).select(n=sq.count()),
    "chop": S.chop(5, 2).chop(period=3, offset=-1).chop(4),
    # windows
    "hopping_window": BY_KEY.hopping_window(size=6, hop=2, offset=1, **OWN).select(**N),
    "hopping_window, plain": S.hopping_window(6, 2, clip_input="none", stamp="point_at_end").select(**N),
    "tumbling_window": BY_KEY.tumbling_window(size=6, offset=-1, **OWN).select(**N),
    "snapshot_window": BY_KEY.snapshot_window(**OWN).select(**N),
    "sliding_window": BY_KEY.sliding_window(5, **OWN).select(**N),
    "sliding_window of points": POINTS.sliding_window(duration=5).agg(sq.max("v").alias("most"), n=sq.count()),
    "count_window": BY_KEY.count_window(n=3, by="start", **OWN).select(**N),
    "count_window of ends": S.count_window(3, "end").select(**N),
    "count_window of unclipped ends": S.count_window(3, by="end", clip_input="none").select(**N),
    "rows_window": BY_KEY.rows_window(n=3, step=2, order_by=["v", "w"], **OWN).select(**N),
    "rows_window, plain": S.rows_window(3, order_by="v").select(**N),
    "session_window": BY_KEY.session_window(gap=4, **OWN).select(**N),
    "landmark_window": BY_KEY.landmark_window(5, start=3, period=20, **OWN).select(**N),
    "landmark_window, plain": S.landmark_window(hop=5, period=20).select(**N).landmark_window(5, start=-1).select(n=sq.count()),
    "calendar_window": TIMED.group_by("k").calendar_window(period="2 weeks", zone="Europe/Berlin", **OWN).select(**N),
    "per_window": BY_KEY.hopping_window(6, 2).select(**N).group_by("n").per_window().top_k(1, by="total"),
    "per_window of the whole": BY_KEY.tumbling_window(6).select(lifetime_1=sq.count()).per_window().select(n=sq.count()),
    # what is made of windows
    "bounds on the window": BY_KEY.tumbling_window(4).select(**BOUNDS),
    "bounds at its end": BY_KEY.count_window(2).select(**BOUNDS, n=sq.count()),
    "bounds within": S.rows_window(2).select(x=sq.max(sq.duration()), y=sq.window_end() - sq.max(sq.end()) + sq.count()),
    "over aggregates": BY_KEY.tumbling_window(4).select(
        "k", sq.count().alias("n"), share=sq.sum("v") / sq.count(), n2=sq.count(), key=col("k"), total=sq.sum("v"), one=1
    ),
    "some of the members": BY_KEY.tumbling_window(4).select(
        high=sq.count("v", where=col("v") > 1), all=sq.count("v"), share=sq.sum("v", where=col("w") > 0) / sq.sum("v")
    ),
    "top_k": BY_KEY.tumbling_window(4).top_k(k=2, by=col("v") + 1, desc=False, ties="break", row_number=True),
    "top_k, plain": S.snapshot_window().top_k(2, "v"),
    "top_k of a function": S.snapshot_window().top_k(2, by=lambda e: -e.v, ties="keep"),
    "group_by": S.group_by("k", high=col("v") > 1, v=lambda e: e.v + 1).tumbling_window(4).select(**N),
    "apply": BY_KEY.apply(lambda g: g.join(g.shift(1), on="v", suffixes=("", "_s")).count_window(2, by="end").select(**N)),
    "apply in apply": BY_KEY.apply(
        sub_plan=lambda g: g.group_by("v").apply(lambda h: h.sliding_window(2).select(n=sq.count()).where(col("n") > 1))
    ),
    "scan": POINTS.group_by("k").scan(RESETTING_SUM("v", where=col("w") > 1)),
    "scan of all": S.to_points().scan(operator=RESETTING_SUM(col("v") + 1)),
    "rows of an operator": S.session_window(4, stamp="clip", clip_input="none").select(rises("k", "v")),
    # two streams
    "union": S.union(readings(), readings(), S.shift(1)),
    "except_": S.except_(other=readings()),
    "clip": S.clip(by=OTHER, on={"k": "id"}).clip(readings(), ["k", ("v", "w")]).clip(readings()),
    "join": S.join(readings(), on="k", suffixes=("_l", "_r")),
    "join of others": S.join(other=OTHER, on=[("k", "id")], where=lambda a, b: a.v < b.v, how="left", suffixes=("", "_o")),
    "join by a mapping": S.join(OTHER, {"k": "id"}, lambda a, b: a.k != b.K, "semi"),
    "join by an expression": S.join(OTHER, [("k", "id"), "v"], col("v") > col("w"), suffixes=("_l", "_r")),
    "join by its key": S.join(OTHER, ["v"], lambda a, b: (b.v > 1) & (a["v"] > 1), suffixes=("_l", "_r")),
    "join of anything": S.join(OTHER, how="anti", where=lambda a, b: a.v == b.v),
    "join of oneself": S.join(S, on="k", where=lambda a, b: a.v < b.v, suffixes=("", "_2")),
    "left_anti_join": S.left_anti_join(other=OTHER, on=[("k", "id")], where=lambda a, b: a.v < b.v),
    "windowed_join": S.windowed_join(
        other=readings(), on="k", size=6, hop=2, offset=1, where=lambda a, b: a.v < b.v, suffixes=("", "_r")
    ),
    "windowed_join, aggregates": S.windowed_join(OTHER, [("k", "id")], size=6, hop=4, suffixes=("_l", "_r")).select(
        n=sq.count(), most=lambda e: sq.max(e.v_l) - 1
    ),
    "windowed_join, aggregates of groups": S.windowed_join(OTHER, [("k", "id")], size=6, suffixes=("_l", "_r"))
    .group_by("w")
    .select(n=sq.count()),
    "windowed_join, plain": S.windowed_join(OTHER, [("k", "id")], size=6, suffixes=("_l", "_r")),
    "windowed_join, rows": S.windowed_join(OTHER, [("k", "id")], rows=3, step=2, order_by="v", suffixes=("_l", "_r")),
    "windowed_join, rows of groups": S.windowed_join(OTHER, [("k", "id")], rows=3, suffixes=("_l", "_r"))
    .group_by("w")
    .select(n=sq.count()),
    "join_table": S.join_table(table=CITIES, on="k", how="left", suffixes=("", "_t"), name="cities").join_table(
        CITIES, [("k", "city"), "k"], "inner", suffixes=("", "_u")
    ),
    # patterns
    "sequence": sq.sequence(x.first(), y.last().consume(), z, within=8).where("CorrelationKey(k, EQUAL)"),
    "all_of": sq.all_of(x.consume(), y, within=8).where(lambda x, y: x.k == y.k).where(condition="x.v < y.v"),
    "two texts": sq.all_of(x, y, within=8).where("x.k = y.k").where("x.v < y.v AND y.v < 5"),
    "at_least": sq.at_least(1, x, y, within=8),
    "at_most": sq.at_most(2, x, y, within=8),
    "consume": sq.repeat(x, 2, within=8).where("x.v > 0").consume(),
    "repeat": sq.repeat(part=x.consume(), count=2, most=3, within=8).where("CorrelationKey(k, EQUAL)"),
    "unless": sq.sequence(x, y, within=8).unless(negated=z, within=5, nth=1).alias(name="m"),
    "unless of a pattern": sq.any_of(x).unless(sq.any_of(y).alias("m"), 5).where("x.k = y.k"),
    "unless_before": sq.sequence(x, y, within=8).unless_before(negated=z, within=5),
    "without": sq.sequence(x, y, within=8).where("[k EQUAL 'a'] AND CorrelationKey(v, UNIQUE)").without(negated=z),
    "cancel_when": sq.sequence(sq.sequence(x, y, within=8).alias("m"), parts("u")[0], within=9).cancel_when(z),
    "verbs of streams": sq.sequence(x, y, within=8).filter(col("x_v") > 1).tumbling_window(4).select(n=sq.count()),
    "by units": sq.sequence(*[TIMED.alias(n) for n in "xy"], within="8 seconds").unless(TIMED.alias("z"), "1 minute"),
    "cedr": sq.cedr("EVENT A WHEN SEQUENCE(X AS x FIRST, Y, 8) OUTPUT x.k AS k @ [2, 6)", X=S, Y=S.shift(1)),
    "cedr, narrowed": sq.cedr("EVENT E WHEN SEQUENCE(X AS x, Y AS y, 8)", X=S, Y=S.shift(1)).where(lambda x, y: x.vs < y.v),
}  # fmt: skip
CALLS["unless"] = sq.sequence(CALLS["unless"], parts("u")[0], within=9)
"""Every verb with every argument, those that the queries of mutants are without."""


def test_every_verb_is_read_or_named() -> None:
    read = {name for kind in READ.values() for name in dir(kind) if callable(getattr(kind, name))}
    # of a sub-plan the verbs are read, over the stream of a group
    assert set(VERBS) - read - {"apply"} == set(NOT_READ)
    functions = {name: getattr(sq, name) for name in sq.__all__}
    of_patterns = {n for n, f in functions.items() if getattr(f, "__module__", "").startswith("streamq.patterns.")}
    assert set(FUNCTIONS) == of_patterns
    assert all(hasattr(functions[name], "__wrapped__") for name in of_patterns), (
        "a function that accepts no placeholders"
    )


def verbs_of(kind: type) -> list[str]:
    """The verbs of streams, say."""
    none = {*NOT_READ, "apply"}
    return [name for name in VERBS if name not in none and callable(getattr(kind, name, None))]


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_readings_take_what_verbs_take(kind: type) -> None:
    """With the same defaults, none of which is taken from the verbs."""

    def parameters(function: Any) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()][1:]

    assert len(verbs_of(kind)) > 2
    for name in verbs_of(kind):
        ours, theirs = (parameters(getattr(one, name)) for one in (READ[kind], kind))
        assert [p[1:] for p in ours] == [p[1:] for p in theirs], name
        # what is given by position alone may be called otherwise
        assert [n for n, how, _ in ours if how != inspect.Parameter.VAR_POSITIONAL] == [
            n for n, how, _ in theirs if how != inspect.Parameter.VAR_POSITIONAL
        ], name


def calls_in(scenario: Any) -> Iterator[t.Scenario]:
    """Yield a scenario and those below it."""
    if isinstance(scenario, t.Scenario):
        yield scenario
        for part in (scenario.target, *scenario.args, *scenario.kwargs.values()):
            yield from calls_in(part)


def test_every_argument_of_every_verb_is_given_somewhere() -> None:
    arguments_of: dict[str, set[str]] = defaultdict(set)
    for scenario in CALLS.values():
        for call in calls_in(scenario):
            for kind in (kind for kind in READ.values() if hasattr(kind, call.verb)):
                with contextlib.suppress(TypeError):
                    bound = inspect.signature(getattr(kind, call.verb)).bind(None, *call.args, **call.kwargs)
                    arguments_of[call.verb] |= set(bound.arguments)
    for kind in READ:
        for name in verbs_of(kind):
            assert not set(inspect.signature(getattr(READ[kind], name)).parameters) - arguments_of[name], name


SCENARIOS: dict[str, Any] = {**OPERATORS, **CALLS, **{f"query {name}": make() for name, make in QUERIES.items()}}
"""Every verb with every argument, operators with arguments at random, and the queries of mutants."""


@pytest.mark.slow
@each(SCENARIOS)
def test_without_a_fault_both_readings_are_one(name: str) -> None:
    @once
    @given(filled(SCENARIOS[name]))
    def run(one: Filled) -> None:
        assert one.meant is None

    run()


def test_a_column_may_be_a_field_of_another() -> None:
    schema = sq.events([(1, 5, {"k": {"a": 3}, "x.y": 1})]).schema
    assert over(col("k.a"), schema).digest == col("k")["a"].digest
    assert over(col("x.y"), schema).digest == col("x.y").digest


# what verify makes of a verb that is wrong

FAST = t.Profile(examples=20, batch=0, streams=0, shrinking=2, seed=0)
SLIDING = t.stream(shape="points", columns="k string", axis="integer").sliding_window(5).select(n=sq.count())


def shown_by(program: str) -> list[str]:
    """What a program prints, the tables apart."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {})
    return re.split(r"\n(?= +n|Empty)", out.getvalue())


@pytest.mark.slow
def test_a_verb_that_makes_another_plan_is_seen(tmp_path: Path) -> None:
    mutant = MUTANTS["points that slide a tick longer"]
    with mutant.in_place(), pytest.raises(t.VerificationFailed, match="not the oracle's history") as info:
        t.verify(SLIDING, profile=replace(FAST, failures=str(tmp_path)))
    failed = info.value
    program = failed.case.program()
    assert "q = a.sliding_window(5).select(n=sq.count())" in program and "a.set_duration(5)" in program
    meant, made = shown_by(program)
    assert meant == made.removesuffix("\n")
    with mutant.in_place():
        meant, made = shown_by(program)
        assert meant != made.removesuffix("\n")
    # a file keeps what was meant
    assert failed.saved is not None
    case, how, _ = case_from_json(failed.saved.read_text())
    assert repr(case) == repr(failed.case) and case.meant is not None
    with pytest.raises(t.VerificationFailed):
        replay(failed.saved)
    # and that is right
    assert check(replace(case, plan=case.meant.plan, meant=None), [how])


@pytest.mark.slow
def test_a_verb_that_forgets_a_stream_is_seen() -> None:
    def union(self: Stream, *others: Stream) -> Stream:
        return self.where(True)

    with (
        mock.patch.object(Stream, "union", union),
        pytest.raises(t.VerificationFailed, match="the verbs name b, which the plan that they built does not read"),
    ):
        t.verify(S.union(readings()), profile=FAST)


@pytest.mark.slow
def test_a_lost_column_is_a_difference() -> None:
    def drop(self: Stream, *names: str) -> Stream:
        return self.select("v")

    with (
        mock.patch.object(Stream, "drop", drop),
        pytest.raises(t.VerificationFailed, match="different columns: found .* v; exp"),
    ):
        t.verify(S.drop("k"), profile=FAST)


@pytest.mark.slow
def test_another_plan_of_the_same_meaning_is_right() -> None:
    def drop(self: Stream, *names: str) -> Stream:
        return self.where(True).select(*(n for n in self.columns if n not in names))

    with mock.patch.object(Stream, "drop", drop):
        assert t.verify(S.drop("k"), profile=replace(FAST, examples=5)).cases == 5


def test_what_has_no_text_is_a_comment() -> None:
    def called(scenario: t.Scenario) -> str:
        texts = []

        @once
        @given(filled(scenario))
        def run(one: Filled) -> None:
            texts.append(text_of(one.written))

        run()
        return texts[0]

    assert called(S.join_table(CITIES, on="k", suffixes=("", "_t"))).startswith("# called as: Stream(k string")
    assert called(BY_KEY.apply(lambda g: g.shift(1))) == 'q = a.group_by("k").apply(lambda g: g.shift(1))'
    assert (
        called(CALLS["join by a mapping"])
        == 'q = a.join(b, {"k": "id"}, lambda a, b: a.k != b.K, "semi", suffixes=("", "_r"))'
    )
    assert called(CALLS["bounds on the window"]).splitlines()[1:4] == [
        '    a.group_by("k")',
        "    .tumbling_window(4)",
        "    .select(from_=sq.window_start(), till=sq.window_end(), lasts=sq.duration(), at=sq.start())",
    ]
