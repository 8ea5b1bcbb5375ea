"""What the compiler asks of every operator: its form in batch, and what it is over groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from streamq.errors import PlanError, sentence
from streamq.operators.batch_form import BatchChoice
from streamq.operators.grid_aggregation import GridAggregation
from streamq.operators.row_key import RowKey, no_row_key
from streamq.plan.node import Node, expressions, nodes
from streamq.plan.passes import set_aside_by
from streamq.plan.schema import Schema
from streamq.plan.tree import show
from streamq.runtime.batch_evaluation import ASIDE
from streamq.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class QuarantineEvents:
    """The events that a module, called by an operator, sets aside: they are of ``schema``, and ``in_windows`` or on their own."""

    module: str
    schema: Schema
    in_windows: bool


@dataclass
class BatchRun:
    """A plan on its way to become a DataFrame: its tables by name, and the bound on windows of endless lifetimes, in ticks.

    ``sources`` are the plan's source nodes, by table; ``lowered`` the DataFrames of the nodes so far, by digest; ``aside`` what
    modules have set aside, a DataFrame an operator; ``kept`` those that are persisted, because both are read (``keeps``).
    """

    tables: Mapping[str, DataFrame]
    until: int | None = None
    sources: dict[str, Node] = field(default_factory=dict)
    lowered: dict[str, DataFrame] = field(default_factory=dict)
    keeps: bool = False
    aside: list[DataFrame] = field(default_factory=list)
    kept: list[DataFrame] = field(default_factory=list)

    def without_set_aside(self, rows: DataFrame) -> DataFrame:
        """Return rows without those that modules have set aside, which go to ``aside``."""
        from pyspark.sql import functions as F

        if self.keeps:
            self.kept.append(rows.persist())
        is_aside = F.col(ASIDE).isNotNull()
        self.aside.append(rows.where(is_aside).select(f"{ASIDE}.*"))
        return rows.where(~is_aside).drop(ASIDE)


class Operator(Node, ABC):
    """A node that can be executed.

    ``only_rewritten``: users do not write it, the rewriter makes it. ``keeps_events``: it hands on every event of its inputs,
    with the lifetime that it has. ``matches_keys``: it compares keys of two inputs, of which a NULL equals nothing.
    ``attempts``: an event for which an expression of it fails may be set aside.
    """

    only_rewritten: ClassVar[bool] = False
    matches_keys: ClassVar[bool] = False
    keeps_events: ClassVar[bool] = False
    attempts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for expr in () if self.attempts else expressions(self):
            if calls := set_aside_by(expr):
                name = calls[0].function.name
                wrong = (
                    "what it fails for is set aside in select, with_columns, where and the columns of group_by alone"
                )
                hint = f"Compute it before, in a column of its own: .with_columns(x={show(calls[0])})."
                raise PlanError(sentence(name, wrong, f"found {show(expr)} in {self.title}", hint))

    @abstractmethod
    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """The operator's result over the results of its inputs: columns ``__le``, ``__re`` (ticks) and payload."""

    @property
    def batch_choice(self) -> BatchChoice | None:
        """The form that ``in_batch`` takes; None where it has only one."""
        return None

    @property
    def module_notes(self) -> tuple[str, ...]:
        """What explain says of modules of a user's own below the operator, a line each."""
        return ()

    @property
    def set_aside(self) -> tuple[QuarantineEvents, ...]:
        """The events that modules which it calls set aside where they fail."""
        return ()

    @property
    def keeps_state(self) -> bool:
        """True if in a stream it keeps events, or what is made of them, from one micro-batch to the next."""
        return False

    @property
    def event_windows(self) -> Window | None:
        """The windows whose members it evaluates in a stream, if it does."""
        return None

    @property
    def bounds_windows(self) -> bool:
        """True if its events decide how far windows, or pieces, of endless lifetimes go."""
        return False

    def grid_windows(self) -> GridAggregation | None:
        """The operator as windows of a grid made of partial results, if it is that in a stream."""
        return None

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        """The columns that, beside their start, tell its rows apart; ``inputs``: the row keys of its inputs."""
        return no_row_key(self.title or type(self).__name__)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """The operator applied to every group at once: over ``inputs`` of which some (``is_keyed``) carry the columns ``keys``.

        Rows meet only within a group, and the result carries the keys, too. Raises PlanError where the operator needs an
        input of the group and has one that is the same for all groups.
        """
        raise not_of_the_group(self, "one of its inputs")


def set_aside(plan: Node) -> list[QuarantineEvents]:
    """The events that the modules of a plan set aside where they fail; the plan's nodes are expanded."""
    return [aside for node in nodes(plan) if isinstance(node, Operator) for aside in node.set_aside]


def not_of_the_group(operator: Node, which: str) -> PlanError:
    """The error for an operator in a sub-plan of ``apply`` that takes a stream from outside where it cannot."""
    return PlanError(
        sentence(
            "apply",
            f"{operator.title} takes a stream that is not of the group",
            f"{which} does not come from the sub-plan's argument",
            "Derive it from the argument, or do this outside of apply.",
        )
    )


class PassThrough(Operator):
    """An operator that in a stream hands on the rows of its inputs as they are, to whatever reads it."""


__all__ = ["BatchRun", "QuarantineEvents", "Operator", "PassThrough", "not_of_the_group", "set_aside"]
