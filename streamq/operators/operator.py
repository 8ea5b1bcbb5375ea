"""Operators: nodes that can be executed. The compiler asks each for its batch form and for its form over groups.

A batch form is a way to compute an operator in batch. A row key is the columns that, together with the start, identify a row
of an operator; a sink that upserts needs them. An observer receives the rows that go into and come out of each node.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.choices import Word
from streamq.errors import PlanError
from streamq.plan.expr import show
from streamq.plan.footprint import NO_RATES, Expected, ExpectedRates, Footprint
from streamq.plan.node import Node, expressions, nodes
from streamq.plan.passes import set_aside_by
from streamq.plan.schema import Schema
from streamq.runtime.time.lateness import ASIDE
from streamq.user_code.udo import UserOperator
from streamq.windows import Window


@dataclass(frozen=True)
class RowKey:
    """The key's ``columns``; if they do not identify a row, ``wrong`` and ``hint`` are the text of the error.

    ``rows_of``: the user's operator that makes the rows, if one does. ``lists``: the columns that hold lists of such rows, with
    their operators.
    """

    columns: tuple[str, ...] = ()
    wrong: str = ""
    hint: str = "Use output='changelog'."
    rows_of: UserOperator | None = None
    lists: Mapping[str, UserOperator] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str], schema: tuple[str, ...]) -> RowKey:
        """Return the key of a projection; ``names`` maps kept columns to their new names, ``schema`` lists all its columns.

        The key holds only an error if this one has one, or if the projection drops one of its columns. ``rows_of`` and ``lists``
        are not passed on.
        """
        if self.wrong:
            return RowKey(wrong=self.wrong, hint=self.hint)
        if missing := [column for column in self.columns if column not in names]:
            wrong = f"the group's column {missing[0]!r} is not among {', '.join(schema)}"
            return RowKey(wrong=wrong, hint="Keep it in select.")
        return RowKey(tuple(names[column] for column in self.columns))

    def of_elements(self, column: str) -> RowKey | None:
        """Return the key of the rows in a column that holds lists of a user's operator; None for any other column.

        The key holds only an error if the operator may return several rows.
        """
        operator = self.lists.get(column)
        if operator is None:
            return None
        if operator.gives_one_row:
            return RowKey(self.columns, self.wrong, self.hint, operator)
        hint = "Declare properties=[sq.one_output_per_group], if it gives one; else use output='changelog'."
        return RowKey(wrong=f"{operator.name} may give several rows a window", hint=hint, rows_of=operator)

    def with_own_lifetimes(self) -> RowKey | None:
        """Return the key of a user's operator whose rows set their lifetimes themselves; None for other rows.

        The key holds only an error, because such rows may start anywhere.
        """
        if self.rows_of is None or not self.rows_of.gives_one_row:
            return self if self.rows_of is not None else None
        hint = "Say stamp='align' or 'point_at_end'; else use output='changelog'."
        return RowKey(wrong=f"rows of {self.rows_of.name} have lifetimes of their own", hint=hint)


def no_row_key(title: str) -> RowKey:
    """Return the key for an operator whose rows cannot be identified; the error says that ``title`` was found."""
    hint = "It goes with the aggregates of a window, under where and select; else use output='changelog'."
    return RowKey(wrong=f"found {title}", hint=hint)


class BatchForm(Word):
    """The ways to compute windows in batch."""

    DIRECT = "direct"
    """Copy each event into its windows, and aggregate the copies by Spark's own aggregates."""

    EXPLODE = "explode"
    """Copy each partial result into every window of its range, and merge by window."""

    DIFFERENCE = "difference"
    """Add each partial result, or each event of snapshots, where its range starts, and subtract it where that has ended."""

    RUNNING = "running"
    """Merge the events of snapshots in the order of their starts, where none of them ends."""

    BLOCKS = "blocks"
    """Divide the basic windows into blocks; merge a suffix of one block and a prefix of the next into each window."""

    DYADIC = "dyadic"
    """Cut each range into nodes of 2^k windows; each window merges the nodes that contain it."""

    EVALUATED = "evaluated"
    """Run the evaluator that streams use over the whole histories, in tasks that share the groups."""


