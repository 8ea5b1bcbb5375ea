"""The node below which a plan is on a track: a source as results at one level of consistency read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.operators.operator import BatchRun, PassThrough
from streamq.plan.node import Node, nodes
from streamq.plan.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class OnTrack(PassThrough):
    """A source as results at one level of consistency read it, if a program has several; ``track``: the number of their track.

    CTI: c
    Final: rows of final events
    State: none
    Opens: nothing
    Cost: none: rows are passed on
    """

    input: Node
    track: int
    level: str

    title = "at level"
    only_rewritten = True
    keeps_events = True

    def _schema(self) -> Schema:
        return self.input.schema

    def detail(self) -> str:
        return self.level

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return the source's rows: a batch has no level."""
        return inputs[0]


def track_of(plan: Node) -> int:
    """Return the number of the track that a part of a compiled plan is on; it reads sources on one track only."""
    return next((node.track for node in nodes(plan) if isinstance(node, OnTrack)), 0)


__all__ = ["OnTrack", "track_of"]
