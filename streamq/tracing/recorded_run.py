"""Record a run in-process: the deltas, the CTI and the state of every operator of a plan in every micro-batch.

The rows of a trace as users read them are here, too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.operators import Source
from streamq.pictures.panel_history import shown_value
from streamq.plan.footprint import KEEPS, NOTHING_KEPT
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Schema, shown_name
from streamq.run.batch.answers import as_html, as_text
from streamq.run.batch.passed_batches import ArrivingRows
from streamq.runtime.arrow.columnar import codes, concat, ints, is_matching
from streamq.runtime.arrow.values import Ints, python_rows
from streamq.runtime.deltas import INSERT, LE, RE, RETRACT, WEIGHT
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.runtime.time.lateness import LATE_SCHEMA
from streamq.screens import ProgressBar
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP

MICRO_BATCH, CHANGE = "micro_batch", "change"

SHOWN = 50
"""The most rows that are printed."""


class TracedRows:
    """Rows of a trace, which print as a table, also in a notebook; ``to_arrow()`` and ``to_pylist()`` have them all."""

    def __init__(self, table: pa.Table):
        self._table = table

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries; an instant beyond Python's years is text."""
        return python_rows(self._table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def __repr__(self) -> str:
        return as_text(self._table, SHOWN)

    def _repr_html_(self) -> str:
        return as_html(self._table, SHOWN)


@dataclass(frozen=True)
class ShownRow:
    """A row of an operator as text: its lifetime in ticks, and its payload by the names that users know."""

    operator: str
    start: int
    end: int
    payload: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The payload as text: ``booth=1 toll=7.0``."""
        return " ".join(f"{name}={shown_value(value)}" for name, value in self.payload.items())


def user_columns(schema: Schema) -> dict[str, str]:
    """Return the names that users know of a schema's columns, by their own; two columns never share one."""
    names: dict[str, str] = {}
    for name in schema.names:
        label = shown_name(name)
        names[name] = name if label in names.values() or (label != name and label in schema.names) else label
    return names


def instants(ticks: Sequence[int] | np.ndarray[Any, Any], axis: str) -> pa.Array:
    """Return instants as users read them: timestamps or integers, NULL for an infinite one."""
    values = np.asarray(ticks, np.int64)
    array = pa.array(values, mask=values == INFINITY)
    return array.cast(pa.timestamp("us", tz="UTC")) if axis == TIMESTAMP else array


def history_rows(history: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows of a history in the user's form: payload, ``start`` and ``end``."""
    names = user_columns(schema)
    columns = {label: history.column(name) for name, label in names.items()}
    for name, ticks in (("start", ints(history, LE)), ("end", ints(history, RE))):
        columns[distinct_name(name, columns)] = instants(ticks, schema.axis)
    return pa.table(columns)


def plain_names(schema: Schema) -> dict[str, str]:
    """Return the names of a schema's columns in ``changes_in_ticks``, where no column has a name of the changes' own."""
    return {name: f"c{number}" for number, name in enumerate(schema.names)}


def changes_in_ticks(deltas: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """Return the changes of an operator, in order: micro-batch from 1, insert or retract, payload, and times in ticks.

    The columns of times are ``start``, ``end`` and ``new_end``, which is that of the row that the change leaves: for an insert
    its end, for a retraction of the whole row its start.
    """
    plain = plain_names(schema)
    parts = [changelog_rows(table.rename_columns([plain.get(n, n) for n in table.column_names])) for table in deltas]
    whole = pa.concat_tables(parts)
    numbers = np.repeat(np.arange(1, len(parts) + 1), [part.num_rows for part in parts])
    end, new_end = (whole.column(name).fill_null(INFINITY) for name in ("end", "new_end"))
    return pa.table(
        {
            MICRO_BATCH: pa.array(numbers, pa.int64()),
            CHANGE: whole.column("kind"),
            **{name: whole.column(name) for name in plain.values()},
            "start": whole.column("start"),
            "end": end,
            "new_end": pc.if_else(pc.equal(whole.column("kind"), RETRACT), new_end, end),
        }
    )


def arrived_rows(batches: Sequence[Mapping[str, pa.Table]], table: str) -> pa.Table:
    """Return the rows of a table that arrive in some micro-batches, which are numbered from 1."""
    parts = [batch[table] for batch in batches if table in batch]
    rows = pa.concat_tables(parts)
    numbers = np.repeat(np.arange(1, len(parts) + 1), [part.num_rows for part in parts])
    return rows.add_column(0, distinct_name(MICRO_BATCH, rows.column_names), pa.array(numbers, pa.int64()))


def change_rows(changes: pa.Table, schema: Schema) -> pa.Table:
    """Return changes in the user's form: the payload by the names that users know, instants of the axis, NULL for no end."""
    plain = plain_names(schema)
    payload = {label: changes.column(plain[name]) for name, label in user_columns(schema).items()}
    columns = {distinct_name(name, payload): changes.column(name) for name in (MICRO_BATCH, CHANGE)} | payload
    is_insert = pc.not_equal(changes.column(CHANGE), RETRACT)
    new_end = pc.if_else(is_insert, INFINITY, changes.column("new_end"))
    for name, ticks in (("start", changes.column("start")), ("end", changes.column("end")), ("new_end", new_end)):
        columns[distinct_name(name, payload)] = instants(ticks.to_numpy(), schema.axis)
    return pa.table(columns)


def distinct_name(name: str, others: Iterable[str]) -> str:
    """Return a name, with underscores behind it until it is none of the others."""
    while name in others:
        name += "_"
    return name


def listed_rows(rows: Sequence[ShownRow], axis: str, more: Mapping[str, Sequence[Any]] | None = None) -> pa.Table:
    """Return rows of several operators: after the columns ``more``, the operator, ``start``, ``end`` and the payload as text."""
    return pa.table(
        {
            **(more or {}),
            "operator": pa.array([row.operator for row in rows], pa.string()),
            "start": instants([row.start for row in rows], axis),
            "end": instants([row.end for row in rows], axis),
            "payload": pa.array([row.text for row in rows], pa.string()),
        }
    )


def shown_rows(operator: str, history: pa.Table, schema: Schema) -> list[ShownRow]:
    """Return the rows of a history, or of a part of one, as shown rows."""
    names = user_columns(schema)
    payload = python_rows(history.select(list(names)).rename_columns(list(names.values())))
    payload = payload or [{} for _ in range(history.num_rows)]
    lifetimes = zip(ints(history, LE).tolist(), ints(history, RE).tolist(), strict=True)
    return [ShownRow(operator, le, re, row) for (le, re), row in zip(lifetimes, payload, strict=True)]


FOLLOWED = "trace(where)"
"""The name of a filter that a trace puts behind a source, to follow the events that it keeps."""


@dataclass(frozen=True, kw_only=True)
class TracedOperator:
    """An operator of a query: ``inputs`` are the numbers of the operators that it reads; ``name`` is unique in the query.

    ``state``: what the state of each of its kernels consists of, in the words of explain.
    """

    number: int
    name: str
    node: Node
    inputs: tuple[int, ...]
    state: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RecordedBatch:
    """A micro-batch: the rows that arrive in it and, for each operator, its deltas, its CTI behind it and its rows of state.

    ``late``: the rows that sources leave out or change in it, as a late output has them. ``reach``: by table, the greatest start
    or CTI that has arrived so far. The last micro-batch is the end of the input.
    """

    arrived: ArrivingRows
    deltas: tuple[pa.Table, ...]
    ctis: tuple[int, ...]
    state: tuple[int, ...]
    late: pa.Table
    reach: Mapping[str, int]


@dataclass(frozen=True)
class Recording:
    """A recorded run: the operators of the plan, inputs first, and the micro-batches in order; ``static``: the static tables.

    ``filtered``: the tables of sources of which a filter behind them keeps the events that the trace is about.
    """

    operators: tuple[TracedOperator, ...]
    batches: tuple[RecordedBatch, ...]
    static: Mapping[str, pa.Table]
    until: int | None
    filtered: frozenset[str] = frozenset()

    @property
    def plan(self) -> Node:
        """The query's plan."""
        return self.operators[-1].node

    @cached_property
    def sources(self) -> list[TracedOperator]:
        """The operators that are sources."""
        return [one for one in self.operators if isinstance(one.node, Source)]

    def events(self, source: TracedOperator) -> list[int]:
        """Return the places in a source's history of the events that the trace is about: all, or those that a filter keeps."""
        history = self.history(source.number)
        if getattr(source.node, "table", None) not in self.filtered:
            return list(range(history.num_rows))
        (reader,) = (one for one in self.operators if source.number in one.inputs)
        is_chosen = is_matching(history, self.history(reader.number), history.column_names)
        return np.flatnonzero(is_chosen).tolist()

    @property
    def reach(self) -> Mapping[str, int]:
        """By table, the greatest start or CTI that arrived."""
        return self.batches[-1].reach

    def history(self, operator: int) -> pa.Table:
        """Return the rows that an operator's deltas leave at the end: payload, ``__le`` and ``__re``, in order of arrival."""
        return self._histories[operator]

    def changes(self, operator: int) -> pa.Table:
        """Return the changes that an operator sends, in order of arrival, with times in ticks: see ``changes_in_ticks``."""
        return self._changes[operator]

    @cached_property
    def _histories(self) -> list[pa.Table]:
        return [net_rows(concat(deltas)) for deltas in zip(*(batch.deltas for batch in self.batches), strict=True)]

    @cached_property
    def _changes(self) -> list[pa.Table]:
        deltas = zip(*(batch.deltas for batch in self.batches), strict=True)
        return [changes_in_ticks(own, one.node.schema) for own, one in zip(deltas, self.operators, strict=True)]

    def promised(self, operator: int) -> list[int]:
        """Return the CTIs that an operator sends, without that of the end of the input, ascending."""
        ctis = (batch.ctis[operator] for batch in self.batches)
        return [cti for cti in dict.fromkeys(ctis) if cti not in (MINUS_INFINITY, INFINITY)]

    def change_counts(self, operator: int) -> list[tuple[int, int]]:
        """Return the numbers of inserts and retractions that an operator sends in each micro-batch."""
        numbers, kinds = (self.changes(operator).column(name).to_pylist() for name in (MICRO_BATCH, CHANGE))
        counts = Counter(zip(numbers, kinds, strict=True))
        return [(counts[n, INSERT], counts[n, RETRACT]) for n, _ in enumerate(self.batches, 1)]

    def received(self, operator: int) -> list[int]:
        """Return the number of rows that an operator receives in each micro-batch: rows of a table, or changes of its inputs."""
        one = self.operators[operator]
        if isinstance(one.node, Source):
            return [table.num_rows if (table := batch.arrived.get(one.node.table)) else 0 for batch in self.batches]
        counts = [self.change_counts(below) for below in one.inputs]
        return [sum(sum(of_input[number]) for of_input in counts) for number, _ in enumerate(self.batches)]


def net_rows(deltas: pa.Table) -> pa.Table:
    """Return the rows whose weights do not cancel out, each as often as its weights say, in order of their first delta."""
    numbers, first = row_codes(deltas)
    weights = np.bincount(numbers, ints(deltas, WEIGHT), len(first)).astype(np.int64)
    order = np.argsort(first, kind="stable")
    return deltas.take(pa.array(np.repeat(first[order], np.maximum(weights[order], 0)))).drop_columns([WEIGHT])


def row_codes(rows: pa.Table) -> tuple[Ints, Ints]:
    """Return a number for each row, equal for rows of equal lifetime and payload, and the first row of each number."""
    return codes(rows, [name for name in rows.column_names if name != WEIGHT])


def record_run(
    plan: Node,
    static: Mapping[str, pa.Table],
    batches: Sequence[ArrivingRows],
    until: int | None,
    filtered: frozenset[str] = frozenset(),
    verb: str = "trace",
    *,
    streaming: bool = True,
) -> Recording:
    """Run a plan in-process over micro-batches and to the end of its input, and record what every operator does.

    All operators are results of one program, which is not rewritten, so that each of them exists in it. ``static``: the
    static tables by name. ``until``, in ticks, bounds windows over endless lifetimes. ``filtered`` is that of the
    recording, ``verb`` the user's. ``streaming``: False for tables whose rows are all there, so that a source needs none that
    it follows, and a row that is no event is an error. Raises the query's own errors.
    """
    parts = nodes(plan)
    written = Results(tuple(parts))
    egress = Egress(OutputForm.CHANGELOG, ctis=True)
    options = Options(egresses=(egress,) * len(parts), buckets=1, late_output=True, streaming=streaming)
    run = LocalRun(compile_stages(written, options, ()), static=static)
    owners = _owners(run.program)
    recorded: list[RecordedBatch] = []
    with ProgressBar(verb) as bar:
        for number, batch in enumerate([*batches, {}]):
            bar.update(number, len(batches) + 1)
            late, reach = len(run.late), dict(recorded[-1].reach) if recorded else {}
            if number < len(batches):
                run.batch(batch)
            else:
                run.finish(until)
            state = Counter[int]()
            for kernel, owner in owners.items():
                state[owner] += run.readings.kernel(kernel).state_rows or 0
            for relation in run.program.sources:
                assert relation.source is not None
                readings = run.readings.source(relation.name)
                instants = [t for t in (readings.watermark, readings.cti) if t is not None and t != INFINITY]
                reach[relation.source.table] = max([reach.get(relation.source.table, MINUS_INFINITY), *instants])
            micro_batch = RecordedBatch(
                arrived=batch,
                deltas=tuple(run.deltas),
                ctis=tuple(run.ctis.get(number, MINUS_INFINITY) for number in range(len(parts))),
                state=tuple(state[number] for number in range(len(parts))),
                late=concat([LATE_SCHEMA.empty_table(), *run.late[late:]]),
                reach=reach,
            )
            recorded.append(micro_batch)
    numbers = {part.digest: number for number, part in enumerate(parts)}
    names = _names(parts, filtered)
    operators = tuple(
        TracedOperator(
            number=number,
            name=names[number],
            node=part,
            inputs=tuple(numbers[child.digest] for child in part.children),
            state=tuple(
                text
                for kernel, owner in owners.items()
                if owner == number
                for line in run.program.titles[kernel]
                if (text := line.removeprefix(KEEPS)) not in (line, NOTHING_KEPT)
            ),
        )
        for number, part in enumerate(parts)
    )
    return Recording(operators, tuple(recorded), static, until, filtered)


def _owners(program: StagedPlan) -> dict[str, int]:
    """Return the number of the operator that each kernel works for, by the kernel's name; those that only tell CTIs are left out.

    A kernel that computes no operator works for the one whose rows it reads.
    """
    by_digest: dict[str, int] = {}
    for number, part in enumerate(program.plan.inputs):
        for node in nodes(part):
            by_digest.setdefault(node.digest, number)
    # in a program's plans the policy of a source is left out of its digest
    sources = {f"source:{n.table}": n.digest for n in nodes(program.plan) if isinstance(n, Source)}
    by_relation = {r.name: by_digest[sources[r.name]] for r in program.sources}
    last = {feed.path.relation for feed in program.result_feeds}
    owners = {}
    for stage in program.stages:
        for hosted in stage.hosted:
            computed = program.nodes.get(hosted.number)
            owner = None if computed is None else by_digest.get(computed.digest)
            by_relation[hosted.name] = by_relation[hosted.inputs[0]] if owner is None else owner
            if hosted.name not in last:
                owners[hosted.name] = by_relation[hosted.name]
    return owners


def _names(parts: Sequence[Node], filtered: Collection[str]) -> list[str]:
    """Return a name for each operator: a source's own, else the operator's title, numbered from the second of a title on.

    A filter that the trace has put behind a source, of a table in ``filtered``, is called by the user's call.
    """
    inserted = {part.digest for part in parts for child in part.children if getattr(child, "table", None) in filtered}
    titles = [FOLLOWED if part.digest in inserted else part.title for part in parts]
    sources = {number: part.shown_name() for number, part in enumerate(parts) if isinstance(part, Source)}
    names: dict[int, str] = {}
    for number, title in enumerate(titles):
        free = (f"{title} {count}" if count > 1 else title for count in itertools.count(1))
        used = {*sources.values(), *names.values()}
        names[number] = sources[number] if number in sources else next(name for name in free if name not in used)
    return list(names.values())
