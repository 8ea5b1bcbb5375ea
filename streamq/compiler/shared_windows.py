"""Let windows over one stream, of several results or of one, share their partial results.

They share (``SHARING_LAW``) if they have one stream, one group, one grid and one stamp (Arasu and Widom, *Resource Sharing in
Continuous Sliding-Window Aggregates*). Final results share only with final results: a changelog sends rows before they are final,
and final results would have to hold these. Windows that call a user's code have partial results of their own, so that a change of
that code changes nothing else.

A run that goes on from a checkpoint shares as the checkpoint does. It stores the partial results of each grid, with the windows
that have read them: such a window reads these again, though nobody may read some of the others any more. Only windows that the
checkpoint does not have share new ones among themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from streamq.compiler.options import Options
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import Results, as_results, unsettled_nodes
from streamq.compiler.rules.merge_selects import merge_selects
from streamq.compiler.state_texts import leaves_out_columns, modules_called, short_hash, state_text, text_of_source
from streamq.errors import StreamqError
from streamq.operators import MergePartials, PartialAggregate, Select, Source
from streamq.operators.partial_aggregate import partial_fields
from streamq.operators.source_policy import SourcePolicy
from streamq.plan.expr import Col, Expr
from streamq.plan.folding import fold
from streamq.plan.node import Node, nodes
from streamq.plan.partial import Partial
from streamq.runtime.identity import StoredPartials

SHARING_LAW = "merge(partial(a, x)), merge(partial(a, y)) => select(merge(partial(a, x + y)), x), select(..., y)"
"""The law by which windows share, as explain shows it."""


@dataclass(frozen=True, kw_only=True)
class GridPartials:
    """Partial results of one grid, and the windows that read them: ``readers``, as they were before sharing.

    ``key``: a hash of their stream, group, grid and stamp. ``is_final``: all results that read them have final rows. ``windows``:
    hashes of the partial results of each window that reads them, or has read them in the checkpoint.
    """

    key: str
    is_final: bool
    partials: PartialAggregate
    readers: tuple[MergePartials, ...]
    windows: tuple[str, ...]

    @property
    def saves(self) -> bool:
        """True if several windows read them."""
        return len(self.readers) > 1

    def shown(self) -> str:
        """Return the line of explain: the windows, their partial results, and the number of values a row saves."""
        part = self.partials
        alone = sum(_values(reader.input) for reader in self.readers)
        windows = f"{len(self.readers)} windows {part.detail()}"
        return f"{windows}; a row is grouped, sent and held once, with {_values(part)} values instead of {alone}"

    def stored(self) -> StoredPartials | None:
        """Return them as a checkpoint stores them; None if they call code that cannot be written."""
        text = _text(self.partials)
        if text is None:
            return None
        return StoredPartials(key=self.key, is_final=self.is_final, partials=text, windows=self.windows)


@dataclass(frozen=True)
class SharedPlan:
    """The plans of a program with their windows shared, and the partial results of each grid, in order."""

    plan: Results
    windows: tuple[GridPartials, ...]


def share_windows(plan: Results, options: Options) -> SharedPlan:
    """Let the windows of rewritten plans share partial results, as in the checkpoint of ``options`` if there is one."""
    unsettled = unsettled_nodes(plan, options.egresses)
    groups: dict[tuple[str, bool], list[MergePartials]] = {}
    for node in nodes(plan):
        if isinstance(node, MergePartials):
            groups.setdefault((_grid_key(node), node.digest not in unsettled), []).append(node)
    windows: list[GridPartials] = []
    chosen: dict[str, _PartialSet] = {}
    for (key, is_final), merges in groups.items():
        # if no window here has the other form, its stored partial results are read too: the output has changed
        forms = {is_final, *(form for form in (True, False) if (key, form) not in groups)}
        for shared in _sets(merges, _read_stored(options.placement.windows, key, forms)):
            readers = tuple(shared.readers)
            partials = readers[0].input
            if len(readers) > 1 or not shared.equals(partials):
                chosen.update((reader.digest, shared) for reader in readers)
                partials = shared.over(partials, partials.input)
            hashes = tuple(dict.fromkeys((*shared.windows, *(_hash_of(reader.input) for reader in readers))))
            windows.append(GridPartials(key=key, is_final=is_final, partials=partials, readers=readers, windows=hashes))
    return SharedPlan(_over_shared(plan, chosen), tuple(windows))


def _values(part: PartialAggregate) -> int:
    """Return the number of columns of partial results, the number of events included."""
    return 1 + len(partial_fields(part.partials))


def _grid_key(node: MergePartials) -> str:
    """Return a hash of a window's stream, group, grid and stamp; policies of sources, and columns left out, do not count."""
    part = node.input

    def visit(node: Node, inputs: list[str]) -> str:
        if leaves_out_columns(node):
            return inputs[0]
        return short_hash([text_of_source(node) if isinstance(node, Source) else state_text(node), inputs])

    return short_hash([fold(part.input, visit), list(part.keys), state_text(part.window), node.stamp])


