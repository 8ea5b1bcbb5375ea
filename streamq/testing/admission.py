"""A model of sources: which arriving items they drop, adjust, or count as invalid or duplicate, and which events they admit.

The model follows docs/concepts.md, "CTIs and the watermark" and "Late rows, invalid rows", item by item. It keeps all history,
so it suits small inputs only, and it shares no code with the implementation that it is compared with. It covers *plain* input,
as ``is_plain`` of a source's room (``streamq.testing.sources``) defines it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamq.operators import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.node import Node
from streamq.plan.schema import Field
from streamq.plan.tree import fold
from streamq.progress.explicit import ExplicitCtis
from streamq.runtime.event import CTI
from streamq.sources.intervals import Intervals
from streamq.testing.arrival import brings_start, is_event, start_of, time_columns
from streamq.testing.case import Case
from streamq.testing.source_progress import Promises, micro_batches, source_reaches
from streamq.testing.sources.model import Admitted, Reach
from streamq.testing.sources.room import is_plain, model_of
from streamq.testing.stateless_paths import is_filtered, last_window_end


def admissions(case: Case, promises: Promises = (), remember: Sequence[int | None] = (None,)) -> dict[str, Admitted]:
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


def without_late_items(case: Case, seen: Mapping[str, Admitted]) -> Case:
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
    time = next(f.type for f in source.columns if f.name == time_columns(source)[0])
    columns = (Field(start, time), Field(end, time), *source.payload)
    return Intervals(source.table, columns, start, end, policy=SourcePolicy(progress=ExplicitCtis()))


def _unused(name: str, columns: Sequence[str]) -> str:
    """Return ``name`` with underscores appended until no column is called so."""
    while name.lower() in {c.lower() for c in columns}:
        name += "_"
    return name


__all__ = ["admissions", "without_late_items"]
