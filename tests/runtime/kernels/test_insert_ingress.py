"""Ingress of an insert-only source: final rows, late policies, rows that are delivered again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamq.choices import Invalid, OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import InvalidEvent
from streamq.operators.input_table import table_fields
from streamq.operators.source_arguments import SourcePolicy
from streamq.policies import Level
from streamq.progress.generate import GeneratedCtis
from streamq.runtime.kernel import ADJUST, Arrival, Clock, Judge
from streamq.runtime.kernels.insert_ingress import InsertIngressKernel, repetitions
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.sources.insert_only import Intervals, Points
from streamq.time import INFINITY, Grid
from tests.programs import compiled

SCHEMA = pa.schema([("t", pa.int64()), ("v", pa.int64())])


def times(late: str, *batches: list[int]) -> tuple[LocalRun, list[list[Any]]]:
    live = LocalRun(
        compiled(
            Points("p", table_fields(SCHEMA.empty_table()), "t", SourcePolicy(progress=GeneratedCtis(10), late=late)),
            OutputForm.FINAL,
            late_output=True,
        )
    )
    out = [live.batch({"p": pa.table([b, [0] * len(b)], schema=SCHEMA)}).column("__le").to_pylist() for b in batches]
    return live, out


def test_rows_of_an_insert_only_source_are_final_at_once() -> None:
    live, out = times("drop", [5, 30], [21, 20, 19])
    assert [sorted(o) for o in out] == [[5, 30], [20, 21]]
    assert [r["start"] for t in live.late for r in t.to_pylist()] == [19]


# ids

STAYS = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("id", pa.int64()), ("v", pa.float64())])
Stay = tuple[int, int | None, int | None, float | None]


def stays(*batches: list[Stay], level: Level | None = None, **policy: Any) -> tuple[LocalRun, list[list[Any]]]:
    """What each micro-batch gives, as (start, end, id, weight)."""
    node = Intervals(
        "s",
        table_fields(STAYS.empty_table()),
        "start",
        "end",
        SourcePolicy(**{"progress": GeneratedCtis(10), **policy}),
        ("id",),
    )
    live = LocalRun(compiled(node, OutputForm.CHANGELOG, late_output=True, buckets=3, level=level or Level()))
    out = []
    for batch in batches:
        made = live.batch({"s": pa.Table.from_pylist([dict(zip(STAYS.names, r, strict=True)) for r in batch], STAYS)})
        out.append(sorted((r["__le"], r["__re"], r["id"], r["__w"]) for r in made.to_pylist()))
    return live, out


def counted(live: LocalRun) -> dict[str, int]:
    found: dict[str, int] = {}
    for totals in live.totals.values():
        for key, n in totals.items():
            found[key] = found.get(key, 0) + n
    return found


def test_a_repetition_is_taken_once_and_nothing_is_ever_taken_back() -> None:
    again: Stay = (20, 30, 7, 1.0)
    live, out = stays([again, again], [(21, 22, 7, 1.0), again], [(40, 41, 8, 1.0)], [again])
    assert out == [[(20, 30, 7, 1)], [(21, 22, 7, 1)], [(40, 41, 8, 1)], []]
    assert counted(live) == {"s|duplicates": 3}
    rows = [row for table in live.late for row in table.to_pylist()]
    repeated = {"source": "s", "reason": "duplicate", "start": 20, "end": 30, "payload": '{"id": 7, "v": 1.0}'}
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == [repeated] * 3


@pytest.mark.parametrize("late", ["drop", "adjust", "fail"])
def test_what_is_known_is_a_duplicate_before_it_is_late(late: str) -> None:
    """The event still lives at c, and so an adjusted repetition would be a second one."""
    live, out = stays([(20, 90, 7, 1.0), (60, 61, 8, 1.0)], [(20, 90, 7, 1.0)], late=late)
    assert out[1] == [] and counted(live) == {"s|duplicates": 1}


def test_a_late_event_is_taken_once_too() -> None:
    """What acts from c on is known by its own start; what is dropped leaves nothing to be adjusted later."""
    late: Stay = (20, 90, 7, 1.0)
    live, out = stays([(60, 61, 8, 1.0)], [late, late], [late], late="adjust")
    assert out[1:] == [[(50, 90, 7, 1)], []]
    assert counted(live) == {"s|adjusted": 1, "s|duplicates": 2}
    live, out = stays([(60, 61, 8, 1.0)], [late], [late])
    assert out[1:] == [[], []] and counted(live) == {"s|dropped": 1, "s|duplicates": 1}


def test_rows_of_one_id_and_start_that_differ() -> None:
    """The first stays, within a micro-batch the least by end and payload; the same id at another start is another event."""
    live, out = stays(
        [(1, 9, 7, 2.0), (1, 8, 7, 3.0), (1, 8, 7, 2.0), (2, 8, 7, 2.0)], [(1, 9, 7, 2.0), (1, 8, 7, 2.0)]
    )
    assert out == [[(1, 8, 7, 1), (2, 8, 7, 1)], []]
    assert counted(live) == {"s|invalid": 3, "s|duplicates": 1}
    told = {r["reason"] for t in live.late for r in t.to_pylist()}
    assert told == {"two rows of one id and start that differ", "duplicate"}
    with pytest.raises(InvalidEvent, match="source s: a row is no event: two rows of one id and start that differ"):
        stays([(1, 9, 7, 2.0)], [(1, 9, 7, 3.0)], invalid="fail")


def test_at_a_weak_level_nothing_is_taken_twice() -> None:
    """History is remembered for ten ticks only: what is behind that is adjusted, unless it is known."""
    known: Stay = (20, 90, 7, 1.0)
    live, out = stays(
        [known], [(60, 61, 8, 1.0)], [known, (20, 30, 9, 1.0)], progress=GeneratedCtis(1_000), level=Level(0, 10)
    )
    assert out[2] == [] and counted(live) == {"s|duplicates": 1, "s|dropped": 1}


ONE = Judge("s", ADJUST, Invalid.FAIL)


def test_c_is_rounded_down_for_what_is_forgotten_too() -> None:
    """c = 59 judges as 50 in front of windows of ten: what ends at 55 could come again on time."""
    kernel, baskets = InsertIngressKernel(False, Grid(10, 10, 0), ("id",)), Baskets(DictStore())
    rows = pa.table({"id": [7], "__le": [51], "__re": [55]})
    given = []
    for before, after in ((0, 59), (59, 59)):
        out = kernel.advance(baskets.scoped("x"), [Arrival(0, rows, ONE, before)], Clock(before, after, before, after))
        given.append((0 if out.table is None else out.table.num_rows, out.totals.counts))
    assert given == [(1, {}), (0, {"s|duplicates": 1})]


class Counting(DictStore):
    """Keeps what is read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.written: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.read.append(key)
        return super().get(key)

    def put(self, key: str, value: bytes) -> None:
        self.written.append(key)
        super().put(key, value)


