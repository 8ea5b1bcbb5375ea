"""Results at levels of their own: each is what it would be if it ran by itself at its level, whatever runs beside it."""

from __future__ import annotations

import inspect
import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.compiler.local import LocalRun
from streamq.compiler.options import NOWHERE, Options
from streamq.compiler.results import Results, rewritten
from streamq.compiler.stages import compile_stages
from streamq.errors import CheckpointError, StreamqError
from streamq.operators import Source
from streamq.plan.node import nodes, number_sources
from streamq.policies import MIDDLE, Level
from streamq.run.checkpoint import identity_of
from streamq.run.fitting import compile_to_fit
from streamq.runtime.event import WEIGHT
from streamq.runtime.state_fit import fit_to_state
from streamq.runtime.track import off_track
from streamq.testing.case import Case
from streamq.testing.deltas import net
from streamq.testing.difference import assert_same_history
from streamq.testing.generate import cases
from tests.algebra import AGGREGATES, QUERIES, SIZES, intervals
from tests.mutation.mutant import Edit, Mutant

LEVELS = [MIDDLE, Level(None), Level(6), Level(0, 5), Level(0, 15), Level(3, 10)]
FORMS = [Egress(), Egress(OutputForm.CHANGELOG), Egress(OutputForm.CHANGELOG, ctis=True)]


class Asked(NamedTuple):
    query: sq.Stream
    egress: Egress
    level: Level
    sink: str = ""


class Sent(NamedTuple):
    """The output of a program: the deltas of each micro-batch by result, CTIs, and late rows by source and reason."""

    deltas: list[list[pa.Table]]
    ctis: Mapping[int, int]
    late: Counter[str]
    rows: Counter[tuple[Any, ...]]
    names: tuple[set[str], ...]


def run_of(asked: Sequence[Asked], tables: Mapping[str, pa.Table], level: Level = MIDDLE, buckets: int = 2) -> LocalRun:
    written, _ = number_sources(Results.from_plans([one.query.plan for one in asked]))
    levels = {number: one.level for number, one in enumerate(asked)}
    egresses = tuple(one.egress for one in asked)
    sinks = {number: one.sink for number, one in enumerate(asked)}
    options = Options(egresses=egresses, buckets=buckets, level=level, levels=levels, sinks=sinks, late_output=True)
    program = compile_stages(rewritten(written), options, written)
    return LocalRun(program, static=tables, identity=identity_of(program))


def sent(
    run: LocalRun, batches: Sequence[Mapping[str, pa.Table]], restarts: bool = True, until: int | None = None
) -> Sent:
    deltas = []
    for rows in batches:
        run.batch(rows)
        deltas.append(run.deltas)
        run = run.restart() if restarts else run
    run.finish(until)
    deltas.append(run.deltas)
    late: Counter[str] = Counter()
    for totals in run.totals.values():
        late.update(totals)
    rows = Counter((row["source"], row["reason"], row["payload"]) for table in run.late for row in table.to_pylist())
    tracks = {hosted.name: hosted.track for stage in run.program.stages for hosted in stage.hosted}
    names = tuple(
        {off_track(name, tracks[name]) for name in run.program.operators_under(r)} for r in run.program.results
    )
    return Sent(deltas, dict(run.ctis), late, rows, names)


def bag(table: pa.Table) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


def arrived(rng: random.Random, rows: pa.Table) -> pa.Table:
    """Events out of order: most by less than the delay of the sources, some by more."""
    delays = [rng.choice([0, 0, 0, 2, 3, 3, 9, 25]) for _ in range(rows.num_rows)]
    starts = rows.column("from").to_pylist()
    return rows.take(sorted(range(rows.num_rows), key=lambda at: starts[at] + delays[at]))


def asked_of(rng: random.Random, left: Any, right: Any) -> list[Asked]:
    queries = [QUERIES[name](left, right, SIZES) for name in rng.sample(sorted(QUERIES), 2)]
    hops, mergeable = left.group_by("k").hopping_window(7, 3), ("n", "positive", "least", "mean", "spread", "known")
    queries += [hops.select(**{n: AGGREGATES[n] for n in rng.sample(mergeable, 2)}) for _ in range(2)]
    queries += [rng.choice(queries).where(sq.start() > 7), left.join(right, on="k", suffixes=("", "_r"))]
    # one query at several levels beside others
    levels = rng.sample(LEVELS, 3)
    queries += [rng.choice(queries) for _ in range(2)]
    return [Asked(query, rng.choice(FORMS), rng.choice(levels)) for query in queries]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200 if os.environ.get("STREAMQ_SOAK") else 6))