def _hash_of(part: PartialAggregate) -> str:
    """Return a hash of the partial results of a window."""
    return short_hash([state_text(part.arguments), state_text(part.partials)])


def _calls_code(part: PartialAggregate) -> bool:
    """Return True if partial results call a user's code."""
    return bool(modules_called((), [expr for _, expr in part.arguments], part.partials))


def _stream(part: PartialAggregate) -> Node:
    """Return the events of partial results, below selects that only leave out columns."""
    below = part.input
    while leaves_out_columns(below):
        (below,) = below.children
    return below


def _read_stored(stored: Sequence[StoredPartials], key: str, forms: Iterable[bool]) -> list[_PartialSet]:
    """Return the stored partial results of a grid, for windows of some forms."""
    of_grid = [one for one in stored if one.key == key and one.is_final in forms]
    parts = [(one.windows, _part(one.partials)) for one in of_grid]
    return [_PartialSet.of_part(part, windows=windows) for windows, part in parts if part is not None]


def _sets(merges: Sequence[MergePartials], stored: Sequence[_PartialSet]) -> list[_PartialSet]:
    """Return the sets of partial results that windows of one grid read, each with its readers.

    A window reads the stored set that it has read before. The others have one set together; or one each if they call a user's
    code, or have expressions that cannot be written, because a later run could not share them in the same way.
    """
    rest: list[MergePartials] = []
    for merge in merges:
        own = _hash_of(merge.input)
        before = next((one for one in stored if own in one.windows), None)
        if before is not None and before.columns_for(merge.input) is not None:
            before.readers.append(merge)
        else:
            rest.append(merge)
    shared = [merge for merge in rest if not _calls_code(merge.input) and _text(merge.input) is not None]
    new = [_PartialSet.union(shared)] if len(shared) > 1 else []
    alone = [merge for merge in rest if not new or merge not in shared]
    return [*(one for one in stored if one.readers), *new, *(_PartialSet.of_part(one.input, one) for one in alone)]


