"""Results at levels of their own: which share a track, what explain, why() and metrics say, names of late rows and states."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import streamq as sq
from streamq.choices import RunState
from streamq.compiler.explain import explain
from streamq.compiler.local import LocalRun
from streamq.compiler.options import NOWHERE, Placement
from streamq.compiler.results import rewritten
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.compiler.tracks import Tracks, choose_tracks
from streamq.errors import CheckpointError, PlanError, TimeError
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.run.checkpoint import identity_of
from streamq.run.diagnosis import why
from streamq.run.metrics import metrics
from streamq.run.micro_batches import MicroBatch, RunHistory
from streamq.run.run_arguments import ResultRequest, written_results
from streamq.runtime.identity import ResultState
from tests.changed_query import ChangingRun

ROWS = [(start, start + 1, {"k": "a"}) for start in (1, 12, 4, 31, 17, 60)]
CARS = sq.events(ROWS, name="cars", progress=sq.generate(20))
OTHERS = sq.events(ROWS, name="others", progress=sq.generate(20))
COUNTS = CARS.group_by("k").tumbling_window(10).select(n=sq.count())
SUMS = COUNTS.where(sq.col("n") > 1)
STRONG, WEAK = Level(None), Level(0, 10)
PLACE = Placement(by_name={}, stages=1, sources=())


def asked(query: sq.Stream, level: Any = None, output: str = "changelog", **how: Any) -> ResultRequest:
    return sq.result(query, output=output, consistency=level, **how)


def program_of(results: Sequence[ResultRequest], level: Any = "middle", **options: Any) -> StagedPlan:
    written, settings = written_results(results, level, False, "run_all")
    plan, _ = number_sources(written)
    return compile_stages(rewritten(plan), settings, plan)


def tracks_of(results: Sequence[ResultRequest], level: Any = "middle", placement: Placement = NOWHERE) -> Tracks:
    written, settings = written_results(results, level, False, "run_all")
    return choose_tracks(number_sources(written)[0], replace(settings, placement=placement))


def levels(tracks: Tracks) -> list[Level]:
    return [track.level for track in tracks.by_number.values()]


def test_results_of_one_level_share_a_track_in_any_order() -> None:
    """The run's own level is the first."""
    one = tracks_of([asked(COUNTS, "strong"), asked(SUMS), asked(COUNTS, sq.weak(10)), asked(SUMS, "strong")])
    assert (one.numbers, levels(one)) == ((1, 0, 2, 1), [MIDDLE, STRONG, WEAK])
    assert tracks_of([asked(COUNTS), asked(SUMS, "middle")]).numbers == (0, 0)
    # a level that only one result has is that of the program
    assert tracks_of([asked(COUNTS, "strong")]).numbers == (0,)


def test_final_results_need_a_track_only_if_their_level_forgets() -> None:
    both = tracks_of(
        [asked(COUNTS, "strong", "final"), asked(SUMS, "middle", "final"), asked(COUNTS, sq.weak(10), "final")]
    )
    assert (both.numbers, levels(both)) == ((0, 0, 1), [MIDDLE, WEAK])
    beside = tracks_of([asked(COUNTS, "strong"), asked(SUMS, output="final")])
    assert (beside.numbers, levels(beside)) == ((0, 0), [STRONG])
    # without an operator in common, what the others hold back would only cost
    apart = tracks_of([asked(CARS.to_signal("k"), "strong"), asked(SUMS, output="final")])
    assert (apart.numbers, levels(apart)) == ((0, 1), [STRONG, MIDDLE])
    assert tracks_of([asked(CARS.to_signal("k")), asked(SUMS, "strong", output="final")]).numbers == (0, 0)
    nearest = tracks_of([asked(COUNTS), asked(SUMS, "strong"), asked(SUMS, "strong", "final")])
    assert nearest.numbers == (0, 1, 1)
    blocked = tracks_of([asked(COUNTS, sq.level(5, 10), "final"), asked(SUMS, sq.weak(10))])
    assert (blocked.numbers, levels(blocked)) == ((0, 0), [WEAK])


