"""A source over the history of another one: each row is an event as that source gave it, and none is ever retracted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql import types as t

from streamq.operators.operator import BatchRun
from streamq.operators.source import AS_END, AS_START, Source
from streamq.operators.source_arguments import ItemRule, SourcePolicy, TickColumn
from streamq.plan.footprint import Footprint
from streamq.plan.node import Traits
from streamq.plan.schema import Field, Schema
from streamq.runtime.event import LE, RE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_START, EVENT_END = "__event_start", "__event_end"
"""The columns of the table that hold the lifetimes, in ticks."""


@dataclass(frozen=True, eq=False, repr=False)
class HistorySource(Source):
    """Reads events that another source gave; the schemas are equal, so operators above cannot tell the two apart.

    It is no operator of the language: only traces use it, in-process.
    """

    table: str
    columns: tuple[Field, ...]
    axis: str
    shape: str
    lasts: Traits
    policy: SourcePolicy
    ids: tuple[str, ...] = ()

    @property
    def footprint(self) -> Footprint:
        return Footprint(final="every row", cost="a pass over what is new")

    @classmethod
    def over(cls, source: Source) -> HistorySource:
        """Return the source over the history of ``source``, under the name of its table."""
        times = (Field(EVENT_START, t.LongType()), Field(EVENT_END, t.LongType()))
        lasts = replace(source.traits, retracts=False, moves_ends=False)
        return cls(
            source.table,
            (*source.schema.fields, *times),
            source.schema.axis,
            source.schema.shape,
            lasts,
            SourcePolicy(),
        )

    @property
    def title(self) -> str:
        return "history"

    @property
    def roles(self) -> dict[str, str]:
        return {EVENT_START: AS_START, EVENT_END: AS_END}

    def _schema(self) -> Schema:
        return Schema(self.payload, self.axis, self.shape, self.consumed)

    def _traits(self) -> Traits:
        return self.lasts

    def define_items(self) -> Iterable[ItemRule]:
        return TickColumn(LE, EVENT_START), TickColumn(RE, EVENT_END)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> NoReturn:
        """Raise AssertionError: traces run in-process."""
        raise AssertionError(self.table)


__all__ = ["EVENT_END", "EVENT_START", "HistorySource"]
