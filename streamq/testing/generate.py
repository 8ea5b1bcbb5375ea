"""Random streams in arrival order, cuts into micro-batches and queries over them, as Hypothesis strategies.

Everything is small and legal: retractions match, no item is late, rows are events. Shrinking leads to few events in
order, with no correction, one micro-batch and a plain query. Needs ``hypothesis``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.compiler.operators import Edges, Intervals, JoinTable, Physical, Points, Select, Source
from streamq.compiler.plan import Node, nodes
from streamq.expr import Col, Lit
from streamq.policies import SourcePolicy
from streamq.schema import Field
from streamq.testing.oracle import arrow_type, oracle
from streamq.testing.queries import queries, static
from streamq.time import INFINITY, INTEGER, TIMESTAMP

Draw = Callable[[st.SearchStrategy[Any]], Any]
Row = dict[str, Any]
"""A source's row: times are ticks (None: infinity, or not of this kind of row), the payload is ``k`` and ``v``."""

KEYS: Mapping[str, tuple[t.DataType, tuple[Any, ...]]] = {
    "string": (t.StringType(), ("a", "b", None, "c", "")),
    "int": (t.IntegerType(), (0, 1, None, -1)),
}
"""Columns ``k`` by name: their type and values."""

VALUES: Mapping[str, tuple[t.DataType, tuple[Any, ...]]] = {
    "int": (t.IntegerType(), (0, 1, 2, 3, 7, -4, None)),
    "double": (t.DoubleType(), (0.0, 1.0, 1.5, -2.25, 7.0, None, -0.0, float("nan"), float("inf"), float("-inf"))),
    "decimal": (t.DecimalType(5, 2), tuple(Decimal(v) for v in ("0.00", "1.00", "0.01", "-2.50", "3.33")) + (None,)),
}
"""Columns ``v`` by name. The floats are few quarters, so that their sums are exact in any order."""


@dataclass(frozen=True)
class Case:
    """A query and what arrives: ``arrival`` holds (source, row) in order, ``cut`` the lengths of its micro-batches.

    ``tables`` are all rows by source, ``batches`` the same by micro-batch, ``answer()`` is the history to expect.
    """

    plan: Node
    arrival: tuple[tuple[str, Row], ...]
    cut: tuple[int, ...]
    until: int | None = None

    @property
    def sources(self) -> dict[str, Source]:
        """The plan's sources by name."""
        return {node.table: node for node in nodes(self.plan) if isinstance(node, Source)}

    @property
    def tables(self) -> dict[str, pa.Table]:
        """All rows of each source, in order of arrival."""
        return self._tables(self.arrival)

    @property
    def batches(self) -> list[dict[str, pa.Table]]:
        """The micro-batches in order; each has a table for every source, maybe an empty one."""
        ends = list(itertools.accumulate(self.cut))
        return [self._tables(self.arrival[b - n : b]) for b, n in zip(ends, self.cut, strict=True)]

    def _tables(self, arrival: Sequence[tuple[str, Row]]) -> dict[str, pa.Table]:
        return {name: table(node, [row for of, row in arrival if of == name]) for name, node in self.sources.items()}

    @property
    def static(self) -> dict[str, pa.Table]:
        """The static tables that the query looks up, by name."""
        return {n.table: static(n.table) for n in nodes(self.plan) if isinstance(n, JoinTable)}

    def answer(self) -> pa.Table:
        """The oracle's history of the plan's answer."""
        return oracle(self.plan, {**self.tables, **self.static}, self.until)

    def with_cut(self, *cut: int) -> Case:
        """The same rows cut otherwise; with no lengths, after every row."""
        return replace(self, cut=cut or (1,) * len(self.arrival))

    def __repr__(self) -> str:
        found = nodes(self.plan)
        names = {node.digest: f"q{i}" for i, node in enumerate(found)}
        lines = ["Case of"]
        for node in found:
            inputs = ", ".join(names[c.digest] for c in node.children)
            lines.append(f"  {names[node.digest]} = {node.title}({inputs}) {node.detail()}".rstrip())
            if isinstance(node, Source):
                lines[-1] += f"; {node.policy}"
        rows = iter(self.arrival)
        for n in self.cut:
            lines.append("  micro-batch")
            lines += [f"    {name} {row}" for name, row in itertools.islice(rows, n)]
        return "\n".join(lines) + (f"\n  until {self.until}" if self.until is not None else "")


