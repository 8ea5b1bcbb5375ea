"""Let windows over one stream, of several results or of one, share their partial results.

They share (``SHARING_LAW``) if they have one stream, one group, one grid and one stamp (Arasu and Widom, *Resource Sharing in
Continuous Sliding-Window Aggregates*). Final results share only with final results: a changelog sends rows before they are final,
and final results would have to hold these. Windows that call a user's code have partial results of their own, so that a change of
that code changes nothing else.

Final windows of points also read the basic windows of longer ones, if they consist of these (``SIZES_LAW``): the longer ones hold
them anyway, where those of a greatest common divisor could be many more. The rows of both come from one kernel, whose CTI is that
of the longest windows, so shorter ones share only if no operator, and no result with CTIs, reads them.

A run that goes on from a checkpoint shares as the checkpoint does. It stores the partial results of each grid, with the windows
that have read them: such a window reads these again, though nobody may read some of the others any more. Only windows that the
checkpoint does not have share new ones among themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streamq.choices import Stamp
from streamq.compiler.options import Options, Placement
from streamq.compiler.partial_sets import PartialSet, consists_of_basic
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import Results, as_results, unsettled_nodes
from streamq.compiler.rules.merge_selects import merge_selects
from streamq.compiler.state_texts import leaves_out_columns, modules_called, short_hash, state_text, text_of_source
from streamq.errors import StreamqError, counted
from streamq.operators import MergePartials, Source, Where
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.operator import Operator
from streamq.operators.source_arguments import SourcePolicy
from streamq.operators.split_aggregates import partial_fields
from streamq.plan.node import Node, nodes
from streamq.plan.own_names import shown_name
from streamq.plan.schema import POINT
from streamq.plan.tree import fold, show
from streamq.runtime.identity import StoredPartials
from streamq.windows import Window

SHARING_LAW = "merge(a, x), merge(a, y) => select(merge(a, x + y), x), select(merge(a, x + y), y)"
"""The law by which windows share, as explain shows it."""

SIZES_LAW = "merge(long), merge(short) => where(m, long), where(m, short), m: both from the partial results of long"
"""The law by which shorter windows read the basic windows of longer ones."""


@dataclass(frozen=True, kw_only=True)
class GridPartials:
    """Partial results of one grid, and the windows that read them: ``readers``, as they were before sharing.

    ``key``: a hash of their stream, group, grid and stamp. ``is_final``: all results that read them have final rows. ``windows``:
    hashes of the partial results of each window that reads them, or has read them in the checkpoint.
    """

    key: str
    is_final: bool
    partials: MergePartials
    readers: tuple[MergePartials, ...]
    windows: tuple[str, ...]

    @property
    def saves(self) -> bool:
        """True if several windows read them."""
        return len(self.readers) > 1

    @property
    def has_sizes(self) -> bool:
        """True if windows of several grids read them."""
        return len({reader.window for reader in self.readers}) > 1

    def shown(self) -> str:
        """Return the line of explain: the windows, their partial results, and the values and basic windows that sharing saves."""
        part = self.partials
        alone = sum(_values(reader) for reader in self.readers)
        grids = {reader.window: reader.window.basic_grid() for reader in self.readers}
        sizes = "".join(f", {window.shown(part.schema.axis)}" for window in grids if window != part.window)
        line = f"{len(self.readers)} windows {part.detail()}{'; also ' * bool(sizes)}{sizes.removeprefix(', ')}"
        line += f"; a row is grouped, sent and held once, with {counted(_values(part), 'value')} instead of {alone}"
        if not self.has_sizes:
            return line
        return (
            f"{line}, in {part.window.basic_grid().n} basic windows instead of {sum(grid.n for grid in grids.values())}"
        )

    def stored(self) -> StoredPartials | None:
        """Return them as a checkpoint stores them; None if they call code that cannot be written."""
        text = _text(self.partials)
        if text is None:
            return None
        return StoredPartials(key=self.key, is_final=self.is_final, partials=text, windows=self.windows)


@dataclass(frozen=True)
class SharedPlan:
    """The plans of a program with their windows shared, and the partial results of each grid, in order.

    ``apart``: a sentence for each window over the stream, group and stamp of another that shares with none, with the reason.
    """

    plan: Results
    windows: tuple[GridPartials, ...]
    apart: tuple[str, ...]


def share_windows(plan: Results, options: Options) -> SharedPlan:
    """Let the windows of rewritten plans share partial results, as in the checkpoint of ``options`` if there is one."""
    windows: list[GridPartials] = []
    chosen: dict[str, PartialSet] = {}
    every = _windows(plan, options)
    for is_final, shared in _sets(every, options.placement):
        readers = tuple(shared.readers)
        partials = readers[0]
        if len(readers) > 1 or not shared.equals(partials):
            chosen.update((reader.digest, shared) for reader in readers)
            partials = shared.over(partials, partials.input)
        hashes = (*shared.windows, *(_hash_of(reader, shared.window) for reader in readers))
        windows.append(
            GridPartials(
                key=_grid_key(readers[0], shared.window),
                is_final=is_final,
                partials=partials,
                readers=readers,
                windows=tuple(dict.fromkeys(hashes)),
            )
        )
    together = {reader.digest for one in windows if one.saves for reader in one.readers}
    alone = [one for one in every if one.node.digest not in together]
    apart = dict.fromkeys(_apart(alone, every, bool(options.placement.windows)))
    return SharedPlan(_over_shared(plan, chosen), tuple(windows), tuple(apart))


def _apart(alone: Sequence[_Windows], every: Sequence[_Windows], goes_on: bool) -> Iterator[str]:
    """Yield for each of the windows that share with none why they do not share with the first others over their stream.

    If others differ in filters, group or stamp, that is the reason. ``goes_on``: the run goes on from a checkpoint in which
    windows share.
    """
    pairs: set[frozenset[str]] = set()
    for one in alone:
        others = (other for other in every if other is not one and _grid_key(one.node, other.window) == other.key)
        other = next(others, None) or next((other for other in every if one.difference_from(other)), None)
        pair = frozenset({one.node.digest, other.node.digest if other else ""})
        if other is not None and pair not in pairs:
            pairs.add(pair)
            axis = one.node.schema.axis
            yield f"{one.window.shown(axis)} apart from {other.window.shown(axis)}: {one.reason_apart_from(other, goes_on)}"


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows of a plan: ``key`` is that of their grid. ``is_final``: only results with final rows read them.

    ``own_basic_windows``: why they may not read the basic windows of longer ones, "" if they may.
    """

    node: MergePartials
    key: str
    is_final: bool
    own_basic_windows: str

    @property
    def window(self) -> Window:
        """The kind of the windows, with their lengths."""
        return self.node.window

    @property
    def group(self) -> tuple[str, bool]:
        """The windows that read partial results of this grid in this form have the same."""
        return self.key, self.is_final

    @property
    def stream(self) -> str:
        """The digest of the events that they read: of a union with all its columns, so those that others read may lack some."""
        return _stream(self.node).digest

    def may_read(self, longest: _Windows) -> bool:
        """Return True if these windows may read the basic windows of others, which are longer, or come more often."""
        reads_same_stream = self.stream == longest.stream and _grid_key(self.node, longest.window) == longest.key
        fits = reads_same_stream and longest.is_final and consists_of_basic(self.window, longest.window)
        return fits and not self.own_basic_windows and _by_length(self) < _by_length(longest)

    def difference_from(self, other: _Windows) -> str:
        """Return the difference to windows over the same stream, but for filters, which forbids to share on any grid; else ""."""
        mine, theirs = self.node, other.node
        if _stream_key(mine, filters=False) != _stream_key(theirs, filters=False):
            return ""
        if _stream_key(mine) != _stream_key(theirs):
            return f"their events pass other filters, {self._filters} here, {other._filters} there"
        if mine.keys != theirs.keys:
            here, there = (", ".join(map(shown_name, part.keys)) or "none" for part in (mine, theirs))
            return f"their groups are others, {here} here, {there} there"
        return (
            "" if self.node.stamp == other.node.stamp else "rows of one live on the windows, of the other at their ends"
        )

    @property
    def _filters(self) -> str:
        """The filters of their stream, as text."""
        filters = [node.predicate for node in nodes(self.node) if isinstance(node, Where)]
        return " and ".join(map(show, filters)) or "no filter"

    def reason_apart_from(self, other: _Windows, goes_on: bool) -> str:
        """Return why these windows do not share with others over the same stream, but for filters."""
        if difference := self.difference_from(other):
            return difference
        if any(_calls_code(one.node) or _text(one.node) is None for one in (self, other)):
            return "windows that call a user's code have partial results of their own"
        if self.stream != other.stream:
            return "other columns are left out before their events are united or filtered"
        if self.is_final != other.is_final:
            return "one sends final rows, the other rows that may be taken back"
        shorter, longest = sorted((self, other), key=_by_length)
        if not consists_of_basic(shorter.window, longest.window):
            return "the shorter ones do not consist of the basic windows of the longer ones"
        if shorter.own_basic_windows:
            return shorter.own_basic_windows
        return (
            "the checkpoint has them apart" if goes_on else "the shorter ones share with windows that are longer still"
        )


