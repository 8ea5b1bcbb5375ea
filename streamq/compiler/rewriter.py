"""The rewriter: applies the laws until none fires, and checks after every firing that schema and traits did not change.

It goes bottom-up, with an explicit stack, and visits each distinct node once a phase. The result of a law is rewritten before
the nodes above it, so a law sees only inputs to which no law applies any more. A filter goes down before that: so it is merged
with the filters on its way, and they pass an operator together. It knows the readers in a plan: the nodes that are read more
than once, and the ways from sources to the first operators with state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from streamq.compiler.estimates import LikelyFlows
from streamq.compiler.rules import RULES, Rule
from streamq.compiler.rules.rule import EXPANSION
from streamq.compiler.rules.steps import columns_read
from streamq.errors import NeedsSpark, RewriteError, StreamqError
from streamq.operators import Explode, Join, MergePartials, Select, Source, Where, WindowAggregate
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import show_partials
from streamq.operators.step import Step
from streamq.plan.expr import Expr, fold, show
from streamq.plan.footprint import Expected
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import answers_kept, reads_lifetime
from streamq.plan.schema import show_keys
from streamq.time import WindowEnds
from streamq.windows import Window


@dataclass(frozen=True)
class Consumer:
    """One way of a source's events to the first operator that keeps state, or to the result.

    ``source``: the source's digest. ``reads``: the expressions on the way, the last operator's included. ``steps``: the steps on
    the way. ``has_state``: the way ends at an operator with state. ``window``: that operator's window, if it has one.
    ``bounds_windows``: the operator's events decide up to which instant windows of endless lifetimes are reported.
    ``reads_judged_rows``: the operator cannot judge lateness. ``spread``: the columns of the source by which its events reach the
    operator one by one; () if they are spread otherwise, None if they are combined before, or meet no others.
    """

    source: str
    reads: tuple[Expr, ...] = ()
    steps: tuple[Step, ...] = ()
    has_state: bool = False
    window: Window | None = None
    bounds_windows: bool = False
    reads_judged_rows: bool = False
    spread: tuple[str, ...] | None = None

    def with_node(self, node: Node) -> Consumer:
        """Return the way extended by a node."""
        steps = (*self.steps, node) if isinstance(node, Step) else self.steps
        return replace(self, reads=(*self.reads, *expressions(node)), steps=steps)

    @property
    def changes_rows(self) -> bool:
        """True if a step on the way moves rows in time or makes several of one."""
        return any(step.effect.progress_map is not None or step.effect.multiplies for step in self.steps)

    @property
    def moves_alike(self) -> bool:
        """True if lateness can be judged after the steps: each moves rows as it moves progress, and none multiplies them.

        If a step replaces lifetimes by windows, these must be fixed, and no step before it may move starts.
        """
        is_moved_first = self._spans is not None and self.ends is None
        effects = [step.effect for step in self.steps]
        return not is_moved_first and all(e.moves_as_progress and not e.multiplies for e in effects)

    @property
    def ends(self) -> WindowEnds | None:
        """The ends of the windows whose members the events are; None if they go by events, and if a step before moves starts."""
        before = self.steps if self._spans is None else self.steps[: self._spans]
        window = self.window if self._spans is None else self.steps[self._spans].event_windows
        moves_start = any(step.effect.moves_start for step in before)
        return None if window is None or moves_start else window.traits.ends

    @property
    def _spans(self) -> int | None:
        """The place of the first step that replaces lifetimes by spans of windows; None without one."""
        return next((place for place, step in enumerate(self.steps) if step.event_windows is not None), None)

    @property
    def reads_lifetime(self) -> bool:
        """True if an expression on the way reads some part of a lifetime."""
        return any(reads_lifetime(expr, "start", "end", "duration") for expr in self.reads)


def consumers(plan: Node) -> dict[str, list[Consumer]]:
    """Return the consumers of each source, by the source's digest: one for each way to an operator with state or the result."""
    by_source: dict[str, list[Consumer]] = {}

    def visit(node: Node, inputs: list[list[Consumer]]) -> list[Consumer]:
        if isinstance(node, Source):
            return [Consumer(node.digest)]
        if not isinstance(node, EvaluatedOperator):
            is_step = isinstance(node, Step) or expressions(node)
            return [way.with_node(node) if is_step else way for ways in inputs for way in ways]
        factory = node.evaluation.factory
        for port, ways in zip(node.evaluation.inputs, inputs, strict=True):
            for way in ways:
                end = replace(
                    way.with_node(node),
                    has_state=True,
                    window=node.event_windows,
                    bounds_windows=node.hears_endpoints and not factory.always_holds,
                    reads_judged_rows=isinstance(node, MergePartials) and bool(node.results),
                    spread=None if factory.combines or port.meet_none else port.hashed_before(way.steps) or (),
                )
                by_source.setdefault(way.source, []).append(end)
        return []

    for way in fold(plan, visit):
        by_source.setdefault(way.source, []).append(way)
    return by_source


