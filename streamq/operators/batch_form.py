"""Batch forms: the ways to compute an operator in batch, for operators with more than one; explain shows the choice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BatchForm(StrEnum):
    """The ways to compute windows in batch."""

    DIRECT = "direct"
    """Copy each point into its windows, and aggregate the copies by Spark's own aggregates."""

    EXPLODE = "explode"
    """Copy each partial result into every window of its range, and merge by window."""

    DIFFERENCE = "difference"
    """Add each partial result where its range starts and subtract it where the range ends: a running sum."""

    BLOCKS = "blocks"
    """Divide the basic windows into blocks; merge a suffix of one block and a prefix of the next into each window."""

    DYADIC = "dyadic"
    """Cut each range into nodes of 2^k windows; each window merges the nodes that contain it."""

    SWEEP = "sweep"
    """Add the events that start and subtract those that end, at each endpoint of a group: a running sum."""

    COPIES = "copies"
    """Copy each event into its windows, and aggregate the copies by Spark's own aggregates."""

    EVALUATED = "evaluated"
    """Run the evaluator that streams use over the whole histories, bucket by bucket."""


@dataclass(frozen=True, kw_only=True)
class BatchChoice:
    """The batch form chosen for an operator, and the reason that explain shows."""

    form: BatchForm
    reason: str

    def __str__(self) -> str:
        return f"{self.form} ({self.reason})"


__all__ = ["BatchChoice", "BatchForm"]