def _by_length(windows: _Windows) -> tuple[int, int, int]:
    """Return a key by which the windows whose basic windows others read come last."""
    grid = windows.window.basic_grid()
    return grid.size, -grid.hop, -grid.offset


def _windows(plan: Results, options: Options) -> list[_Windows]:
    """Return the windows of a plan that merge partial results."""
    unsettled = unsettled_nodes(plan, options.egresses)
    # operators with state need the CTI of the windows below them, and so do results with CTIs
    cti_readers = [node for node in nodes(plan) if isinstance(node, Operator) and node.keeps_state]
    below = {node.digest for top in cti_readers for child in top.children for node in _stateless(child)}
    for result, egress in zip(plan.inputs, options.egresses, strict=True):
        below |= {node.digest for node in _stateless(result) if egress.ctis}
    windows = []
    for node in nodes(plan):
        if isinstance(node, MergePartials):
            is_final = node.digest not in unsettled
            reasons = {
                "rows of windows of several sizes are final": not is_final,
                "their events are no points, or may be taken back": node.input.schema.shape != POINT
                or node.input.traits.retracts
                or any(_corrects(below, unsettled) for below in nodes(node.input)),
                "what reads the shorter ones needs their CTI": node.digest in below,
            }
            windows.append(
                _Windows(
                    node=node,
                    key=_grid_key(node, node.window),
                    is_final=is_final,
                    own_basic_windows=next((reason for reason, holds in reasons.items() if holds), ""),
                )
            )
    return windows


