"""Let windows over one stream, of several results or of one, share their partial results.

They share (``SHARING_LAW``) if they have one stream, one group, one grid and one stamp (Arasu and Widom, *Resource Sharing in
Continuous Sliding-Window Aggregates*). Final results share only with final results: a changelog sends rows before they are final,
and final results would have to hold these. Windows that call a user's code have partial results of their own, so that a change of
that code changes nothing else.

Final windows of points also read the basic windows of longer ones, if they consist of these (``SIZES_LAW``): the longer ones hold
them anyway, where those of a greatest common divisor could be many more. The rows of both come from one kernel, whose CTI is that
of the longest windows, so shorter ones share only if no operator, and no result with CTIs, reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from streamq.compiler.egress import Egress
from streamq.compiler.options import Options
from streamq.compiler.results import Results, as_results, unsettled_nodes
from streamq.compiler.rules.merge_selects import merge_selects
from streamq.compiler.state_names import leaves_out_columns, modules_called, text_of_source
from streamq.errors import counted
from streamq.operators import MergePartials, Select, Source, Where
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import ShownWindows
from streamq.operators.split_aggregates import partial_fields
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.node import Node, nodes
from streamq.plan.own_names import shown_name
from streamq.plan.partial import COUNT, Partial
from streamq.plan.schema import POINT
from streamq.plan.state_text import named_by_content, short_hash, state_text
from streamq.plan.tree import fold, show
from streamq.runtime.kernels.windows_of_sizes import NUMBER
from streamq.windows import Window

SHARING_LAW = "merge(a, x), merge(a, y) => select(merge(a, x + y), x), select(merge(a, x + y), y)"
"""The law by which windows share, as explain shows it."""

SIZES_LAW = "merge(long), merge(short) => where(m, long), where(m, short), m: both from the partial results of long"
"""The law by which shorter windows read the basic windows of longer ones."""


@dataclass(frozen=True, kw_only=True)
class SharedPartials:
    """Partial results that several windows read: ``merged`` merges them for ``readers``, as they were before sharing.

    ``names``: for each reader, the names of its columns in ``merged``, by its own.
    """

    merged: MergePartials
    readers: tuple[MergePartials, ...]
    names: tuple[dict[str, str], ...]

    @staticmethod
    def from_readers(readers: Sequence[MergePartials], window: Window) -> SharedPartials:
        """Return the partial results of all readers, each once, by basic windows of ``window``."""
        arguments: dict[str, tuple[str, Expr]] = {}
        partials: dict[str, Partial] = {}
        names = []
        for reader in readers:
            columns = {name: name for name in (*reader.keys, COUNT)}
            own = {
                name: arguments.setdefault(expr.digest, (f"__arg{len(arguments)}", expr))[0]
                for name, expr in reader.arguments
            }
            content = named_by_content(reader.partials, reader.arguments)
            for partial in reader.partials:
                new = replace(_renamed(partial, own), name=f"__{partial.title}{len(partials)}")
                held = partials.setdefault(content[partial.name].name, new)
                columns |= zip(partial.columns, held.columns, strict=True)
            names.append(columns)
        whole = replace(
            readers[0],
            input=stream_of(readers[0]),
            window=window,
            arguments=tuple(arguments.values()),
            partials=tuple(partials.values()),
        )
        one = SharedPartials(merged=whole, readers=tuple(readers), names=tuple(names))
        return replace(one, merged=replace(whole, shown=one._shown())) if one.has_sizes else one

    def _shown(self) -> tuple[ShownWindows, ...]:
        """Return the readers' windows, each once, with the names of the partial results that are read of them."""
        read: dict[Window, set[str]] = {}
        for reader, names in zip(self.readers, self.names, strict=True):
            read.setdefault(reader.window, set()).update(names.values())
        return tuple(
            ShownWindows(window, tuple(p.name for p in self.merged.partials if not names.isdisjoint(p.columns)))
            for window, names in read.items()
        )

    def read_by(self, reader: MergePartials, stream: Node) -> Node:
        """Return the operators that read a window's columns from the partial results of all, over their ``stream``."""
        rows: Node = replace(self.merged, input=stream)
        if self.merged.shown:
            number = [one.window for one in self.merged.shown].index(reader.window)
            rows = Where(rows, Col(NUMBER) == Lit(number))
        names = self.names[self.readers.index(reader)]
        return Select(rows, tuple((name, Col(names[name])) for name in reader.schema.names))

    @property
    def has_sizes(self) -> bool:
        """True if windows of several grids read them."""
        return len({reader.window for reader in self.readers}) > 1

    def shown(self) -> str:
        """Return the line of explain: the windows, their partial results, and the values and basic windows that sharing saves."""
        part = self.merged
        alone = sum(_values(reader) for reader in self.readers)
        grids = {reader.window: reader.window.basic_grid() for reader in self.readers}
        line = f"{len(self.readers)} windows {part.detail()}"
        line += f"; a row is grouped, sent and held once, with {counted(_values(part), 'value')} instead of {alone}"
        if not self.has_sizes:
            return line
        return (
            f"{line}, in {part.window.basic_grid().n} basic windows instead of {sum(grid.n for grid in grids.values())}"
        )


