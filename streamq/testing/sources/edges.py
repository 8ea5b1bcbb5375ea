"""Edge events and versions of rows: rows, items and definitions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import CountReason
from streamq.errors import PlanError
from streamq.plan.expr import Expr, Lit
from streamq.plan.schema import Field
from streamq.runtime.deltas import INSERT
from streamq.runtime.kernel import ADJUST
from streamq.sources.edges import DELETES, PREIMAGES, VERSIONS, Changes, Edges, EdgeSource
from streamq.testing.arrival import CLOSE, OPEN, Item, Scale, comparable, comparable_payload, start_of
from streamq.testing.drawn_lifetimes import arranged, copies, lifetimes, long_lists
from streamq.testing.intent import Draw
from streamq.testing.oracle.run import Run, column, defines, events_of, keyed, no_start, payload_of, representatives
from streamq.testing.oracle.values import has_own_key, key, keys, listed, payload, same
from streamq.testing.payload_values import growing_value, grows
from streamq.testing.program_text import argument, column_lists, free_name, one_or_more, string
from streamq.testing.sources.room import Admission, ArrivalPlan, Reach, SourceModel, SourceRoom
from streamq.time import INFINITY


@dataclass
class _Edge:
    """An edge: its item, and the instant ``since`` which it takes effect, which is later if it was late and adjusted.

    ``place``: that in its chain; ``opens``: it is a start; ``gone``: it was dropped; ``passed``: it is an end, and c has passed
    its time; ``is_none``: c passed it before its start came, so it is forgotten.
    """

    item: Item
    place: Any
    since: int
    gone: bool = False
    passed: bool = False
    is_none: bool = False

    @property
    def time(self) -> int:
        return start_of(self.item)

    @property
    def opens(self) -> bool:
        return self.item.kind == OPEN

    @property
    def payload(self) -> Mapping[str, Any]:
        return self.item.payload


class EdgesModel(SourceModel[EdgeSource]):
    """Start and end edges, a chain for each key: an event lasts until the first instant at which a later edge takes effect."""

    def __init__(self, source: EdgeSource):
        super().__init__(source)
        self.chains: dict[Any, list[_Edge]] = {}

    def repeated(self, events: Sequence[Item]) -> int:
        return len(events) - len({(self._key(item), self._place(item), comparable_payload(item)) for item in events})

    def unmatched(self, events: Sequence[Item]) -> int:
        """Return the number of different edges that share their place in a chain, and of ends without a start before them."""
        chains: dict[Any, dict[Any, set[Any]]] = {}
        for item in events:
            places = chains.setdefault(self._key(item), {})
            places.setdefault(self._place(item), set()).add(comparable_payload(item))
        count = 0
        for places in chains.values():
            count += sum(len(payloads) for payloads in places.values() if len(payloads) > 1)
            opened = False
            for *_, opens in sorted(place for place, payloads in places.items() if len(payloads) == 1):
                count += not opens and not opened
                opened = opens
        return count

    def is_plain(self, events: Sequence[Item]) -> bool:
        """True if no two edges of a key have the same place in its chain."""
        return len({(self._key(item), self._place(item)) for item in events}) == len(events)

    def _key(self, item: Item) -> Any:
        return tuple(comparable(item.payload[name]) for name in self.source.key)

    def _place(self, item: Item) -> Any:
        """Return an edge's place in its chain: its time, its values in the order columns, NULLs first, and if it is a start."""
        values = [item.columns.get(name) for name in self.source.order_by]
        order = [(0,) if v is None else (2,) if v != v else (1, v) for v in values]
        return (start_of(item), *order, item.kind == OPEN)

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Add edges to the chains of their keys, and count late ones as adjusted if they change the events, else as dropped.

        A late edge takes effect at c. It is ``gone`` if it lies before the promised CTI and the policy does not adjust it. One
        that changes nothing is counted as dropped, but stays in the chain and takes effect.
        """
        late: list[tuple[list[_Edge], _Edge]] = []
        for item in items:
            chain = self.chains.setdefault(self._key(item), [])
            edge = _Edge(item, self._place(item), start_of(item))
            if edge.time < at.c:
                self.admitted.late += 1
                edge.since, edge.gone = at.c, not self._acts(edge.time, at)
                late.append((chain, edge))
            chain.append(edge)
            chain.sort(key=lambda e: e.place)
        for chain, edge in late:
            lifetimes = self._lifetimes(chain)
            changes = self._events(chain) != self._events([e for e in chain if e is not edge])
            # it also counts as adjusted if the event that it opens, or its payload, equals the one before
            changes |= any(edge is opened for _, _, opened, _ in lifetimes)
            changes |= self._brings_payload and any(edge is by for *_, by in lifetimes)
            self._count(CountReason.ADJUSTED if changes and not edge.gone else CountReason.DROPPED, edge.item, at.c)

    def _pass(self, at: Reach) -> None:
        """Count the ends, among those on time that c has now passed, that close no event; then forget what no later edge needs.

        An end counts as dropped if its event was dropped or has ended before, or if only the level of consistency made it late
        (it then counts as late, too); else as invalid. Invalid ends are forgotten unless late edges are adjusted, for then a late
        start may still come before them; late ends that were dropped, where no event is open.
        """
        for chain in self.chains.values():
            over = [e for e in chain if e.time < at.c and e.since == e.time and not e.opens and not e.passed]
            lost = [edge for edge, gone in zip(chain, _orphaned(chain), strict=True) if gone]
            acting = _acting(chain)
            pairs = [(before, after) for before, after in itertools.pairwise(acting) if before.opens]
            closing = [after for _, after in pairs]
            # nothing is left of an event that ends where it starts
            brief = [after for before, after in pairs if before.time == after.time]
            ends = [by for *_, by in self._lifetimes(chain)]
            for edge in over:
                edge.passed = True
                # its event was dropped, or ended before this edge took effect
                is_idle = any(edge is other for other in closing) and not any(edge is by for by in [*ends, *brief])
                if is_idle or any(edge is other for other in lost):
                    self._count(CountReason.DROPPED, edge.item)
                elif not any(edge is other for other in closing):
                    # by the source's own CTI its start may still come, so the level of consistency made it late
                    level = edge.time >= at.promised
                    self.admitted.late += level
                    self._count(CountReason.DROPPED if level else CountReason.INVALID, edge.item)
                    edge.is_none = not level and self.source.policy.late is not ADJUST
            is_open = any(end >= at.c for _, end, *_ in self._lifetimes(chain))
            for edge in chain:
                edge.is_none |= edge.gone and not edge.opens and not is_open
            # if late edges are dropped, an end without a start is forgotten, so that a later end can close a late start
            chain[:] = [edge for edge in chain if not edge.is_none]

    def end(self) -> Admission:
        """End the input; return what the source admits, with the events that the chains form; open ones stay without an end."""
        super().end()
        for chain in self.chains.values():
            self.admitted.events += self._events(chain)
        return self.admitted

    @property
    def _brings_payload(self) -> bool:
        """True if an event has the payload of its end edge."""
        return self.source.payload_from == "end"

    def _lifetimes(self, chain: Sequence[_Edge]) -> list[tuple[int, int, _Edge, _Edge | None]]:
        """Return, for each event of a chain, its start, its end, its opening edge, and its closing edge.

        An open event has no closing edge and ends at INFINITY. The closing edge is an end or a later start. Of edges that take
        effect at one instant an end is the first, or with ``order_by`` the one that is first in the chain. Events that would be
        empty are left out.
        """
        acting = _acting(chain)
        lifetimes = []
        for i, edge in enumerate(acting):
            if not edge.opens:
                continue
            ends_first = not self.source.order_by
            by = min(acting[i + 1 :], key=lambda e: (e.since, ends_first and e.opens), default=None)
            end = INFINITY if by is None else by.since
            if edge.since < end:
                lifetimes.append((edge.since, end, edge, by))
        return lifetimes

    def _events(self, chain: Sequence[_Edge]) -> list[Item]:
        """Return the events of a chain; the end of an open event is None.

        With ``payload_from="end"`` an event that an end closes has the payload of that end; one that is open, or that the next
        start closes, has its start's.
        """
        events = []
        for start, end, opened, by in self._lifetimes(chain):
            closes = self._brings_payload and by is not None and not by.opens
            payload = by.payload if closes and by is not None else opened.payload
            events.append(Item(INSERT, start, None if end == INFINITY else end, payload=payload))
        return events


def _orphaned(chain: Sequence[_Edge]) -> list[bool]:
    """Return a mask of the edges of a chain that are dropped because they end an event whose start was dropped."""
    return [
        not edge.opens and not edge.gone and i > 0 and _takes_along(chain[i - 1], edge) for i, edge in enumerate(chain)
    ]


def _takes_along(start: _Edge, end: _Edge) -> bool:
    """True if a start was dropped and the end after it with it, because the end takes effect no earlier than the start would."""
    return start.opens and start.gone and end.since >= start.since


def _acting(chain: Sequence[_Edge]) -> list[_Edge]:
    """Return the edges of a chain that take effect: those that were not dropped."""
    return [edge for edge, lost in zip(chain, _orphaned(chain), strict=True) if not (edge.gone or lost)]


@defines(Edges)
def edges(node: Edges, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the events of edges, see :func:`events_of_edges`; ``edge`` says of a row whether it is a start or an end."""
    edge = column(node, node.edge)
    opens, closes = (f"{edge} IS NOT DISTINCT FROM {run.sql(mark, node.schema)}" for mark in (node.open, node.close))
    return events_of_edges(node, run, f"CASE WHEN {opens} THEN true WHEN {closes} THEN false END")