def test_each_result_is_what_its_level_gives_alone(seed: int) -> None:
    """Micro-batch by micro-batch with the results of its level; as a history by itself."""
    rng = random.Random(seed)
    tables = {
        "l": arrived(rng, intervals(2 * seed, 24)),
        "r": arrived(rng, intervals(2 * seed + 1, 24)),
        "sizes": SIZES,
    }
    late = rng.choice(["drop", "adjust"])
    left, right = (
        sq.intervals(tables[n], start="from", end="to", name=n, progress=sq.generate(4), late=late) for n in "lr"
    )
    asked = asked_of(rng, left, right)
    batches = [{n: tables[n].slice(at, 5) for n in "lr"} for at in range(0, 24, 5)]
    run = run_of(asked, tables, rng.choice(LEVELS))
    tracks = run.program.tracks
    together = sent(run, batches, rng.random() < 0.5)
    of_level: Counter[str] = Counter()
    for number, track in tracks.by_number.items():
        mine = [at for at, own in enumerate(tracks.numbers) if own == number]
        alone = sent(run_of([asked[at]._replace(level=track.level) for at in mine], tables), batches, restarts=False)
        for place, at in enumerate(mine):
            for both in zip(together.deltas, alone.deltas, strict=True):
                assert bag(both[0][at]) == bag(both[1][place])
            assert together.ctis.get(at) == alone.ctis.get(place)
            assert together.names[at] == alone.names[place], "names do not depend on the level"
        # a source has its own name on the first track that reads it
        label = {
            r.source.shown_name(): run.program.judged_name(r.source, number)
            for r in run.program.sources
            if r.source and r.name in track.sources
        }
        for key, count in alone.late.items():
            name, _, reason = key.rpartition("|")
            of_level[f"{label[name]}|{reason}"] += count
        for (source, reason, payload), count in alone.rows.items():
            assert together.rows[label[source], reason, payload] == count
    assert together.late == of_level
    for at, one in enumerate(asked):
        own = run_of([one], tables)
        # a kernel that reads a source alone may judge late rows by the starts of its windows
        places = {
            run.program.strategy.judging[table, tracks.numbers[at]].ends for table, _ in own.program.strategy.judging
        }
        is_judged_alike = places == {choice.ends for choice in own.program.strategy.judging.values()}
        track = tracks.by_number[tracks.numbers[at]]
        read = {f"source:{node.table}" for node in nodes(one.query.plan) if isinstance(node, Source)}
        history = net([deltas[at] for deltas in together.deltas])
        if one.egress.output == OutputForm.FINAL:
            negative = (pc.any(pc.less(deltas[at].column(WEIGHT), 0)).as_py() for deltas in together.deltas)
            assert not any(negative), "rows that are final"
        if read == track.sources and is_judged_alike:
            alone = sent(own, batches, restarts=False)
            assert_same_history(history, net([deltas[0] for deltas in alone.deltas]))


def late_items(sent: Sent) -> int:
    return sum(count for key, count in sent.late.items() if key.endswith(("|dropped", "|adjusted")))


@pytest.mark.slow
@given(
    case=st.one_of(cases(), cases(kinds=("edges", "physical", "physical_ids", "intervals_ids"), most_sources=2)),
    forms=st.lists(st.sampled_from(FORMS), min_size=3, max_size=3),
    levels=st.lists(st.sampled_from(LEVELS), min_size=3, max_size=3),
    restarts=st.booleans(),
)
def test_any_query_at_several_levels_is_what_each_gives_alone(
    case: Case, forms: list[Egress], levels: list[Level], restarts: bool
) -> None:
    """Over sources of every kind."""
    query = case.query
    asked = [Asked(query, form, level) for form, level in zip(forms, levels, strict=True)]
    run = run_of(asked, case.static)
    tracks = run.program.tracks

    def batches_of(run: LocalRun) -> Sent | str:
        try:
            return sent(run, case.batches, restarts, case.until)
        except StreamqError as error:
            return type(error).__name__

    together = batches_of(run)
    of_level = {
        number: batches_of(run_of([asked[at] for at, own in enumerate(tracks.numbers) if own == number], case.static))
        for number in tracks.by_number
    }
    if isinstance(together, str):
        assert together in of_level.values()
        return
    for number, alone in of_level.items():
        assert not isinstance(alone, str)
        mine = [at for at, own in enumerate(tracks.numbers) if own == number]
        for place, at in enumerate(mine):
            for both in zip(together.deltas, alone.deltas, strict=True):
                assert bag(both[0][at]) == bag(both[1][place])
            assert together.ctis.get(at) == alone.ctis.get(place)
    assert late_items(together) == sum(late_items(alone) for alone in of_level.values() if isinstance(alone, Sent))


