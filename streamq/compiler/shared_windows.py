"""Windows that several results, or several operators of one, compute over one stream: their partial results are made once.

They share (``SHARING_LAW``) if they have one stream, one group, one grid and one stamp (Arasu and Widom, *Resource Sharing in
Continuous Sliding-Window Aggregates*). Windows whose rows are final in all results share with such alone, because one that sends
rows before they are final does not hold them for the others.

A run that goes on from a checkpoint shares as the checkpoint does, which stores the partial results of each grid. So a result
that begins or ends changes the state of no other: windows read stored partial results that include theirs, though nobody may read
some of them any more, and only windows without such share new ones among themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from streamq.compiler.options import Options
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import Results, as_results, unsettled_nodes, without_policies
from streamq.compiler.rules.merge_selects import merge_selects
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
    """The partial results that a run holds of the windows ``readers``, which are those before they were shared.

    ``key``: a digest of their stream, group, grid and stamp. ``is_final``: only final rows are read of them.
    """

    key: str
    is_final: bool
    partials: PartialAggregate
    readers: tuple[MergePartials, ...]

    @property
    def saves(self) -> bool:
        """True if several windows read them."""
        return len(self.readers) > 1

    def shown(self) -> str:
        """Return them as explain shows them: what they are, and what each row costs less than if windows had their own."""
        part = self.partials
        alone = sum(_values(reader.input) for reader in self.readers)
        windows = f"{len(self.readers)} windows {part.detail()}"
        return f"{windows}; a row is grouped, sent and held once, with {_values(part)} values instead of {alone}"

    def stored(self) -> StoredPartials | None:
        """Return them as a checkpoint stores them; None if they call code that cannot be written."""
        text = _text(self.partials)
        return None if text is None else StoredPartials(key=self.key, is_final=self.is_final, partials=text)


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
        # stored for windows of the other kind, they go on with these if there are no others
        forms = {is_final, *(form for form in (True, False) if (key, form) not in groups)}
        for shared in _sets(merges, _read_stored(options.placement.windows, key, forms)):
            readers = tuple(shared.readers)
            partials = readers[0].input
            if len(readers) > 1 or not shared.equals(partials):
                chosen.update((reader.digest, shared) for reader in readers)
                partials = shared.over(partials, partials.input)
            windows.append(GridPartials(key=key, is_final=is_final, partials=partials, readers=readers))
    return SharedPlan(_over_shared(plan, chosen), tuple(windows))


def _values(part: PartialAggregate) -> int:
    """Return the number of columns of partial results, the number of events included."""
    return 1 + len(partial_fields(part.partials))


def _grid_key(node: MergePartials) -> str:
    """Return a digest of a window's stream, group, grid and stamp; policies of sources, and columns left out, do not count."""
    part = node.input
    bare = replace(node, input=PartialAggregate(_stream(part), part.keys, part.window, (), ()))
    return without_policies(Results((bare,)))[0].inputs[0].digest


def _stream(part: PartialAggregate) -> Node:
    """Return the events of partial results, below selects that only leave out columns."""
    below = part.input
    while isinstance(below, Select) and all(expr.copied_column == name for name, expr in below.columns):
        below = below.input
    return below


def _read_stored(stored: Sequence[StoredPartials], key: str, forms: Iterable[bool]) -> list[_PartialSet]:
    """Return the stored partial results of a grid, for windows of some forms."""
    parts = [_part(one.partials) for one in stored if one.key == key and one.is_final in forms]
    return [_PartialSet.of_part(part) for part in parts if part is not None]


def _sets(merges: Sequence[MergePartials], stored: Sequence[_PartialSet]) -> list[_PartialSet]:
    """Return the sets of partial results that windows of one grid read, each with its readers.

    A window reads the smallest stored set that has all of its own; the others have one set, or one each if code that they call
    cannot be written, because a later run could not share them in the same way.
    """
    rest: list[MergePartials] = []
    for merge in merges:
        fitting = [one for one in stored if one.columns_for(merge.input) is not None]
        if fitting:
            min(fitting, key=lambda one: len(one.partials)).readers.append(merge)
        else:
            rest.append(merge)
    writable = [merge for merge in rest if _text(merge.input) is not None] if len(rest) > 1 else []
    shared = writable if len(writable) > 1 else []
    new = [_PartialSet.union(shared)] if shared else []
    new += [_PartialSet.of_part(merge.input, merge) for merge in rest if merge not in shared]
    return [*(one for one in stored if one.readers), *new]


@dataclass
class _PartialSet:
    """Arguments and partial results over one stream, each once; ``readers``: the windows that read them.

    ``arguments``: their names by the expressions' digests.
    """

    arguments: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    partials: list[Partial] = field(default_factory=list)
    readers: list[MergePartials] = field(default_factory=list)

    @classmethod
    def of_part(cls, part: PartialAggregate, *readers: MergePartials) -> _PartialSet:
        """Return the set of one operator's partial results, by the names that they have there."""
        arguments = {expr.digest: (name, expr) for name, expr in part.arguments}
        return cls(arguments, list(part.partials), list(readers))

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
    """Return True if a partial result consists of numbers of values, which others may hold beside their own."""
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
    assert isinstance(part, PartialAggregate)
    return part


__all__ = ["SHARING_LAW", "GridPartials", "SharedPlan", "share_windows"]