def events_of_edges(node: EdgeSource, run: Run, opens: str, where: str = "true") -> str:
    """Return SQL that makes an event of each start edge; it ends at the next edge of its key, by (instant, ``order_by``, kind).

    An end comes before a start of the same instant and order. It is an event's end if the edge before it is a start. Equal edges
    count once. Of different starts, or ends, of one key, instant and order none is valid. Invalid edges are dropped, or raise
    InvalidEvent: see :func:`events_of`. Events that end where they start go. The payload is the start edge's; with
    ``payload_from="end"`` the end edge's, but for events that are open or that the next start ends.

    ``opens``: SQL that is true for a start, false for an end, NULL for other rows; ``where``: that for rows that are edges.
    """
    time = column(node, node.time)
    types = {f.name: f.type for f in node.columns}
    order = [f"o{i}" for i in range(len(node.order_by))]
    values = [key(x, types[n]) if has_own_key(types[n]) else x for n in node.order_by for x in [column(node, n)]]
    ordering = [f"{value} AS o{i}" for i, value in enumerate(values)]
    valid_edges = events_of(node, run, f"""
        SELECT {listed("n", f"{time} AS le", f"{opens} AS opens", *ordering, *payload_of(node))},
            CASE {no_start(time)} WHEN ({opens}) IS NULL THEN 'neither a start nor an end' END AS bad
        FROM {run.source(node)} WHERE {where}""")  # fmt: skip
    names = keys(node.schema)
    columns = listed("le", "opens", *order, *names)
    grouped = listed("min(n) AS n", columns, *representatives(node))
    rows = run.table(f"SELECT {grouped} FROM {keyed(node, run, valid_edges)} GROUP BY {columns}")
    own = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.key]
    rest = [c for c, f in zip(payload(node.schema), node.payload, strict=True) if f.name not in node.key]
    single = events_of(node, run, f"""
        SELECT *, CASE WHEN count(*) OVER (PARTITION BY {listed(*own, "le", *order, "opens")}) > 1
            THEN 'two edges of one key at one instant that differ' END AS bad
        FROM {rows}""")  # fmt: skip
    in_order = listed("le", *(f"{c} NULLS FIRST" for c in order), "opens")
    numbered = run.table(f"""
        SELECT *, row_number() OVER (PARTITION BY {listed(*own)} ORDER BY {in_order}) AS place
        FROM {single}""" if own else f"SELECT *, row_number() OVER (ORDER BY {in_order}) AS place FROM {single}")  # fmt: skip
    chain = events_of(node, run, f"""
        SELECT *, CASE
            WHEN NOT opens
                AND NOT EXISTS (SELECT 1 FROM {numbered} b WHERE {same(own)} AND b.opens AND b.place = a.place - 1)
            THEN 'an end without an open start' END AS bad
        FROM {numbered} a""")  # fmt: skip
    pairs = run.table(f"""
        SELECT a.*, (SELECT min(b.place) FROM {chain} b WHERE {same(own)} AND b.place > a.place) AS next
        FROM {chain} a WHERE a.opens""")  # fmt: skip
    ended = {c: f"CASE WHEN b.opens IS NOT DISTINCT FROM false THEN b.{c} ELSE a.{c} END" for c in rest}
    chosen = ended if node.payload_from == "end" else {}
    columns_of_pair = [f"{chosen.get(c, f'a.{c}')} AS {c}" for c in payload(node.schema)]
    return f"""
        SELECT {listed("a.le", f"coalesce(b.le, {INFINITY}) AS re", *columns_of_pair)}
        FROM {pairs} a LEFT JOIN {chain} b ON {same(own)} AND b.place = a.next
        WHERE b.le IS NULL OR b.le > a.le"""