@pytest.mark.slow
def test_a_micro_batch_reads_and_writes_what_is_near_its_rows() -> None:
    """A hundred micro-batches within the delay are held; each costs as much as the one before, and all go in the end."""
    kernel, store, c = InsertIngressKernel(True, None, ("id",)), Counting(), 0
    most: list[int] = []
    for i in range(300):
        starts = range(100 * i, 100 * i + 100)
        rows = pa.table({"id": list(starts), "__le": list(starts), "v": [float(i)] * 100})
        store.read, store.written = [], []
        baskets = Baskets(store)
        after = max(0, 100 * i - 10_000)
        out = kernel.advance(baskets.scoped("x"), [Arrival(0, rows, ONE, c)], Clock(c, after, c, after))
        baskets.flush()
        assert out.table is not None and out.table.num_rows == 100 and not out.totals.counts
        most.append(len(store.read) + len(store.written))
        c = after
    assert max(most[150:]) <= 20, "chunks read or written, manifest included"
    assert len(store.held) < 200
    baskets = Baskets(store)
    kernel.advance(baskets.scoped("x"), [], Clock(c, INFINITY, c, INFINITY))
    baskets.flush()
    assert set(store.held) == {"manifest"}


# Rows that say again what another one has said, and rows that contradict one.

NAN = float("nan")


def told(values: list[Any], kind: pa.DataType, held: list[Any] | None = None, ids: list[Any] | None = None) -> str:
    """Of rows of one id (or of ``ids``): ``.`` stands, ``=`` repeats, ``!`` contradicts."""

    def table(some: list[Any], whose: list[Any]) -> pa.Table:
        return pa.table({"id": pa.array(whose, pa.int64()), "v": pa.array(some, kind)})

    known = None if held is None else table(held, [7] * len(held))
    repeated, contrary = repetitions(table(values, ids or [7] * len(values)), known, ["id"], ["v"])
    return "".join("=" if a else "!" if b else "." for a, b in zip(repeated, contrary, strict=True))


def test_the_least_stands_and_equal_rows_repeat_it() -> None:
    assert told([3, 2, 2, 3], pa.int64()) == "!.=!"
    assert told([3, 3], pa.int64(), ids=[1, 2]) == ".."
    assert told([3, 3, 4], pa.int64(), ids=[None, None, 1]) == ".=.", "NULL is an id"
    assert told([], pa.int64()) == ""


def test_what_is_held_stands() -> None:
    assert told([2, 3], pa.int64(), held=[3]) == "!="
    assert told([2], pa.int64(), held=[]) == "."


def test_equal_as_keys_are() -> None:
    assert told([None, None], pa.int64()) == ".="
    assert told([NAN, NAN], pa.float64()) == ".="
    assert told([0.0, -0.0], pa.float64()) == ".="
    assert told([None, NAN, 0.0], pa.float64()) == ".!!", "NULL is least"
    assert told(["b", "a", "a"], pa.string()) == "!.="


def test_values_without_an_order_in_arrow() -> None:
    assert told([[1, None], [1, None], [1]], pa.list_(pa.int64())) == "!!."
    assert told([{"x": NAN}, {"x": NAN}], pa.struct([("x", pa.float64())])) == ".="
    pairs = pa.map_(pa.string(), pa.int64())
    assert told([[("a", 1), ("b", None)], [("b", None), ("a", 1)]], pairs) == ".=", "the order of entries says nothing"
    assert told([[("a", 1)], [("a", 2)], [], None], pairs) == "!!!."
    assert told([[[("a", 1)]], [[("a", 1)]]], pa.list_(pairs)) == ".="