def read_more_than_once(plan: Node) -> set[str]:
    """Return the digests of the nodes that are inputs of several nodes, or several inputs of one."""
    read = Counter(child.digest for node in nodes(plan) for child in node.children)
    return {digest for digest, times in read.items() if times > 1}


def reads(plan: Node, below: Node) -> bool:
    """Return True if a plan reads a node; the walk is breadth first, through higher nodes only: rules change what is near."""
    level, seen = {plan.digest: plan}, set[str]()
    while level and below.digest not in level:
        seen.update(level)
        higher = [node for node in level.values() if node.height > below.height]
        level = {child.digest: child for node in higher for child in node.children if child.digest not in seen}
    return bool(level)


def without_unread_columns(plan: Node) -> Node:
    """Return a plan in which sources that only selects read have the columns that these read.

    A row that is no event is shown with its payload, so all columns of files would be read for an error that seldom is; and in a
    stream all would go through the stage that judges what is late.
    """
    readers: dict[str, list[Node]] = {}
    for node in nodes(plan):
        for child in node.children:
            readers.setdefault(child.digest, []).append(node)

    def visit(node: Node, inputs: list[Node]) -> Node:
        read = [_read_by(reader) for reader in readers.get(node.digest, [plan])]
        if isinstance(node, Source) and all(names is not None for names in read):
            return node.with_columns(frozenset().union(*(names or () for names in read)))
        return node.with_children(inputs)

    return fold(plan, visit)


def _read_by(node: Node) -> frozenset[str] | None:
    """Return the columns that a select reads; None for other nodes, and if they may be any."""
    return columns_read(node, ()) if isinstance(node, Select) else None


T = TypeVar("T")

SHARED = "what is below is read elsewhere too, and would be computed twice"


@dataclass(frozen=True)
class Firing:
    """A firing of a rule, which replaced ``left`` by ``right``."""

    rule: Rule
    left: Node
    right: Node

    @cached_property
    def sketches(self) -> tuple[str, str]:
        """The operators that the rule replaced, input first, and those that took their place: ``… | select a | where a > 3``.

        Both go down to the nodes that the two sides have in common.
        """
        return sketch(self.left, self._common), sketch(self.right, self._common)

    def changed(self, side: Node) -> list[Node]:
        """Return the operators of one side that the other has not, as far as a sketch shows them."""
        return [node for node in _near(side) if node.digest not in self._common]

    @cached_property
    def _common(self) -> frozenset[str]:
        """The digests of the nodes that the two sides have in common."""
        before = _near(self.left)[1:] if self.left.children else []
        return frozenset({n.digest for n in before} & {n.digest for n in _near(self.right)})


@dataclass(frozen=True)
class SkippedRule:
    """A rule that did not fire at a node where a user might expect it, with the reason."""

    rule: Rule
    node: Node
    reason: str


@dataclass(frozen=True)
class RewriteResult:
    """A rewritten plan, the firings that led to it, and the rules that did not fire where a user might expect them."""

    plan: Node
    firings: tuple[Firing, ...]
    skipped: tuple[SkippedRule, ...]


def rewrite(
    plan: Node, rules: Sequence[Rule] = RULES, budget: int | None = None, expected: Expected | None = None
) -> RewriteResult:
    """Expand all nodes of a plan and apply ``rules`` until none fires any more.

    ``budget`` bounds the number of firings (default: 1,000 plus a hundred per node). ``expected``: the input that is expected.
    Raises RewriteError, naming the rule, if a rule changes the schema or the traits, makes an illegal plan, or changes nothing,
    and if the budget is spent.
    """
    likely = None if expected is None else LikelyFlows(expected)
    rules = [rule for rule in rules if likely is not None or not rule.reads_rates]
    firings: list[Firing] = []
    skipped: list[SkippedRule] = []
    with answers_kept():
        plan = expanded(plan, partial(_expansion, [r for r in rules if r.phase == EXPANSION], likely, firings))
        allowed = 1_000 + 100 * len(nodes(plan)) if budget is None else budget
        for phase in sorted({r.phase for r in rules} - {EXPANSION}):
            own = [r for r in rules if EXPANSION < r.phase <= phase]
            run = _Phase(own, plan, allowed, firings, likely)
            plan = run.normal_form(plan)
            skipped += run.skipped([r for r in rules if r.phase == phase], plan)
    return RewriteResult(plan, tuple(firings), tuple(skipped))