@dataclass(frozen=True, kw_only=True)
class BatchChoice:
    """The form chosen for an operator, and the reason that explain shows."""

    form: BatchForm
    reason: str

    def __str__(self) -> str:
        return f"{self.form} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class BatchForms:
    """The forms of an operator: the one of the least cost, and those that it cannot take, each with the reason."""

    cheapest: BatchChoice
    refused: Mapping[BatchForm, str]

    @property
    def possible(self) -> list[BatchForm]:
        """The forms that the operator can take."""
        return [form for form in BatchForm if form not in self.refused]

    def choose(self, hint: BatchForm | None) -> BatchChoice:
        """Return the form that a user asks for by ``hint`` if the operator can take it; else the cheapest form."""
        cheapest = self.cheapest
        if hint is None:
            return cheapest
        if hint in self.refused:
            return BatchChoice(
                form=cheapest.form, reason=f"{cheapest.reason}; not {hint}, as asked: {self.refused[hint]}"
            )
        reason = f"as asked; {cheapest.reason}" if hint is cheapest.form else f"as asked, instead of {cheapest}"
        return BatchChoice(form=hint, reason=reason)


def shown_costs(per_event: float | None, what: str, costs: Mapping[BatchForm, float]) -> str:
    """Return the costs of forms by which one is chosen, after the number of ``what`` an event; "" if that is not known."""
    if per_event is None:
        return ""
    each = ", ".join(f"{form} {cost:.3g}" if cost < 1_000 else f"{form} {cost:,.0f}" for form, cost in costs.items())
    return f"; {per_event:.3g} {what} an event, so it costs: {each}"


def only_evaluated(reason: str) -> BatchForms:
    """Return the forms of an operator that only its evaluator computes, for a reason."""
    refused: dict[BatchForm, str] = {form: reason for form in BatchForm if form is not BatchForm.EVALUATED}
    return BatchForms(cheapest=BatchChoice(form=BatchForm.EVALUATED, reason=reason), refused=refused)


@dataclass(frozen=True)
class QuarantineEvents:
    """The quarantined events of a module that an operator calls.

    ``schema`` is theirs. ``in_windows``: the module is called for windows and their events are set aside together with the
    window and group; else it is called event by event.
    """

    module: str
    schema: Schema
    in_windows: bool


@dataclass
class BatchRun:
    """The state of turning a plan into a DataFrame.

    ``tables``: the DataFrames of the query, by name. ``until``: the bound on windows of endless lifetimes, in ticks; None lets
    the data decide. ``sources``: the plan's source nodes, by table. ``aside``: one DataFrame per operator whose modules set
    events aside. ``keeps``: both the result and the events set aside will be read, so the rows that hold both are persisted;
    ``kept`` lists those DataFrames. ``rates``: the rows that are expected, from which operators choose their form. ``hint``: the
    form that the user asks for, of operators that can take it. ``lasting``: the digests of operators of whose rows only those
    without an end are read.
    """

    tables: Mapping[str, DataFrame]
    until: int | None = None
    sources: dict[str, Node] = field(default_factory=dict)
    keeps: bool = False
    aside: list[DataFrame] = field(default_factory=list)
    kept: list[DataFrame] = field(default_factory=list)
    rates: ExpectedRates = NO_RATES
    hint: BatchForm | None = None
    lasting: frozenset[str] = frozenset()

    def without_set_aside(self, rows: DataFrame) -> DataFrame:
        """Split rows: append those that modules have set aside to ``aside`` and return the others.

        Where both will be read (``keeps``), the rows are persisted first.
        """
        if self.keeps:
            self.kept.append(rows.persist())
        is_aside = F.col(ASIDE).isNotNull()
        self.aside.append(rows.where(is_aside).select(f"{ASIDE}.*"))
        return rows.where(~is_aside).drop(ASIDE)