def table(node: Source, rows: Sequence[Row]) -> pa.Table:
    """Rows as the Arrow table of a source, its columns of their declared types."""

    def column(field: Field) -> pa.Array:
        values = [row.get(field.name) for row in rows]
        if isinstance(field.type, t.TimestampType):
            return pa.array(values, pa.int64()).cast(arrow_type(field.type))
        return pa.array(values, arrow_type(field.type), from_pandas=False)

    return pa.table([column(f) for f in node.columns], names=[f.name for f in node.columns])


# streams


def sync(row: Row) -> int:
    """Sync time: the earliest instant that an item changes; infinity for a CTI, which changes none."""
    if "kind" not in row:
        return next(row[name] for name in ("t", "start") if name in row)
    if row["kind"] == "insert":
        return row["start"]
    ends = [INFINITY if row[name] is None else row[name] for name in ("end", "new_end")]
    return min(ends) if row["kind"] == "retract" else INFINITY


def bounds(rows: Sequence[Row]) -> list[int]:
    """For each item of an arrival sequence the greatest CTI that may come before it.

    That is its sync time; its start, if a retraction of the lifetime that it makes is already there: until then the total
    of that lifetime is negative, which is an error once the CTI has passed the start (SEMANTICS section 1).
    """
    totals: Counter[Any] = Counter()
    found = []
    for row in rows:
        bound = sync(row)
        if row.get("kind") in ("insert", "retract"):
            whose = (row["start"], *((n, row[n]) for n in sorted(row) if n not in ("kind", "start", "end", "new_end")))
            made = "end" if row["kind"] == "insert" else "new_end"
            if totals[row[made], whose] < 0:
                bound = row["start"]
            totals[row[made], whose] += 1
            if row["kind"] == "retract":
                totals[row["end"], whose] -= 1
        found.append(bound)
    return found


def late(rows: Sequence[Row]) -> list[Row]:
    """The items of an arrival sequence that break a CTI before them."""
    found, progress = [], -INFINITY
    for row, bound in zip(rows, bounds(rows), strict=True):
        if row.get("kind") == "cti":
            progress = max(progress, row["start"])
        elif bound < progress:
            found.append(row)
    return found


def delay_for(rows: Sequence[Row]) -> int:
    """The least delay of generated progress under which no item is late, however the sequence is cut."""
    greatest, delay = -INFINITY, 0
    for row, bound in zip(rows, bounds(rows), strict=True):
        if row.get("kind") != "cti":
            delay = max(delay, greatest - bound)
            greatest = max(greatest, row["t"] if "t" in row else row["start"])
    return delay


def _arranged(items: Sequence[tuple[int, Row]], lags: Sequence[int], causal: bool) -> list[Row]:
    """Items (chain, row), in order of sync time but for lags; if causal, those of a chain keep their order."""
    items = sorted(items, key=lambda item: sync(item[1]))
    if lags:
        late_by = [i + lag for i, lag in zip(range(len(items)), itertools.cycle(lags))]
        items = [items[i] for i in sorted(range(len(items)), key=lambda i: (late_by[i], i))]
    if not causal:
        return [row for _, row in items]
    chains: dict[int, list[Row]] = {}
    for chain, row in items:
        chains.setdefault(chain, []).append(row)
    for rows in chains.values():
        rows.sort(key=lambda row: row["#"])
    return [chains[chain].pop(0) for chain, _ in items]


