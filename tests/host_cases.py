"""Queries and what arrives at them, in a table: every host gives the same answer and counts the same rows as set aside.

``test_host_cases.py`` judges all cases in-process, by the oracle; ``spark/test_hosts.py`` runs them in a batch and as a stream.
Each case has what a host could do in its own way: kinds of sources, code that travels, time zones, types, names.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq import col
from streamq.errors import StreamqWarning
from tests.changed_query import ChangingRun
from tests.laws.test_names import HARD
from tests.laws.test_types import PASSED, VALUES
from tests.laws.test_types import rows as typed_rows
from tests.laws.test_types import streams as typed_streams
from tests.own_function import call, digit_sum
from tests.test_own_aggregates import ROWS as OWN_ROWS
from tests.test_own_aggregates import WINDOWS as OWN_WINDOWS
from tests.test_own_aggregates import modes, rises

Row = tuple[Any, ...]
HOSTS = ("batch", "stream")
SOAK = bool(os.environ.get("STREAMQ_SOAK"))


@dataclass(frozen=True)
class HostCase:
    """Some queries over tables that arrive in parts, one a micro-batch.

    ``parts``: by the name of their source, unless all sources read one table. ``query`` takes the tables by these names, as Arrow
    tables or DataFrames, and gives a stream for each of ``outputs``. ``expected`` are the rows ``start, end, payload...`` of the
    first; None: only the oracle knows. ``counted`` is the number of rows of a stream that are set aside, by ``source|reason``.
    ``hosts`` are those of Spark's that a case runs on; a batch is asked ``until`` an instant, too, if there is one. ``judged``:
    False if another test judges what the oracle does not know.
    """

    name: str
    parts: Mapping[str, Sequence[pa.Table]]
    query: Callable[..., Any]
    outputs: Sequence[str] = ("changelog",)
    expected: Sequence[Row] | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    hosts: Sequence[str] = HOSTS
    until: int | None = None
    judged: bool = True

    def queries(self, tables: Mapping[str, Any]) -> list[sq.Stream]:
        made = self.query(**tables)
        return [made] if isinstance(made, sq.Stream) else list(made)

    @property
    def local(self) -> list[sq.Stream]:
        """The queries over Arrow tables with all rows."""
        return self.queries({name: pa.concat_tables(parts) for name, parts in self.parts.items()})

    def arrive(self) -> tuple[ChangingRun, list[list[pa.Table]]]:
        """Run a stream in-process that is restarted after each micro-batch; return the run, and the deltas of each query."""
        queries = self.local
        run = ChangingRun(*queries, output=self.outputs, late_output=True)
        tables = {name: table for query in queries for name, table in query.tables.items()}
        run.run.static = tables
        sizes = {name: [part.num_rows for part in self.parts.get(name) or [*self.parts.values()][0]] for name in tables}
        deltas = []
        for number in range(max(map(len, sizes.values()))):
            arriving = [name for name in tables if number < len(sizes[name])]
            deltas.append(
                run.batch(
                    {name: tables[name].slice(sum(sizes[name][:number]), sizes[name][number]) for name in arriving}
                )
            )
            run.run = run.run.restart()
        return run, [list(of) for of in zip(*deltas, run.finish(), strict=True)]


CASES: list[HostCase] = []


def case(name: str, parts: Mapping[str, Sequence[pa.Table]], **more: Any) -> Callable[[Any], Any]:
    """Make a case of a function of the tables."""

    def add(query: Any) -> Any:
        CASES.append(HostCase(name, parts, query, **more))
        return query

    return add


def halves(table: pa.Table, at: int | None = None) -> list[pa.Table]:
    at = table.num_rows // 2 if at is None else at
    return [table.slice(0, at), table.slice(at)]


def of_rows(schema: pa.Schema, *rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def union(streams: Sequence[sq.Stream]) -> sq.Stream:
    return streams[0].union(*streams[1:])


# kinds of sources

LOG = pa.schema([("at", pa.int64()), ("op.type", pa.string()), ("id", pa.int64()), ("price", pa.int64())])
DEBEZIUM = of_rows(
    LOG, (1, "c", 1, 5), (3, "U", 1, 6), (5, "d", 1, None), (8, "c", 1, 7), (2, "r", 2, 9), (6, "u", 2, 8)
)
FEED = of_rows(
    LOG, (5, "insert", 3, 2), (1, "INSERT", 3, 1), (5, "delete", 3, 1), (9, "update", 3, 3), (3, "insert", 4, 4),
    (5, "update_postimage", 4, 5), (5, "Update_Preimage", 4, 4),
)  # fmt: skip
STRANGE = of_rows(LOG, (7, "truncate", 1, 0), (9, "d", 7, 0))


# id     at  1    2    3    4    5    6    7    8    9
# 1         |c 5      |u 6      |d             |c 7
# 2              |r 9                |u 8
# 3         |insert 1           |delete, insert 2    |update 3
# 4                   |insert 4 |preimage 4, postimage 5
@case(
    "changes of both vocabularies, out of order",
    {"prices": [DEBEZIUM.slice(0, 5), pa.concat_tables([DEBEZIUM.slice(5), FEED, STRANGE])]},
    expected=[
        (1, 3, 1, 5), (3, 5, 1, 6), (8, None, 1, 7), (2, 6, 2, 9), (6, None, 2, 8),
        (1, 5, 3, 1), (5, 9, 3, 2), (9, None, 3, 3), (3, 5, 4, 4), (5, None, 4, 5),
    ],
    counted={"prices|invalid": 2},
)  # fmt: skip
def changes(prices: Any) -> sq.Stream:
    progress = sq.generate(100)
    return sq.changes(prices, "op.type", "at", "id", name="prices", progress=progress, invalid="drop")


VERSIONS = pa.schema([("op", pa.string()), *((n, pa.int64()) for n in ("at", "lsn", "id")), ("v", pa.string())])


@case(
    "changes of one instant, in the order of another column",
    {
        "s": [
            of_rows(VERSIONS, ("c", 1, 1, 7, "old"), ("c", 5, 2, 7, "hello")),
            of_rows(VERSIONS, ("UPDATE_AFTER", 9, 7, 7, "y"), ("+I", 9, 8, 8, "brief"), ("-D", 9, 9, 8, None)),
            of_rows(
                VERSIONS, ("d", 5, 3, 7, None), ("c", 5, 4, 7, "hallo"), ("u", 9, 5, 7, "x"),
                ("UPDATE_BEFORE", 9, 6, 7, "x"),
            ),
        ]
    },
    expected=[(1, 5, 7, "old"), (5, 9, 7, "hallo"), (9, None, 7, "y")],
)  # fmt: skip
def changes_of_one_instant(s: Any) -> sq.Stream:
    """What the stream tells of a version that is not the last is taken back."""
    how = {"order_by": "lsn", "beside": "lsn", "invalid": "fail"}
    return sq.changes(s, "op", "at", "id", name="versions", progress=sq.generate(10), **how)


ONCE = pa.schema(
    [("kind", pa.string()), *((n, pa.int64()) for n in ("at", "til", "new_til", "id"))]
    + [("v", pa.float64()), ("tags", pa.map_(pa.string(), pa.int64())), ("the.offset", pa.int64())]
)
SPANS, LOGS = ("points", "intervals", "signal"), ("edges", "changes")
NAN, TAGS = float("nan"), [("x", 1), ("y", None)]
DELIVERED: list[list[tuple[Sequence[str], str, int, int | None, int | None, int]]] = [
    [
        (SPANS, "insert", 1, 9, None, 1), (SPANS, "insert", 2, 5, None, 2), (LOGS, "insert", 1, None, None, 1),
        (SPANS, "insert", 1, 9, None, 1), (LOGS, "insert", 1, None, None, 1),
        (["physical"], "insert", 1, 9, None, 1), (["physical"], "insert", 2, None, None, 2),
        (["physical"], "insert", 1, 9, None, 1), (SPANS, "insert", 2, 5, None, 2), (SPANS, "insert", 8, 90, None, 3),
        (LOGS, "insert", 3, None, None, 2), (LOGS, "retract", 6, None, None, 1), (LOGS, "insert", 6, None, None, 1),
        (LOGS, "retract", 6, None, None, 1), (["physical"], "retract", 1, 9, 20, 1), (["physical"], "retract", 1, 9, 20, 1),
    ],
    [
        (SPANS, "insert", 8, 90, None, 3), (LOGS, "insert", 1, None, None, 1), (["physical"], "retract", 1, 9, 20, 1),
        (["physical"], "insert", 1, 9, None, 1), (SPANS, "insert", 60, 61, None, 4), (LOGS, "insert", 60, None, None, 3),
        (["physical"], "insert", 60, 61, None, 4),
    ],
    # c is 40: what is held is known, the rest is late
    [
        (SPANS, "insert", 8, 90, None, 3), (LOGS, "insert", 3, None, None, 2), (LOGS, "retract", 6, None, None, 1),
        (["physical"], "insert", 2, None, None, 2), (["physical"], "retract", 1, 9, 20, 1),
    ],
]  # fmt: skip
"""Sources, kind, at, til, new_til, id of the rows of each micro-batch."""


def delivered(source: str) -> list[pa.Table]:
    """The rows of a source; a payload that comes again is equal and not the same, and every row has an offset of its own."""
    seen: set[Row] = set()
    offsets = itertools.count(100)
    words = {"insert": "c", "retract": "d"} if source == "changes" else {}
    parts = []
    for batch in DELIVERED:
        rows = []
        for row in (row for sources, *row in batch if source in sources):
            again = tuple(row) in seen
            v = NAN if row[-1] % 2 else -0.0 if again else 0.0  # type: ignore[operator]
            kind, *times = row
            rows.append((words.get(kind, kind), *times, v, TAGS[::-1] if again else TAGS, next(offsets)))  # type: ignore[call-overload]
            seen.add(tuple(row))
        parts.append(of_rows(ONCE, *rows))
    return parts


LIVES = {
    "points": [(1, 2, 1), (2, 3, 2), (8, 9, 3), (60, 61, 4)],
    "intervals": [(1, 9, 1), (2, 5, 2), (8, 90, 3), (60, 61, 4)],
    "signal": [(1, 8, 1), (8, None, 3), (2, 60, 2), (60, None, 4)],
    **{name: [(1, 6, 1), (6, None, 1), (3, None, 2), (60, None, 3)] for name in LOGS},
    "physical": [(1, 20, 1), (2, None, 2), (60, 61, 4)],
}


@case(
    "rows that are delivered again, of every kind of source",
    {name: delivered(name) for name in LIVES},
    expected=[(*life, name) for name, lives in LIVES.items() for life in lives],
    counted={
        "points|duplicates": 3, "points|dropped": 1, "intervals|duplicates": 4, "signal|duplicates": 3,
        "signal|dropped": 1, "edges|duplicates": 4, "edges|dropped": 1, "changes|duplicates": 4, "changes|dropped": 1,
        "physical|duplicates": 5, "physical|dropped": 1,
    },
)  # fmt: skip
def delivered_again(points: Any, intervals: Any, signal: Any, edges: Any, changes: Any, physical: Any) -> sq.Stream:
    """Within a micro-batch, in later ones, and behind the CTI."""
    policy: dict[str, Any] = {"progress": sq.generate(20), "beside": "the.offset"}
    ends = {"start": "at", "end": "til", "new_end": "new_til"}
    made = {
        "points": sq.points(points, "at", id="id", name="points", **policy),
        "intervals": sq.intervals(intervals, "at", "til", id=["id", "v"], name="intervals", **policy),
        "signal": sq.signal(signal, "at", "v", id="id", name="signal", **policy),
        "edges": sq.edges(edges, "at", edge="kind", key="id", open="insert", close="retract", name="edges", **policy),
        "changes": sq.changes(changes, "kind", "at", "id", name="changes", **policy),
        "physical": sq.physical(physical, **ends, id="id", name="physical", **policy),
    }
    return union([s.select("id", source=sq.lit(name)) for name, s in made.items()])


LAST = 2**63 - 1
STARTS = pa.table(
    {
        "at": [-LAST - 1, -LAST, LAST - 2, LAST - 1, LAST], "v": range(5), "kind": ["insert"] * 5, "what": ["start"] * 5,
        "til": pa.nulls(5, pa.int64()), "new_til": pa.nulls(5, pa.int64()),
    }
)  # fmt: skip


@case(
    "starts at the ends of time",
    {"starts": [STARTS]},
    expected=[
        (at, at + 1 if name == "first" else None, v, name)
        for name in ("first", "stays", "switches", "items")
        for at, v in ((-LAST, 1), (LAST - 2, 2), (LAST - 1, 3))
        if (name, v) != ("first", 3)
    ],
    counted={"first|invalid": 3, "stays|invalid": 2, "switches|invalid": 2, "items|invalid": 2},
)
def at_the_ends_of_time(starts: Any) -> sq.Stream:
    drop: dict[str, Any] = {"invalid": "drop", "progress": sq.generate()}
    made = {
        "first": sq.points(starts, "at", name="first", **drop),
        "stays": sq.intervals(starts, "at", "til", name="stays", **drop),
        "switches": sq.edges(starts, "at", edge="what", key="v", name="switches", **drop),
        "items": sq.physical(starts, start="at", end="til", new_end="new_til", name="items", **drop),
    }
    return union([s.select("v", source=sq.lit(name)) for name, s in made.items()])


KEYS = pa.array(
    [[{"x": NAN}], [{"x": 0.0}], None, [{"x": NAN}], [{"x": -0.0}], None], pa.list_(pa.struct([("x", pa.float64())]))
)


@case(
    "keys that are arrays of structs",
    {"tasks": [pa.table({"at": range(6), "what": ["start"] * 3 + ["end"] * 3, "k": KEYS, "v": range(6)})]},
)
def nested_keys(tasks: Any) -> sq.Stream:
    """NaN and both zeros inside of them are as outside."""
    s = sq.edges(tasks, time="at", edge="what", key="k", name="tasks")
    counts = s.group_by("k").snapshot_window().select(n=sq.count(), m=sq.median("v"))
    pairs = s.select("k").join(s.select("k", w=col("v") + 10), on="k")
    return counts.select("n", v=col("m").cast("bigint")).union(pairs.select(n=sq.lit(2**40), v=col("w")))


AT_V = pa.schema([("at", pa.int64()), ("v", pa.int64())])


@case(
    "a source that no operator reads",
    {"read": [of_rows(AT_V, (1, 1), (4, 2))], "unread": [of_rows(AT_V, (2, 7)), of_rows(AT_V, (0, 8), (9, 9))]},
    counted={"unread|dropped": 1},
)
def uncancelled(read: Any, unread: Any) -> sq.Stream:
    """A stream reads its rows and counts those that are late; a batch does not read it."""
    tables = {"read": read, "unread": unread}
    c, a = (sq.points(table, "at", name=name, progress=sq.generate(0)) for name, table in tables.items())
    with pytest.warns(StreamqWarning, match="cancels none"):
        return sq.cedr("EVENT E WHEN CANCEL_WHEN(C AS c, A AS a)", C=c, A=a)


# code that travels

DIGITS = digit_sum()
"""A function that no decorator has made."""


@sq.udf("double")
def inverse(v: int | None, of: float = 1.0) -> float | None:
    return None if v is None else of / v


@sq.udf("string", takes="series")
def clock(at: pd.Series, v: pd.Series) -> pd.Series:
    """Which hour Python sees says in which time zone an instant came."""
    return at.dt.hour.astype(str) + ":" + v.astype(str)


@sq.udf("boolean", takes="arrays")
def is_odd(v: pa.Array) -> list[bool | None]:
    return [None if value is None else value % 2 == 1 for value in v.to_pylist()]


@sq.udf("boolean")
def is_inverse_less(a: int, b: int) -> bool:
    """Of columns of both sides of a join."""
    return 1 / a < 1 / b


NOON, MINUTE = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), dt.timedelta(minutes=1)
INSTANT = pa.timestamp("us", "UTC")
READINGS = pa.schema([("t", INSTANT), ("v", pa.int64())])


@case(
    "functions of a user's own",
    {"readings": halves(of_rows(READINGS, *((NOON + i * MINUTE, (i * 5) % 12 - 2) for i in range(40))), 25)},
    outputs=["final"],
)
def own_functions(readings: Any) -> sq.Stream:
    """In filters that guard them, in columns, an aggregate's argument, and a condition that executors evaluate in a kernel."""
    points = sq.points(readings, time="t", name="readings")
    lasting = points.where(col("v") != 0).where(inverse("v") < 1).where(call(DIGITS, col("v")) > 0)
    lasting = lasting.set_duration("9 minutes")
    left = lasting.select("v", clock=clock(sq.start(), "v"), x=sq.when(col("v") != 7, inverse(col("v") - 7, of=2.0)))
    right = lasting.select(w=col("v"), digits=call(DIGITS, col("v") * 7))

    def meets(a: Any, b: Any) -> Any:
        return is_odd(a.v) & is_inverse_less(a.v, b.w) & (call(DIGITS, a.v) != call(DIGITS, b.w))

    pairs = left.join(right, where=meets, how="left")
    return (
        pairs.group_by("clock")
        .tumbling_window("10 minutes")
        .select(n=sq.count(), x=sq.max("x"), odd=sq.max(is_odd("w")), digits=sq.sum("digits"))
    )


