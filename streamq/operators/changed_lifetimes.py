"""The change of lifetimes by a start and a length, in Arrow, as Spark computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.choices import Anchor, LengthKind
from streamq.errors import TimeError, sentence
from streamq.operators.lifetime_change import BREACH, Length, Start
from streamq.runtime.lifetimes import saturating
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.operators.arrow_rows import ArrowRows


@dataclass(frozen=True)
class ChangedLifetimes:
    """The lifetimes that a start and a length give to events."""

    start: Start
    length: Length

    def of(self, rows: ArrowRows) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return the new starts and ends in ticks, saturating, and a mask of the rows that have a new lifetime.

        Raises TimeError for a start further back than ``within`` allows.
        """
        is_there, start = self._starts(rows)
        lasts = self._lengths(rows)
        end = np.where(lasts == INFINITY, INFINITY, saturating(start, lasts))
        is_alive = is_there & (lasts > 0) & (start < INFINITY) & (end > start)
        return pa.array(start), pa.array(end), pa.array(is_alive)

    def _starts(self, rows: ArrowRows) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return two arrays: True where a row has a start, and the starts in ticks, INFINITY for a row without one.

        A row has none only where the start's expression is NULL; one that starts at an endless end has INFINITY.

        Raises TimeError for a start further back than ``within`` allows.
        """
        start, le = self.start, rows.starts.to_numpy()
        if start.expr is None:
            anchor = rows.ends.to_numpy() if start.anchor == Anchor.RE else le
            return np.ones(rows.count, bool), saturating(anchor, start.by)
        at = rows.evaluate(start.expr)
        is_there, starts = at.is_valid().to_numpy(zero_copy_only=False), pc.fill_null(at, INFINITY).to_numpy()
        if start.within is not None and (is_early := starts < saturating(le, -start.within)).any():
            shown = f"found start {starts[is_early][0]} of an event at {le[is_early][0]}"
            raise TimeError(sentence("alter_lifetime", BREACH, shown))
        return is_there, starts

    def _lengths(self, rows: ArrowRows) -> np.ndarray[Any, Any]:
        """Return the new lengths in ticks; INFINITY for an endless lifetime, and where the expression of the length is NULL."""
        length = self.length
        if length.kind == LengthKind.FIXED:
            return np.full(rows.count, length.by)
        if length.expr is not None:
            return pc.fill_null(rows.evaluate(length.expr), INFINITY).to_numpy(zero_copy_only=False)
        le, re = rows.starts.to_numpy(), rows.ends.to_numpy()
        with np.errstate(over="ignore"):
            duration = re - le
        # a difference that overflows is longer than the axis: durations saturate
        duration = np.where(duration < 0, INFINITY, duration)
        return np.where(re == INFINITY, INFINITY, saturating(duration, length.by))


__all__ = ["ChangedLifetimes"]
