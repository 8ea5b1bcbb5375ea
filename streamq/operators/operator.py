"""Operators: nodes that can be executed. The compiler asks each for its batch form and for its form over groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from streamq.errors import PlanError, sentence
from streamq.operators.batch_form import BatchForm, BatchForms
from streamq.operators.row_key import RowKey, no_row_key
from streamq.plan.footprint import NO_RATES, Expected, ExpectedRates, Footprint
from streamq.plan.node import Node, expressions, nodes
from streamq.plan.passes import set_aside_by
from streamq.plan.schema import Schema
from streamq.plan.tree import show
from streamq.runtime.lateness import ASIDE
from streamq.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    form that the user asks for, of operators that can take it.
    """

    tables: Mapping[str, DataFrame]
    until: int | None = None
    sources: dict[str, Node] = field(default_factory=dict)
    keeps: bool = False
    aside: list[DataFrame] = field(default_factory=list)
    kept: list[DataFrame] = field(default_factory=list)
    rates: ExpectedRates = NO_RATES
    hint: BatchForm | None = None

    def without_set_aside(self, rows: DataFrame) -> DataFrame:
        """Split rows: append those that modules have set aside to ``aside`` and return the others.

        Where both will be read (``keeps``), the rows are persisted first.
        """
        from pyspark.sql import functions as F

        if self.keeps:
            self.kept.append(rows.persist())
        is_aside = F.col(ASIDE).isNotNull()
        self.aside.append(rows.where(is_aside).select(f"{ASIDE}.*"))
        return rows.where(~is_aside).drop(ASIDE)


class Operator(Node, ABC):
    """A node that can be executed.

    ``only_rewritten``: only the rewriter makes it, never a user. ``keeps_events``: it hands on every event of its inputs with
    an unchanged lifetime. ``matches_keys``: it compares keys of two inputs, and a NULL key equals nothing. ``attempts``: it may
    set aside an event for which one of its expressions fails.
    """

    only_rewritten: ClassVar[bool] = False
    matches_keys: ClassVar[bool] = False
    keeps_events: ClassVar[bool] = False
    attempts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise PlanError if an expression sets events aside, unless the operator attempts its expressions."""
        super().__post_init__()
        for expr in () if self.attempts else expressions(self):
            if calls := set_aside_by(expr):
                name = calls[0].function.name
                wrong = (
                    "what it fails for is set aside in select, with_columns, where and the columns of group_by alone"
                )
                hint = f"Compute it before, in a column of its own: .with_columns(x={show(calls[0])})."
                raise PlanError(sentence(name, wrong, f"found {show(expr)} in {self.title}", hint))

    @property
    @abstractmethod
    def footprint(self) -> Footprint:
        """The operator's promises on its result in a stream, its state, and the cost of a micro-batch."""

    @abstractmethod
    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the operator's result over the results of its inputs: columns ``__le``, ``__re`` (ticks) and payload."""

    def batch_forms(self, rates: ExpectedRates) -> BatchForms | None:
        """Return the forms that ``in_batch`` can take, and the cheapest at such rates of the plan's nodes; None if it has one."""
        return None

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        """Return the rows a tick that it gives at most over ``inputs`` with so many; None where that cannot be estimated."""
        return None

    @property
    def module_notes(self) -> tuple[str, ...]:
        """The lines that explain prints below the operator about modules of the user's own, one line a note."""
        return ()

    @property
    def set_aside(self) -> tuple[QuarantineEvents, ...]:
        """The quarantined events of the modules that the operator calls, one entry a module."""
        return ()

    @property
    def keeps_state(self) -> bool:
        """True if in a stream it keeps events, or results computed from them, from one micro-batch to the next."""
        return False

    @property
    def event_windows(self) -> Window | None:
        """The windows whose members it evaluates in a stream; None if it evaluates none."""
        return None

    @property
    def bounds_windows(self) -> bool:
        """True if its events decide up to which instant windows, or pieces, of endless lifetimes are reported."""
        return False

    @property
    def reads_judged_rows(self) -> bool:
        """True if it cannot judge the lateness of a source's rows, which must have been judged before."""
        return False

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        """Return the columns that, together with the start, identify a row; ``inputs``: the row keys of its inputs."""
        return no_row_key(self.title or type(self).__name__)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Return the operator over all groups at once; ``is_keyed`` says which ``inputs`` carry the columns ``keys``.

        Rows meet only within a group, and the result carries the keys, too. Raises PlanError if an input that must belong to
        the group is the same for all groups.
        """
        raise not_of_the_group(self, "one of its inputs")


def set_aside(plan: Node) -> list[QuarantineEvents]:
    """Return the quarantined events of all modules of a plan whose nodes are expanded."""
    return [aside for node in nodes(plan) if isinstance(node, Operator) for aside in node.set_aside]


def not_of_the_group(operator: Node, which: str) -> PlanError:
    """Return the error for an operator in a sub-plan of ``apply`` that reads a stream from outside where it must not.

    ``which`` names the input in the message, as "its left side".
    """
    return PlanError(
        sentence(
            "apply",
            f"{operator.title} takes a stream that is not of the group",
            f"{which} does not come from the sub-plan's argument",
            "Derive it from the argument, or do this outside of apply.",
        )
    )


class PassThrough(Operator):
    """An operator that does nothing in a stream: its readers get the rows of its inputs unchanged."""

    def copied_column(self, name: str) -> str | None:
        return name

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return sum(rows for rows in inputs if rows is not None) if None not in inputs else None


__all__ = ["BatchRun", "QuarantineEvents", "Operator", "PassThrough", "not_of_the_group", "set_aside"]
