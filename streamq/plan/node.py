"""Logical plans: immutable nodes with a schema checked on construction and a digest that is their identity.

``Verbs`` is the base of all classes of verbs: a plan, the tables behind its sources, and a way to derive another stream. What
plans hold has a text for the names of states and of their columns, without the code of modules.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from operator import is_, or_
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast, dataclass_transform

from pyspark.sql.types import DataType

from streamq.errors import CallResult, PlanError, check_keywords, kind_of
from streamq.plan.expr import PLAIN_JSON, Expr, Tree, fold
from streamq.plan.function import NamedObject
from streamq.plan.passes import kept_answer
from streamq.plan.schema import POINT, Schema, lazy
from streamq.time import Grid, show_duration

T = TypeVar("T")

_SORTED_JSON = json.JSONEncoder(sort_keys=True)

ADDED = {"added": True}
"""Metadata of a field that older plans lack: it is part of a plan's identity only where it differs from its default."""

INLINE = {"inline": True}
"""Metadata of a field that holds a dataclass: if that is of the default's class, its fields replace it in a plan's
identity and in JSON."""


class ImpliedWindows(StrEnum):
    """The windows of an aggregate over rows whose operator implies them; the value is the verb that makes them."""

    LIFETIMES = "per_window"
    SNAPSHOTS = "snapshot_window"


@dataclass(frozen=True)
class Traits:
    """Properties of an operator's output beyond its schema.

    retracts: rows may be taken back, because the source says so (disorder is another matter);
    moves_ends: a retraction may move an end, not only delete; infinite: lifetimes may never end; longest: how many ticks a
    lifetime lasts at most, None if the plan does not bound them. The others are for verbs, and not compared, as rules need not
    keep them. mixes_windows: results of several overlapping windows live at one instant, so that a window over them has several
    as members; on_windows: every lifetime is the interval of a window; implied_windows: the windows of an aggregate over the
    rows without a window verb before it, None if it needs one; endless: no lifetime ends; cells: every lifetime is a cell of this
    grid, whose cells do not overlap, None if they may be others.
    """

    retracts: bool = False
    moves_ends: bool = False
    infinite: bool = False
    longest: int | None = None
    mixes_windows: bool = field(default=False, compare=False)
    on_windows: bool = field(default=False, compare=False)
    implied_windows: ImpliedWindows | None = field(default=None, compare=False)
    endless: bool = field(default=False, compare=False)
    cells: Grid | None = field(default=None, compare=False)

    def __or__(self, other: Traits) -> Traits:
        """Return the traits of rows of either; ``longest`` is the greater length, None if one is None.

        Neither are on windows or cells, nor do they imply some.
        """
        longest = None if self.longest is None or other.longest is None else max(self.longest, other.longest)
        return Traits(
            self.retracts or other.retracts,
            self.moves_ends or other.moves_ends,
            self.infinite or other.infinite,
            longest,
            self.mixes_windows or other.mixes_windows,
            endless=self.endless and other.endless,
        )

    def lifetimes(self, axis: str) -> str:
        """Return what is known of the lifetimes as explain shows it; "" if nothing is."""
        if self.endless:
            return "without an end"
        if self.cells is not None:
            return f"windows of {show_duration(self.cells.size, axis)} side by side"
        if self.longest is None:
            return ""
        return "points" if self.longest == 1 else f"at most {show_duration(self.longest, axis)}"


NO_ROWS = Traits(longest=0, endless=True)
"""The traits of no rows at all."""


@dataclass(frozen=True)
class WrittenPattern:
    """A pattern as its user wrote it: the name and text of a definition, and the variables of its events."""

    name: str
    text: str
    variables: frozenset[str]

    def variables_in(self, columns: Iterable[str]) -> list[str]:
        """Return the variables that have a column among ``columns``, sorted; those of variable x are called ``x.m``, ``x.@``."""
        owners = {column.partition(".")[0] for column in columns if "." in column}
        return sorted(owners & self.variables)