def test_progress_counts_by_the_sources_of_the_level() -> None:
    """A source that only another level reads holds nothing back, unless a source of this level follows it."""
    apart = tracks_of([asked(COUNTS, "strong"), asked(OTHERS)])
    assert [track.sources for track in apart.by_number.values()] == [{"source:others"}, {"source:cars"}]
    follower = sq.events(ROWS, name="follower", progress=sq.follow(OTHERS))
    led = tracks_of([asked(follower, "strong"), asked(OTHERS)])
    assert led.by_number[1].sources == {"source:follower", "source:others"}
    run = LocalRun(
        program_of([asked(CARS.union(CARS.shift(1)), "strong"), asked(OTHERS.snapshot_window().select(n=sq.count()))])
    )
    run.batch({"cars": CARS.tables["cars"]})
    assert run.deltas[0].num_rows == 2 * 5, "what starts before 40 is out, though the others have sent no CTI"


def test_states_have_their_names_but_for_the_track() -> None:
    alone = {hosted.name for stage in program_of([asked(COUNTS)]).stages for hosted in stage.hosted}
    both = program_of([asked(COUNTS), asked(COUNTS, "strong")])
    assert {state.name for state in both.states} == alone | {f"{name}@1" for name in alone}
    assert len(both.stages) == 1, "their stages are the same"


def test_what_levels_share_and_what_runs_again() -> None:
    results = [asked(COUNTS), asked(COUNTS, "strong"), asked(SUMS, output="final"), asked(SUMS, sq.weak(10), "final")]
    written, options = written_results(results, "middle", False, "explain_all")
    text = explain(written, "physical", options=options)
    assert "together: 4 operators with state in 2 stages; each result alone: 4 in 4" in text
    assert "; 2 of them run again, because results have different levels" in text
    assert "consistency of output 1, 3: middle (items at once" in text
    assert "consistency of output 2: strong (items wait" in text
    weak = "consistency of output 4: weak (history is forgotten 10 behind the watermark)"
    assert f"{weak}; late rows are counted as cars at weak(10)" in text
    assert Counter(line.strip() for line in text.splitlines() if "level of consistency:" in line) == {
        "level of consistency: middle": 2, "level of consistency: strong": 1, "level of consistency: weak(10)": 1,
    }  # fmt: skip
    rules = explain(written, "rules", options=options)
    assert rules.count("size=10, hop=10 apart from size=10, hop=10: results at different levels of consistency") == 1
    plan = explain(written, "incremental", options=options)
    assert plan.count("at level") == 3 and plan.count("intervals cars") == 1, "the source is read once"
    same = [asked(COUNTS), asked(SUMS)]
    assert "consistency: middle" in explain(*_explained(same)) and "level" not in explain(*_explained(same))


def _explained(results: list[ResultRequest]) -> Any:
    written, options = written_results(results, "middle", False, "explain_all")
    return written, "physical", "text", options


def test_each_level_has_the_late_rows_that_it_makes_late() -> None:
    """The car of 17 is late for weak(10), and on time at the middle level; one that is late for its source is so for both."""
    program = program_of([asked(COUNTS), asked(COUNTS, sq.weak(10))])
    assert [reason for reason in program.late_reasons if reason.endswith("|dropped")] == [
        "cars|dropped", "cars at weak(10)|dropped",
    ]  # fmt: skip
    run = LocalRun(program)
    table = CARS.tables["cars"]
    for at in range(6):
        run.batch({"cars": table.slice(at, 1)})
    run.batch({"cars": table.slice(0, 1)})
    late: Counter[str] = Counter()
    for totals in run.totals.values():
        late.update(totals)
    assert late == {"cars|dropped": 1, "cars at weak(10)|dropped": 2}


def late_names(program: StagedPlan) -> list[str]:
    return [reason.removesuffix("|dropped") for reason in program.late_reasons if reason.endswith("|dropped")]


def test_the_plain_name_of_late_rows_is_that_of_the_run_s_level_in_every_run() -> None:
    """Whichever numbers tracks have; or else of the first result's level. Levels are listed in the order of results."""
    board, bills = asked(COUNTS, sq.weak(5)), asked(SUMS, "strong")
    assert late_names(program_of([board, bills])) == ["cars", "cars at strong"]
    assert late_names(program_of([board, asked(SUMS)])) == ["cars", "cars at weak(5)"]
    assert late_names(program_of([board, bills], "strong")) == ["cars", "cars at weak(5)"]
    run = ChangingRun(COUNTS, SUMS, output="changelog", levels={0: Level(0, 5), 1: STRONG})
    run.changed(COUNTS, SUMS, output="changelog", levels={0: Level(0, 5)})
    assert late_names(run.run.program) == ["cars", "cars at weak(5)"]
    # on two tracks at one level
    run.changed(COUNTS, SUMS, output="changelog")
    assert late_names(run.run.program) == ["cars", "cars at middle (2)"]
    text = explain(*_explained([board, asked(SUMS)]))
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("consistency of output")]
    assert [line.partition(" (")[0] for line in lines] == [
        "consistency of output 1: weak", "consistency of output 2: middle",
    ]  # fmt: skip
    assert [line.partition("; late rows are counted as ")[2] for line in lines] == ["cars at weak(5)", ""]


