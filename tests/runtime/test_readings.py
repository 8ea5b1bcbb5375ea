"""What stages say of themselves: totals that survive restarts, the same from any number of buckets."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.runtime.hosts.readings import KernelReadings, Readings, SourceReadings
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.runtime.time.progress import StartSummary, merge_summaries, summarize_starts
from tests.programs import compiled

CARS = sq.events(
    [(t, t + 2, {"k": t % 5}) for t in (3, 1, 4, 11, 5, 9, 26, 5)], name="cars", progress=sq.generate(4), late="drop"
)

OF_PARTS = {"round", "quiet_round", "straggler", "straggler_cti"}


def query(output: str, buckets: int) -> LocalRun:
    plan = CARS.where(sq.col("k") != 0).group_by("k").tumbling_window(5).select(n=sq.count())
    return LocalRun(compiled(rewrite(plan.plan).plan, output, buckets=buckets))


def columns_of(readings: Readings) -> dict[str, int]:
    """The readings as they travel, a column each."""
    parts = [*readings.of_sources.items(), *readings.of_kernels.items()]
    columns = {f"{n}|{relation}": v for relation, part in parts for n, v in vars(part).items() if v is not None}
    for relation in readings.of_kernels:
        columns |= {f"arrived {port}|{relation}": n for port, n in columns.pop(f"arrived|{relation}").items()}
    return columns


@pytest.mark.parametrize("output", ["final", "changelog"])
def test_totals_survive_restarts_whatever_the_buckets(output: str) -> None:
    told = []
    for buckets in (1, 4):
        run = query(output, buckets)
        given = 0
        for at in range(0, 8, 2):
            out = run.batch({"cars": CARS.tables["cars"].slice(at, 2)}, now=1_000_000 + 1_000 * at)
            given += sum(w for w in out.column("__w").to_pylist() if w > 0)
            run = LocalRun(run.program, run.stores, readings=run.readings)
        (kernel,) = run.program.stages[0].hosted
        assert run.readings.kernel(kernel.name).inserted == given
        cars, columns = run.readings.source("source:cars"), columns_of(run.readings)
        assert cars.heard_at == cars.moved_at == 1_006
        # small buckets are evaluated as a whole
        differing = ("state_bytes", "evaluated", "bins_read", "cpu_us_now")
        told.append({n: v for n, v in columns.items() if not n.startswith(differing)})
        of_source = {f"{f.name}|source:cars" for f in fields(SourceReadings) if f.name not in OF_PARTS}
        of_kernel = {f"{f.name}|{kernel.name}" for f in fields(KernelReadings) if f.name != "arrived"}
        assert set(columns) == {*of_source, *of_kernel, f"arrived 0|{kernel.name}"}
    assert told[0] == told[1]
    expected = {"cti": 22, "watermark": 26, "rows": 8, "new_rows": 2, "least_start": 1, "middle_start": 5}
    assert {what: told[0][f"{what}|source:cars"] for what in expected} == expected


@pytest.mark.parametrize(("output", "due"), [("final", 25), ("changelog", 30)])
def test_what_is_due_next_is_the_least_of_the_buckets_and_of_none_where_nothing_waits(output: str, due: int) -> None:
    """At c = 22, m = 26; windows of keys 1 and 4 hold rows, in buckets of their own."""
    run = query(output, 4)
    run.batch({"cars": CARS.tables["cars"].slice(0, 7)})
    run.batch({}, [("cars", 21)])
    (kernel,) = run.program.stages[0].hosted
    assert run.readings.kernel(kernel.name).due == 30
    more = sq.events([(t, t + 2, {"k": k}) for t, k in ((24, 4), (25, 4))], name="cars").tables["cars"]
    run.batch({"cars": more})
    assert run.readings.kernel(kernel.name).due == due
    run.batch({}, [("cars", 2**63 - 1)])
    assert run.readings.kernel(kernel.name).due is None


def test_a_micro_batch_without_a_row_of_a_source_moves_nothing_of_it() -> None:
    run = query("final", 2)
    run.batch({"cars": CARS.tables["cars"].slice(0, 2)}, now=1_000)
    run.batch({}, [("cars", -1)], now=2_000)
    assert run.readings.source("source:cars").moved_at == 1 and run.readings.source("source:cars").new_rows == 0
    run.batch({}, [("cars", 9)], now=3_000)
    assert run.readings.source("source:cars").moved_at == 3 and run.readings.source("source:cars").heard_at == 1


def test_the_size_of_baskets_is_what_is_in_the_store() -> None:
    store = DictStore()
    baskets = Baskets(store)
    one, other = baskets.scoped("one"), baskets.scoped("one more")
    one.basket("in").append("0", pa.table({"v": list(range(40))}))
    one.basket("in").append("0", pa.table({"v": [1, 2]}))
    one.basket("in").append("7", pa.table({"v": [3]}))
    other.basket("in").append("0", pa.table({"v": [3] * 9}))
    baskets.flush()
    held = {name: len(body) for name, body in store.held.items() if name != Baskets.MANIFEST}
    again = Baskets(store)
    assert again.scoped("one").size() == (43, sum(n for name, n in held.items() if name.startswith("one.")))
    again.scoped("one").basket("in").replace("0", pa.table({"v": [5]}))
    again.scoped("one").basket("in").drop("7")
    assert again.scoped("one").size() == (1, len(store.held["one.in/0/0"]))
    assert again.scoped("one more").size()[0] == 9 and again.scoped("none").size() == (0, 0)


def test_the_midst_of_rows_is_not_moved_by_one_far_away() -> None:
    rows = pa.chunked_array([pa.array([*range(100, 2_100), 10**15, 1])])
    starts = summarize_starts(rows)
    assert starts is not None
    assert (starts.rows, starts.least) == (2_002, 1) and 1_000 < starts.middle < 1_200
    assert summarize_starts(rows.slice(0, 0)) is None
    assert merge_summaries(starts, None) == merge_summaries(None, starts) == starts
    few = StartSummary(5, 0, 9)
    for both in (merge_summaries(starts, few), merge_summaries(few, starts)):
        assert both is not None and vars(both) == {"rows": 2_007, "least": 0, "middle": starts.middle}