E = TypeVar("E", bound=EdgeSource)


class EdgeItems:
    """The part of a room that is the same for all sources of edges."""

    items: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    model: ClassVar[type[SourceModel[Any]]] = EdgesModel
    goes_by_key: ClassVar[bool] = True

    def late_row(self, source: EdgeSource, item: Item) -> dict[str, Any]:
        kind = "start" if item.kind == OPEN else "end"
        return {"kind": kind, "start": item.start, "end": item.end, "new_end": None}

    def placed(self, draw: Draw, source: E) -> E:
        """Return a source whose edges of one instant are, now and then, in the order of a column beside them."""
        if draw(st.sampled_from([True, False, False])):
            return source
        name = free_name("lsn", {f.name.lower() for f in source.columns})
        position = Field(name, draw(st.sampled_from([t.LongType(), t.StringType()])))
        return replace(source, columns=(*source.columns, position), order_by=(name,), beside=(name,))

    def arriving(self, source: EdgeSource, how: ArrivalPlan) -> st.SearchStrategy[list[Item]]:
        return edge_items(source, how)

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        """Draw an end edge at the first start of all items, or a step before it, or one without an instant.

        ``start`` does not count.
        """
        short = draw(st.sampled_from([0, 0, 1])) * scale.step
        first = min((item.start for item in items if item.start is not None), default=scale.anchor)
        before = Item(CLOSE, first - short, payload=payload)
        item: Item = draw(st.sampled_from([before, Item(CLOSE, None, payload=payload)]))
        return item