class Node:
    """A node of a plan; a subclass has the decorator ``@node``, defines ``_schema``, and ``_traits`` unless they are its inputs'.

    A property that is equal for all nodes of a class may be a class attribute: ``title = "where"``.
    ``children`` are the input nodes, in the order of the fields; ``height``: the most nodes on a way down from it.
    """

    schema: Schema
    traits: Traits
    digest: str
    children: tuple[Node, ...]
    height: int = 0
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        """Compute children, schema, traits and digest; raise PlanError where the parameters do not fit the inputs."""
        object.__setattr__(self, "children", tuple(self._inputs()))
        object.__setattr__(self, "height", 1 + max((child.height for child in self.children), default=0))
        object.__setattr__(self, "schema", self._schema())
        traits = self._traits()
        is_longer = self.schema.shape == POINT and traits.longest != 1
        object.__setattr__(self, "traits", replace(traits, longest=1) if is_longer else traits)
        fields = dataclasses.fields(self)
        values = [type(self).__name__, *(canonical(getattr(self, f.name)) for f in fields if "added" not in f.metadata)]
        added = {f.name for f in fields if "added" in f.metadata}.intersection(identity_fields(self))
        values += [{name: canonical(getattr(self, name)) for name in added}] if added else []
        object.__setattr__(self, "digest", hashlib.sha256(_SORTED_JSON.encode(values).encode()).hexdigest()[:16])

    @abstractmethod
    def _schema(self) -> Schema:
        """Return the schema of its rows; raise PlanError where its parameters do not fit its inputs."""

    def _traits(self) -> Traits:
        traits = reduce(or_, (child.traits for child in self.children), NO_ROWS)
        # rows of several inputs may meet in lifetimes that end
        return replace(traits, endless=False) if traits.endless and len(self.children) != 1 else traits

    @property
    def title(self) -> str:
        """The word at the head of the node's line in explain."""
        return ""

    @property
    def expansion(self) -> Node:
        """The plan that the compiler puts in its place before the first rule; the node itself if it can be executed."""
        return self

    def expansion_by(self, likely: Any) -> Node:
        """Return the expansion for the rows that are expected, the compiler's ``LikelyFlows``."""
        return self.expansion

    def copied_column(self, name: str) -> str | None:
        """Return the inputs' column that an output column copies; None if it is computed."""
        return None

    def columns_below(self, name: str) -> list[tuple[Node, str]] | None:
        """Return the inputs, each with its column, whose values an output column has; None if it is computed."""
        below = self.copied_column(name)
        return None if below is None else [(child, below) for child in self.children]

    def detail(self) -> str:
        """The node's own parameters, for explain."""
        return ""

    @lazy
    def line(self) -> str:
        """The node's title and parameters, as one line of explain."""
        return f"{self.title} {self.detail()}".rstrip()

    def _inputs(self) -> list[Node]:
        """Return the nodes among the fields, also inside tuples, in the order of the fields."""
        inputs: list[Node] = []
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Node):
                inputs.append(value)
            elif isinstance(value, tuple):
                inputs.extend(v for v in value if isinstance(v, Node))
        return inputs

    def with_children(self, children: Sequence[Node]) -> Node:
        """Return the same node over as many other inputs, and the node itself over its own.

        Raises PlanError where its parameters do not fit them, and ValueError for another number of inputs.
        """
        if len(children) != len(self.children):
            raise ValueError(f"{self.title} has {len(self.children)} inputs, not {len(children)}")
        if all(map(is_, children, self.children)):
            return self
        rest = iter(children)
        changes: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Node):
                changes[f.name] = next(rest)
            elif isinstance(value, tuple) and any(isinstance(v, Node) for v in value):
                changes[f.name] = tuple(next(rest) if isinstance(v, Node) else v for v in value)
        return dataclasses.replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


N = TypeVar("N", bound=Node)

NODES: dict[str, type[Node]] = {}
"""All node classes by name."""


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[N]) -> type[N]:
    """Make a class a frozen dataclass that plans know by its name; its schema, traits and digest are computed on construction."""
    frozen = dataclass(frozen=True, eq=False, repr=False)(cls)
    NODES[cls.__name__] = frozen
    return frozen