def go_on(run: LocalRun, asked: Sequence[Asked], level: Level) -> LocalRun:
    """Restart a run with results at other levels, or in another order."""
    assert run.identity is not None
    written, _ = number_sources(Results.from_plans([one.query.plan for one in asked]))
    levels = {number: one.level for number, one in enumerate(asked)}
    egresses, sinks = tuple(one.egress for one in asked), {number: one.sink for number, one in enumerate(asked)}
    options = replace(run.program.options, egresses=egresses, level=level, levels=levels, sinks=sinks)
    program, identity = compile_to_fit(written, replace(options, placement=NOWHERE), run.identity)
    fit = fit_to_state(run.identity, identity)
    fit.check("run")
    assert fit.new_results == tuple(range(len(run.program.results), len(asked)))
    return replace(run.go_on(program), identity=identity)


def history_of(
    tables: Mapping[str, pa.Table],
    parts: Sequence[tuple[list[Asked], list[int]]],
    batches: Sequence[Mapping[str, pa.Table]],
) -> list[pa.Table]:
    """The histories of some results that go on with other levels; each part has them in an order of its own, by places."""
    first, places = parts[0]
    run, level = run_of([first[at] for at in places], tables), MIDDLE
    deltas: list[list[pa.Table]] = [[] for _ in first]
    each = len(batches) // len(parts) + 1
    for number, rows in enumerate(batches):
        asked, places = parts[number // each]
        if number and number % each == 0:
            run = go_on(run, [asked[at] for at in places], level)
        run.batch(rows)
        for at, sent in zip(places, run.deltas, strict=True):
            deltas[at].append(sent)
        run = run.restart()
    run.finish()
    for at, sent in zip(places, run.deltas, strict=True):
        deltas[at].append(sent)
    return [net(own) for own in deltas]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200 if os.environ.get("STREAMQ_SOAK") else 6))
def test_each_result_goes_on_at_other_levels(seed: int) -> None:
    """Each result is as it would be by itself, in whichever order results are: levels part, meet and change places."""
    rng = random.Random(seed)
    tables = {
        "l": arrived(rng, intervals(2 * seed, 24)),
        "r": arrived(rng, intervals(2 * seed + 1, 24)),
        "sizes": SIZES,
    }
    once = (sq.intervals(tables[n], start="from", end="to", name=n, progress=sq.generate(4)) for n in "lr")
    # a source that is read twice is judged by its exact CTI, whoever reads it beside
    left, right = (stream.union(stream.where(sq.col("v") == 99)) for stream in once)
    both = left.union(right)
    hops, mergeable = both.group_by("k").hopping_window(7, 3), ("n", "positive", "least", "known")
    queries = [hops.select(**{name: AGGREGATES[name]}) for name in rng.sample(mergeable, 2)]
    queries += [
        left.join(right, on="k", suffixes=("", "_r")),
        both.group_by("k").session_window(3).select(n=sq.count()),
    ]
    queries += [left.except_(right.select(*left.plan.schema.names)), both.snapshot_window().select(n=sq.count())]
    queries = rng.sample(queries, 4)
    forms = [rng.choice(FORMS) for _ in queries]
    # two results of one query are known by their folders; final rows that part from a changelog begin anew
    queries.append(queries[0])
    forms.append(rng.choice([form for form in FORMS if form.output == forms[0].output]))
    parts = []
    for _ in range(3):
        asked = [
            Asked(query, form, rng.choice(LEVELS), f"folder {at}")
            for at, (query, form) in enumerate(zip(queries, forms, strict=True))
        ]
        parts.append((asked, rng.sample(range(len(asked)), len(asked))))
    batches = [{n: tables[n].slice(at, 4) for n in "lr"} for at in range(0, 24, 4)]
    together = history_of(tables, parts, batches)
    for at, history in enumerate(together):
        alone = [([asked[at]], [0]) for asked, _ in parts]
        assert_same_history(history, history_of(tables, alone, batches)[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200 if os.environ.get("STREAMQ_SOAK") else 6))
