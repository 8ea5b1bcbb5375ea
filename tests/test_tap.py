"""A tap shows what goes into an operator and comes out of it, and changes nothing: in-process, for every operator with state."""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import PlanError, StreamqWarning
from streamq.plan.node import Node
from streamq.run.samples import MICRO_BATCHES, Tap, tapped_operator
from streamq.run.status.run_status import RESULTS
from streamq.run.storage.checkpoint import TapCommand
from streamq.runtime.arrow.columnar import concat, decode_small, encode_small
from streamq.runtime.arrow.values import python_rows
from streamq.runtime.deltas import WEIGHT, unit_weights, with_weights
from streamq.runtime.envelope import TAP, TAPPED, Envelope
from streamq.runtime.hosts.readings import LATEST
from streamq.runtime.hosts.stage import OUT, TAPS, Stage
from streamq.runtime.state.baskets import Baskets, DictStore
from tests.algebra import QUERIES, intervals, plans
from tests.each import each
from tests.programs import compiled

ALL, FEW = 1_000_000, 2
BATCHES = 5


@dataclass(frozen=True)
class TappedStage(Stage):
    """A stage whose buckets get the commands that are in ``commands``, and whose reports go to ``reports``."""

    commands: list[TapCommand] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)

    def run(self, bucket: int, baskets: Any, envelopes: Iterable[Envelope], *rest: Any) -> list[Envelope]:
        commands = [(bucket, TAP, json.dumps(asdict(command)).encode()) for command in self.commands]
        out = super().run(bucket, baskets, [*envelopes, *commands], *rest)
        self.reports.extend(json.loads(body) for _, channel, body in out if channel == TAPPED)
        passed_on = [envelope for envelope in out if envelope[1] == TAP]
        assert len(passed_on) == (len(commands) if self.buckets_behind is None or bucket < self.buckets_behind else 0)
        return out