def canonical(value: Any) -> Any:
    """Return a field's value as JSON, from which the digest is computed; raise TypeError for a value of any other kind."""
    if type(value) in PLAIN_JSON:
        # most values are; the classes below are abstract, which makes asking for them slow
        return value
    match value:
        case tuple() | list():
            return [v if type(v) in PLAIN_JSON else canonical(v) for v in value]
        case Node():
            return {"node": value.digest}
        case Expr():
            return {"expr": value.digest}
        case NamedObject():
            return value.identity
        case DataType():
            return {"type": value.json()}
        case None | bool() | int() | str():
            return value
    if dataclasses.is_dataclass(value):
        return {type(value).__name__: {n: canonical(v) for n, v in identity_values(value).items()}}
    raise TypeError(f"plan: a field of type {type(value).__name__} has no canonical form")


def identity_fields(value: Any) -> list[str]:
    """Return the fields that make a dataclass's identity: all but those added later that have their default."""
    fields = dataclasses.fields(value)
    return [f.name for f in fields if "added" not in f.metadata or getattr(value, f.name) != f.default]


def identity_values(value: Any) -> dict[str, Any]:
    """Return the values of ``identity_fields`` by name; an INLINE field is replaced by the fields of its value."""
    values: dict[str, Any] = {}
    kinds = {f.name: type(f.default) for f in dataclasses.fields(value) if "inline" in f.metadata}
    for name in identity_fields(value):
        held = getattr(value, name)
        values |= identity_values(held) if type(held) is kinds.get(name) else {name: held}
    return values


def expressions(node: Node) -> list[Expr]:
    """Return the expressions among a node's parameters, also inside tuples and dataclasses, in the order of its fields.

    Their parts, and the expressions of the node's inputs, are not among them.
    """
    exprs: list[Expr] = []
    for f in dataclasses.fields(type(node)):
        _add_expressions(getattr(node, f.name), exprs)
    return exprs


def _add_expressions(value: Any, exprs: list[Expr]) -> None:
    """Add the expressions in a field's value to a list."""
    if isinstance(value, Expr):
        exprs.append(value)
    elif isinstance(value, tuple):
        for one in value:
            if type(one) not in PLAIN_JSON:
                _add_expressions(one, exprs)
    elif dataclasses.is_dataclass(value) and not isinstance(value, Node):
        for f in dataclasses.fields(value):
            _add_expressions(getattr(value, f.name), exprs)


def nodes(root: Node) -> list[Node]:
    """Return every distinct node, inputs first, in a fixed order."""
    in_order: list[Node] = []
    fold(root, lambda n, _: in_order.append(n))
    return in_order


def expanded(root: N, expansion: Callable[[Node], Node] = lambda node: node.expansion) -> N:
    """Return the plan with every node replaced by its expansion, expansions included."""
    done: dict[str, Node] = {}
    wholes: dict[str, Node] = {}
    waiting: list[Node] = [root]
    while waiting:
        node = waiting[-1]
        if node.digest not in wholes:
            wholes[node.digest] = expansion(node)
        whole = wholes[node.digest]
        below = (whole,) if whole is not node else node.children
        missing = [part for part in below if part.digest not in done]
        if missing:
            waiting += reversed(missing)
            continue
        waiting.pop()
        if whole is not node:
            done[node.digest] = done[whole.digest]
            continue
        done[node.digest] = node.with_children([done[child.digest] for child in node.children])
    return cast(N, done[root.digest])


def number_sources(root: N) -> tuple[N, dict[str, str]]:
    """Return the plan with unnamed sources numbered by order of appearance, and the name of each table in it, new or not.

    Two programs that write the same query then have the same digests, by which checkpoints recognise a query.
    """
    tables = list(dict.fromkeys(table for n in nodes(root) if (table := getattr(n, "table", None)) is not None))
    unnamed = [t for t in tables if t.startswith("#")]
    names = {t: t if t not in unnamed else f"#{unnamed.index(t) + 1}" for t in tables}
    return rename_tables(root, names), names


def rename_tables(root: N, names: Mapping[str, str]) -> N:
    """Return the plan with other names for its tables, also in policies; ``names`` has the new name of every table."""

    def visit(node: Node, inputs: list[Node]) -> Node:
        node = node.with_children(inputs)
        table: Any = getattr(node, "table", None)
        policy: Any = getattr(node, "policy", None)
        changes: dict[str, Any] = {} if table is None else {"table": names[table]}
        if policy is not None:
            changes["policy"] = policy.renamed(names)
        same = all(getattr(node, name) == value for name, value in changes.items())
        return node if same else dataclasses.replace(node, **changes)

    return cast(N, fold(root, visit))


