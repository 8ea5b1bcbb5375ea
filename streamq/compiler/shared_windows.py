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
from dataclasses import dataclass, replace

from streamq.compiler.egress import Egress
from streamq.compiler.options import Options
from streamq.compiler.results import Results, as_results, unsettled_nodes
from streamq.compiler.rules.projections import merge_selects
from streamq.compiler.state_names import leaves_out_columns, modules_called, text_of_source
from streamq.errors import counted
from streamq.operators import MergePartials, Select, Source, Where
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import ResultWindows, partial_fields
from streamq.plan.expr import Col, Lit
from streamq.plan.node import Node, nodes, short_hash, state_text
from streamq.plan.partial import COUNT, Partial
from streamq.plan.schema import POINT
from streamq.plan.tree import fold
from streamq.runtime.kernels.windows_of_sizes import NUMBER
from streamq.windows import Window

SHARING_LAW = "merge(a, x), merge(a, y) => select(merge(a, x + y), x), select(merge(a, x + y), y)"
"""The law by which windows share, as explain shows it."""

SIZES_LAW = "merge(long), merge(short) => where(m, long), where(m, short), m: both from the partial results of long"
"""The law by which shorter windows read the basic windows of longer ones."""


@dataclass(frozen=True, kw_only=True)
class SharedPartials:
    """Partial results that several windows read: ``merged`` merges them for ``readers``, as they were before sharing."""

    merged: MergePartials
    readers: tuple[MergePartials, ...]

    @staticmethod
    def from_readers(readers: Sequence[MergePartials], window: Window) -> SharedPartials:
        """Return the partial results of all readers, each once, by basic windows of ``window``."""
        read: dict[Window, dict[str, Partial]] = {}
        for reader in readers:
            read.setdefault(reader.window, {}).update((partial.name, partial) for partial in reader.partials)
        merged = replace(
            readers[0],
            input=stream_of(readers[0]),
            window=window,
            arguments=tuple({argument[0]: argument for reader in readers for argument in reader.arguments}.values()),
            partials=tuple({partial.name: partial for reader in readers for partial in reader.partials}.values()),
            results=tuple(ResultWindows(own, tuple(names)) for own, names in read.items()) if len(read) > 1 else (),
        )
        return SharedPartials(merged=merged, readers=tuple(readers))

    def read_by(self, reader: MergePartials, stream: Node) -> Node:
        """Return the operators that read a window's columns from the partial results of all, over their ``stream``."""
        rows: Node = replace(self.merged, input=stream)
        if self.merged.results:
            number = [one.window for one in self.merged.results].index(reader.window)
            rows = Where(rows, Col(NUMBER) == Lit(number))
        return Select(rows, tuple((name, Col(name)) for name in reader.schema.names))

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
    groups: dict[tuple[object, ...], list[_Windows]] = {}
    for one in every:
        others = () if options.placement.apart else (other for other in every if one.may_read(other))
        longest = max([one, *others], key=_by_length)
        state = next((name for name, there in stored.items() if one.partials <= there), "")
        groups.setdefault((*longest.facts.values(), longest.window, state), []).append(one)
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
    """Yield for each of the windows that share with none why they do not share with those over their stream most like them."""
    pairs: set[frozenset[str]] = set()
    for one in alone:
        others = [other for other in every if other is not one and other.stream == one.stream]
        if others:
            other = min(others, key=lambda other: len(one.differences(other)))
            pair = frozenset({one.node.digest, other.node.digest})
            if pair not in pairs:
                pairs.add(pair)
                axis = one.node.schema.axis
                yield f"{one.window.shown(axis)} apart from {other.window.shown(axis)}: {one.reason_apart_from(other)}"


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows of a plan.

    ``facts``: what windows that share have in common; a fact is named by the reason why windows that differ in it do not share.
    ``stream``: equal for windows over one stream, filters aside. ``is_final``: only results with final rows read them.
    ``own_basic_windows``: why they may not read the basic windows of longer ones, "" if they may.
    """

    node: MergePartials
    facts: Mapping[str, object]
    stream: str
    is_final: bool
    own_basic_windows: str

    @property
    def window(self) -> Window:
        """The kind of the windows, with their lengths."""
        return self.node.window

    @property
    def partials(self) -> frozenset[str]:
        """The names of the partial results in a state."""
        return frozenset((COUNT, *(partial.name for partial in self.node.partials)))

    def differences(self, other: _Windows) -> list[str]:
        """Return the names of the facts in which these windows differ from others."""
        return [reason for reason, fact in self.facts.items() if other.facts[reason] != fact]

    def may_read(self, longest: _Windows) -> bool:
        """Return True if these windows may read the basic windows of others, which are longer, or come more often."""
        fits = not self.differences(longest) and longest.is_final and consists_of_basic(self.window, longest.window)
        return fits and not self.own_basic_windows and _by_length(self) < _by_length(longest)

    def reason_apart_from(self, other: _Windows) -> str:
        """Return why these windows do not share with others over the same stream, but for filters."""
        if differences := self.differences(other):
            return differences[0]
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
    streams, unfiltered = _stream_texts(plan), _stream_texts(plan, filters=False)
    corrected = _corrected(plan, unsettled)
    for node in nodes(plan):
        if isinstance(node, MergePartials):
            is_final = node.digest not in unsettled
            reasons = {
                "rows of windows of several sizes are final": not is_final,
                "their events are no points, or may be taken back": node.input.schema.shape != POINT
                or node.input.traits.retracts
                or node.input.digest in corrected,
                "what reads the shorter ones needs their CTI": node.digest in below,
            }
            facts = {
                "their events pass other filters": streams[node.input.digest],
                "their groups are others": node.keys,
                "rows of one live on the windows, of the other at their ends": node.stamp,
                # a run could not go on with the others once the code has changed
                "windows that call a user's code have partial results of their own": modules_called([node])
                and node.digest,
                "other columns are left out before their events are united or filtered": stream_of(node).digest,
                "one sends final rows, the other rows that may be taken back": is_final,
            }
            windows.append(
                _Windows(
                    node=node,
                    facts=facts,
                    stream=unfiltered[node.input.digest],
                    is_final=is_final,
                    own_basic_windows=next((reason for reason, holds in reasons.items() if holds), ""),
                )
            )
    return windows


def _corrected(plan: Node, unsettled: frozenset[str]) -> set[str]:
    """Return the nodes, by digest, below or at which a kernel may take back rows that it has sent.

    ``unsettled`` are the nodes that send early rows.
    """
    corrected: set[str] = set()

    def visit(node: Node, inputs: list[bool]) -> bool:
        corrects = any(inputs)
        if isinstance(node, EvaluatedOperator) and not corrects:
            factory = node.evaluation.factory
            corrects = factory.corrects and (not factory.always_holds or node.digest in unsettled)
        if corrects:
            corrected.add(node.digest)
        return corrects

    fold(plan, visit)
    return corrected


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


def _stream_texts(plan: Node, *, filters: bool = True) -> dict[str, str]:
    """Return a hash of the rows of each node, by digest; ``filters``: False for the rows as they would be without filters."""
    texts: dict[str, str] = {}

    def visit(node: Node, inputs: list[str]) -> str:
        if leaves_out_columns(node) or (isinstance(node, Where) and not filters):
            text = inputs[0]
        else:
            text = short_hash([text_of_source(node) if isinstance(node, Source) else state_text(node), inputs])
        texts[node.digest] = text
        return text

    fold(plan, visit)
    return texts


def consists_of_basic(window: Window, longest: Window) -> bool:
    """Return True if windows on a grid consist of the basic windows of others, which are no shorter and a hop each."""
    own, basic = window.basic_grid(), longest.basic_grid()
    distances = (own.size, own.hop, own.offset - basic.offset)
    return basic.divides and own.size <= basic.size and not any(distance % basic.hop for distance in distances)


def _values(windows: MergePartials) -> int:
    """Return the number of columns of partial results, the number of events included."""
    return 1 + len(partial_fields(windows.partials))