def test_counts_of_late_rows_stay_when_their_level_is_gone() -> None:
    program = program_of([asked(COUNTS), asked(COUNTS, sq.weak(7))])
    history = RunHistory(late={"cars|dropped": 1, "cars at weak(5)|dropped": 2})
    counts = history.late_counts(program.late_reasons)
    assert {name: n for name, n in counts.items() if name.endswith("|dropped")} == {
        "cars|dropped": 1, "cars at weak(7)|dropped": 0, "cars at weak(5)|dropped": 2,
    }  # fmt: skip


def test_why_and_metrics_go_by_the_level_of_an_operator() -> None:
    program = program_of([asked(CARS.to_signal("k")), asked(CARS.to_signal("k"), "strong")])
    run = LocalRun(program)
    run.batch({"cars": CARS.tables["cars"]})
    history = RunHistory().after(MicroBatch(number=0, began_at=dt.datetime.now(dt.UTC), rows=6, readings=run.readings))
    waits = why(program, history).waits
    held = [wait for wait in waits if wait.operator.startswith("consistency: rows held back")]
    assert [wait.operator.rpartition(" (")[2] for wait in held] == ["level strong)"]
    assert all(wait.operator.endswith(("(level middle)", "(level strong)")) for wait in waits)
    measured = metrics(program, history, RunState.RUNNING)
    assert [result["consistency"] for result in measured["results"]] == ["middle", "strong"]
    operators = [operator for stage in program.stages for operator in stage.hosted]
    assert [program.level_of(hosted.track) for hosted in operators] == ["middle", "strong"]


def test_a_level_of_a_result_is_checked_with_it() -> None:
    with pytest.raises(PlanError, match="result: no level of consistency; found 'week'"):
        asked(COUNTS, "week")
    with pytest.raises(TimeError):
        asked(COUNTS, sq.weak("1 minute"))
    early = "early=True lets rows go at once; the level of consistency of result 2 holds rows back"
    with pytest.raises(PlanError, match=early):
        written_results([asked(COUNTS), asked(COUNTS, "strong")], "middle", True, "run_all")
    # final rows are never early, and a level that no result has holds nothing back
    written_results([asked(COUNTS, "middle"), asked(COUNTS, "strong", "final")], "strong", True, "run_all")


def test_a_result_stays_on_its_track_at_whatever_level() -> None:
    before = [asked(COUNTS, sink="a"), asked(SUMS, "strong"), asked(COUNTS, sq.weak(10), sink="b")]
    stored = identity_of(program_of(before))
    assert [result.track for result in stored.results] == [0, 1, 2]

    def now(*results: ResultRequest, level: Any = "middle") -> Tracks:
        return tracks_of(results, level, replace(PLACE, results=stored.results))

    assert now(*before[::-1]).numbers == (2, 1, 0)
    changed = now(asked(COUNTS), asked(SUMS), asked(COUNTS, sq.weak(10)))
    assert (changed.numbers, levels(changed), changed.origins) == ((0, 1, 2), [MIDDLE, MIDDLE, WEAK], {})
    assert now(asked(SUMS, sq.weak(3)), asked(COUNTS, sq.weak(10)), asked(COUNTS)).numbers == (1, 2, 0)
    # one level less: its track is gone
    assert now(asked(COUNTS), asked(COUNTS, sq.weak(10))).numbers == (0, 2)
    # a query that changed goes on at its level
    other = SUMS.where(sq.col("n") > 3)
    assert now(asked(COUNTS), asked(other, "strong"), asked(COUNTS, sq.weak(10))).numbers == (0, 1, 2)
    # at another level as well, it begins with a copy
    parted = now(asked(COUNTS), asked(other, sq.level(3)), asked(COUNTS, sq.weak(10)))
    assert (parted.numbers, parted.origins) == ((0, 1, 2), {})
    twice = tuple(replace(stored.results[0]) for _ in range(2))
    apart = tracks_of([asked(COUNTS), asked(other, "strong")], placement=replace(PLACE, results=twice))
    assert (apart.numbers, apart.origins) == ((0, 1), {1: 0})
    # a result more joins its level
    assert now(*before, asked(other, "strong")).numbers == (0, 1, 2, 1)
    assert now(*before, asked(other, sq.level(3))).numbers == (0, 1, 2, 3)