def _expansion(rules: Sequence[Rule], likely: LikelyFlows | None, firings: list[Firing], node: Node) -> Node:
    """Return the expansion of a node: its own, or that of the first rule that has another one."""
    whole = node.expansion
    for rule in rules if whole is not node else ():
        other = _apply(rule, node, likely, whole)
        if other is not None:
            firings.append(Firing(rule, whole, other))
            return other
    return whole


class _Phase:
    """One fixpoint of some rules.

    ``normal``: the normal form of each node so far, by digest. ``shared``: the digests of nodes that are read more than once.
    ``refused``: firings at joins that would have computed a shared node twice.
    """

    def __init__(
        self, rules: Sequence[Rule], plan: Node, budget: int, firings: list[Firing], likely: LikelyFlows | None
    ):
        self.rules, self.budget, self.firings, self.likely = rules, budget, firings, likely
        self.normal: dict[str, Node] = {}
        self.shared = read_more_than_once(plan)
        self.refused: dict[tuple[str, str], SkippedRule] = {}

    def normal_form(self, plan: Node) -> Node:
        """Apply the rules to a plan until none applies any more, and return the result; normal forms are kept in ``normal``."""
        todo: list[tuple[str, Node, Node | None]] = [("enter", plan, None)]
        while todo:
            step, node, result = todo.pop()
            if step == "become" and result is not None:
                self._set_normal(node, self.normal[result.digest])
            elif node.digest in self.normal:
                continue
            elif step == "enter":
                # a filter goes down before its input is rewritten, and takes those on its way with it
                replacement = self._fire(node) if isinstance(node, Where) else None
                if replacement is None:
                    todo.append(("leave", node, None))
                    todo.extend(("enter", c, None) for c in reversed(node.children))
                else:
                    todo += [("become", node, replacement), ("enter", replacement, None)]
            else:
                over_normal = self._over_normal_inputs(node)
                replacement = None if over_normal.digest in self.normal else self._fire(over_normal)
                if replacement is None:
                    self._set_normal(over_normal, self.normal.get(over_normal.digest, over_normal))
                    self._set_normal(node, self.normal[over_normal.digest])
                else:
                    todo += [("become", node, replacement), ("become", over_normal, replacement)]
                    todo.append(("enter", replacement, None))
        return self.normal[plan.digest]

    def skipped(self, rules: Sequence[Rule], plan: Node) -> list[SkippedRule]:
        """Return the rules that did not fire where a user might expect it, with the node of the normal form and the reason.

        Only ``rules`` count: those whose ``why_not`` returns a reason, and those that would compute a shared window twice.
        """
        parts = nodes(plan)
        asked = [(r, r.why_not, n) for r in rules if r.why_not for n in parts]
        skipped = [SkippedRule(r, n, reason) for r, why, n in asked if (reason := _ask(r, why, n, self.likely))]
        over_shared = [(r, n) for n in parts if self._is_over_shared(n) for r in rules if r.recomputes]
        skipped += [SkippedRule(r, n, SHARED) for r, n in over_shared if _apply(r, n, self.likely, n)]
        digests = {n.digest for n in parts}
        return [*skipped, *(s for s in self.refused.values() if s.node.digest in digests and s.rule in rules)]

    def _set_normal(self, node: Node, normal: Node) -> None:
        """Set the normal form of a node; it counts as shared if the node does."""
        self.normal[node.digest] = normal
        if node.digest in self.shared:
            self.shared.add(normal.digest)

    def _over_normal_inputs(self, node: Node) -> Node:
        """Return a node over the normal forms of its inputs; the node itself if they are its inputs."""
        inputs = [self.normal[c.digest] for c in node.children]
        same = all(a.digest == b.digest for a, b in zip(inputs, node.children, strict=True))
        return node if same else node.with_children(inputs)

    def _fire(self, node: Node) -> Node | None:
        """Return the result of the first rule that applies to a node, and record the firing; None if none does.

        A rule that would compute a shared window twice does not count; it is noted in ``refused``. Nodes below that the result no
        longer reads, but others do, make their inputs shared. Raises RewriteError after more than ``budget`` firings.
        """
        is_over_shared = self._is_over_shared(node)
        for rule in self.rules:
            result = None if rule.recomputes and is_over_shared else _apply(rule, node, self.likely, node)
            if result is None:
                continue
            if rule.recomputes and isinstance(node, Join) and self._reads_shared_no_more(node, result):
                self.refused[rule.name, node.digest] = SkippedRule(rule, node, SHARED)
                continue
            self.firings.append(Firing(rule, node, result))
            if len(self.firings) > self.budget:
                last = ", ".join(dict.fromkeys(f.rule.name for f in self.firings[-20:]))
                raise RewriteError("rewrite", f"no end after {self.budget} firings", f"the last were {last}")
            self._share_bypassed_inputs(node, result)
            return result
        return None

    def _is_over_shared(self, node: Node) -> bool:
        """Return True if a rule that changes an operator with state below a node would compute a shared one twice.

        That is the operator itself, or lies above it, with at most filters, selects and explodes between. Of joins the result
        of the rule tells (``_reads_shared_no_more``).
        """
        if isinstance(node, Join) or not node.children:
            return False
        below = node.children[0]
        while isinstance(below, Where | Select | Explode) and below.digest not in self.shared:
            below = below.input
        return below.digest in self.shared

    def _reads_shared_no_more(self, join: Join, result: Node) -> bool:
        """Return True if the result of a rule at a join does not read a shared node below it any more."""
        still_read = {n.digest for n in nodes(result)}
        return any(n.digest in self.shared and n.digest not in still_read for n in nodes(join) if n is not join)

    def _share_bypassed_inputs(self, node: Node, result: Node) -> None:
        """Mark the inputs of a shared node that a rule bypassed as shared: its other readers and the result read them now."""
        todo = list(node.children)
        while todo:
            below = todo.pop()
            if below.digest in self.shared and not reads(result, below):
                self.shared.update(c.digest for c in below.children)
                todo.extend(below.children)


