"""Measurements of a run, as explain shows them: rows of its sources, rows, state and time of operators, the time of stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamq.choices import CountReason
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import counted


@dataclass(frozen=True)
class Measured:
    """Lines on operators, by kernel, the times of stages in milliseconds, by number, and lines on sources.

    The lines on an operator have its rows, its state and its processor time; ``slowest`` is the kernel of the one that took most
    of that in the last micro-batch, None if there is one operator only, or none took any.
    The lines on a source, by its name, have its rows so far, and those of them that were late, invalid or repeated, if any were.
    """

    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    times: Mapping[int, float] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slowest: str | None = None

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, Any], program: StagedPlan) -> Measured:
        """Return the measurements in the metrics of a run of ``program``; docs/operations.md lists the fields."""
        operators, times, cpu_ms = {}, {}, {}
        for stage, own in zip(program.stages, metrics["stages"], strict=True):
            if own["time_ms"] is not None:
                times[stage.number] = float(own["time_ms"])
            for hosted, fields in zip(stage.hosted, own["operators"], strict=True):
                cpu_ms[hosted.name] = fields["cpu_ms"]
                operators[hosted.name] = (
                    f"so far: {counted(fields['inserted'], 'row')} inserted, {fields['retracted']:,} retracted",
                    f"state: {counted(fields['state_rows'], 'row')}, {counted(fields['state_bytes'], 'byte')}",
                    f"{fields['cpu_ms']:,.1f} ms of processor time in the last micro-batch",
                )
        sources = {name: _source_lines(fields) for name, fields in metrics["sources"].items()}
        slowest = max(cpu_ms, key=cpu_ms.__getitem__) if len(cpu_ms) > 1 and any(cpu_ms.values()) else None
        return cls(operators, times, sources, slowest)

    def frame(self, stage: int) -> str:
        """Return what follows a stage's title: its time, and whether no other took longer; "" if there is none."""
        if stage not in self.times:
            return ""
        slowest = ", the slowest" if len(self.times) > 1 and self.times[stage] == max(self.times.values()) else ""
        return f", {self.times[stage]:,.0f} ms in the last micro-batch{slowest}"


NOT_USED = {
    CountReason.DROPPED: "late and dropped",
    CountReason.ADJUSTED: "late and adjusted",
    CountReason.INVALID: "invalid",
    CountReason.DUPLICATES: "repeated",
}
"""The words for a source's rows that were not used, or not as they came."""


def _source_lines(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lines on a source from its metrics: its rows, and those that were not used, or not as they came."""
    unused = [f"{fields[reason]:,} {words}" for reason, words in NOT_USED.items() if fields.get(reason)]
    return f"so far: {counted(fields['rows'], 'row')}", *([f"of these {'; '.join(unused)}"] if unused else [])


UNMEASURED = Measured()
"""Nothing has been measured: the query does not run."""

__all__ = ["UNMEASURED", "Measured"]