@dataclass(frozen=True)
class SharedPlan:
    """The plans of a program with their windows shared, and the partial results that are shared, in order.

    ``apart``: a sentence for each window over the stream, group and stamp of another that shares with none, with the reason.
    """

    plan: Results
    windows: tuple[SharedPartials, ...]
    apart: tuple[str, ...]


def share_windows(plan: Results, options: Options) -> SharedPlan:
    """Let the windows of rewritten plans share partial results; of ``options`` the forms of results and the placement count.

    Where windows are apart, those share that find all their partial results in the state of one operator.
    """
    every = _windows(plan, options.egresses)
    stored = options.placement.partials if options.placement.apart else {}
    able = [one for one in every if not modules_called([one.node])]
    groups: dict[tuple[object, ...], list[_Windows]] = {}
    for one in able:
        others = () if options.placement.apart else (other for other in able if one.may_read(other))
        longest = max([one, *others], key=_by_length)
        state = next((name for name, there in stored.items() if one.partials <= there), "")
        groups.setdefault((longest.group, longest.window, state), []).append(one)
    longest_windows = [(max(group, key=_by_length).window, group) for group in groups.values()]
    shared = [
        SharedPartials.from_readers([one.node for one in group], window)
        for window, group in longest_windows
        if group[1:]
    ]
    chosen = {reader.digest: one for one in shared for reader in one.readers}
    alone = [one for one in every if one.node.digest not in chosen]
    return SharedPlan(_over_shared(plan, chosen), tuple(shared), tuple(dict.fromkeys(_apart(alone, every))))


def _over_shared(plan: Results, chosen: Mapping[str, SharedPartials]) -> Results:
    """Return the plans in which each window of ``chosen``, by digest, reads the partial results that it shares."""
    rebuilt: dict[str, Node] = {}

    def visit(node: Node, inputs: list[Node]) -> Node:
        over = node.with_children(inputs)
        if isinstance(node, MergePartials) and node.digest in chosen:
            over = chosen[node.digest].read_by(node, rebuilt[stream_of(node).digest])
        elif over is not node:
            over = merge_selects(over) or over
        rebuilt[node.digest] = over
        return over

    return as_results(fold(plan, visit))


