"""The edge kernel: late edges by policy; state is open starts and what c has not passed, and what late edges need."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamq.choices import Invalid, OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import LateEvent
from streamq.operators.input_table import table_fields
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Lit
from streamq.policies import MIDDLE, Level
from streamq.progress.generate import GeneratedCtis
from streamq.runtime.kernel import Arrival, Clock, Judge
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.sources.edges import Edges
from streamq.time import INFINITY, MINUS_INFINITY
from tests.programs import compiled

SCHEMA = pa.schema([("t", pa.int64()), ("edge", pa.string()), ("id", pa.int64())])


def rows(*items: tuple[int, str, int]) -> dict[str, pa.Table]:
    return {"e": pa.table([pa.array([i[n] for i in items], f.type) for n, f in enumerate(SCHEMA)], schema=SCHEMA)}


def run(late: str = "drop", delay: int = 0, invalid: str | None = None, level: Level = MIDDLE) -> LocalRun:
    node = Edges(
        "e",
        table_fields(SCHEMA.empty_table()),
        "t",
        "edge",
        ("id",),
        Lit("start"),
        Lit("end"),
        "start",
        SourcePolicy(progress=GeneratedCtis(delay), late=late, invalid=invalid),
    )
    return LocalRun(compiled(node, OutputForm.CHANGELOG, late_output=True, buckets=2, level=level))


def deltas(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(
        (r["id"], r["__w"], r["__le"], None if r["__re"] == 2**63 - 1 else r["__re"]) for r in table.to_pylist()
    )


def total(live: LocalRun, reason: str) -> int:
    return sum(t.get(f"e|{reason}", 0) for t in live.totals.values())


def test_an_end_that_nothing_opened_is_counted_once_c_has_passed_it() -> None:
    live = run(delay=5)
    live.batch(rows((9, "end", 7), (12, "start", 8)))
    assert total(live, "invalid") == 0
    live.batch(rows((30, "start", 9)))
    assert total(live, "invalid") == 1


def test_late_edges() -> None:
    drop = run()
    drop.batch(rows((50, "start", 1), (40, "start", 2)))
    # the late start of 3 is dropped and its end goes with it; the late end of 2 is dropped, so 2 stays open
    drop.batch(rows((10, "start", 3), (45, "end", 2)))
    assert drop.batch(rows((60, "end", 3), (70, "start", 9))).num_rows == 1
    drop.finish()
    assert (total(drop, "dropped"), total(drop, "invalid")) == (3, 0)
    adjust = run("adjust")
    adjust.batch(rows((50, "start", 1), (40, "start", 2)))
    found = deltas(adjust.batch(rows((10, "start", 3), (45, "end", 2))))
    assert found == [(2, -1, 40, None), (2, 1, 40, 50), (3, 1, 50, None)]
    assert total(adjust, "adjusted") == 2
    fail = run("fail")
    fail.batch(rows((50, "start", 1)))
    with pytest.raises(LateEvent, match=r"e: 1 late item\(s\) .*; the CTI is 50, first: {'id': 3} \(start 10\)"):
        fail.batch(rows((10, "start", 3)))


@pytest.mark.parametrize("late", ["drop", "adjust", "fail"])
def test_an_edge_that_is_delivered_again(late: str) -> None:
    """In one micro-batch, in a later one, out of order, and behind c: an open start is known however old it is."""
    live = run(late, delay=10, invalid="fail")
    assert deltas(live.batch(rows((20, "start", 7), (20, "start", 7)))) == [(7, 1, 20, None)]
    assert deltas(live.batch(rows((30, "end", 8), (20, "start", 7), (22, "start", 8)))) == [(8, 1, 22, 30)]
    assert live.batch(rows((30, "end", 8), (22, "start", 8))).num_rows == 0
    live.batch(rows((90, "start", 9)))
    assert live.batch(rows((20, "start", 7))).num_rows == 0
    assert deltas(live.batch(rows((95, "end", 7), (95, "end", 7)))) == [(7, -1, 20, None), (7, 1, 20, 95)]
    assert live.batch(rows((95, "end", 7))).num_rows == 0
    assert [total(live, r) for r in ("duplicates", "dropped", "adjusted", "invalid")] == [7, 0, 0, 0]
    told = [row for table in live.late for row in table.to_pylist()]
    assert {(r["reason"], r["late_by"]) for r in told} == {("duplicate", None)} and len(told) == 7


def test_an_edge_that_comes_again_once_it_is_forgotten_is_late() -> None:
    live = run()
    live.batch(rows((1, "start", 7), (5, "end", 7), (9, "start", 8)))
    live.batch(rows((50, "start", 9)))
    live.batch(rows((1, "start", 7)))
    live.batch(rows((1, "start", 7), (5, "end", 7)))
    assert (total(live, "dropped"), total(live, "duplicates"), total(live, "invalid")) == (2, 1, 0)
    held = [baskets.read_all("edges") for baskets in scopes(live)]
    assert sorted(at for t in held if t is not None for at in t.column("id").to_pylist()) == [8, 9], "7 is over again"


def scopes(live: LocalRun) -> list[Any]:
    (name,) = [state.name for state in live.program.states]
    return [Baskets(DictStore(store)).scoped(name) for store in live.stores.values()]


def of_hosts(*items: tuple[int, str, int, str]) -> dict[str, pa.Table]:
    names = (*SCHEMA.names, "host")
    return {"e": pa.Table.from_pylist([dict(zip(names, i, strict=True)) for i in items], HOSTS)}


HOSTS = pa.schema([*SCHEMA, ("host", pa.string())])


def test_edges_of_one_key_and_instant_that_differ() -> None:
    """None of them counts: what was sent for the first one is taken back; behind c the one that stands stays."""
    policy = SourcePolicy(progress=GeneratedCtis(9), late="adjust")
    columns = table_fields(HOSTS.empty_table())
    node = Edges("e", columns, "t", "edge", ("id",), Lit("start"), Lit("end"), policy=policy)
    live = LocalRun(compiled(node, OutputForm.CHANGELOG, buckets=1, late_output=True))
    start = live.batch(of_hosts((1, "start", 7, "b"), (1, "start", 7, "b"), (1, "start", 8, "b")))
    assert [r["host"] for r in start.to_pylist()] == ["b", "b"]
    assert deltas(live.batch(of_hosts((1, "start", 7, "a")))) == [(7, -1, 1, None)]
    assert live.batch(of_hosts((1, "start", 7, "a"), (1, "start", 7, "c"))).num_rows == 0
    assert (total(live, "duplicates"), total(live, "invalid")) == (2, 3)
    live.batch(of_hosts((30, "start", 9, "b")))
    assert live.batch(of_hosts((1, "start", 8, "late"))).num_rows == 0
    assert total(live, "invalid") == 4
    reasons = {r["reason"] for table in live.late for r in table.to_pylist()}
    assert reasons == {"duplicate", "two edges of one key at one instant that differ, without order_by"}
    (held,) = [baskets.read_all("edges") for baskets in scopes(live)]
    assert sorted(held.column("id").to_pylist()) == [8, 9], "what voids each other is over behind c"


def standing(out: list[tuple[Any, ...]]) -> dict[int, list[Any]]:
    """The lifetimes of each key that deltas add up to."""
    weights: dict[Any, int] = {}
    for key, w, *span in out:
        weights[key, *span] = weights.get((key, *span), 0) + w
    found: dict[int, list[Any]] = {key: [] for key in range(10)}
    for (key, *span), w in weights.items():
        found[key] += [tuple(span)] * w
    return found


@pytest.mark.parametrize(
    "late",
    [[[(5, "start", 7)], [(20, "end", 7)]], [[(5, "start", 7), (20, "end", 7)]], [[(20, "end", 7)], [(5, "start", 7)]]],
)
def test_the_end_of_a_start_that_was_dropped_goes_with_it(late: Any) -> None:
    """The start before it stays open until the next one."""
    live = run("drop", invalid="fail")
    batches = [[(1, "start", 7)], [(10, "start", 8)], *late, [(30, "start", 7)], [(40, "end", 7)], [(90, "start", 9)]]
    out = [row for batch in batches for row in deltas(live.batch(rows(*batch)))]
    assert standing(out)[7] == [(1, 30), (30, 40)]
    live.finish()
    assert (total(live, "dropped"), total(live, "invalid")) == (2, 0)


def test_a_key_s_last_edge_is_kept_where_a_late_one_may_act() -> None:
    """Until its source can send none any more; the policy drop asks for none."""
    for live, kept in ((run("adjust"), {7, 9}), (run("drop"), {9}), (run(delay=30, level=Level(0, 1)), {7, 9})):
        live.batch(rows((1, "start", 7), (5, "end", 7)))
        live.batch(rows((20, "start", 9)))
        held = [t for baskets in scopes(live) if (t := baskets.read_all("edges")) is not None]
        assert {id for t in held for id in t.column("id").to_pylist()} == kept
        live.finish()
        assert all(set(s) == {"manifest"} for s in live.stores.values())


def test_a_closing_edge_with_the_payload_holds_the_cti_at_the_open_start() -> None:
    kernel, baskets, c = EdgesKernel(("id",), True, (), "no start", "a tie"), Baskets(DictStore()), MINUS_INFINITY

    def advance(to: int, *items: tuple[int, bool, int, str]) -> int:
        nonlocal c
        table = pa.table({n: [i[at] for i in items] for at, n in enumerate(("__le", "__opens", "id", "host"))})
        arrivals = [Arrival(0, table, Judge("e", invalid=Invalid.FAIL), c)] if items else []
        output = kernel.advance(baskets.scoped("edges"), arrivals, Clock(c, to, c, to))
        c = to
        return output.c

    assert advance(5, (1, True, 7, "a"), (2, True, 8, "a"), (6, True, 9, "a")) == 1
    assert advance(9, (5, False, 7, "b")) == 2
    assert advance(20, (20, False, 8, "b")) == 2, "an earlier end may still come in between"
    assert advance(21, (20, False, 9, "b")) == 21
    assert advance(30) == 30
    assert advance(40, (33, True, 7, "a")) == 33
    assert advance(INFINITY) == INFINITY
