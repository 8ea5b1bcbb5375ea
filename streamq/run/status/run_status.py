"""How a run stands after a micro-batch: its state, its sources, its stages; and its reports as plain values and as a line."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from streamq.choices import CountReason, RunState
from streamq.compiler.staged_plan import StagedPlan
from streamq.html import Readout
from streamq.policies import show_level
from streamq.run.status.history import (
    NO_MICRO_BATCH,
    RunHistory,
    SourceStatus,
    finite_instant,
    instant_fields,
    instant_text,
    iso_moment,
    iso_time_of_day,
    progress_of_sources,
    source_status,
)
from streamq.runtime.hosts.hosted_kernel import HostedKernel
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.time.progress import LevelProgress, map_progress
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_duration

VERSION = 1
"""The version of the names in ``metrics``, ``progress`` and ``why().to_dict()``; it changes if a name changes or is removed."""

COUNTS = ("inserted", "retracted", "evaluated", "bins_read", "held_rows", "state_rows", "state_bytes")
"""The counts of an operator with state, named as its readings are."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """How a run of ``program`` stands; all reports on a run are renderings of it.

    ``history``: what is known of its micro-batches. ``reason``: the error that the run failed with, or why it is over. ``now``:
    the time of day. ``busy_since``: when its first micro-batch began, None if none is being processed. ``pace``: that of the
    trigger "adaptive", None for other triggers. ``name``: that of the run.
    """

    program: StagedPlan
    history: RunHistory
    state: RunState = RunState.RUNNING
    reason: str = ""
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    busy_since: dt.datetime | None = None
    pace: Mapping[str, Any] | None = None
    name: str = "query"

    @property
    def axis(self) -> str:
        """The time axis of the queries."""
        return self.program.axis

    @cached_property
    def sources(self) -> Mapping[str, SourceStatus]:
        """The statuses of the sources, by relation."""
        return {r.name: source_status(self.program, r, self.history) for r in self.program.sources}

    @cached_property
    def progress_of_sources(self) -> Mapping[str, LevelProgress]:
        """The progress of the sources as operators see it at the level of consistency, by relation."""
        return progress_of_sources(self.program, self.history.readings)

    @cached_property
    def kernels(self) -> Mapping[str, HostedKernel]:
        """The kernels of all stages by their output relations, in order of the stages."""
        return {hosted.name: hosted for stage in self.program.stages for hosted in stage.hosted}

    @cached_property
    def input_ctis(self) -> Mapping[str, Mapping[int, int]]:
        """The CTI at the end of each channel of a kernel, after the channel's steps have changed it, by kernel and number."""
        ctis = {name: self.history.readings.kernel(name).output_cti for name in self.kernels}
        ctis |= {relation: progress.c for relation, progress in self.progress_of_sources.items()}
        come = {relation: MINUS_INFINITY if cti is None else cti for relation, cti in ctis.items()}
        return {
            name: {ch.number: map_progress(come[ch.relation], ch.progress_maps) for ch in hosted.channels}
            for name, hosted in self.kernels.items()
        }

    def metrics(self) -> dict[str, Any]:
        """Return the metrics; ``docs/operations.md`` lists the fields."""
        history, program, last = self.history, self.program, self.history.last or NO_MICRO_BATCH
        quarantined = {name: history.late.get(f"{name}|{CountReason.QUARANTINED}", 0) for name in program.quarantining}
        # Spark reports the stages' operators with state beginning with the last
        reports = (last.spark.get("stateOperators") or [])[::-1]
        reports = reports if len(reports) == len(program.stages) else [{}] * len(program.stages)
        fields = {
            "version": VERSION,
            "at": iso_moment(self.now),
            "state": self.state,
            "query": {
                "batches": history.number + 1,
                "rows": sum(source.rows for source in self.sources.values()),
                "rows_per_second": last.spark.get("inputRowsPerSecond"),
                "processed_per_second": last.spark.get("processedRowsPerSecond"),
                "duration_ms": last.duration_ms,
                "inserted": history.inserted,
                "retracted": history.retracted,
                "retraction_ratio": history.retracted / history.inserted if history.inserted else None,
                "batches_unseen": history.unseen,
            },
            "quarantined": quarantined,
            "consistency": show_level(program.options.level, self.axis),
            "results": [{"output": result.egress.output} for result in program.results],
            "sources": {source.name: self._source(source) for source in self.sources.values()},
            "stages": [self._stage(stage, report) for stage, report in zip(program.stages, reports, strict=True)],
        }
        return self._with_pace(fields)

    def progress(self) -> dict[str, Any]:
        """Return the last micro-batch, and the progress of the sources after it; before the first one None and zeros."""
        last = self.history.last or NO_MICRO_BATCH
        sources = {
            source.name: {"rows": source.new_rows if last.readings else 0, **self._instants(source)}
            for source in self.sources.values()
        }
        fields = {
            "version": VERSION,
            "batch": None if last is NO_MICRO_BATCH else last.number,
            "at": None if last.began_at is None else iso_moment(last.began_at),
            "duration_ms": last.duration_ms,
            "rows": last.rows,
            "inserted": last.inserted,
            "retracted": last.retracted,
            "sources": sources,
            "spark": dict(last.spark),
        }
        return self._with_pace(fields)

    def line(self) -> str:
        """Return one line on the last micro-batch; its counts of late and repeated rows are those of that micro-batch only."""
        last, history = self.history.last, self.history
        if last is None:
            return f"{self.name}: no micro-batch yet"
        duration = "" if last.duration_ms is None else f" in {last.duration_ms / 1000:.1f} s"
        retracted = f", {last.retracted:,} taken back" if last.retracted else ""
        parts = [
            f"{self.name}: batch {last.number}, {last.rows:,} rows{duration}, {last.inserted:,} results{retracted}"
        ]
        for source in self.sources.values():
            lag = f" (lag {show_duration(source.lag, self.axis)})" if source.lag else ""
            parts.append(f"{source.name} at {instant_text(source.cti, self.axis)}{lag}")
        new = {key: count - history.late_before.get(key, 0) for key, count in history.late.items()}
        repeated = sum(count for key, count in new.items() if key.endswith("|duplicates"))
        refused = sum(new.values()) - repeated
        counts = [f"{n:,} {what}" for n, what in ((refused, "late or invalid"), (repeated, "delivered again")) if n]
        return "; ".join([*parts, *counts])

    def _with_pace(self, fields: dict[str, Any]) -> dict[str, Any]:
        return Readout(fields if self.pace is None else {**fields, "pace": self.pace})

    def _instants(self, source: SourceStatus) -> dict[str, Any]:
        """Return the progress of a source as plain values."""
        return {
            **instant_fields("cti", source.cti, self.axis),
            **instant_fields("watermark", source.watermark, self.axis),
        }

    def _source(self, source: SourceStatus) -> dict[str, Any]:
        """Return the metrics of a source: its progress, and its rows by reason."""
        has_time = finite_instant(source.cti) is not None and self.axis == TIMESTAMP
        return {
            **self._instants(source),
            "ended": source.cti == INFINITY,
            "lag": source.lag,
            "behind_seconds": round(self.now.timestamp() - source.cti / 1e6, 3) if has_time else None,
            "cti_moved_at": iso_time_of_day(source.moved_at),
            "rows_came_at": iso_time_of_day(source.heard_at),
            "rows": source.rows,
            **source.late,
        }

    def _stage(self, stage: Stage, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics of a stage; ``report`` is Spark's on its stateful operator."""
        operators = [self._operator(hosted) for hosted in stage.hosted]
        totals = {name: sum(operator[name] for operator in operators) for name in COUNTS}
        times = [report[part] for part in ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs") if part in report]
        return {
            "stage": stage.number,
            "state_rows": totals["state_rows"],
            "state_bytes": totals["state_bytes"],
            "retraction_ratio": totals["retracted"] / totals["inserted"] if totals["inserted"] else None,
            "time_ms": sum(times) if times else None,
            "operators": operators,
        }

    def _operator(self, hosted: HostedKernel) -> dict[str, Any]:
        """Return the metrics of a stateful operator: its CTIs, output and state."""
        readings = self.history.readings.kernel(hosted.name)
        return {
            "operator": self.program.titles[hosted.name][0],
            **instant_fields("cti_in", min(self.input_ctis[hosted.name].values()), self.axis),
            **instant_fields("cti_out", readings.output_cti, self.axis),
            "cpu_ms": (readings.cpu_us_now or 0) / 1_000,
            **{name: getattr(readings, name) or 0 for name in COUNTS},
        }
