"""Laws of the levels of consistency, as ``sq.compare_levels`` measures them, against plain rules over recorded input."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import streamq as sq
from benchmarks import levels as recorded
from streamq import testing as t
from streamq.compiler.results import Results
from streamq.errors import PlanError, UnknownColumn
from streamq.levels.compare_levels import LevelRun, RecordedInput
from streamq.policies import MIDDLE, Level
from streamq.run.rehearsal import Rehearsal
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.screens import ProgressBar
from streamq.stream import Stream
from streamq.time import INFINITY, MINUS_INFINITY
from tests.pictures.drawn import SVG, physical_rows

Row = tuple[object, ...]
Since = dict[Row, int]
"""The rows of a result, and the micro-batch since which each is there."""


def windows_by_adding(events: Iterable[tuple[int, int, int, int]]) -> set[Row]:
    """Count and sum per key and hopping window, by adding each event (start, end, key, value) to every window it overlaps."""
    counts, sums = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for start, end, k, v in events:
        for number in range((start - recorded.SIZE) // recorded.HOP + 1, -(-end // recorded.HOP)):
            counts[k, number * recorded.HOP] += 1
            sums[k, number * recorded.HOP] += v
    return {(k, n, sums[k, start], start, start + recorded.SIZE) for (k, start), n in counts.items()}


def ready(batches: Sequence[pa.Table]) -> Since:
    """The rows of the answer, since the input has them and the CTI or the greatest start has reached their windows' ends."""
    live: dict[int, tuple[int, int, int, int]] = {}
    since: Since = {}
    reached = MINUS_INFINITY
    for number, batch in enumerate(batches):
        for row in batch.to_pylist():
            reached = max(reached, row["start"] if row["kind"] != "retract" else reached)
            if row["kind"] != "cti":
                end = row["end"] if row["new_end"] is None else row["new_end"]
                live[row["n"]] = row["start"], end, row["k"], row["v"]
        reached = INFINITY if number == len(batches) - 1 else reached
        due = {row for row in windows_by_adding(live.values()) if row[-1] <= reached}
        since = {row: since.get(row, number) for row in due}
    return since


def written(run: LevelRun) -> Since:
    """The rows that a changelog leaves, since it has written them for good; no two are equal, and all have an end."""
    since: Since = {}
    for number, deltas in enumerate(run.deltas):
        for kind, *row, new_end in zip(*(c.to_pylist() for c in changelog_rows(deltas).columns), strict=True):
            if kind == "insert":
                since[(*row,)] = number
            else:
                del since[(*row,)]
                assert new_end == row[-2]
    return since


@pytest.mark.slow
def test_the_levels_cost_what_cedr_says() -> None:
    *ordered, strong, middle, weak = (cell.costs for cell in recorded.cells(100, ["windows"]))
    assert [costs.level for costs in ordered] == ["strong", "middle", "weak(50)"]
    assert {replace(costs, level="") for costs in ordered} == {replace(ordered[0], level="")}
    assert (ordered[0].batches_most, ordered[0].retractions, ordered[0].right) == (0, 0, 1)
    # only strong waits, and it writes each row once; the others take back what disorder has made wrong
    assert strong.batches_most > middle.batches_most == weak.batches_most == 0
    assert strong.retractions == 0 < weak.retractions < middle.retractions
    assert strong.inserts == ordered[0].inserts
    # levels that remember are right in the end; the one that does not has less state
    assert strong.right == middle.right == 1 > weak.right
    assert middle.state_most > weak.state_most
    # by plain rules as well, middle never waits, and strong as long as it says
    batches = recorded.micro_batches(recorded.recorded(100, 1 / 3))
    plan = recorded.per_window(sq.physical(batches[0], name="events")).plan
    recording = RecordedInput(Results((plan,)), {}, [{"events": batch} for batch in batches], None)
    at_middle, at_strong = (written(recording.run(level, recording.batches)) for level in (MIDDLE, Level(None)))
    due = ready(batches)
    waits = [at_strong[row] - due[row] for row in at_strong]
    assert at_middle == due and at_strong.keys() == due.keys()
    assert (strong.batches_mean, strong.batches_most) == (statistics.fmean(waits), max(waits))


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_strong_writes_least_and_levels_that_remember_are_right(seed: int) -> None:
    rows = physical_rows(seed)
    order = random.Random(seed).sample(range(rows.num_rows), rows.num_rows)
    batches = [{"s": rows.take(pa.array(order[i : i + 4], pa.int64()))} for i in range(0, rows.num_rows, 4)]
    stream = sq.physical(rows, name="s", progress=sq.generate(60))
    query = stream.group_by("k").snapshot_window().select(n=sq.count(), last=sq.max("v"))
    strong, between, middle = sq.compare_levels(query, batches, levels=["strong", sq.level(5), "middle"]).costs
    assert strong.inserts + strong.retractions <= min(c.inserts + c.retractions for c in (middle, between))
    assert strong.batches_most >= between.batches_most >= middle.batches_most == middle.wait_most == 0
    assert strong.right == middle.right == between.right == 1
    assert strong.inserts >= query.to_arrow().num_rows


