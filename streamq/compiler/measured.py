"""Measurements of a run, as explain shows them: the rows and state of its operators, and the time of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamq.compiler.staged_plan import StagedPlan


@dataclass(frozen=True)
class Measured:
    """The rows and state of operators as text, by kernel, and the times of stages in milliseconds, by number."""

    operators: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, Any], program: StagedPlan) -> Measured:
        """Return the measurements in the metrics of a run of ``program``; docs/operations.md lists the fields."""
        operators, times = {}, {}
        for stage, own in zip(program.stages, metrics["stages"], strict=True):
            if own["time_ms"] is not None:
                times[stage.number] = float(own["time_ms"])
            for hosted, fields in zip(stage.hosted, own["operators"], strict=True):
                operators[hosted.name] = (
                    f"so far: {fields['inserted']:,} rows inserted, {fields['retracted']:,} retracted; "
                    f"state: {fields['state_rows']:,} rows, {fields['state_bytes']:,} bytes"
                )
        return cls(operators, times)

    def frame(self, stage: int) -> str:
        """Return what follows a stage's title: its time, and whether no other took longer; "" if there is none."""
        if stage not in self.times:
            return ""
        slowest = ", the slowest" if len(self.times) > 1 and self.times[stage] == max(self.times.values()) else ""
        return f", {self.times[stage]:,.0f} ms in the last micro-batch{slowest}"

    def is_slowest(self, stage: int) -> bool:
        """Return True if there are several stages, and none took longer."""
        return self.frame(stage).endswith("the slowest")


UNMEASURED = Measured()
"""Nothing has been measured: the query does not run."""

__all__ = ["UNMEASURED", "Measured"]