OWN = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


@case(
    "aggregates of a user's own, that merge and that do not",
    {"stays": halves(of_rows(OWN, *((start, end, *payload.values()) for start, end, payload in OWN_ROWS)))},
    outputs=["final", "final"],
    until=20,
    judged=False,
)
def own_aggregates(stays: Any) -> list[sq.Stream]:
    s = sq.intervals(stays, "start", "end", name="own", progress=sq.generate(5))
    return [union([select(window(s)) for window in OWN_WINDOWS.values()]) for select in (modes, rises)]


LOCAL = pa.schema(
    [("kind", pa.string()), *((name, pa.timestamp("us")) for name in ("at", "til", "new_til"))]
    + [("day", pa.date32()), ("k", pa.int64())]
)
CLOCKS = [
    *(dt.datetime(2024, 3, 31, 1, 59) + n * dt.timedelta(minutes=20, seconds=1) for n in range(8)),
    *(dt.datetime(2024, 10, 27, 1, 59) + n * dt.timedelta(minutes=20, seconds=1) for n in range(8)),
    dt.datetime(1890, 1, 1), dt.datetime(1937, 7, 1, 0, 0, 10), dt.datetime(2011, 12, 30, 12),
    dt.datetime(2050, 3, 27, 2, 30), dt.datetime(2050, 10, 30, 2, 30), dt.datetime(2300, 7, 1), dt.datetime(2999, 7, 1),
]  # fmt: skip
"""Local times, in Europe about a change of clocks that leaves an hour out, and about one that repeats an hour."""