class Verbs(CallResult, ABC):
    """A plan and its tables by source name; each verb derives another one."""

    plan: Node
    tables: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        """Name the verbs after Stream in Python's own messages, as in a TypeError for a missing argument."""
        named_after(cls, "Stream")

    @abstractmethod
    def _derive(self, plan: Node, *others: Verbs) -> Self:
        """Return a stream of that plan over the tables of this one and of ``others``."""


class Placeholder(ABC):
    """A stand-in for a stream that does not exist yet; a function called with one runs as soon as the stream exists."""

    @abstractmethod
    def call_later(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the placeholder of the result of a call that has this among its arguments."""


F = TypeVar("F", bound=Callable[..., Any])


def accepts_placeholders(function: F) -> F:
    """Decorate a function of streams: a call with a placeholder as an argument returns a placeholder, and is made later."""

    # so that what is made later remembers the call, too
    later = check_keywords(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Placeholder):
                return value.call_later(later, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, call)


def tables_behind(streams: Iterable[Verbs], verb: str) -> dict[str, Any]:
    """Return the tables behind the sources of some streams, by name.

    Raises PlanError if two sources of one name have different tables; two objects are different, even with equal rows.
    """
    tables: dict[str, Any] = {}
    for stream in streams:
        for name, table in stream.tables.items():
            if tables.setdefault(name, table) is not table:
                reason, hint = "they are different tables", "Give each its own name=."
                raise PlanError(verb, f"two sources called {name!r}", reason, hint)
    return tables


def named_after(cls: type, name: str) -> None:
    """Set the qualified names of a class's functions to ``name.function``, and check the keywords of public ones."""
    functions = {attribute: function for attribute, function in vars(cls).items() if inspect.isfunction(function)}
    for function in functions.values():
        function.__qualname__ = f"{name}.{function.__name__}"
    # two names of one function stay names of one
    checked = {function: check_keywords(function) for function in functions.values()}
    for attribute, function in functions.items():
        if not attribute.startswith("_"):
            setattr(cls, attribute, checked[function])


def not_a_stream(verb: str, value: Any) -> NoReturn:
    """Raise PlanError for an argument that is not a stream."""
    kind = kind_of(value)
    hint = getattr(type(value), "not_yet", "")
    hint = f"Begin with the scenario: scenario.{verb}(stream)." if type(value).__name__ == "Scenario" else hint
    if kind.endswith("DataFrame") or kind == "pyarrow Table":
        hint = "Make a source of it, as sq.points(df, time=...)."
    raise PlanError(verb, "not a stream", f"found {kind}", hint)


def state_text(value: Any) -> Any:
    """Return a value that a plan holds as JSON, for names of states: without the code of modules, and the inputs of nodes."""
    if type(value) in PLAIN_JSON:
        return value
    match value:
        case tuple() | list():
            return [state_text(one) for one in value]
        case Node():
            fields = {n: v for n, v in identity_values(value).items() if not _holds_nodes(v)}
            return [type(value).__name__, {n: state_text(v) for n, v in fields.items()}]
        case Tree():
            return kept_answer(("state text", value.digest), lambda: fold(value, _tree_text))
        case NamedObject():
            return value.state_identity
        case DataType():
            return value.json()
        case None | bool() | int() | str():
            return value
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, {n: state_text(v) for n, v in identity_values(value).items()}]
    return [type(value).__name__, repr(value)]


def short_hash(value: Any) -> str:
    """Return a hash of JSON in 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _tree_text(tree: Tree, operands: list[str]) -> str:
    """Return a hash of a part of an expression, from those of its operands."""
    fields = [f.name for f in dataclasses.fields(type(tree)) if f.name not in ("digest", "shown", "origin")]
    return short_hash([type(tree).__name__, [_without_operands(getattr(tree, name)) for name in fields], operands])


def _holds_nodes(value: Any) -> bool:
    """True for a node, and for a tuple of which one is a node."""
    return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(v, Node) for v in value))


def _without_operands(value: Any) -> Any:
    """Return a field of an expression as JSON, with a word in the place of each operand."""
    if isinstance(value, tuple):
        return [_without_operands(one) for one in value]
    return "operand" if isinstance(value, Tree) else state_text(value)