def _ask(rule: Rule, function: Callable[..., T], node: Node, likely: LikelyFlows | None) -> T:
    """Return what a function of a rule answers at a node."""
    return function(node, likely) if rule.reads_rates else function(node)


def _apply(rule: Rule, node: Node, likely: LikelyFlows | None, replaced: Node) -> Node | None:
    """Return the result of a rule at a node, which takes the place of ``replaced``; None if it does not apply.

    Raises RewriteError if the result is an illegal plan, has another schema or other traits, or is the same. NeedsSpark passes.
    """
    try:
        result = _ask(rule, rule.function, node, likely)
    except NeedsSpark:
        raise
    except StreamqError as error:
        raise RewriteError("rewrite", f"rule {rule.name} makes an illegal plan", str(error)) from error
    if result is None:
        return None

    def where() -> str:
        return f"at {type(node).__name__}({node.detail()})"

    if result.schema != replaced.schema:
        change = f"{replaced.schema.describe()} became {result.schema.describe()} {where()}"
        raise RewriteError("rewrite", f"rule {rule.name} changes the schema", change)
    if result.traits != replaced.traits:
        change = f"{replaced.traits} became {result.traits} {where()}"
        raise RewriteError("rewrite", f"rule {rule.name} changes the traits", change)
    if result.digest == replaced.digest:
        raise RewriteError("rewrite", f"rule {rule.name} fires and changes nothing", where())
    return result


# a few operators on one line, for people


NEAR, WIDEST = 16, 64
"""The number of operators below a node that a sketch shows, and the greatest width of each."""


def sketch(node: Node, common: Iterable[str]) -> str:
    """Return a plan as one line, input first, down to the nodes in ``common``: ``union(a, b) | where v > 1``.

    At most NEAR operators are shown; the place of what is left out is marked by "…".
    """
    stop = set(common)
    near = {n.digest for n in _near(node)}

    def piped(top: Node) -> str:
        steps: list[str] = []
        while top.digest in near and top.digest not in stop and len(top.children) == 1:
            steps.append(clip_text(_briefly(top)))
            top = top.children[0]
        if isinstance(top, Source):
            steps.append(top.shown_name())
        elif top.digest in near and top.digest not in stop:
            steps.append(f"{top.title}({'; '.join(map(piped, top.children))})")
        else:
            steps.append("…")
        return " | ".join(reversed(steps))

    return piped(node)


def _briefly(node: Node) -> str:
    """Return what an operator computes as text, without a window's grid, which does not matter to any law."""
    match node:
        case WindowAggregate(keys=keys, aggregates=aggregates):
            return f"{node.title}{show_keys(keys)}: {', '.join(show(a) for _, a in aggregates) or 'keys'}"
        case MergePartials(keys=keys, arguments=arguments, partials=partials):
            return f"{node.title}{show_keys(keys)}: {show_partials(arguments, partials)}"
    return f"{node.title} {node.detail()}".rstrip()


def clip_text(text: str) -> str:
    """Shorten a text to WIDEST characters."""
    return text if len(text) <= WIDEST else text[: WIDEST - 1].rstrip() + "…"


def _near(node: Node) -> list[Node]:
    """Return a node and those below it, breadth first, NEAR of them at most."""
    near, position = [node], 0
    while position < len(near) and len(near) < NEAR:
        near += near[position].children
        position += 1
    return near[:NEAR]