def _apart(alone: Sequence[_Windows], every: Sequence[_Windows]) -> Iterator[str]:
    """Yield for each of the windows that share with none why they do not share with the first others over their stream.

    If others differ in filters, group or stamp, that is the reason.
    """
    pairs: set[frozenset[str]] = set()
    for one in alone:
        others = (other for other in every if other is not one and one.events == other.events)
        other = next(others, None) or next((other for other in every if one.difference_from(other)), None)
        pair = frozenset({one.node.digest, other.node.digest if other else ""})
        if other is not None and pair not in pairs:
            pairs.add(pair)
            axis = one.node.schema.axis
            yield f"{one.window.shown(axis)} apart from {other.window.shown(axis)}: {one.reason_apart_from(other)}"


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows of a plan. ``is_final``: only results with final rows read them.

    ``own_basic_windows``: why they may not read the basic windows of longer ones, "" if they may.
    """

    node: MergePartials
    is_final: bool
    own_basic_windows: str

    @property
    def window(self) -> Window:
        """The kind of the windows, with their lengths."""
        return self.node.window

    @property
    def partials(self) -> frozenset[str]:
        """The names of the partial results in a state."""
        named = named_by_content(self.node.partials, self.node.arguments)
        return frozenset((COUNT, *(partial.name for partial in named.values())))

    @property
    def group(self) -> tuple[object, ...]:
        """Equal for windows over one stream and group, with one stamp and output.

        Unions that keep different columns count as different streams.
        """
        return stream_of(self.node).digest, self.node.keys, self.node.stamp, self.is_final

    @property
    def events(self) -> tuple[object, ...]:
        """Equal for windows over one stream and group, with one stamp, whatever columns of the stream they read."""
        return _stream_text(self.node), self.node.keys, self.node.stamp

    def may_read(self, longest: _Windows) -> bool:
        """Return True if these windows may read the basic windows of others, which are longer, or come more often."""
        fits = self.group == longest.group and longest.is_final and consists_of_basic(self.window, longest.window)
        return fits and not self.own_basic_windows and _by_length(self) < _by_length(longest)

    def difference_from(self, other: _Windows) -> str:
        """Return the difference to windows over the same stream, but for filters, which forbids to share on any grid; else ""."""
        mine, theirs = self.node, other.node
        if _stream_text(mine, filters=False) != _stream_text(theirs, filters=False):
            return ""
        if _stream_text(mine) != _stream_text(theirs):
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

    def reason_apart_from(self, other: _Windows) -> str:
        """Return why these windows do not share with others over the same stream, but for filters."""
        if difference := self.difference_from(other):
            return difference
        if modules_called([self.node, other.node]):
            return "windows that call a user's code have partial results of their own"
        if stream_of(self.node).digest != stream_of(other.node).digest:
            return "other columns are left out before their events are united or filtered"
        if self.is_final != other.is_final:
            return "one sends final rows, the other rows that may be taken back"
        shorter, longest = sorted((self, other), key=_by_length)
        if not consists_of_basic(shorter.window, longest.window):
            return "the shorter ones do not consist of the basic windows of the longer ones"
        return shorter.own_basic_windows or "the shorter ones share with windows that are longer still"


def _by_length(windows: _Windows) -> tuple[int, int, int]:
    """Return a key by which the windows whose basic windows others read come last."""
    grid = windows.window.basic_grid()
    return grid.size, -grid.hop, -grid.offset


def _windows(plan: Results, egresses: Sequence[Egress]) -> list[_Windows]:
    """Return the windows of a plan that merge partial results."""
    unsettled = unsettled_nodes(plan, egresses)
    # operators with state need the CTI of the windows below them, and so do results with CTIs
    cti_readers = [node for node in nodes(plan) if isinstance(node, EvaluatedOperator)]
    below = {node.digest for top in cti_readers for child in top.children for node in _stateless(child)}
    for result, egress in zip(plan.inputs, egresses, strict=True):
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
                    is_final=is_final,
                    own_basic_windows=next((reason for reason, holds in reasons.items() if holds), ""),
                )
            )
    return windows


def _corrects(node: Node, unsettled: frozenset[str]) -> bool:
    """Return True if the kernel of a node may take back rows that it has sent; ``unsettled`` are nodes that send early rows."""
    if not isinstance(node, EvaluatedOperator):
        return False
    factory = node.evaluation.factory
    return factory.corrects and (not factory.always_holds or node.digest in unsettled)


def _stateless(top: Node) -> list[Node]:
    """Return a node and those below it, down to the first ones with state."""
    reached, todo = {}, [top]
    while todo:
        node = todo.pop()
        if node.digest not in reached:
            reached[node.digest] = node
            todo += () if isinstance(node, EvaluatedOperator) else node.children
    return list(reached.values())


def stream_of(windows: MergePartials) -> Node:
    """Return the events of windows, below selects that only leave out columns."""
    below = windows.input
    while leaves_out_columns(below):
        (below,) = below.children
    return below


def _stream_text(windows: MergePartials, *, filters: bool = True) -> str:
    """Return a hash of the events of windows; ``filters``: False for the stream as it would be without filters."""

    def visit(node: Node, inputs: list[str]) -> str:
        if leaves_out_columns(node) or (isinstance(node, Where) and not filters):
            return inputs[0]
        return short_hash([text_of_source(node) if isinstance(node, Source) else state_text(node), inputs])

    return fold(windows.input, visit)


def consists_of_basic(window: Window, longest: Window) -> bool:
    """Return True if windows on a grid consist of the basic windows of others, which are no shorter and a hop each."""
    own, basic = window.basic_grid(), longest.basic_grid()
    distances = (own.size, own.hop, own.offset - basic.offset)
    return basic.divides and own.size <= basic.size and not any(distance % basic.hop for distance in distances)


def _values(windows: MergePartials) -> int:
    """Return the number of columns of partial results, the number of events included."""
    return 1 + len(partial_fields(windows.partials))


def _renamed(partial: Partial, names: Mapping[str, str]) -> Partial:
    """Return a partial result over columns of other names."""

    def other(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        return tuple(map(other, value)) if isinstance(value, tuple) else value

    return replace(partial, **{f.name: other(getattr(partial, f.name)) for f in fields(partial) if f.name != "name"})