def test_results_of_one_query_are_known_by_their_folders() -> None:
    """Whatever their levels and order; a folder that has another query now stays on its track as well."""
    before = [asked(COUNTS, sink="a"), asked(COUNTS, "strong", sink="b"), asked(OTHERS)]
    program = program_of(before)
    stored = identity_of(program).results
    assert [(result.track, result.sink.rpartition("/")[2]) for result in stored] == [(0, "a"), (1, "b"), (0, "")]

    def now(*results: ResultRequest, stored: Sequence[ResultState] = stored) -> tuple[int, ...]:
        return tracks_of(results, placement=replace(PLACE, results=tuple(stored))).numbers

    a, b = asked(COUNTS, "strong", sink="a"), asked(COUNTS, sink="b")
    assert (now(a, b), now(b, a)) == ((0, 1), (1, 0))
    assert now(b, asked(COUNTS, sq.weak(3), sink="a"), asked(COUNTS, "strong", sink="c")) == (1, 0, 2)
    assert now(asked(SUMS, "strong", sink="a"), asked(COUNTS, "strong", sink="c"), b) == (0, 0, 1)
    # in new folders: by level
    assert now(asked(COUNTS, "strong", sink="c"), asked(COUNTS, sink="d")) == (1, 0)


def test_results_without_folders_are_refused_where_they_may_have_changed_places() -> None:
    def write(rows: Any, number: int) -> None: ...

    def of(*levels: Any) -> list[ResultRequest]:
        return [asked(COUNTS, level, sink=write) for level in levels]

    stored = identity_of(program_of(of("middle", "strong"))).results

    def now(*results: ResultRequest) -> tuple[int, ...]:
        return tracks_of(results, placement=replace(PLACE, results=stored)).numbers

    assert now(*of("middle", "strong")) == now(*of(sq.weak(10), "strong")) == now(*of("middle", sq.weak(10))) == (0, 1)
    assert (now(*of("strong")), now(*of("middle", sq.weak(3), "strong"))) == ((1,), (0, 2, 1))
    assert now(asked(COUNTS, "middle", sink="a"), asked(COUNTS, "strong", sink="b")) == (0, 1)
    wrong = (
        "they had the levels middle, strong; results 1, 2 have strong, middle. Run them in that order at those levels"
    )
    with pytest.raises(CheckpointError, match=wrong):
        now(*of("strong", "middle"))
    # a checkpoint of a run that did not store folders
    with pytest.raises(CheckpointError, match=wrong):
        now(asked(COUNTS, "strong", sink="a"), asked(COUNTS, "middle", sink="b"))
    for levels in (["strong", sq.weak(10)], [sq.weak(10)], ["strong", sq.weak(10), "middle"]):
        with pytest.raises(CheckpointError, match="cannot be told apart"):
            now(*of(*levels))


def test_levels_that_part_begin_with_the_same_state() -> None:
    run = ChangingRun(COUNTS, SUMS, output="changelog")
    tables = CARS.tables
    run.batch({"cars": tables["cars"].slice(0, 3)})
    run.changed(COUNTS, SUMS, output="changelog", levels={1: STRONG})
    assert dict(run.identity.origins) == {1: 0}
    names = [operator.name for operator in run.identity.operators]
    other = r"begins at another level with a copy of its state, .*First run it in 2 buckets"
    with pytest.raises(CheckpointError, match=other):
        ChangingRun(COUNTS, SUMS, output="changelog").changed(
            COUNTS, SUMS, output="changelog", levels={1: STRONG}, buckets=3
        )
    run.batch({"cars": tables["cars"].slice(3, 1)})
    assert set(names) <= run.scopes and any(name.endswith("@1") for name in names)
    # they stay apart at one level, and the track that is gone takes its state with it
    run.changed(COUNTS, SUMS, output="changelog")
    assert [operator.name for operator in run.identity.operators] == names
    run.changed(SUMS, output="changelog")
    run.batch({"cars": tables["cars"].slice(4)})
    assert {name.partition("/")[0] for name in run.scopes} == {name for name in names if name.endswith("@1")}