class Listener:
    """An observer that keeps the rows of a micro-batch at each port of a node, and of its output."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Node, int], list[pa.Table]] = defaultdict(list)

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        self.rows[node, port].append(rows)

    def rows_out(self, node: Node, rows: Any) -> None:
        self.rows[node, OUT].append(rows)


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in python_rows(table))


def batches(chance: random.Random) -> list[tuple[dict[str, pa.Table], int]]:
    """The rows of both streams in order of time, cut at random, each with a CTI behind which none comes any more."""
    cuts = {name: [0, *sorted(chance.randrange(41) for _ in range(BATCHES - 1)), 40] for name in "lr"}
    tables = {name: intervals(chance.randrange(1_000)) for name in "lr"}
    arrived = []
    for place in range(BATCHES):
        later = [start for n in "lr" for start in tables[n]["from"][cuts[n][place + 1] :].to_pylist()]
        rows = {n: tables[n][cuts[n][place] : cuts[n][place + 1]] for n in "lr"}
        arrived.append((rows, min(later, default=100)))
    return arrived


def program_of(name: str, chance: random.Random) -> tuple[StagedPlan, Any]:
    tables = {"l": intervals(0), "r": intervals(0), "sizes": pa.table({"k": ["a", None], "size": [1, 2]})}
    query = plans(tables)[name]
    return compiled(query.plan, chance.choice([OutputForm.CHANGELOG, OutputForm.FINAL]), buckets=2), tables["sizes"]


STATELESS = {"shift, extend, to_points_at_end", "alter_lifetime", "join_table"}
TAPPED_QUERIES = sorted(QUERIES.keys() - STATELESS)[:: 1 if os.environ.get("STREAMQ_SOAK") else 4]


@pytest.mark.slow
@each(TAPPED_QUERIES)
def test_a_tap_shows_what_an_observer_sees_and_changes_nothing(name: str) -> None:
    chance = random.Random(name)
    program, sizes = program_of(name, chance)
    hosted = chance.choice([h for stage in program.stages for h in stage.hosted if h.number in program.nodes])
    commands: list[TapCommand] = []
    reports: list[dict[str, Any]] = []
    stages: list[Stage] = [
        TappedStage(
            **{f.name: getattr(stage, f.name) for f in fields(Stage) if f.init}, commands=commands, reports=reports
        )
        for stage in program.stages
    ]
    listener = Listener()
    static = {"sizes": sizes}
    plain = LocalRun(program, static=static)
    run = LocalRun(replace(program, stages=stages), static=static, observer=listener)
    begins, ends = sorted(chance.sample(range(BATCHES), 2))
    shown = 0
    for number, (batch, c) in enumerate(batches(chance)):
        if number == begins:
            commands[:] = [TapCommand("all", hosted.name, ALL, BATCHES), TapCommand("few", hosted.name, FEW, BATCHES)]
        if number == ends:
            # the second one ends by itself
            commands[:] = [TapCommand("all", "", 0, 0), TapCommand("few", hosted.name, FEW, 1)]
        cti = [(None, c)]
        assert repr(python_rows(run.batch(batch, cti))) == repr(python_rows(plain.batch(batch, cti))), (
            "as without a tap"
        )
        tapped: dict[str, dict[int, list[pa.Table]]] = {"all": defaultdict(list), "few": defaultdict(list)}
        for report in reports:
            for port, body in report["rows"]:
                tapped[report["tap"]][port].append(decode_small(base64.b64decode(body)))
        if begins <= number < ends:
            for port in range(OUT, max(channel.port for channel in hosted.channels) + 1):
                seen = [rows for rows in listener.rows[program.nodes[hosted.number], port] if rows.num_rows]
                assert bool(seen) == bool(tapped["all"][port])
                newest = [python_rows(rows[-FEW:]) for rows in tapped["all"][port]]
                assert repr(newest) == repr([python_rows(rows) for rows in tapped["few"][port]])
                if not seen:
                    continue
                rows = concat(tapped["all"][port])
                shown += rows.num_rows
                channels = [channel for channel in hosted.channels if channel.port == port]
                if port == OUT:
                    expected, rows = concat(seen), unit_weights(rows)
                elif len(channels) > 1:
                    # each channel's rows are combined by themselves
                    continue
                else:
                    parts = seen if channels[0].inner is not None else [concat(seen)]
                    expected = concat([hosted.kernel.combine(port, part) for part in parts])
                expected = with_weights(expected) if WEIGHT in rows.column_names else expected
                assert counted(expected) == counted(rows)
        elif number != ends:
            assert not reports
        else:
            assert not tapped["all"]
        commands.clear()
        reports.clear()
        listener.rows.clear()
    assert repr(python_rows(run.finish())) == repr(python_rows(plain.finish())) and not reports
    states = [
        {bucket: json.loads(store["manifest"])["values"] for bucket, store in r.stores.items()} for r in (run, plain)
    ]
    assert [{bucket: {**values, LATEST: None} for bucket, values in state.items()} for state in states[:1]] == [
        {bucket: {**values, LATEST: None} for bucket, values in states[1].items()}
    ]


def test_the_end_of_a_tap_may_come_before_its_beginning() -> None:
    program, _ = program_of("inner join", random.Random(0))
    stage = program.stages[-1]
    orders = [TapCommand("one", stage.hosted[-1].name, 0, 0), TapCommand("one", stage.hosted[-1].name, ALL, 5)]
    for commands, on in ((orders, 0), (orders[::-1], 0), (orders[1:], 2)):
        stores: dict[int, dict[str, bytes]] = {0: {}, 1: {}}
        for bucket, store in stores.items():
            envelopes = [(bucket, TAP, json.dumps(asdict(command)).encode()) for command in commands]
            stage.run(bucket, Baskets(DictStore(store)), envelopes)
        values = [Baskets(DictStore(store)).values for store in stores.values()]
        assert sum(TAPS in value for value in values) == on


def report(number: int, **ports: pa.Table) -> Any:
    """Spark's report on a micro-batch in which a bucket had these rows."""
    rows = [(OUT if name == "out" else int(name[1:]), encode_small(table)) for name, table in ports.items()]
    text = json.dumps({"tap": "t", "rows": [(port, base64.b64encode(body).decode()) for port, body in rows]})
    spark = {"batchId": number, "durationMs": {"addBatch": 1}, "observedMetrics": {RESULTS: {"tapped": [text]}}}
    return SimpleNamespace(batchId=number, json=json.dumps(spark))


