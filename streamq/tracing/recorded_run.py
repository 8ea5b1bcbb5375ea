"""Record a run in-process: the deltas, the CTI and the state of every operator of a plan in every micro-batch."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.operators import Source
from streamq.plan.footprint import KEEPS, NOTHING_KEPT
from streamq.plan.node import Node, nodes
from streamq.run.batch.passed_batches import ArrivingRows
from streamq.runtime.arrow.columnar import concat, ints
from streamq.runtime.arrow.values import combine_numbers, number_values
from streamq.runtime.event import INSERT, RETRACT, WEIGHT
from streamq.runtime.time.lateness import LATE_SCHEMA
from streamq.screens import ProgressBar
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.tracing.traced_rows import CHANGE, MICRO_BATCH, changes_in_ticks

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
    folded: dict[int, pa.Table] = field(default_factory=dict)
    changed: dict[int, pa.Table] = field(default_factory=dict)

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
        chosen = self.history(reader.number).select(history.column_names)
        numbers = row_identities(concat([history, chosen]))
        is_chosen = np.isin(numbers[: history.num_rows], numbers[history.num_rows :])
        return np.flatnonzero(is_chosen).tolist()

    @property
    def reach(self) -> Mapping[str, int]:
        """By table, the greatest start or CTI that arrived."""
        return self.batches[-1].reach

    def history(self, operator: int) -> pa.Table:
        """Return the rows that an operator's deltas leave at the end: payload, ``__le`` and ``__re``, in order of arrival."""
        if operator not in self.folded:
            self.folded[operator] = net_rows(concat([batch.deltas[operator] for batch in self.batches]))
        return self.folded[operator]

    def changes(self, operator: int) -> pa.Table:
        """Return the changes that an operator sends, in order of arrival, with times in ticks: see ``changes_in_ticks``."""
        if operator not in self.changed:
            deltas = [batch.deltas[operator] for batch in self.batches]
            self.changed[operator] = changes_in_ticks(deltas, self.operators[operator].node.schema)
        return self.changed[operator]

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
    numbers = row_identities(deltas)
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    weights = np.bincount(inverse, ints(deltas, WEIGHT), len(first)).astype(np.int64)
    order = np.argsort(first, kind="stable")
    return deltas.take(pa.array(np.repeat(first[order], np.maximum(weights[order], 0)))).drop_columns([WEIGHT])


def row_identities(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for each row, equal for rows of equal lifetime and payload."""
    names = [name for name in rows.column_names if name != WEIGHT]
    return combine_numbers([number_values(rows.column(name)) for name in names])[0]


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
    recorder = _Recorder(run, owners, len(parts))
    recorded = []
    with ProgressBar(verb) as bar:
        for number, batch in enumerate(batches):
            bar.update(number, len(batches) + 1)
            run.batch(batch)
            recorded.append(recorder.recorded(batch))
        run.finish(until)
        recorded.append(recorder.recorded({}))
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


@dataclass
class _Recorder:
    """Reads from a run what its last micro-batch did; ``owners``: the operators of kernels, by their names."""

    run: LocalRun
    owners: Mapping[str, int]
    count: int
    late: int = 0
    reach: dict[str, int] = field(default_factory=dict)

    def recorded(self, arrived: ArrivingRows) -> RecordedBatch:
        """Return the last micro-batch, in which these rows arrived."""
        late = concat([LATE_SCHEMA.empty_table(), *self.run.late[self.late :]])
        self.late = len(self.run.late)
        state = [0] * self.count
        for kernel, owner in self.owners.items():
            state[owner] += self.run.readings.kernel(kernel).state_rows or 0
        for relation in self.run.program.sources:
            assert relation.source is not None
            readings = self.run.readings.source(relation.name)
            table = relation.source.table
            instants = [t for t in (readings.watermark, readings.cti) if t not in (None, INFINITY)]
            self.reach[table] = max([self.reach.get(table, MINUS_INFINITY), *instants])
        ctis = tuple(self.run.ctis.get(number, MINUS_INFINITY) for number in range(self.count))
        return RecordedBatch(
            arrived=arrived,
            deltas=tuple(self.run.deltas),
            ctis=ctis,
            state=tuple(state),
            late=late,
            reach=dict(self.reach),
        )


def _owners(program: StagedPlan) -> dict[str, int]:
    """Return the number of the operator that each kernel works for, by the kernel's name; those that only tell CTIs are left out.

    A kernel that computes no operator works for the one whose rows it reads.
    """
    by_digest: dict[str, int] = {}
    for number, part in enumerate(program.plan.inputs):
        for node in nodes(part):
            by_digest.setdefault(node.digest, number)
    by_relation = {r.name: by_digest[_source_digest(program, r.name)] for r in program.sources}
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


def _source_digest(program: StagedPlan, relation: str) -> str:
    """Return the digest that a source has in a program's plans, where its policy is left out."""
    sources = (node for node in nodes(program.plan) if isinstance(node, Source))
    return next(source.digest for source in sources if f"source:{source.table}" == relation)


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
