"""Edge events and versions of rows: rows, items and definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import PlanError
from streamq.plan.expr import Expr, Lit
from streamq.plan.schema import Field
from streamq.sources.changes import DELETES, PREIMAGES, VERSIONS, Changes
from streamq.sources.edges import Edges, EdgeSource
from streamq.testing.arrival import CLOSE, OPEN, Item, Scale, comparable
from streamq.testing.drawn_lifetimes import arranged, copies, lifetimes, long_lists
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run, column, events_of, keyed, no_start, payload_of, representatives
from streamq.testing.oracle.values import has_own_key, key, keys, listed, payload, same
from streamq.testing.payload_values import growing_value, grows
from streamq.testing.program_text import argument, column_lists, free_name, one_or_more, string
from streamq.testing.sources.models import EdgesModel
from streamq.testing.sources.room import ArrivalPlan, Draw, SourceModel, SourceRoom
from streamq.time import INFINITY


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
    """The room of :class:`Edges`."""

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
    """The room of :class:`Changes`."""

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