@case(
    "local times of a zone",
    {
        "local": halves(
            of_rows(
                LOCAL,
                *(("insert", at, at + dt.timedelta(hours=5), None, at.date(), n) for n, at in enumerate(CLOCKS)),
                ("retract", CLOCKS[1], CLOCKS[1] + dt.timedelta(hours=5), CLOCKS[7], CLOCKS[1].date(), 1),
            )
        )
    },
)
def local_times(local: Any) -> sq.Stream:
    how: dict[str, Any] = {"progress": sq.generate("500000 days"), "invalid": "fail"}
    physical = sq.physical(
        local, start="at", end="til", new_end="new_til", zone="Europe/Rome", name="local physical", **how
    )
    return union(
        [
            sq.points(local, "at", zone="Europe/Berlin", name="local points", **how).select("k"),
            sq.points(local, "day", zone="America/Havana", name="local days", **how).select("k"),
            sq.intervals(local, "at", "til", zone="Europe/Paris", name="local intervals", **how).select("k"),
            physical.select("k"),
        ]
    )


ITEMS = pa.schema(
    [("kind", pa.string()), *((name, INSTANT) for name in ("start", "end", "new_end"))]
    + [("k", pa.string()), ("v", pa.int64())]
)
SECOND, TICK = dt.timedelta(seconds=1), dt.timedelta(microseconds=1)