def test_a_result_begins_on_a_track_that_has_left_another_one() -> None:
    """It begins with no state: what that other track has is of another time than the progress of this one."""
    both = CARS.union(OTHERS)
    counts = CARS.tumbling_window(10).select(n=sq.count())
    sums = both.tumbling_window(10).select(n=sq.count(), k=sq.max("k"))
    run = ChangingRun(counts, sums, output="changelog")
    run.batch({"cars": CARS.tables["cars"].slice(0, 2), "others": OTHERS.tables["others"].slice(0, 1)})
    parted = {"output": "changelog", "levels": {1: STRONG}}
    run.changed(counts, sums, **parted)
    assert dict(run.identity.origins) == {1: 0}
    run.batch({"cars": sq.events([(t, t + 1, {"k": "a"}) for t in (41, 42)], name="cars").tables["cars"]})
    fit = run.fit(counts, sums, counts, output="changelog", levels={1: STRONG, 2: STRONG})
    assert fit.new_results == (2,) and not fit.misfits
    run.changed(counts, sums, counts, output="changelog", levels={1: STRONG, 2: STRONG})
    later = sq.events([(t, t + 1, {"k": "a"}) for t in (43, 44, 45)], name="cars").tables["cars"]
    deltas = run.batch({"cars": later}) + run.finish()
    began = [row for number in (2, 5) for row in deltas[number].to_pylist()]
    # two rows were held back on its track until now
    assert [row["n"] for row in began if row["__le"] == 40] == [5]


def test_progress_on_a_track_ends_with_it() -> None:
    """A later track that has its number does not go on from it: what weak(5) has forgotten is on time for others."""
    run = ChangingRun(COUNTS, COUNTS, output="changelog", levels={1: Level(0, 5)})
    table = CARS.tables["cars"]
    run.batch({"cars": table.slice(0, 4)})
    run.changed(COUNTS, output="changelog")
    run.batch({"cars": table.slice(3, 1)})
    run.changed(COUNTS, SUMS, output="changelog", levels={1: STRONG})
    assert [result.track for result in run.identity.results] == [0, 1]
    run.batch({"cars": sq.events([(t, t + 1, {"k": "a"}) for t in (25, 27)], name="cars").tables["cars"]})
    last = run.finish()[1].to_pylist()
    assert [row["n"] for row in last if row["__le"] == 20] == [2]
    assert not any(table.num_rows for table in run.run.late)


def test_progress_of_a_source_on_a_track_ends_with_its_results() -> None:
    """The track goes on with other sources; one that comes back counts as it does now."""
    cars, others = (stream.tumbling_window(10).select(n=sq.count()) for stream in (CARS, OTHERS))
    weak = {n: Level(0, 5) for n in (1, 2)}
    run = ChangingRun(cars.union(others), cars, others, output="changelog", levels=weak)
    rows = {name: stream.tables[name].slice(0, 4) for name, stream in (("cars", CARS), ("others", OTHERS))}
    run.batch(rows)
    run.changed(cars.union(others), cars, output="changelog", levels={1: STRONG})
    run.batch({"cars": CARS.tables["cars"].slice(5, 1)})
    run.changed(cars.union(others), cars, others, output="changelog", levels={1: STRONG, 2: STRONG})
    assert [result.track for result in run.identity.results] == [0, 1, 1]
    run.batch({"others": sq.events([(t, t + 1, {"k": "a"}) for t in (25, 27)], name="others").tables["others"]})
    last = run.finish()[2].to_pylist()
    assert [row["n"] for row in last if row["__le"] == 20] == [2]


def test_a_source_may_have_the_name_of_another_one_on_a_track() -> None:
    ahead = sq.events(ROWS, name="cars@1", progress=sq.generate(0))
    pairs = [asked(CARS.to_signal("k")), asked(ahead.union(CARS)), asked(CARS.to_signal("k"), sq.weak(0))]
    program = program_of(pairs)
    assert {*program.strategy.judging} == {("cars", 0), ("cars", 1), ("cars@1", 0)}
    run = LocalRun(program)
    for start in (5, 60, 50):
        name = "cars" if start == 60 else "cars@1"
        run.batch({name: sq.events([(start, start + 1, {"k": "a"})], name=name).tables[name]})
    assert run.deltas[1].num_rows == 1, "cars has come to 60 on its track, not the other source"
