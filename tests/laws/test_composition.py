"""A query over what another one has written is the one query that both are together, at every level of consistency."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.connectors.publication import EventsFrom
from streamq.errors import QueryFailed
from streamq.operators.source import Source
from streamq.plan.expr import fold
from streamq.plan.node import Node, nodes
from streamq.plan.schema import POINT
from streamq.policies import MIDDLE, Level
from streamq.testing.case import Case
from streamq.testing.expectation import promises
from streamq.testing.folding import fold_physical
from streamq.testing.history import assert_same_history, net
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP
from tests.drawn.queries import composition
from tests.programs import compiled, written_changelog

Promises = list[list[tuple[str | None, int]]]
"""The CTIs of sources after each micro-batch."""

ON_TIME = t.Intent(late="none", invalid=False, duplicates=False)
LEVELS = st.sampled_from([MIDDLE, Level(None, None), Level(5, None), Level(0, 10**9)])


def on_axis(rows: pa.Table, axis: str) -> pa.Table:
    """A changelog with its times as instants of the axis."""
    kind = pa.timestamp("us", tz="UTC") if axis == TIMESTAMP else pa.int64()
    times = {name: rows.column(name).cast(kind) for name in ("start", "end", "new_end")}
    return pa.table({name: times.get(name, rows.column(name)) for name in rows.column_names})


def ticks_of(instant: Any) -> int:
    """An instant of either axis in ticks."""
    return (
        instant if isinstance(instant, int) else pa.scalar(instant, pa.timestamp("us", tz="UTC")).cast("int64").as_py()
    )


def published(node: Node, rows: pa.Table) -> sq.Stream:
    """The changelog of a node, as a source."""
    stream = sq.physical(rows, name="published")
    return stream.to_points() if node.schema.shape == POINT else stream


def is_reserved(name: str) -> bool:
    """True if a changelog has a column of that name, or streamq has it inside."""
    return name in ("kind", "new_end") or name.startswith("__")


def composed(plan: Node, part: Node, by: Node) -> Node:
    """The plan with another node in the place of a part."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        return by if node.digest == part.digest else node.with_children(inputs)

    return fold(plan, visit)


def changelog(case: Case, part: Node, level: Level, ctis: Promises) -> list[pa.Table]:
    """What the first query writes, a table a micro-batch, the last one with the end of its input."""
    run = LocalRun(
        compiled(rewrite(part).plan, OutputForm.CHANGELOG, level=level, ctis=True, buckets=2), static=case.static
    )
    mine = {node.table for node in nodes(part) if isinstance(node, Source)}
    tables: list[pa.Table] = []
    for batch, promised in zip(case.batches, ctis, strict=True):
        own = {name: rows for name, rows in batch.items() if name in mine}
        tables.append(written_changelog(run, run.batch(own, [(n, c) for n, c in promised if n in mine])))
        run = run.restart()
    tables.append(written_changelog(run, run.finish(case.until)))
    return [on_axis(table, case.axis) for table in tables]


@pytest.mark.slow
@given(
    case=t.concrete(composition(1, 4), ON_TIME),
    data=st.data(),
    levels=st.tuples(LEVELS, LEVELS),
    slack=st.lists(st.sampled_from([0, 0, 1, None]), min_size=1, max_size=3),
)
def test_two_queries_are_one(case: Case, data: Any, levels: tuple[Level, Level], slack: list[int | None]) -> None:
    """Wherever the query is cut in two: the second reads the changelog of the first, and its end."""
    ctis = promises(case, slack)
    latest: dict[str | None, int] = {}
    for name, c in itertools.chain.from_iterable(ctis):
        latest[name] = max(c, latest.get(name, c))
    try:
        expected = case.answer({name: c for name, c in latest.items() if name is not None})
    except QueryFailed:
        return
    parts = [n for n in nodes(case.plan) if n.children and not any(map(is_reserved, n.schema.names))]
    part = parts[data.draw(st.integers(0, len(parts) - 1))] if parts else case.plan
    written = changelog(case, part, levels[0], ctis)
    source = published(part, written[0])
    plan = composed(case.plan, part, source.plan)
    others = {node.table for node in nodes(plan) if isinstance(node, Source)} - {"published"}
    second = LocalRun(compiled(rewrite(plan).plan, level=levels[1], buckets=2), static=case.static)
    out = []
    for rows, batch, promised in zip(written, [*case.batches, {}], [*ctis, []], strict=True):
        theirs = {name: table for name, table in batch.items() if name in others}
        out.append(second.batch({"published": rows, **theirs}, [(n, c) for n, c in promised if n in others]))
        second = second.restart()
    if others:
        out.append(second.batch({}, [(name, INFINITY) for name in others], case.until))
    assert_same_history(net(out, case.axis), expected)


def judge_starts(examples: int) -> None:
    """Try so many changelogs, and subscriptions that begin at any of their CTIs."""

    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate])
    @given(
        case=t.concrete(t.stream(shape="physical", late="none", invalid=False).where(sq.col("v") != 3)),
        level=LEVELS,
        data=st.data(),
    )
    def law(case: Case, level: Level, data: Any) -> None:
        tables = changelog(case, case.plan, level, promises(case, [0]))
        whole = pa.concat_tables(tables)
        at = [row["start"] for row in whole.to_pylist() if row["kind"] == "cti"]
        since = data.draw(st.sampled_from([None, *at]))
        bound = MINUS_INFINITY if since is None else ticks_of(since)
        history = fold_physical(whole).to_pylist()
        for start, reached in (("latest", "start"), ("snapshot", "end")):
            left = [EventsFrom(start, bound).rows(table) for table in tables]
            expected = [row for row in history if row[reached] is None or ticks_of(row[reached]) >= bound]
            assert_same_history(
                fold_physical(pa.concat_tables(left)), pa.Table.from_pylist(expected, fold_physical(whole).schema)
            )
            rows = [{**row, "batch": number} for number, table in enumerate(left) for row in table.to_pylist()]
            if rows:
                t.check_stream(rows, batch="batch", ctis=True)

    law()


def test_a_start_leaves_the_history_of_some_events() -> None:
    """Whichever CTI the subscription begins at: those that start there or later, or end there or later, and no other."""
    judge_starts(settings().max_examples)
