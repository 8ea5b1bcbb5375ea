"""A column may have any name: a query whose columns are renamed gives the same rows, under the new names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.errors import StreamqError
from streamq.operators import Source
from streamq.plan.expr import Lit
from streamq.plan.node import NODES, Node, expanded, nodes
from streamq.run.rehearsal import Rehearsal
from streamq.stream import Stream
from streamq.user_code.module import UserModule
from streamq.user_code.repository import called_modules
from tests.algebra import SIZES, intervals
from tests.each import each
from tests.laws.test_messages import EVERY

HARD = (
    ".{}", "a.{}", "{}.", "..{}", ".a`{}", "`{}`", "{}'\"", "[{}]", "{}[0]", "{} ", " {}", "{}\n", "\t{}\x01", "größe {}",
    "e\u0301{}", "😀{}",
    "sum({})", "*{}", "${}", "{}\\", "a/{}:b", "{{{}}}", "-{}", "select {}, 1;--", "_{}", "{}=%", "<b>{}</b>",
    "row.{}", "k{}", "c{}", "v{}", "kind.{}", "{}.new_end", "{}@a",
)  # fmt: skip
"""Patterns of names, which a number tells apart."""


def new_names(plan: Node, turn: int) -> dict[str, str]:
    """Return a hard name for every column of a plan that the plan itself names; another one at each turn."""
    columns = {n for node in nodes(plan) for n in node.schema.names if not n.startswith("__")}
    columns |= {f.name for node in nodes(plan) if isinstance(node, Source) for f in node.columns}
    named: dict[str, str] = {}
    rebuilt(plan, lambda text: named.setdefault(text, text), {})
    own = {"rank", "row_number", *(f.name for m in called_modules(plan) for f in getattr(m, "fields", ()))}
    return {n: HARD[(turn + at) % len(HARD)].format(at) for at, n in enumerate(n for n in named if n in columns - own)}


def rebuilt(value: Any, new: Callable[[str], str], seen: dict[int, Any]) -> Any:
    """Return a plan, or a part of one, with other texts in its fields; constants and user code stay."""
    if type(value) is str:
        return new(value)
    if isinstance(value, tuple):
        return tuple(rebuilt(part, new, seen) for part in value)
    if not is_dataclass(value) or isinstance(value, Lit | UserModule | type):
        return value
    if id(value) not in seen:
        own = ("table",) if isinstance(value, Node) else ()
        parts = {
            f.name: rebuilt(getattr(value, f.name), new, seen) for f in fields(value) if f.init and f.name not in own
        }
        seen[id(value)] = replace(value, **parts)
    return seen[id(value)]


def renamed_query(query: Stream, names: Mapping[str, str]) -> Stream:
    tables = {
        table: rows.rename_columns([names.get(n, n) for n in rows.column_names]) for table, rows in query.tables.items()
    }
    return Stream(rebuilt(query.plan, lambda text: names.get(text, text), {}), tables)


def bag(table: pa.Table) -> Counter[str]:
    """The rows, with their columns by place."""
    return Counter(repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


def outcome(query: Stream, output: OutputForm) -> Any:
    """Return the rows of a query as a rehearsed stream; the kind of error if there are none."""
    try:
        run = Rehearsal(query, output)
        return pa.concat_tables([run.arrive(), run.finish()])
    except StreamqError as error:
        return type(error)


def check(query: Stream, turn: int) -> None:
    """Hold the renamed query against the query, as a stream with each output in turn."""
    names = new_names(query.plan, turn)
    other = renamed_query(query, names)
    output = list(OutputForm)[turn % len(OutputForm)]
    expected, got = outcome(query, output), outcome(other, output)
    if isinstance(expected, type):
        assert got is expected, (output, got)
    else:
        assert not isinstance(got, type), (output, got)
        # an output adds columns of its own
        assert got.column_names == [names.get(n, n) if n in query.columns else n for n in expected.column_names]
        assert bag(got) == bag(expected), output


CHANGES = pa.table({"t": [1, 3, 3, 6], "op": ["c", "u", "c", "d"], "k": ["a", "a", "b", "a"], "v": [1, 2, 5, None]})
ITEMS = pa.table(
    {
        "type": ["insert", "insert", "retract", "cti"],
        "a": [1, 3, 1, 6],
        "b": [4, None, 4, None],
        "c": [None, None, 2, None],
        "id": [1, 2, 1, None],
        "v": [5, 6, 5, None],
    }
)
EDGES = pa.table({"t": [1, 2, 4], "k": ["a", "b", "a"], "e": ["start", "start", "end"], "v": [1, 2, 3]})
SOURCES = {
    "points": sq.points(EDGES, "t", name="points", progress=sq.generate(2, per="k")).group_by("v").count_window(1),
    "points with ids": sq.points(EDGES, "t", name="with_ids", id="v").group_by("k").count_window(1),
    "signal": sq.signal(EDGES, "t", key="k", name="signal").snapshot_window(),
    "edges": sq.edges(EDGES, "t", edge="e", key="k", name="edges").snapshot_window(),
    "changes": sq.changes(CHANGES, op="op", time="t", key="k", name="changes").snapshot_window(),
    "physical": sq.physical(ITEMS, kind="type", start="a", end="b", new_end="c", id="id", name="physical")
    .group_by("id")
    .snapshot_window(),
}


@cache
def queries() -> dict[str, Stream]:
    left, right = (sq.intervals(intervals(n), "from", "to", name=name) for n, name in enumerate("lr"))
    built = {name: query(left, right, SIZES) for name, query in EVERY.items()}
    built |= {name: windows.select(n=sq.count(), last=sq.last("v")) for name, windows in SOURCES.items()}
    return {name: Stream(expanded(query.plan), query.tables) for name, query in built.items()}


def test_every_node_is_tried() -> None:
    tried = {type(node) for query in queries().values() for node in nodes(query.plan)}
    # a detection is tried by its expansion; rules build the others, below the windows of the queries
    others = {"Attempt", "Detect", "LatestPairs", "LatestWindows", "MergePartials", "WindowSpan"}
    assert {name for name, kind in NODES.items() if kind not in tried} == others


@pytest.mark.slow
@each([*EVERY, *SOURCES])
def test_every_query(name: str) -> None:
    check(queries()[name], list(queries()).index(name))


@pytest.mark.slow
@each(range(0, len(HARD), 3))
def test_every_name(first: int) -> None:
    """Sources, groups, keys of joins, results, batch answers, traces and JSON."""
    k, v, t = (HARD[(first + place) % len(HARD)].format(n) for place, n in enumerate("kvt"))
    table = pa.table({t: [1, 2, 3], k: ["x", "y", "x"], v: [1, 2, 3]})
    s = sq.points(table, time=t, name="s", progress=sq.generate(5))
    query = s.set_duration(4).clip(s, on=k).join(s, on=k, suffixes=("", "_r")).group_by(k).hopping_window(6, 2)
    query = query.select(**{v: sq.max(v)}).where(sq.col(v) > 0).with_columns(more=sq.col(v) + 1)
    expected = [{k: key, v: value, "more": value + 1} for key, value in (("x", 1), ("x", 1), ("x", 3), ("y", 2))]
    rows = query.to_arrow().drop_columns(["start", "end"]).to_pylist()
    assert {tuple(row.items()) for row in rows} == {tuple(row.items()) for row in expected}
    assert list(query.to_pandas().columns) == [k, v, "more", "start", "end"]
    assert query.trace().history().to_arrow().num_rows == len(rows)
    assert sq.from_json(query.to_json(), s=table).to_arrow() == query.to_arrow()


@each(["start", "End", "__x", "streamq_batch", "\ud800"])
def test_names_of_streamqs_own_are_refused(name: str) -> None:
    s = sq.events([(1, 2, {"v": 1})])
    for verb in (lambda: s.rename({"v": name}), lambda: s.select(**{name: sq.col("v")})):
        with pytest.raises(StreamqError, match="column|payload"):
            verb()