def items(*given: tuple[str, int, str, int]) -> pa.Table:
    """Rows ``kind, second, k, v`` of points."""
    return of_rows(
        ITEMS,
        *(
            (kind, at, at + TICK, at if kind == "retract" else None, k, v)
            for kind, at, k, v in ((kind, NOON + second * SECOND, k, v) for kind, second, k, v in given)
        ),
    )


@sq.udso("delta bigint, waited double", time_sensitive=True)
class Waited:
    """How far a value lies from the one before, and how many seconds later it came; no worker can import this file."""

    def initial(self) -> None:
        return None

    def step(self, last, start, value):  # type: ignore[no-untyped-def]
        now = (start, value)
        return now, None if last is None else [(value - last[1], (start - last[0]).total_seconds())]


@case(
    "an operator from event to event, with corrections",
    {
        "log": [
            items(("insert", 1, "a", 2), ("insert", 9, "a", 7), ("insert", 2, "b", 1), ("insert", 12, "b", 8)),
            items(("insert", 5, "a", 3), ("retract", 2, "b", 1), ("insert", 7, "b", 2), ("insert", 20, "a", 0)),
        ]
    },
    expected=[
        (NOON + at * SECOND, NOON + at * SECOND + TICK, k, delta, waited)
        for at, k, delta, waited in ((5, "a", 1, 4.0), (9, "a", 4, 4.0), (20, "a", -7, 11.0), (12, "b", 6, 5.0))
    ],
)
def own_scan(log: Any) -> sq.Stream:
    """What comes second comes in between, and takes back."""
    source = sq.physical(log, name="scanned", progress=sq.generate("30 seconds"))
    return source.to_points().group_by("k").scan(Waited("v"))