def _corrects(node: Node, unsettled: frozenset[str]) -> bool:
    """Return True if the kernel of a node may take back rows that it has sent; ``unsettled`` are nodes that send early rows."""
    if isinstance(node, EvaluatedOperator):
        return node.evaluation.factory.corrects
    return isinstance(node, Operator) and node.keeps_state and node.digest in unsettled


def _stateless(top: Node) -> list[Node]:
    """Return a node and those below it, down to the first ones with state."""
    reached, todo = {}, [top]
    while todo:
        node = todo.pop()
        if node.digest not in reached:
            reached[node.digest] = node
            todo += () if isinstance(node, Operator) and node.keeps_state else node.children
    return list(reached.values())


def _values(part: MergePartials) -> int:
    """Return the number of columns of partial results, the number of events included."""
    return 1 + len(partial_fields(part.partials))


def _grid_key(node: MergePartials, window: Window) -> str:
    """Return a hash of a window's stream, group and stamp, and of a grid; neither policies nor columns left out count."""
    return short_hash([_stream_key(node), list(node.keys), state_text(window), node.stamp])


def _stream_key(part: MergePartials, *, filters: bool = True) -> str:
    """Return a hash of the events of partial results; ``filters``: False for the stream as it would be without filters."""

    def visit(node: Node, inputs: list[str]) -> str:
        if leaves_out_columns(node) or (isinstance(node, Where) and not filters):
            return inputs[0]
        return short_hash([text_of_source(node) if isinstance(node, Source) else state_text(node), inputs])

    return fold(part.input, visit)


def _hash_of(part: MergePartials, longest: Window) -> str:
    """Return a hash of the partial results of a window, and of its lengths if it reads those of longer ones."""
    text = [state_text(part.arguments), state_text(part.partials)]
    return short_hash(text if part.window == longest else [*text, state_text(part.window)])


def _calls_code(part: MergePartials) -> bool:
    """Return True if partial results call a user's code."""
    return bool(modules_called([part]))


def _stream(part: MergePartials) -> Node:
    """Return the events of partial results, below selects that only leave out columns."""
    below = part.input
    while leaves_out_columns(below):
        (below,) = below.children
    return below