def cars(at: Sequence[int]) -> Stream:
    """Cars that pass at some minutes, by timestamps; each window of ten minutes counts them."""
    rows = [(minute * 60_000_000, f"<b>{minute}") for minute in at]
    source = sq.points(
        t.table("at timestamp, car string", rows), time="at", name="cars", progress=sq.generate("20 minutes")
    )
    return source.tumbling_window("10 minutes").select(n=sq.count())


def test_a_comparison_is_a_table_a_text_and_a_picture() -> None:
    compared = sq.compare_levels(cars([1, 12, 4, 31, 17, 60]), levels=["strong", sq.weak("5 minutes")])
    waits = compared.to_arrow().column("wait_most").to_pylist()
    assert [wait.total_seconds() / 60 for wait in waits] == [29, 0]
    assert repr(compared).split("\n")[1].split()[:5] == ["strong", "12", "minutes", "29", "minutes"]
    assert "<td>29 minutes</td>" in compared._repr_html_()
    picture = compared.plot("<levels>")
    root = ElementTree.fromstring(picture.svg)
    assert root.findtext(f"{SVG}title") == "<levels>" and root.get("role") == "img"
    assert "weak('5 minutes'): a row waits 0 seconds on average" in root.findtext(f"{SVG}desc", "")
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert {"strong", "12 minutes; most 29 minutes", "4 + 0"} <= {*texts}
    assert compared.to_pandas().shape == (2, 10)


def test_a_comparison_says_how_many_rows_came_late() -> None:
    """The number is that of run.late: the car of 17 comes when its window is final, unless the source waits twenty for it."""
    rows = [(at, at + 1, {}) for at in (1, 12, 4, 31, 17, 60)]
    late = "1 of 6 rows came late, behind a CTI; of sq.generate(delay) a longer delay lets them in."
    for delay, notes in ((5, [late]), (20, [])):
        source = sq.events(rows, name="cars", progress=sq.generate(delay))
        query = source.tumbling_window(10).select(n=sq.count())
        compared = sq.compare_levels(query, levels=["strong", sq.weak(1)])
        assert repr(compared).split("\n")[3:] == notes and compared.plot().description[2:] == notes
        assert (late in compared._repr_html_()) == (late in compared.plot().html) == bool(notes)
        together = sq.compare_levels(query, [source.tables["cars"]], levels=["strong"])
        assert (
            repr(together).split("\n")[-1].startswith("All rows came in one micro-batch, in which levels hardly differ")
        )
        run = Rehearsal(query, "changelog")
        for _ in rows:
            run.arrive(cars=1)
        assert run.late["cars|dropped"] == len(notes)


def test_a_bar_goes_over_levels_and_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[float, float | None, str]] = []
    monkeypatch.setattr(ProgressBar, "update", lambda self, done, total, note="": shown.append((done, total, note)))
    sq.compare_levels(cars([1, 12]), levels=["strong", sq.weak("5 minutes")])
    assert shown == [
        (0, 8, "middle: micro-batch 1 of 2"),
        (1, 8, "middle: micro-batch 2 of 2"),
        (2, 8, "strong: micro-batch 1 of 2"),
        (3, 8, "strong: micro-batch 2 of 2"),
        (4, 8, "weak('5 minutes'): micro-batch 1 of 2"),
        (5, 8, "weak('5 minutes'): micro-batch 2 of 2"),
        (6, 8, "the answer, with nothing late"),
        (8, 8, ""),
    ]


def test_bad_input_is_a_sentence_and_none_is_a_comparison() -> None:
    for rows in (cars([]).tables["cars"], [], [{}]):
        (strong, _) = sq.compare_levels(cars([]), rows).costs
        assert (strong.inserts, strong.wait_mean, strong.state_most, strong.right) == (0, 0, 0, 1)
    assert sq.compare_levels(cars([1])).costs[0].inserts == 1
    refused = {
        "no level of consistency; found 'stong'. Did you mean 'strong'": lambda: sq.compare_levels(
            cars([1]), levels=["stong"]
        ),
        "two levels are one; found strong, strong": lambda: sq.compare_levels(cars([1]), levels=["strong", "strong"]),
        "levels is a list of levels; found str": lambda: sq.compare_levels(cars([1]), levels="strong"),
        "no source 'vans'; there are: cars": lambda: sq.compare_levels(cars([1]), [{"vans": cars([1]).tables["cars"]}]),
        "not a stream; found int": lambda: sq.compare_levels(cast(Any, 5)),
    }
    for message, call in refused.items():
        with pytest.raises(PlanError, match=f"compare_levels: {message}"):
            call()
    with pytest.raises(UnknownColumn, match="compare_levels, rows of source cars: no column 'car'"):
        sq.compare_levels(cars([1]), t.table("at timestamp", [(1,)]))
