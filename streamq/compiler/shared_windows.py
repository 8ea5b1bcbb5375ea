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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamq.compiler.egress import Egress
from streamq.compiler.results import Results, as_results, unsettled_nodes
from streamq.compiler.rules.projections import merge_selects
from streamq.compiler.state_names import leaves_out_columns, modules_called
from streamq.errors import counted
from streamq.operators import MergePartials, Select, Where
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import ResultWindows, partial_fields
from streamq.plan.expr import Col, Lit
from streamq.plan.node import Node, nodes
from streamq.plan.partial import Partial
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
    """The plans of a program with their windows shared, and the partial results that are shared, in order."""

    plan: Results
    windows: tuple[SharedPartials, ...]


def share_windows(plan: Results, egresses: Sequence[Egress], *, sizes: bool = True) -> SharedPlan:
    """Let the windows of rewritten plans share partial results; ``egresses`` are the forms of the results.

    ``sizes``: shorter windows may read the basic windows of longer ones.
    """
    every = _windows(plan, egresses, sizes=sizes)
    groups: dict[object, list[_Windows]] = {}
    for one in every:
        longest = max([one, *(other for other in every if one.may_read(other))], key=_by_length)
        groups.setdefault((longest.stream, longest.node.window), []).append(one)
    shared = [
        SharedPartials.from_readers([one.node for one in group], max(group, key=_by_length).node.window)
        for group in groups.values()
        if group[1:]
    ]
    chosen = {reader.digest: one for one in shared for reader in one.readers}
    return SharedPlan(_over_shared(plan, chosen), tuple(shared))


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


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows of a plan.

    ``stream``: what windows that share a kernel have in common, beside the grid. ``may_be_shorter``: they may read the basic
    windows of longer ones.
    """

    node: MergePartials
    stream: object
    may_be_shorter: bool

    def may_read(self, longest: _Windows) -> bool:
        """Return True if these windows may read the basic windows of others, which are longer, or come more often."""
        return (
            self.may_be_shorter
            and self.stream == longest.stream
            and _by_length(self) < _by_length(longest)
            and consists_of_basic(self.node.window, longest.node.window)
        )


def _by_length(windows: _Windows) -> tuple[int, int, int]:
    """Return a key by which the windows whose basic windows others read come last."""
    grid = windows.node.window.basic_grid()
    return grid.size, -grid.hop, -grid.offset


def _windows(plan: Results, egresses: Sequence[Egress], *, sizes: bool) -> list[_Windows]:
    """Return the windows of a plan that merge partial results; ``sizes``: as of ``share_windows``."""
    unsettled = unsettled_nodes(plan, egresses)
    # operators with state need the CTI of the windows below them, and so do results with CTIs
    tops = [child for node in nodes(plan) if isinstance(node, EvaluatedOperator) for child in node.children]
    tops += [result for result, egress in zip(plan.inputs, egresses, strict=True) if egress.ctis]
    with_cti = {node.digest for top in tops for node in _stateless(top)}
    corrected = _corrected(plan, unsettled)
    windows = []
    for node in nodes(plan):
        if isinstance(node, MergePartials):
            is_final = node.digest not in unsettled
            # a run could not go on with the others once the code has changed
            own = node.digest if modules_called([node]) else ""
            # rows of windows of several sizes are final, and have one CTI
            may_be_shorter = (
                sizes
                and is_final
                and node.input.schema.shape == POINT
                and not node.input.traits.retracts
                and node.input.digest not in corrected
                and node.digest not in with_cti
            )
            stream = (stream_of(node).digest, node.keys, node.stamp, own, is_final)
            windows.append(_Windows(node=node, stream=stream, may_be_shorter=may_be_shorter))
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


def consists_of_basic(window: Window, longest: Window) -> bool:
    """Return True if windows on a grid consist of the basic windows of others, which are no shorter and a hop each."""
    own, basic = window.basic_grid(), longest.basic_grid()
    distances = (own.size, own.hop, own.offset - basic.offset)
    return basic.divides and own.size <= basic.size and not any(distance % basic.hop for distance in distances)


def _values(windows: MergePartials) -> int:
    """Return the number of columns of partial results, the number of events included."""
    return 1 + len(partial_fields(windows.partials))