def _sets(windows: Sequence[_Windows], placement: Placement) -> list[tuple[bool, PartialSet]]:
    """Return the sets of partial results that windows read, each with its readers, and if these are final.

    A window reads the stored set that it has read before. The others share new ones; or have one each if they call a user's
    code, or have expressions that cannot be written, because a later run could not share them in the same way.
    """
    there = [
        (one, PartialSet.of_part(part, windows=one.windows))
        for one in placement.windows
        if (part := _part(one.partials)) is not None
    ]
    groups = {one.group for one in windows}
    rest: list[_Windows] = []
    sets: dict[tuple[str, bool], list[PartialSet]] = {}
    for one in windows:
        read = (held for identity, held in there if _has_read(one, identity, held, groups))
        before = next((held for held in read if all(_stream(r).digest == one.stream for r in held.readers)), None)
        if before is None:
            rest.append(one)
            continue
        if not before.readers:
            sets.setdefault((_grid_key(one.node, before.window), one.is_final), []).append(before)
        before.readers.append(one.node)
    for longest, readers in _groups_that_share(rest):
        own = readers[0].node
        many = len(readers) > 1
        new = PartialSet.union(longest, [r.node for r in readers]) if many else PartialSet.of_part(own, readers[0].node)
        sets.setdefault((_grid_key(readers[0].node, longest), readers[0].is_final), []).append(new)
    return [(is_final, one) for (_, is_final), of_grid in sets.items() for one in of_grid]


def _has_read(one: _Windows, identity: StoredPartials, held: PartialSet, groups: set[tuple[str, bool]]) -> bool:
    """Return True if windows have read a stored set, and may read it in their form; ``groups``: those of all windows.

    If no window on its grid has the form in which the set was read, its rows are read in the other form: the output has changed.
    """
    if identity.key != _grid_key(one.node, held.window) or _hash_of(one.node, held.window) not in identity.windows:
        return False
    forms = {one.is_final, *(form for form in (True, False) if (one.key, form) not in groups)}
    if held.window != one.window:
        forms = {True} if one.is_final and (identity.key, False) not in groups else set()
    return identity.is_final in forms and held.columns_for(one.node) is not None


def _groups_that_share(windows: Sequence[_Windows]) -> list[tuple[Window, list[_Windows]]]:
    """Return the windows that share new partial results together, those of one grid and form first, with the longest of them."""
    able = [one for one in windows if not _calls_code(one.node) and _text(one.node) is not None]
    shared: dict[tuple[object, ...], tuple[Window, list[_Windows]]] = {}
    for one in able:
        longest = max([one, *(other for other in able if one.may_read(other))], key=_by_length)
        shared.setdefault((*longest.group, longest.stream), (longest.window, []))[1].append(one)
    return [*shared.values(), *((one.window, [one]) for one in windows if one not in able)]


def _over_shared(plan: Results, chosen: Mapping[str, PartialSet]) -> Results:
    """Return the plans with windows, by digest, over the partial results that they share."""
    rebuilt: dict[str, Node] = {}

    def visit(node: Node, inputs: list[Node]) -> Node:
        over = node.with_children(inputs)
        if isinstance(node, MergePartials) and node.digest in chosen:
            over = chosen[node.digest].merged(node, rebuilt[_stream(node).digest])
        elif over is not node:
            over = merge_selects(over) or over
        rebuilt[node.digest] = over
        return over

    return as_results(fold(plan, visit))


def _text(part: MergePartials) -> str | None:
    """Return the arguments and partial results of an operator as JSON; None if they call code that cannot be written."""
    source = next(node for node in nodes(part) if isinstance(node, Source))
    leaf = replace(source, policy=SourcePolicy())
    try:
        return json.dumps(plan_to_json(replace(part, input=leaf, keys=(), stamp=Stamp.ALIGN, shown=())))
    except StreamqError:
        return None


def _part(text: str) -> MergePartials | None:
    """Return the operator that :func:`_text` wrote, over some source; None if code that it calls is not here."""
    try:
        part = plan_from_json(json.loads(text))
    except StreamqError:
        return None
    return part if isinstance(part, MergePartials) else None


__all__ = ["SHARING_LAW", "SIZES_LAW", "GridPartials", "SharedPlan", "share_windows"]