def test_a_tap_keeps_the_newest_rows_and_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamq.run.samples.uuid4", lambda: SimpleNamespace(hex="t"))
    reports = [report(3, p0=pa.table({"v": [0]}))]
    sent: list[TapCommand] = []
    with Tap("inner join on k", "inner", 2, axis="timestamp", send=sent.append, reports=lambda: reports) as tap:
        ends = pa.array([2**63 - 1], pa.int64())
        out = pa.table({"v": [9], "__le": [1_000_000], "__re": ends, "__w": [-1]})
        reports.append(report(4, out=out, p1=pa.table({"v": [1, 2, 3], "__le": [0, 1, 2]})))
        reports.append(SimpleNamespace(batchId=5, json='{"batchId": 5, "durationMs": {}}'))
        reports.append(report(5, p0=pa.table({"__lo": [7]})))
        rows = tap.rows()
        assert rows.values.tolist()[:2] == tap.rows().values.tolist()[:2]
        assert rows[["micro_batch", "port", "weight", "payload"]].values.tolist() == [
            [4, 1, 1, {"v": 2}],
            [4, 1, 1, {"v": 3}],
            [4, "out", -1, {"v": 9}],
            [5, 0, 1, {"__lo": 7}],
        ]
        assert [str(start) for start in rows["start"]][2:] == ["1970-01-01 00:00:01+00:00", "None"]
        assert [end and end.microsecond for end in rows["end"]] == [2, 3, None, None]
        assert repr(tap) == "Tap(inner join on k: 3 rows received, 1 sent)" and "1970-01-01" in tap._repr_html_()
    tap.close()
    assert repr(tap) == "Tap(inner join on k: 3 rows received, 1 sent, ended)"
    assert sent == [TapCommand("t", "inner", 2, MICRO_BATCHES), TapCommand("t", "inner", 0, 0)]


def test_operators_are_named_as_in_explain() -> None:
    s = sq.events([(1, 2, {"k": 1})], name="s")
    query = s.group_by("k").tumbling_window(5).select(n=sq.count()).chop(3).shift(1).chop(2).where(sq.col("n") > 1)
    program = compiled(query.plan)
    (window, *chops) = (h.name for stage in program.stages for h in stage.hosted)
    assert tapped_operator(program, "hopping") == tapped_operator(program, window) == window
    assert tapped_operator(program, program.titles[window][0]) == window
    there = "there are: hopping size=5, hop=5 by k: n = count(*), chop period=3, chop period=2."
    for name in ("where", "", None):
        with pytest.raises(PlanError) as error:
            tapped_operator(program, name)  # type: ignore[arg-type]
        assert str(error.value) == f"tap: no operator with state {name!r}; {there}"
    with pytest.raises(
        PlanError, match=r"tap: 2 operators 'chop'; there are: chop period=3 \(state chop:\w+\), chop.* Give "
    ):
        tapped_operator(program, "chop")
    assert tapped_operator(program, "chop period=2") == chops[1]


def test_micro_batches_that_nobody_has_read_are_counted() -> None:
    reports: list[Any] = [report(3)]
    tap = Tap("window", "w", 10, axis="integer", send=lambda command: None, reports=lambda: reports)
    reports += [report(4)]
    assert tap.rows().empty
    reports += [report(8)]
    with pytest.warns(StreamqWarning, match="the rows of 3 micro-batches are not among those shown"):
        tap.rows()