TNK = pa.schema([("t", pa.int64()), ("k", pa.string()), ("n", pa.int64())])
CHAINED = of_rows(
    TNK, *((t, *row) for t, row in enumerate([("a", 3), ("b", -1), (None, 5), ("a", 8), ("b", 4), ("c", 2)] * 12))
)


@case("windows over windows by key, in one stage", {"p": halves(CHAINED)}, outputs=["final", "final"])
def chained(p: Any) -> list[sq.Stream]:
    """The worker computes the steps between its kernels; what the first of them sends is a result as well."""
    points = sq.points(p, time="t", name="p", progress=sq.generate(2))
    first = points.group_by("k").tumbling_window(6).select(n=sq.sum("n"), most=sq.max("n"))
    changed = first.where((col("n") > 3) | col("k").is_null()).with_columns(
        n=sq.when(col("most") >= 8, col("n") * 2 - 1).otherwise(col("n"))
    )
    second = changed.shift(2).group_by("k").session_window(5).select(n=sq.sum("n"), best=sq.max("most"))
    third = second.where(col("best") >= 2).group_by("k").tumbling_window(24).select(n=sq.sum("n"), best=sq.max("best"))
    return [third, first]


# time zones

SPRING = dt.datetime(2024, 3, 9, 20, tzinfo=dt.UTC)
"""Eleven hours before clocks go forward in New York, the zone of Spark's session."""

