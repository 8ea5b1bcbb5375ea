"""How an operator is computed in batch, where there is a choice; explain shows it, and the operator's batch form obeys it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BatchForm(StrEnum):
    """The forms that windows have in batch."""

    DIRECT = "direct"
    """Points are copied into each of their windows, and the copies aggregated by Spark's own aggregates."""

    EXPLODE = "explode"
    """A partial result is copied into each window of its range."""

    DIFFERENCE = "difference"
    """A partial result is added where its range starts and taken off where it ends: a running sum."""

    BLOCKS = "blocks"
    """A window is a suffix of one block of basic windows merged with a prefix of the next."""

    DYADIC = "dyadic"
    """A range is cut into nodes of 2^k windows; a window merges the nodes above it."""

    SWEEP = "sweep"
    """What starts is added and what ends is taken off, at each endpoint of a group."""

    COPIES = "copies"
    """Events are copied into their windows, and the copies aggregated by Spark's own aggregates."""

    EVALUATED = "evaluated"
    """The evaluator of streams over whole histories, bucket by bucket."""


@dataclass(frozen=True, kw_only=True)
class BatchChoice:
    """The form that was chosen for an operator in batch, and why."""

    form: BatchForm
    reason: str

    def __str__(self) -> str:
        return f"{self.form} ({self.reason})"


__all__ = ["BatchChoice", "BatchForm"]