def lags() -> st.SearchStrategy[list[int]]:
    """How many places items come late, cyclically: none, slightly or highly out of order."""
    return st.one_of(st.just([]), *(st.lists(st.integers(0, n), max_size=8) for n in (2, 12)))


def _some(of: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    # mere lists are mostly very short
    return st.one_of(st.lists(of, max_size=most), st.lists(of, min_size=most // 2, max_size=most))


def _lifetimes() -> st.SearchStrategy[tuple[Any, Any]]:
    """Where an event starts (an instant, or beside an end or a start of the event before) and how long it lives."""
    starts = st.one_of(
        st.tuples(st.just("at"), st.integers(-12, 25)),
        st.tuples(st.sampled_from(["end", "start"]), st.sampled_from([0, -1, 1])),
    )
    lengths = st.one_of(st.just(1), st.integers(2, 5), st.integers(10, 30), st.just(None))
    return st.tuples(starts, lengths)


def _placed(where: tuple[str, int], length: int | None, before: tuple[int, int] | None) -> tuple[int, int]:
    kind, at = where
    if kind != "at":
        at += (before[1] if kind == "end" and before[1] < INFINITY else before[0]) if before else 0
    return at, INFINITY if length is None else at + length


def payloads(key: str = "string", value: str = "int") -> st.SearchStrategy[Row]:
    """``k`` and ``v`` of one of the kinds in KEYS and VALUES."""
    return st.fixed_dictionaries({"k": st.sampled_from(KEYS[key][1]), "v": st.sampled_from(VALUES[value][1])})


def _open(end: int) -> int | None:
    return None if end == INFINITY else end


@st.composite
def interval_streams(draw: Draw, key: str = "string", value: str = "int", most: int = 10) -> list[Row]:
    """Rows ``start, end, k, v``: points, short, long, endless, back to back, off by one, duplicates, out of order."""
    made: list[tuple[int, Row]] = []
    before: tuple[int, int] | None = None
    for (where, length), payload, copies in draw(
        _some(st.tuples(_lifetimes(), payloads(key, value), st.sampled_from([1, 1, 1, 2])), most)
    ):
        before = _placed(where, length, before)
        made += [(len(made), {"start": before[0], "end": _open(before[1]), **payload})] * copies
    return [dict(row) for row in _arranged(made, draw(lags()), causal=False)]


@st.composite
def point_streams(draw: Draw, key: str = "string", value: str = "int", most: int = 12) -> list[Row]:
    """Rows ``t, k, v``, many at one instant or at neighbouring ones, out of order."""
    made = [(i, {"t": at, **row}) for i, (at, row) in enumerate(
        draw(_some(st.tuples(st.integers(-12, 25), payloads(key, value)), most))
    )]  # fmt: skip
    return _arranged(made, draw(lags()), causal=False)


@st.composite
def physical_streams(
    draw: Draw,
    key: str = "string",
    value: str = "int",
    most: int = 7,
    explicit: bool = True,
    ids: bool = False,
    causal: bool | None = None,
) -> list[Row]:
    """Rows ``kind, start, end, new_end, k, v``: inserts, chains of retractions that shorten, extend or delete, CTIs.

    ``explicit``: with CTIs, all of them kept; ``ids``: with a column ``id``, one an event; ``causal``: whether a
    retraction may not arrive before what it takes back (None: drawn).
    """
    moves = st.one_of(
        st.tuples(st.sampled_from(["shorten", "extend"]), st.integers(0, 12)),
        st.tuples(st.sampled_from(["delete", "open"]), st.just(0)),
    )
    recipe = st.tuples(_lifetimes(), payloads(key, value), st.lists(moves, max_size=3), st.sampled_from([1, 1, 1, 2]))
    made: list[tuple[int, Row]] = []
    before: tuple[int, int] | None = None
    chain = 0
    for (where, length), payload, moved, copies in draw(_some(recipe, most)):
        before = _placed(where, length, before)
        for copy in range(copies):
            whose = {**payload, "id": chain} if ids else payload
            for row in _chain(*before, () if copy else moved):
                made.append((chain, {**row, **whose, "#": len(made)}))
            chain += 1
    causal = draw(st.booleans()) if causal is None else causal
    rows = _arranged(made, draw(lags()), causal)
    rows = [{name: value for name, value in row.items() if name != "#"} for row in rows]
    return draw(_with_ctis(rows)) if explicit else rows


def _chain(at: int, ends: int, moved: Sequence[tuple[str, int]]) -> list[Row]:
    """An insert and the retractions that follow it, each naming the end that the one before made."""
    rows: list[Row] = [{"kind": "insert", "start": at, "end": _open(ends), "new_end": None}]
    for kind, by in moved:
        to = ends
        if kind == "shorten" and ends - at > 1:
            to = at + 1 + (by if ends == INFINITY else by % (ends - at - 1))
        elif kind == "extend" and ends < INFINITY:
            to = ends + 1 + by
        elif kind == "open":
            to = INFINITY
        elif kind == "delete":
            to = at
        if to != ends:
            rows.append({"kind": "retract", "start": at, "end": _open(ends), "new_end": _open(to)})
        ends = to
        if ends == at:
            break
    return rows


@st.composite
def _with_ctis(draw: Draw, rows: list[Row]) -> list[Row]:
    places = draw(st.lists(st.tuples(st.integers(0, len(rows)), st.sampled_from([0, 0, 1, 3])), max_size=5))
    greatest = max(
        (end for row in rows for end in (row["start"], row["end"], row["new_end"]) if end is not None), default=0
    )
    least = [greatest + 5]
    for bound in reversed(bounds(rows)):
        least.append(min(least[-1], bound))
    least.reverse()
    made: list[Row] = []
    progress = -INFINITY
    places.sort(key=lambda place: place[0])
    for i in range(len(rows) + 1):
        for _, slack in (place for place in places if place[0] == i):
            progress = max(progress, least[i] - slack)
            made.append({"kind": "cti", "start": progress, "end": None, "new_end": None})
        made += rows[i : i + 1]
    return made


@st.composite
def edge_streams(draw: Draw, key: str = "string", value: str = "int", most: int = 12) -> list[Row]:
    """Rows ``t, edge, k, v``: per key starts, ends, ends that meet starts, starts that cut starts; out of order."""
    at: dict[Any, int] = {}
    living: set[Any] = set()
    made: list[tuple[int, Row]] = []
    steps = st.tuples(payloads(key, value), st.integers(1, 6), st.sampled_from(["start", "end", "both"]))
    for payload, gap, kind in draw(_some(steps, most)):
        k = payload["k"]
        at[k] = at.get(k, draw(st.integers(-12, 5)) if k not in at else 0) + gap
        both = ("end", "start") if kind == "both" else (kind,)
        for edge in both if k in living else ("start",):
            made.append((len(made), {"t": at[k], "edge": edge, **payload}))
            (living.add if edge == "start" else living.discard)(k)
    return _arranged(made, draw(lags()), causal=False)


# sources


@dataclass(frozen=True)
class Arriving:
    """A source, the rows that arrive at it, and a plan over it with payload ``k, v``."""

    source: Source
    rows: tuple[Row, ...]
    plan: Node


@st.composite
def sources(
    draw: Draw,
    name: str,
    kind: str = "intervals",
    key: str = "string",
    value: str = "int",
    axis: str = INTEGER,
    causal: bool | None = None,
) -> Arriving:
    """A source of a kind (points, intervals, edges, physical, physical_ids) under whose policy nothing is late."""
    time = t.TimestampType() if axis == TIMESTAMP else t.LongType()
    rest = (Field("k", KEYS[key][0]), Field("v", VALUES[value][0]))

    def generated(rows: Sequence[Row]) -> SourcePolicy:
        return SourcePolicy(delay_for(rows) + draw(st.sampled_from([0, 0, 1, 5])))

    source: Source
    columns: tuple[Field, ...]
    match kind:
        case "points":
            rows = draw(point_streams(key, value))
            source = Points(name, (Field("t", time), *rest), "t", generated(rows))
        case "intervals":
            rows = draw(interval_streams(key, value))
            source = Intervals(name, (Field("start", time), Field("end", time), *rest), "start", "end", generated(rows))
        case "edges":
            rows = draw(edge_streams(key, value))
            columns = (Field("t", time), Field("edge", t.StringType()), *rest)
            whose = draw(st.sampled_from(["start", "end"]))
            source = Edges(name, columns, "t", "edge", ("k",), Lit("start"), Lit("end"), whose, generated(rows))
        case _:
            explicit, ids = draw(st.booleans()), kind == "physical_ids"
            rows = draw(physical_streams(key, value, explicit=explicit, ids=ids, causal=causal))
            times = tuple(Field(n, time) for n in ("start", "end", "new_end"))
            named = (Field("id", t.IntegerType()),) if ids else ()
            columns = (Field("kind", t.StringType()), *times, *rest, *named)
            policy = SourcePolicy(None) if explicit else generated(rows)
            source = Physical(name, columns, "kind", "start", "end", "new_end", "id" if ids else None, policy)
    plan = Select(source, (("k", Col("k")), ("v", Col("v")))) if kind == "physical_ids" else source
    return Arriving(source, tuple(rows), plan)


def cuts(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Lengths of the micro-batches that a sequence of ``n`` rows is cut into."""
    if n < 2:
        return st.just((n,) if n else ())
    places: st.SearchStrategy[set[int]] = st.one_of(
        st.just(set()), st.just(set(range(1, n))), st.sets(st.integers(1, n - 1))
    )
    return places.map(lambda at: tuple(b - a for a, b in itertools.pairwise([0, *sorted(at), n])))


@st.composite
def cases(
    draw: Draw,
    kinds: Sequence[str] = ("points", "intervals", "edges", "physical", "physical_ids"),
    values: Sequence[str] = ("int", "double"),
    axes: Sequence[str] = (INTEGER, TIMESTAMP),
    most_sources: int = 2,
    depth: int = 2,
    reads_end: bool = True,
    causal: bool | None = None,
    query: Callable[[Sequence[Node]], st.SearchStrategy[Node]] | None = None,
) -> Case:
    """A query over one or two sources called ``a`` and ``b``, what arrives at them, and a cut of it.

    ``kinds`` of sources, ``values`` of column ``v``, ``axes`` of time; ``reads_end`` as in :func:`queries`; ``causal``
    as in :func:`physical_streams`; ``query``: plans over the inputs, if not any of :func:`queries`.
    """
    key, value = draw(st.sampled_from(sorted(KEYS, reverse=True))), draw(st.sampled_from(values))
    axis = draw(st.sampled_from(axes))
    arriving = [
        draw(sources(name, draw(st.sampled_from(kinds)), key, value, axis, causal))
        for name in "ab"[: draw(st.integers(1, most_sources))]
    ]
    inputs = [a.plan for a in arriving]
    plan = draw(query(inputs) if query else queries(inputs, depth, reads_end))
    left = [[(a.source.table, row) for row in a.rows] for a in arriving]
    arrival: list[tuple[str, Row]] = []
    turns = itertools.cycle(draw(st.lists(st.integers(0, len(left) - 1), max_size=8)) or [0])
    while any(left):
        turn = next(turns)
        arrival.append((left[turn] or next(rows for rows in left if rows)).pop(0))
    return Case(plan, tuple(arrival), draw(cuts(len(arrival))))


__all__ = [
    "KEYS",
    "VALUES",
    "Arriving",
    "Case",
    "bounds",
    "cases",
    "cuts",
    "delay_for",
    "edge_streams",
    "interval_streams",
    "lags",
    "late",
    "payloads",
    "physical_streams",
    "point_streams",
    "sources",
    "sync",
    "table",
]