HOUR = dt.timedelta(hours=1)


def hours(seed: int) -> pa.Table:
    """Stays of some hours around that night, a due time each; one in five has no end."""
    rng = random.Random(seed)
    rows = []
    for _ in range(25):
        start = SPRING + dt.timedelta(minutes=rng.randint(0, 36 * 60))
        end = None if rng.randint(0, 4) == 0 else start + dt.timedelta(minutes=rng.randint(1, 400))
        lasts = dt.timedelta(minutes=rng.randint(-60, 2000), microseconds=rng.randint(0, 999_999))
        rows.append((start, end, rng.choice("ab"), rng.choice([None, start + lasts]), lasts // TICK))
    fields = [("start", INSTANT), ("end", INSTANT), ("k", pa.string()), ("due", INSTANT), ("micros", pa.int64())]
    return of_rows(pa.schema(fields), *rows)


@case(
    "windows and lifetimes around a change of clocks",
    {"a": [hours(1)], "b": [hours(2)]},
    outputs=["final", "final"],
    hosts=["batch"],
)
def zoned(a: Any, b: Any) -> list[sq.Stream]:
    s, t = (sq.intervals(table, "start", "end", name=name) for table, name in ((a, "hours a"), (b, "hours b")))
    seconds = (col("micros") / 1_000_000).cast("decimal(18, 6)")
    # Spark alone puts an interval together
    interval = sq.functions.make_dt_interval(sq.lit(0), sq.lit(0), sq.lit(0), seconds)
    lasts = col("micros") if isinstance(a, pa.Table) else interval
    grouped = s.group_by("k")
    windows = [
        grouped.session_window("20 minutes"),
        grouped.landmark_window("5 hours", start=SPRING),
        grouped.landmark_window("7 hours", period="1 day"),
        grouped.snapshot_window(),
        grouped.count_window(3),
        grouped.tumbling_window("1 day"),
    ]
    lifetimes = (
        s.chop("1 hour")
        .clip(t, on="k")
        .union(
            s.set_duration(col("due") - sq.start()),
            s.set_duration(lasts),
            s.alter_lifetime(start=sq.start() + 3 * HOUR),
        )
    )
    lifetimes = lifetimes.with_columns(begun=sq.start(), over=sq.end(), late=sq.end() > col("due"))
    pairs = lifetimes.windowed_join(t.where(sq.start() >= SPRING + 9 * HOUR), size="1 day", on="k", suffixes=("", "_t"))
    return [union([_seen(window) for window in windows]), pairs]


TIMES = [SPRING + n * HOUR for n in (0, 5, 13)]


@case(
    "hours and texts of instants",
    {"clocks": halves(pa.table({"t": pa.array(TIMES, INSTANT), "at": pa.array(TIMES, INSTANT)}), 2)},
    outputs=["final"],
)
def clocks(clocks: Any) -> sq.Stream:
    s = sq.points(clocks, time="t", name="clocks", progress=sq.generate("1 hour"))
    texts = s.select("at", hour=sq.functions.hour(sq.start()), text=(sq.start() + 24 * HOUR).cast("string"))
    windows = texts.set_duration("20 hours").snapshot_window()
    return windows.select(n=sq.count(), hours=sq.sum("hour"), last=sq.last("at"), text=sq.collect("text")).with_columns(
        since=sq.window_start().cast("string")
    )


@case(
    "days and months of a zone",
    {"s": halves(of_rows(READINGS, *((SPRING + (i * 7 % 40) * 12 * HOUR, i % 4) for i in range(40))))},
)
def days_and_months(s: Any) -> list[sq.Stream] | sq.Stream:
    points = sq.points(s, "t", name="days", progress=sq.generate("40 days"))
    months = points.group_by("v").calendar_window("1 month", zone="Europe/Berlin").select(n=sq.count(), s=sq.sum("v"))
    best = points.calendar_window("1 day", zone="America/Havana", stamp="point_at_end").top_k(1, by="v", ties="keep")
    return months.union(best.select("v", n=sq.lit(0).cast("bigint"), s=col("rank").cast("bigint")))


CHANGES = {
    "Europe/Berlin": [dt.datetime(2026, 3, 28, 12), dt.datetime(2026, 10, 24, 12)],
    "America/Havana": [dt.datetime(2026, 3, 7, 12)],
    "Pacific/Apia": [dt.datetime(2011, 12, 29, 12)],
    "Pacific/Kwajalein": [dt.datetime(1969, 9, 29, 12)],
    "America/St_Johns": [dt.datetime(2006, 10, 28, 12)],
    "America/Toronto": [dt.datetime(1919, 3, 30, 12)],
}
"""Instants before clocks are changed, and days skipped or repeated."""

ZONED = pa.schema([("start", INSTANT), ("end", INSTANT), ("zone", pa.string()), ("v", pa.int64())])


@case(
    "days that are skipped, repeated, or longer than others",
    {
        "s": [
            of_rows(
                ZONED,
                *(
                    (first + i * 5 * HOUR, first + i * 5 * HOUR + 30 * HOUR, zone, i)
                    for zone, instants in CHANGES.items()
                    for first in (instant.replace(tzinfo=dt.UTC) for instant in instants)
                    for i in range(4)
                ),
            )
        ]
    },
    hosts=["batch"],
)
def changed_days(s: Any) -> sq.Stream:
    stays = sq.intervals(s, "start", "end", name="zoned")
    return union(
        [
            stays.where(col("zone") == zone).group_by("zone").calendar_window("1 day", zone=zone)
            .select(n=sq.count(), s=sq.sum("v"))
            for zone in CHANGES
        ]
    )  # fmt: skip


def _seen(windowed: Any) -> sq.Stream:
    return windowed.select(n=sq.count(), at=sq.window_start(), first=sq.first("due"))  # type: ignore[no-any-return]


# types and names of columns

MAPS = [kind for kind in VALUES if kind.startswith("map")]


def nested() -> pa.Table:
    """Rows with a column of each kind of maps."""
    more = zip((f"x{n}" for n in itertools.count()), MAPS[1:], strict=False)
    return reduce(lambda table, one: table.append_column(one[0], VALUES[one[1]]), more, typed_rows(MAPS[0]))


@case("columns that cannot be ordered", {"s": [nested()]}, outputs=["final"] * 6, hosts=["batch"])
def unordered(s: Any) -> list[sq.Stream]:
    uses = ("inner join", "last_rows", "rows_window", "session_window", "snapshot_window", "explode")
    return [PASSED[use](*typed_streams(s)) for use in uses]


@case("columns that cannot be ordered, in state", {"s": halves(nested(), 2)})
def unordered_in_state(s: Any) -> sq.Stream:
    stays = sq.intervals(s, "from", "to", name="maps", progress=sq.generate(5))
    pairs = stays.join(stays.shift(1), on="k", suffixes=("", "_r"))
    return pairs.group_by("k").rows_window(2).select(x=sq.last("x"), all=sq.collect("x0"), first=sq.first("x1_r"))


NAMES = {f"n{number}": pattern.format(number) for number, pattern in enumerate(HARD)}
NAMED = halves(
    pa.table({name: [1, 2, 1] for name in NAMES.values()} | {"the.`time`": [1, 2, 3], "[x]": ["a", "b", "a"]}), 2
)


@case("columns of any names", {"s": NAMED}, outputs=["final", "upsert", "changelog"])
def any_names(s: Any) -> list[sq.Stream]:
    every, first = list(NAMES.values()), NAMES["n0"]
    points = sq.points(s, "the.`time`", name="a source.`1`", progress=sq.generate(5))
    windows = points.group_by(*every).tumbling_window(10).select(**{"sum of .`x`": sq.max(first)})
    pairs = points.set_duration(5).join(points.shift(1).select(*every), on=every[:9], suffixes=("", ".r"))
    return [windows.where(col(every[-1]) > 0), windows, pairs]


@case("columns of any names that no step computes", {"s": NAMED})
def any_names_as_they_come(s: Any) -> sq.Stream:
    """They go to the workers as they are, and to the sink."""
    return sq.points(s, "the.`time`", name="a source.`2`", progress=sq.generate(5)).to_signal("[x]")


# operators

SIDES: dict[str, Callable[[sq.Stream, sq.Stream], tuple[sq.Stream, sq.Stream]]] = {
    "points and points": lambda a, b: (a, b),
    "points and longer ones": lambda a, b: (a, b.set_duration(5)),
    "longer ones and points": lambda a, b: (a.shift(1).set_duration(8), b),
    "of different lengths": lambda a, b: (a.set_duration(3), b.set_duration(12).shift(-7).extend(4)),
    "of two lengths": lambda a, b: (a.union(a.set_duration(9).select("k", "v")), b.set_duration(2)),
}
JOINS = (("inner", True), ("inner", False), ("semi", False), ("anti", True))
"""The kinds of joins, and whether each has keys."""


def instants(seed: int) -> pa.Table:
    chance = random.Random(seed)
    rows = [(chance.randrange(-20, 20), chance.choice(["a", "b", None]), chance.randrange(4)) for _ in range(40)]
    return of_rows(pa.schema([("at", pa.int64()), ("k", pa.string()), ("v", pa.int32())]), *rows)


@case(
    "joins of events whose greatest length the plan says",
    {"a": [instants(1)], "b": [instants(2)]},
    hosts=["batch"],
)
def bounded_joins(a: Any, b: Any) -> sq.Stream:
    """Every other length meets a kind of join, in a soak all do: how far partners lie apart is a matter of lengths alone."""
    sides = [sq.points(table, time="at", name=name) for table, name in ((a, "a"), (b, "b"))]
    queries = []
    for i, (name, lengths) in enumerate(SIDES.items()):
        left, right = lengths(*sides)
        for how, keyed in JOINS if SOAK else JOINS[i % 2 :: 2]:
            more: dict[str, Any] = {"suffixes": ("", "_r")} if how == "inner" else {}
            on = {"on": "k"} if keyed else {}
            joined = left.join(right, where=lambda a, b: a.v <= b.v, how=how, **on, **more)
            r = col("v_r") if how == "inner" else sq.lit(None).cast("int")
            queries.append(joined.select("k", "v", r=r, of=sq.lit(f"{name}, {how}")))
    return union(queries)


__all__ = ["CASES", "HostCase", "Row"]