class EdgesRoom(EdgeItems, SourceRoom[Edges]):
    kind = Edges
    simplicity = 2
    shapes = ("edges",)

    def row(self, source: Edges, item: Item) -> dict[str, Any]:
        return {source.time: item.start, source.edge: _mark(source.open if item.kind == OPEN else source.close)}

    def starts(self, source: Edges, run: Run) -> str:
        opens = run.sql(source.open, source.schema)
        timed = f"SELECT *, {column(source, source.time)} AS le FROM {run.source(source)}"
        return f"SELECT le AS t FROM ({timed}) WHERE {column(source, source.edge)} IS NOT DISTINCT FROM {opens}"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Edges:
        """Draw a source of edges, with payload from start or end, whose key is the first field; ids do not apply."""
        names = {f.name.lower() for f in fields}
        time_name, edge = (free_name(wanted, names) for wanted in ("t", "edge"))
        columns = (Field(time_name, time), Field(edge, t.StringType()), *fields)
        payload_from = draw(st.sampled_from(["start", "end"]))
        key, opens, closes = (fields[0].name,), Lit("start"), Lit("end")
        source = Edges(name, columns, time_name, edge, key, open=opens, close=closes, payload_from=payload_from)
        return self.placed(draw, source)

    def written(self, source: Edges) -> tuple[str, list[str]]:
        """Return ``sq.edges`` and its arguments as text, without those that have their defaults."""
        arguments = [f"time={string(source.time)}", f"edge={string(source.edge)}", f"key={one_or_more(source.key)}"]
        marks = {"open": (source.open, "start"), "close": (source.close, "end")}
        arguments += [
            f"{n}={shown}" for n, (mark, usual) in marks.items() if (shown := argument(mark)) != string(usual)
        ]
        arguments += [] if source.payload_from == "start" else [f"payload={string(source.payload_from)}"]
        return "sq.edges", [*arguments, *column_lists(order_by=source.order_by, beside=source.beside)]


def _mark(value: Expr) -> Any:
    """Return the literal that marks an edge; raise PlanError for other expressions."""
    if not isinstance(value, Lit):
        raise PlanError("testing", "an edge that is not a literal", f"found {value!r}")
    return value.value


@st.composite
def edge_items(draw: Draw, source: EdgeSource, how: ArrivalPlan) -> list[Item]:
    """Draw edges of each key: starts, ends, an end with a start at one instant, starts that end the event before.

    If something orders them, any number of edges share an instant. If the intent names a duration, an overlap or a pattern, the
    edges are those of lifetimes drawn by it.
    """
    intent, scale, key = how.intent, how.scale, source.key
    placed = _Positions(source)
    if intent.duration is not None or intent.overlap is not None or intent.pattern is not None:
        return draw(arranged(draw(_edges_of_lifetimes(key, how, placed)), intent, causal=False))
    at: dict[Any, int] = {}
    living: set[Any] = set()
    chained: list[tuple[int, Item]] = []
    gaps = st.integers(1, 6)
    if placed.tell_apart:
        gaps = st.one_of(st.just(0), gaps)
    steps = st.tuples(how.payloads, gaps, st.sampled_from(["start", "end", "both"]), st.sampled_from(scale.units))
    beside = st.sampled_from([0, 0, 0, -1, 1]) if scale.is_coarse else st.just(0)
    for (values, gap, kind, unit), by in draw(long_lists(st.tuples(steps, beside), intent.events)):
        k = tuple(comparable(values[name]) for name in key)
        if k not in at:
            at[k] = scale.anchor + draw(st.integers(-12, 5)) * unit
        at[k] += gap * unit + by * scale.step * (gap > 0)
        both = (CLOSE, OPEN) if kind == "both" else (OPEN if kind == "start" else CLOSE,)
        for edge in both if k in living else (OPEN,):
            item = placed.next(Item(edge, at[k], payload=values))
            chained += [(len(chained), item)] * draw(copies(intent))
            (living.add if edge == OPEN else living.discard)(k)
    return draw(arranged(chained, intent, causal=False))


