"""The room of sources of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.plan.expr import Expr, Lit
from streamq.plan.schema import Field
from streamq.sources.edges import Edges
from streamq.testing.arrival import CLOSE, OPEN, Item
from streamq.testing.arrival_order import arranged
from streamq.testing.drawn_duplicates import copies
from streamq.testing.drawn_lifetimes import lifetimes, long_lists
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.expressions import keys, listed, payload, same
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column, events_of, keyed, no_start, payload_of, representatives
from streamq.testing.program_text import argument, one_or_more, string
from streamq.testing.python_values import comparable
from streamq.testing.scale import Scale
from streamq.testing.sources.edges_model import EdgesModel
from streamq.testing.sources.room import Arriving, Draw, SourceRoom
from streamq.time import INFINITY


@defines(Edges)
def edges(node: Edges, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that makes an event of each start edge; it ends at the first later instant at which its key has an edge.

    An end edge is an event's end if the last earlier instant at which its key has an edge has a start; ends come before starts of
    the same instant. Equal edges count once. Of different starts, or ends, of one key and instant only the least by payload is
    valid. Invalid edges are dropped, or raise InvalidEvent: see :func:`events_of`. The payload is the start edge's; with
    ``payload_from="end"`` the end edge's, but for events that are open or that the next start ends.
    """
    time, edge = column(node, node.time), column(node, node.edge)
    opens, closes = run.sql(node.open, node.schema), run.sql(node.close, node.schema)
    valid_edges = events_of(node, run, f"""
        SELECT {listed("n", f"{time} AS le", f"{edge} IS NOT DISTINCT FROM {opens} AS opens", *payload_of(node))},
            CASE {no_start(time)}
                WHEN {edge} IS DISTINCT FROM {opens} AND {edge} IS DISTINCT FROM {closes}
                THEN 'neither a start nor an end' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    names = keys(node.schema)
    columns = listed("le", "opens", *names)
    grouped = listed("min(n) AS n", columns, *representatives(node))
    rows = run.table(f"SELECT {grouped} FROM {keyed(node, run, valid_edges)} GROUP BY {columns}")
    key = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.key]
    rest = [c for c, f in zip(payload(node.schema), node.payload, strict=True) if f.name not in node.key]
    compared = [f"{c} NULLS FIRST" for c in names if c not in key]
    places = run.table(f"""
        SELECT *, row_number() OVER (PARTITION BY {listed(*key, "le", "opens")}
            ORDER BY {listed(*compared, "n")}) AS place
        FROM {rows}""")  # fmt: skip
    before = f"(SELECT max(b.le) FROM {rows} b WHERE {same(key)} AND b.le < a.le)"
    chain = events_of(node, run, f"""
        SELECT *, CASE
            WHEN NOT opens AND NOT EXISTS (SELECT 1 FROM {rows} b WHERE {same(key)} AND b.opens AND b.le = {before})
            THEN 'an end without an open start'
            WHEN place > 1 AND opens THEN 'two starts of one key at one instant'
            WHEN place > 1 THEN 'two ends of one key at one instant' END AS bad
        FROM {places} a""")  # fmt: skip
    starts = run.table(f"""
        SELECT a.*, (SELECT min(b.le) FROM {chain} b WHERE {same(key)} AND b.le > a.le) AS til
        FROM {chain} a WHERE a.opens""")  # fmt: skip
    ends = f"SELECT * FROM {chain} WHERE NOT opens"
    late = [f"CASE WHEN b.n IS NULL THEN a.{c} ELSE b.{c} END" for c in rest]
    from_end = dict(zip(rest, late, strict=True)) if node.payload_from == "end" else {}
    columns_of_pair = [f"{from_end.get(c, f'a.{c}')} AS {c}" for c in payload(node.schema)]
    return f"""
        SELECT {listed("a.le", f"coalesce(a.til, {INFINITY}) AS re", *columns_of_pair)}
        FROM {starts} a LEFT JOIN ({ends}) b ON {same(key)} AND b.le = a.til"""


class EdgesRoom(SourceRoom[Edges]):
    """The room of :class:`Edges`."""

    kind = Edges
    simplicity = 2
    shapes = ("edges",)
    items = (OPEN, CLOSE)
    model = EdgesModel
    goes_by_key = True

    def row(self, source: Edges, item: Item) -> dict[str, Any]:
        return {source.time: item.start, source.edge: _mark(source.open if item.kind == OPEN else source.close)}

    def late_row(self, source: Edges, item: Item) -> dict[str, Any]:
        kind = "start" if item.kind == OPEN else "end"
        return {**super().late_row(source, item), "kind": kind}

    def starts(self, source: Edges, run: Run) -> str:
        opens = run.sql(source.open, source.schema)
        timed = f"SELECT *, {column(source, source.time)} AS le FROM {run.source(source)}"
        return f"SELECT le AS t FROM ({timed}) WHERE {column(source, source.edge)} IS NOT DISTINCT FROM {opens}"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Edges:
        """Draw a source of edges, with payload from start or end, whose key is the first field; ids do not apply."""
        columns = (Field("t", time), Field("edge", t.StringType()), *fields)
        payload_from = draw(st.sampled_from(["start", "end"]))
        key, opens, closes = (fields[0].name,), Lit("start"), Lit("end")
        return Edges(name, columns, "t", "edge", key, open=opens, close=closes, payload_from=payload_from)

    def arriving(self, source: Edges, how: Arriving) -> st.SearchStrategy[list[Item]]:
        return edge_items(source.key, how)

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        """Draw an end edge at the first start of all items, or a step before it, or one without an instant.

        ``start`` does not count.
        """
        short = draw(st.sampled_from([0, 0, 1])) * scale.step
        first = min((item.start for item in items if item.start is not None), default=scale.anchor)
        before = Item(CLOSE, first - short, payload=payload)
        item: Item = draw(st.sampled_from([before, Item(CLOSE, None, payload=payload)]))
        return item

    def written(self, source: Edges) -> tuple[str, list[str]]:
        """Return ``sq.edges`` and its arguments as text, without those that have their defaults."""
        arguments = [f"time={string(source.time)}", f"edge={string(source.edge)}", f"key={one_or_more(source.key)}"]
        marks = {"open": (source.open, "start"), "close": (source.close, "end")}
        arguments += [
            f"{n}={shown}" for n, (mark, usual) in marks.items() if (shown := argument(mark)) != string(usual)
        ]
        arguments += [] if source.payload_from == "start" else [f"payload={string(source.payload_from)}"]
        return "sq.edges", arguments


def _mark(value: Expr) -> Any:
    """Return the literal that marks an edge; raise PlanError for other expressions."""
    if not isinstance(value, Lit):
        raise PlanError(sentence("testing", "an edge that is not a literal", f"found {value!r}"))
    return value.value


@st.composite
def edge_items(draw: Draw, key: Sequence[str], how: Arriving) -> list[Item]:
    """Draw edges of each key: starts, ends, an end with a start at one instant, starts that end the event before.

    ``key``: the payload columns of the key. If the intent names a duration, an overlap or a pattern, the edges are those of
    lifetimes drawn by it.
    """
    intent, scale = how.intent, how.scale
    if intent.duration is not None or intent.overlap is not None or intent.pattern is not None:
        return draw(arranged(draw(_edges_of_lifetimes(key, how)), intent, causal=False))
    at: dict[Any, int] = {}
    living: set[Any] = set()
    chained: list[tuple[int, Item]] = []
    steps = st.tuples(
        how.payloads, st.integers(1, 6), st.sampled_from(["start", "end", "both"]), st.sampled_from(scale.units)
    )
    beside = st.sampled_from([0, 0, 0, -1, 1]) if scale.is_coarse else st.just(0)
    for (values, gap, kind, unit), by in draw(long_lists(st.tuples(steps, beside), intent.events)):
        k = tuple(comparable(values[name]) for name in key)
        if k not in at:
            at[k] = scale.anchor + draw(st.integers(-12, 5)) * unit
        at[k] += gap * unit + by * scale.step
        both = (CLOSE, OPEN) if kind == "both" else (OPEN if kind == "start" else CLOSE,)
        for edge in both if k in living else (OPEN,):
            chained += [(len(chained), Item(edge, at[k], payload=values))] * draw(copies(intent))
            (living.add if edge == OPEN else living.discard)(k)
    return draw(arranged(chained, intent, causal=False))


@st.composite
def _edges_of_lifetimes(draw: Draw, key: Sequence[str], how: Arriving) -> list[tuple[int, Item]]:
    """Draw lifetimes as numbered edges, copies included; within a key, a lifetime ends at the latest where the next starts.

    Of several lifetimes of one key and start only the longest is used. An endless one has no end edge, and neither has one that
    the next start ends.
    """
    chains: dict[Any, dict[int, tuple[int, dict[str, Any]]]] = {}
    for start, end in sorted(draw(lifetimes(how.intent, how.scale))):
        values = draw(how.payloads)
        chains.setdefault(tuple(comparable(values[name]) for name in key), {})[start] = (end, values)
    edge_items: list[Item] = []
    for chain in chains.values():
        following = [*list(chain)[1:], INFINITY]
        for (start, (end, values)), after in zip(chain.items(), following, strict=True):
            edge_items.append(Item(OPEN, start, payload=values))
            if end < after or (end == after < INFINITY and draw(st.booleans())):
                edge_items.append(Item(CLOSE, end, payload=values))
    return list(enumerate(item for item in edge_items for _ in range(draw(copies(how.intent)))))
