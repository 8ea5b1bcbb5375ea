"""Kernel of windows: only of the rows that are sent are the results computed.

A sum may overflow, and a module fail, over the members that a window has so far, though not over all that it will have. So the
windows whose rows nobody has been sent yet have no results.

State and cost: as of ``recompute``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streamq.runtime.active_groups import ActiveGroups
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.kernels.recompute import RecomputeKernel

M = TypeVar("M", bound=MemberEvaluator)


@dataclass(frozen=True)
class WindowsKernel(RecomputeKernel[M]):
    """A kernel of results over the members of windows of any kind."""

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        """Return the evaluator's rows, with the results of those that are sent."""
        is_asked = partial(self._is_sent, clock=groups.clock)
        return self.evaluator.rows(groups.histories, groups.open_since, groups.upto, is_asked=is_asked)