class _Positions:
    """The values of a source's order columns, which grow from item to item; without such columns, none."""

    def __init__(self, source: EdgeSource):
        self.kinds = {f.name: f.type for f in source.columns if f.name in source.order_by}
        self.beside = source.beside
        self.count = 0

    @property
    def tell_apart(self) -> bool:
        """True if the values of some column differ from item to item."""
        return any(grows(kind) for kind in self.kinds.values())

    def next(self, item: Item) -> Item:
        """Return an item with the position behind those of earlier calls."""
        values = {name: growing_value(kind, self.count) for name, kind in self.kinds.items()}
        self.count += 1
        payload = {name: value for name, value in values.items() if name not in self.beside}
        beside = {name: value for name, value in values.items() if name in self.beside}
        return replace(item, payload={**item.payload, **payload}, beside=beside)


@st.composite
def _edges_of_lifetimes(draw: Draw, key: Sequence[str], how: ArrivalPlan, placed: _Positions) -> list[tuple[int, Item]]:
    """Draw lifetimes as numbered edges, copies included; within a key, a lifetime ends at the latest where the next starts.

    Of several lifetimes of one key and start only the longest is used. An endless one has no end edge, and neither has one that
    the next start ends.
    """
    chains: dict[Any, dict[int, tuple[int, dict[str, Any]]]] = {}
    for start, end in sorted(draw(lifetimes(how.intent, how.scale))):
        values = draw(how.payloads)
        chains.setdefault(tuple(comparable(values[name]) for name in key), {})[start] = (end, values)
    edges_of_chains: list[Item] = []
    for chain in chains.values():
        following = [*list(chain)[1:], INFINITY]
        for (start, (end, values)), after in zip(chain.items(), following, strict=True):
            edges_of_chains.append(placed.next(Item(OPEN, start, payload=values)))
            if end < after or (end == after < INFINITY and draw(st.booleans())):
                edges_of_chains.append(placed.next(Item(CLOSE, end, payload=values)))
    return list(enumerate(item for item in edges_of_chains for _ in range(draw(copies(how.intent)))))


@defines(Changes)
def changes(node: Changes, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the events of changes, see :func:`events_of_edges`; a version is a start, a delete an end."""
    op = f"lower({column(node, node.op)})"
    opens = f"CASE WHEN {op} IN {VERSIONS} THEN true WHEN {op} IN {DELETES} THEN false END"
    return events_of_edges(node, run, opens, f"({op} IN {PREIMAGES}) IS DISTINCT FROM true")


class ChangesRoom(EdgeItems, SourceRoom[Changes]):
    kind = Changes
    simplicity = 4
    shapes = ("changes",)

    def row(self, source: Changes, item: Item) -> dict[str, Any]:
        """Return the instant and the operation, which is any word for its kind: rows written alike have one word."""
        words = VERSIONS if item.kind == OPEN else DELETES
        return {source.time: item.start, source.op: words[len(repr(item)) % len(words)]}

    def starts(self, source: Changes, run: Run) -> str:
        op, time = (column(source, name) for name in (source.op, source.time))
        return f"SELECT {time} AS t FROM {run.source(source)} WHERE lower({op}) IN {VERSIONS}"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Changes:
        """Draw a source of changes whose key is the first field; ids do not apply."""
        names = {f.name.lower() for f in fields}
        time_name, op = (free_name(wanted, names) for wanted in ("t", "op"))
        columns = (Field(time_name, time), Field(op, t.StringType()), *fields)
        return self.placed(draw, Changes(name, columns, time_name, op, (fields[0].name,)))

    def written(self, source: Changes) -> tuple[str, list[str]]:
        """Return ``sq.changes`` and its arguments as text."""
        arguments = [f"op={string(source.op)}", f"time={string(source.time)}", f"key={one_or_more(source.key)}"]
        return "sq.changes", [*arguments, *column_lists(order_by=source.order_by, beside=source.beside)]