def test_a_result_begins_at_the_level_of_another_one(seed: int) -> None:
    """The result is as if its query had not run before, at another level: levels have parted in between."""
    rng = random.Random(seed)
    tables = {name: arrived(rng, intervals(2 * seed + place, 24)) for place, name in enumerate("lr")}
    left, right = (
        sq.intervals(tables[n], start="from", end="to", name=n, progress=sq.generate(rng.choice([4, 9]))) for n in "lr"
    )
    both = left.union(right)
    hops = both.group_by("k").hopping_window(7, 3)
    others = [hops.select(n=AGGREGATES["n"]), hops.select(least=AGGREGATES["least"]), left.except_(right)]
    again = rng.choice(
        [
            both.snapshot_window().select(n=sq.count()),
            both.group_by("k").session_window(3).select(n=sq.count()),
            left.join(right, on="k", suffixes=("", "_r")),
        ]
    )
    # the others leave the track of the first two micro-batches, on which the query stays
    log, levels = Egress(OutputForm.CHANGELOG), rng.sample(LEVELS[1:], 3)
    asked = [Asked(query, log, rng.choice(levels)) for query in others]
    begins = Asked(again, log, rng.choice(asked).level)
    batches = [{n: tables[n].slice(at, 4) for n in "lr"} for at in range(0, 24, 4)]

    def told_with(*beside: Asked) -> pa.Table:
        before = [*asked, *beside]
        run = run_of([one._replace(level=MIDDLE) for one in before], {})
        deltas = []
        for number, rows in enumerate([*batches, None]):
            if number in (2, 4):
                run = go_on(run, before if number == 2 else [*before, begins], MIDDLE)
            run.finish() if rows is None else run.batch(rows)
            deltas.append(run.deltas[-1])
        return net(deltas[4:])

    assert_same_history(told_with(Asked(again, log, MIDDLE)), told_with())


def test_what_a_level_has_forgotten_stays_forgotten() -> None:
    """A result that leaves a weak level begins with the CTI that counted there: the car of 17 is late for both, after 31."""
    rows = [(t, t + 1, {"k": "a"}) for t in (1, 12, 31, 17)]
    cars = sq.events(rows, name="cars", progress=sq.generate(20))
    counts = cars.group_by("k").tumbling_window(10).select(n=sq.count())
    log, table = Egress(OutputForm.CHANGELOG), cars.tables["cars"]
    run = run_of([Asked(counts, log, Level(0, 10)), Asked(counts.where(sq.col("n") > 0), log, Level(0, 10))], {})
    run.batch({"cars": table.slice(0, 3)})
    run = go_on(run, [Asked(counts, log, Level(0, 10)), Asked(counts.where(sq.col("n") > 0), log, MIDDLE)], MIDDLE)
    assert run.program.tracks.numbers == (0, 1)
    run.batch({"cars": table.slice(3, 1)})
    assert [deltas.num_rows for deltas in run.deltas] == [0, 0]
    late = Counter(row["source"] for rows in run.late for row in rows.to_pylist())
    assert late == {"cars at weak(10)": 1, "cars": 1}


def test_what_another_level_has_forgotten_is_on_time() -> None:
    """A result that begins gets the number of a track that has ended, and not its progress: 25 and 27 are not late after 60."""
    cars = sq.events([(t, t + 1, {"k": "a"}) for t in (1, 60, 61, 25, 27)], name="cars", progress=sq.generate(50))
    counts = cars.group_by("k").tumbling_window(10).select(n=sq.count())
    log, table = Egress(OutputForm.CHANGELOG), cars.tables["cars"]
    at_middle = Asked(counts, log, MIDDLE)
    run = run_of([at_middle, Asked(counts, log, Level(0, 5))], {})
    run.batch({"cars": table.slice(0, 2)})
    run = go_on(run, [at_middle], MIDDLE)
    run.batch({"cars": table.slice(2, 1)})
    run = go_on(run, [at_middle, Asked(counts.where(sq.col("n") > 0), log, Level(None))], MIDDLE)
    assert run.program.tracks.numbers == (0, 1)
    run.batch({"cars": table.slice(3, 2)})
    assert not run.late
    run.finish()
    assert [(row["__le"], row["n"]) for row in run.deltas[1].to_pylist()] == [(20, 2)]