class Operator(Node):
    """A node that can be executed."""

    attempts: ClassVar[bool] = False
    """True if its expressions may set events aside."""

    def __post_init__(self) -> None:
        """Raise PlanError if an expression sets events aside and the operator, or its expansion, does not attempt it."""
        super().__post_init__()
        for expr in expressions(self):
            if (calls := set_aside_by(expr)) and self.expansion is self and not self.attempts:
                name = calls[0].function.name
                wrong = (
                    "what it fails for is set aside in select, with_columns, where and the columns of group_by alone"
                )
                hint = f"Compute it before, in a column of its own: .with_columns(x={show(calls[0])})."
                raise PlanError(name, wrong, f"found {show(expr)} in {self.title}", hint)

    @property
    @abstractmethod
    def footprint(self) -> Footprint:
        """The operator's promises on its result in a stream, its state, and the cost of a micro-batch."""

    @abstractmethod
    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the operator's result over the results of its inputs: columns ``__le``, ``__re`` (ticks) and payload."""

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        """Return the rows a tick that it gives at most over ``inputs`` with so many; None where that cannot be estimated."""
        return None

    @property
    def set_aside(self) -> tuple[QuarantineEvents, ...]:
        """The quarantined events of the modules that the operator calls, one entry a module."""
        return ()

    @property
    def progress(self) -> str:
        """The rule for the CTI of its result, where ``c`` is the least CTI of its inputs."""
        return "c"

    def batch_forms(self, rates: ExpectedRates) -> BatchForms | None:
        """Return the forms that ``in_batch`` can take, and the cheapest at such rates of the plan's nodes; None if it has one."""
        return None

    @property
    def module_notes(self) -> tuple[str, ...]:
        """The lines that explain prints below the operator about modules of the user's own, one line a note."""
        return ()

    @property
    def event_windows(self) -> Window | None:
        """The windows whose members it evaluates in a stream; None if it evaluates none."""
        return None

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        """Return the columns that, together with the start, identify a row; ``inputs``: the row keys of its inputs."""
        return no_row_key(self.title or type(self).__name__)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Return the operator over all groups at once; ``is_keyed`` says which ``inputs`` carry the columns ``keys``.

        Rows meet only within a group, and the result carries the keys, too. Raises PlanError if an input that must belong to
        the group is the same for all groups. By default all must belong to it, and the keys are columns of the rows that the
        operator hands on; a row meets no other.
        """
        if not all(is_keyed):
            raise not_of_the_group(self, "one of its inputs")
        return self.with_children(inputs)


def set_aside(plan: Node) -> list[QuarantineEvents]:
    """Return the quarantined events of all modules of a plan whose nodes are expanded."""
    return [aside for node in nodes(plan) if isinstance(node, Operator) for aside in node.set_aside]


def not_of_the_group(operator: Node, which: str) -> PlanError:
    """Return the error for an operator in a sub-plan of ``apply`` that reads a stream from outside where it must not.

    ``which`` names the input in the message, as "its left side".
    """
    return PlanError(
        "apply",
        f"{operator.title} takes a stream that is not of the group",
        f"{which} does not come from the sub-plan's argument",
        "Derive it from the argument, or do this outside of apply.",
    )


class PassThrough(Operator):
    """An operator that does nothing in a stream: its readers get the rows of its inputs unchanged."""

    def copied_column(self, name: str) -> str | None:
        return name

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return sum(rows for rows in inputs if rows is not None) if None not in inputs else None


class Observer(Protocol):
    """A listener to the rows of each node of a plan.

    In-process it receives Arrow tables, part by part; on Spark it receives DataFrames, once, when the plan is lowered.
    """

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        """Receive rows of the input number ``port`` of a node."""

    def rows_out(self, node: Node, rows: Any) -> None:
        """Receive rows of a node's result."""


class NullObserver:
    """The observer that ignores all rows."""

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        """Ignore the rows."""

    def rows_out(self, node: Node, rows: Any) -> None:
        """Ignore the rows."""


NOBODY = NullObserver()
