"""What a run should admit, count and set aside: by the models of sources, the paths from them, and the levels of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamq.choices import Stamp
from streamq.compiler.results import Results
from streamq.compiler.rewriter import rewrite
from streamq.operators import Source, TopK, Union, Where, WindowAggregate, WindowedJoin
from streamq.operators.source_arguments import SourcePolicy
from streamq.operators.step import Step
from streamq.plan.expr import fold
from streamq.plan.node import Node, expanded, nodes
from streamq.plan.schema import Field
from streamq.progress_policies import ExplicitCtis
from streamq.runtime.deltas import CTI
from streamq.sources.insert_only import Intervals
from streamq.testing.arrival import brings_start, is_event, start_of
from streamq.testing.case import Case
from streamq.testing.execution import SPARK, Execution
from streamq.testing.progress_policies import Promises, clock_ctis, micro_batches, source_reaches, timeless
from streamq.testing.sources.room import Admission, Reach, is_plain, model_of
from streamq.testing.window_kinds import room_of
from streamq.time import INFINITY, MINUS_INFINITY


def last_window_end(plan: Node, source: Source) -> Callable[[int], int]:
    """Return the function from a CTI to the instant that lateness goes by: the last end up to it of the only reader's windows.

    That is the CTI itself if other operators read the source, or several, if the source has retractions, if a step before the
    windows moves starts, and if rows set their own lifetimes.
    """
    paths = _paths(plan, source)
    if len(paths) != 1 or not source.insert_only:
        return _unchanged
    steps, first = paths[0]
    if any(isinstance(step, Step) and step.effect.moves_start for step in steps):
        return _unchanged
    if isinstance(first, WindowAggregate) and first.stamp == Stamp.TIME_BOUND:
        return _unchanged
    if isinstance(first, WindowAggregate | TopK | WindowedJoin):
        window = first.window
        return lambda c: c if c in (INFINITY, MINUS_INFINITY) else room_of(window).last_end(window, c)
    return _unchanged


def _unchanged(c: int) -> int:
    return c


def is_filtered(plan: Node, source: Source) -> bool:
    """True if a filter is on a path from a source to a first stateful operator, or comes there by the rewrite rules."""
    root = plan if isinstance(plan, Results) else Results((plan,))
    return any(
        isinstance(step, Where)
        for query in (root, rewrite(root).plan)
        for node in nodes(query)
        if isinstance(node, Source) and node.table == source.table
        for steps, _ in _paths(query, node)
        for step in steps
    )


def _paths(plan: Node, source: Source) -> list[tuple[list[Node], Node | None]]:
    """Return, for each path from a source to a first stateful operator, the steps on it and the operator (None: the result)."""
    paths: list[tuple[list[Node], Node | None]] = []
    plan = expanded(plan)

    def follow(node: Node, steps: list[Node]) -> None:
        """Add the paths that continue from a node which ``steps`` have reached."""
        above = [parent for parent in nodes(plan) for child in parent.children if child.digest == node.digest]
        if node.digest == plan.digest:
            paths.append((steps, None))
        for parent in above:
            # nothing happens to rows at the root over several queries
            if isinstance(parent, Step | Union | Results):
                follow(parent, [*steps, parent])
            else:
                paths.append((steps, parent))

    follow(source, [])
    return paths


def admissions(case: Case, promises: Promises = (), remember: Sequence[int | None] = (None,)) -> dict[str, Admission]:
    """Return what each source admits of a case, by name; only plain sources that have late or contradictory items are in it.

    ``promises`` are CTIs that no row brings, by micro-batch. ``remember`` holds, for each micro-batch in turn and then from its
    first entry again, for how long history is remembered (None: for ever). Where hopping or landmark windows are a source's only
    reader, both instants that lateness goes by are the last window ends up to them.
    """
    batches = list(micro_batches(case))
    reaches = source_reaches(case, batches, [*promises, *([()] * len(batches))], remember)
    result = {}
    for name, source in case.sources.items():
        if not is_plain(source, case.arrived(name)):
            continue
        last_end = last_window_end(case.plan, source)
        parts = []
        # the last reach is the one after all micro-batches
        for batch, reach in zip([*batches, []], reaches, strict=True):
            c, promised = last_end(reach[name].c), last_end(reach[name].promised)
            items = [item for source_name, item in batch if source_name == name and item.kind != CTI]
            parts.append((items, Reach(c, promised)))
        model = model_of(source)
        for items, at in parts:
            model.take(items, at)
        one = model.end()
        if one.late or one.contradicted:
            result[name] = one
            rows = [item for item in case.arrived(name) if is_event(item)]
            one.come = max(start_of(item) for item in rows if brings_start(item) or item.kind == CTI)
            one.filtered = source.insert_only and not source.ids and is_filtered(case.plan, source)
    return result


def without_late_items(case: Case, seen: Mapping[str, Admission]) -> Case:
    """Return a case without late items that has the same answer: each source in ``seen`` brings only the events it admits.

    Such a source becomes one of points or intervals; all items arrive in one micro-batch.
    """
    events = [(name, item) for name, item in case.arrival if name not in seen]
    events += [(name, item) for name, one in seen.items() for item in one.events]

    def visit(node: Node, inputs: list[Node]) -> Node:
        if not isinstance(node, Source):
            return node.with_children(inputs)
        return _with_intervals(node) if node.table in seen else node

    return replace(case, plan=fold(case.plan, visit), arrival=tuple(events), cut=(len(events),))


def _with_intervals(source: Source) -> Source:
    """Return the node of a source of points or intervals that can bring the events that another source admits.

    It has its name and payload, no ids, only CTIs that are sent explicitly, and the default policies for late and invalid rows.
    """
    if source.gives_points:
        return replace(source, policy=SourcePolicy(progress=ExplicitCtis()), ids=())
    names = [f.name for f in source.payload]
    start, end = _unused("start", names), _unused("end", names)
    time = next(f.type for f in source.columns if f.name == source.time_columns[0])
    columns = (Field(start, time), Field(end, time), *source.payload)
    return Intervals(source.table, columns, start, end, policy=SourcePolicy(progress=ExplicitCtis()))


def _unused(name: str, columns: Sequence[str]) -> str:
    """Return ``name`` with underscores appended until no column is called so."""
    while name.lower() in {c.lower() for c in columns}:
        name += "_"
    return name


@dataclass(frozen=True)
class Expectation:
    """The expected outcome of a run: the answer of ``case``, which has no late items.

    - ``ctis``: by source, CTIs that the rows of ``case`` do not contain
    - ``seen``: by source with late or contradictory items, what it admits, counts and sets aside
    - ``failed_calls``: by module with quarantine, the number of its calls that fail; None if they are not compared
    """

    case: Case
    ctis: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, Admission] = field(default_factory=dict)
    failed_calls: Mapping[str, int] | None = None

    @property
    def refused(self) -> bool:
        """True if a late item fails the run."""
        return any(one.refused for one in self.seen.values())

    @property
    def spared(self) -> bool:
        """True if a filter may drop every item that fails the run before it is judged; True, too, if there is none."""
        return all(one.filtered for one in self.seen.values() if one.refused)


def expectation(case: Case, how: Execution, promised: Sequence[Any] | None = None) -> Expectation:
    """Return the expected outcome of running a case in some way.

    Which items are late depends on the cut and on how long history is remembered; none is if all rows are read at once. On Spark
    the case is first made ``timeless``, as a run there ends before a source could be idle.
    ``promised``: the CTIs in each micro-batch that no row brings, if they are not those of :func:`heard_ctis`.
    """
    if how.whole:
        return Expectation(case)
    if how.backend == SPARK:
        # a run there is over before anything could be idle
        case = timeless(case)
    remember = [level.remember for level in (how.levels if how.restart else how.levels[:1])]
    if promised is None:
        promised = heard_ctis(case, how)
    ctis = _greatest_ctis(pair for batch in promised for pair in batch)
    seen = admissions(case, promised, remember)
    if not seen:
        return Expectation(case, ctis)
    ctis = _greatest_ctis([*ctis.items(), *((name, one.come) for name, one in seen.items())])
    return Expectation(without_late_items(case, seen), ctis, seen)


def _greatest_ctis(ctis: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """Return the greatest finite CTI of each source that has one; CTIs without the name of a source are ignored."""
    greatest: dict[str, int] = {}
    for name, c in ctis:
        if name is not None and MINUS_INFINITY < c < INFINITY:
            greatest[name] = max(c, greatest.get(name, c))
    return greatest


def outside_ctis(case: Case, how: Execution) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, the names of sources and the CTIs that they receive from outside; none without slack."""
    return promises(case, how.slack) if how.slack else [[] for _ in case.cut]


def heard_ctis(case: Case, how: Execution) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, the CTIs that no row brings: those from outside, and those made of the time of day."""
    return [[*sent, *made] for sent, made in zip(outside_ctis(case, how), clock_ctis(case), strict=True)]


def promises(case: Case, slack: Sequence[int | None]) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, a CTI of each source after it: ``slack`` ticks below the greatest legal one.

    The entries of ``slack`` are used in turn; None gives no CTIs after that micro-batch. No CTI is above ``latest_promise`` less
    the slack, also of a source without further items; a later one may be lower than one before.
    """
    coming, most = case.due, case.latest_promise
    ctis_by_batch: list[list[tuple[str | None, int]]] = []
    seen = 0
    for n, behind in zip(case.cut, itertools.cycle(slack)):
        seen += n
        ctis: list[tuple[str | None, int]] = []
        for name in case.sources if behind is not None else ():
            least = min((bound for source, bound in coming[seen:] if source == name), default=INFINITY)
            ctis.append((name, min(least, most) - (behind or 0)))
        ctis_by_batch.append(ctis)
    return ctis_by_batch