def test_results_of_one_query_exchange_their_levels() -> None:
    """Each goes on from what it has sent: it retracts only rows that it has inserted, and inserts none twice."""
    rows = [(t, t + 1, {"k": "a"}) for t in (1, 12, 4, 40)]
    cars = sq.events(rows, name="cars", progress=sq.generate(10))
    counts = cars.group_by("k").tumbling_window(10).select(n=sq.count())
    log, table = Egress(OutputForm.CHANGELOG), cars.tables["cars"]
    for order in ([0, 1], [1, 0]):
        parts = [
            ([Asked(counts, log, one, "a"), Asked(counts, log, other, "b")], own)
            for one, other, own in ((MIDDLE, Level(None), [0, 1]), (Level(None), MIDDLE, order))
        ]
        batches = [{"cars": table.slice(at, 1)} for at in range(4)]
        for history in history_of({}, parts, batches):
            assert [row["n"] for row in history.to_pylist()] == [2, 1, 1]
        run = run_of(parts[0][0], {})
        run.batch({"cars": table.slice(0, 2)})
        run = go_on(run, [parts[1][0][at] for at in order], MIDDLE)
        assert run.program.tracks.numbers == tuple(order)
        run.batch({"cars": table.slice(2, 1)})
        changes = [[(row["n"], row[WEIGHT]) for row in deltas.to_pylist()] for deltas in run.deltas]
        assert [changes[place] for place in order] == [[(1, -1), (2, 1)], [(2, 1)]]


STAGE, FIT, TRACKS = "streamq/runtime/stage.py", "streamq/runtime/state_fit.py", "streamq/compiler/tracks.py"
MUTANTS = {
    "rows wait as on the first track": (
        test_each_result_is_what_its_level_gives_alone,
        Edit(STAGE, "self.levels[hosted.track].block == 0", "self.levels[0].block == 0"),
    ),
    "progress of a source counts as on the first track": (
        test_each_result_is_what_its_level_gives_alone,
        Edit("streamq/runtime/hosted_kernel.py", "self.track if self.judge is not None else 0", "0"),
    ),
    "the late rows of all levels have one name": (
        test_each_result_is_what_its_level_gives_alone,
        Edit("streamq/compiler/staged_plan.py", "if place == 0 and level ==", "if level is not None or level =="),
    ),
    "rows that are held back stay on the old track": (
        test_each_result_goes_on_at_other_levels,
        Edit(FIT, "if scope_owner(scope) == old]", "if scope == old]"),
    ),
    "progress on a new track begins anew": (
        test_what_a_level_has_forgotten_stays_forgotten,
        Edit(FIT, "if on_track(PACE, origin) in clock:", "if False:"),
    ),
    "a result begins with the state of another track as it is now": (
        test_a_result_begins_at_the_level_of_another_one,
        Edit(
            FIT, "for track, origin in own.origins if track not in stored.tracks]", "for track, origin in own.origins]"
        ),
    ),
    "progress on a track stays once its results have ended": (
        test_what_another_level_has_forgotten_is_on_time,
        Edit("streamq/runtime/progress.py", "name.startswith(PACE) and name not in still_read", "False"),
    ),
    "a result goes to the track of its level": (
        test_each_result_goes_on_at_other_levels,
        Edit(TRACKS, "left, same, queries = list(stored),", "left, same, queries = [],"),
    ),
    "a result is known by its level whatever its folder": (
        test_results_of_one_query_exchange_their_levels,
        Edit(TRACKS, 'return self.sink != "" and self.sink == stored.sink', "return False"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", MUTANTS)
def test_a_mistake_breaks_a_law(wrong: str) -> None:
    law, edit = MUTANTS[wrong]

    def breaks(seed: int) -> bool:
        with Mutant(wrong, wrong, "", edits=(edit,)).in_place():
            try:
                law(seed) if "seed" in inspect.signature(law).parameters else law()
            except (AssertionError, CheckpointError, KeyError):
                return True
        return False

    # one of these seeds shows it
    assert any(map(breaks, (0, 6)))