@dataclass
class _PartialSet:
    """Arguments and partial results over one stream, each once; ``readers``: the windows that read them.

    ``arguments``: their names by the expressions' digests. ``windows``: hashes of the windows that have read them before.
    """

    arguments: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    partials: list[Partial] = field(default_factory=list)
    readers: list[MergePartials] = field(default_factory=list)
    windows: tuple[str, ...] = ()

    @classmethod
    def of_part(cls, part: PartialAggregate, *readers: MergePartials, windows: tuple[str, ...] = ()) -> _PartialSet:
        """Return the set of one operator's partial results, by the names that they have there."""
        arguments = {expr.digest: (name, expr) for name, expr in part.arguments}
        return cls(arguments, list(part.partials), list(readers), windows)

    @classmethod
    def union(cls, readers: Sequence[MergePartials]) -> _PartialSet:
        """Return the set of all partial results of some windows; counts that others hold anyway are left out."""
        one = cls(readers=list(readers))
        both = [(partial, reader.input) for reader in readers for partial in reader.input.partials]
        for partial, part in sorted(both, key=lambda pair: _only_counts(pair[0])):
            one._add(partial, dict(part.arguments))
        return one

    def equals(self, part: PartialAggregate) -> bool:
        """Return True if an operator has the same partial results under the same names."""
        own, theirs = ([(name, expr.digest) for name, expr in one] for one in (self.arguments.values(), part.arguments))
        return own == theirs and tuple(self.partials) == part.partials

    def over(self, part: PartialAggregate, stream: Node) -> PartialAggregate:
        """Return an operator that makes these partial results of ``stream``, for the groups and windows of ``part``."""
        return replace(part, input=stream, arguments=tuple(self.arguments.values()), partials=tuple(self.partials))

    def merged(self, node: MergePartials, stream: Node) -> Node:
        """Return the operators that read one window's columns from all that are merged here."""
        columns = self.columns_for(node.input)
        assert columns is not None
        merge = replace(node, input=self.over(node.input, stream))
        return Select(merge, tuple((f.name, Col(columns.get(f.name, f.name))) for f in node.schema.fields))

    def columns_for(self, part: PartialAggregate) -> dict[str, str] | None:
        """Return the columns here that equal those of other partial results, by the names there; None if some are missing."""
        columns: dict[str, str] = {}
        names = {name: self.arguments[expr.digest][0] for name, expr in part.arguments if expr.digest in self.arguments}
        counts = {arg: column for held in self.partials for arg, column in held.counts.items()}
        for partial in part.partials:
            equal = self._equal(partial, names)
            if equal is not None:
                columns |= dict(zip(partial.columns, equal.columns, strict=True))
            elif _only_counts(partial) and all(names.get(arg) in counts for arg in partial.counts):
                columns |= {column: counts[names[arg]] for arg, column in partial.counts.items()}
            else:
                return None
        return columns

    def _equal(self, partial: Partial, names: Mapping[str, str]) -> Partial | None:
        """Return the partial result here that equals another one, whose arguments have the names ``names`` here."""
        if not names.keys() >= set(partial.read_columns):
            return None
        renamed = _renamed(partial, names)
        return next((held for held in self.partials if replace(renamed, name=held.name) == held), None)

    def _add(self, partial: Partial, arguments: Mapping[str, Expr]) -> None:
        """Add a partial result, over ``arguments``, unless an equal one is here or, of a count, one that counts the same."""
        names = {
            name: self.arguments.setdefault(expr.digest, (f"__arg{len(self.arguments)}", expr))[0]
            for name, expr in arguments.items()
            if name in partial.read_columns
        }
        counted = {arg for held in self.partials for arg in held.counts}
        is_lent = _only_counts(partial) and all(names[arg] in counted for arg in partial.counts)
        if not is_lent and self._equal(partial, names) is None:
            name = f"__{partial.title}{len(self.partials)}"
            self.partials.append(replace(_renamed(partial, names), name=name))


def _only_counts(partial: Partial) -> bool:
    """Return True if a partial result consists of counts only."""
    return partial.columns == list(partial.counts.values())


def _renamed(partial: Partial, names: Mapping[str, str]) -> Partial:
    """Return a partial result over columns of other names."""

    def other(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        return tuple(map(other, value)) if isinstance(value, tuple) else value

    return replace(partial, **{f.name: other(getattr(partial, f.name)) for f in fields(partial) if f.name != "name"})


def _over_shared(plan: Results, chosen: Mapping[str, _PartialSet]) -> Results:
    """Return the plans with windows, by digest, over the partial results that they share."""
    rebuilt: dict[str, Node] = {}

    def visit(node: Node, inputs: list[Node]) -> Node:
        over = node.with_children(inputs)
        if isinstance(node, MergePartials) and node.digest in chosen:
            over = chosen[node.digest].merged(node, rebuilt[_stream(node.input).digest])
        elif over is not node:
            over = merge_selects(over) or over
        rebuilt[node.digest] = over
        return over

    return as_results(fold(plan, visit))


def _text(part: PartialAggregate) -> str | None:
    """Return the arguments and partial results of an operator as JSON; None if they call code that cannot be written."""
    source = next(node for node in nodes(part) if isinstance(node, Source))
    leaf = replace(source, policy=SourcePolicy())
    try:
        return json.dumps(plan_to_json(replace(part, input=leaf, keys=())))
    except StreamqError:
        return None


def _part(text: str) -> PartialAggregate | None:
    """Return the operator that :func:`_text` wrote, over some source; None if code that it calls is not here."""
    try:
        part = plan_from_json(json.loads(text))
    except StreamqError:
        return None
    return part if isinstance(part, PartialAggregate) else None


__all__ = ["SHARING_LAW", "GridPartials", "SharedPlan", "share_windows"]
