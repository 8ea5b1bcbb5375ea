"""Compute the reports of a run as plain values: run.metrics, run.progress, and the line of the progress log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamq.choices import CountReason, RunState
from streamq.html import Readout
from streamq.policies import show_level
from streamq.run.instant_text import finite_instant, instant_fields, instant_text, iso_moment, iso_time_of_day
from streamq.run.micro_batches import RunHistory
from streamq.run.source_status import SourceStatus, ctis_in, source_statuses
from streamq.time import INFINITY, TIMESTAMP, show_duration

if TYPE_CHECKING:
    from streamq.compiler.staged_plan import StagedPlan
    from streamq.runtime.hosted_kernel import HostedKernel
    from streamq.runtime.stage import Stage

VERSION = 1
"""The version of the names in ``metrics``, ``progress`` and ``why().to_dict()``; it changes if a name changes or is removed."""


def metrics(
    program: StagedPlan, history: RunHistory, state: RunState, now: dt.datetime | None = None
) -> dict[str, Any]:
    """Return the metrics of a run; ``docs/operations.md`` lists the fields."""
    axis, last, now = program.axis, history.last, now or dt.datetime.now(dt.UTC)
    spark: Mapping[str, Any] = {} if last is None else last.spark
    sources = source_statuses(program, history).values()
    fields = {
        "version": VERSION,
        "at": iso_moment(now),
        "state": state,
        "query": {
            "batches": history.number + 1,
            "rows": sum(source.rows for source in sources),
            "rows_per_second": spark.get("inputRowsPerSecond"),
            "processed_per_second": spark.get("processedRowsPerSecond"),
            "duration_ms": None if last is None else last.duration_ms,
            "inserted": history.inserted,
            "retracted": history.retracted,
            "retraction_ratio": history.retracted / history.inserted if history.inserted else None,
            "batches_unseen": history.unseen,
        },
        "quarantined": {
            name: history.late.get(f"{name}|{CountReason.QUARANTINED}", 0) for name in program.quarantining
        },
        "consistency": show_level(program.options.level, axis),
        "results": [{"output": result.egress.output} for result in program.results],
        "sources": {source.name: _source_metrics(source, axis, now) for source in sources},
        "stages": [
            _stage_metrics(program.stages[number], program, history, operator)
            for number, operator in enumerate(_stateful_operators(spark, len(program.stages)))
        ],
    }
    return Readout(fields)


def _source_metrics(source: SourceStatus, axis: str, now: dt.datetime) -> dict[str, Any]:
    """Return the metrics of a source: its progress, and its rows by reason."""
    has_cti = finite_instant(source.cti) is not None
    behind = now.timestamp() - source.cti / 1e6 if has_cti and axis == TIMESTAMP else None
    return {
        **instant_fields("cti", source.cti, axis),
        **instant_fields("watermark", source.watermark, axis),
        "ended": source.cti == INFINITY,
        "lag": source.lag,
        "behind_seconds": None if behind is None else round(behind, 3),
        "cti_moved_at": iso_time_of_day(source.moved_at),
        "rows_came_at": iso_time_of_day(source.heard_at),
        "rows": source.rows,
        **source.late,
    }


def _stage_metrics(
    stage: Stage, program: StagedPlan, history: RunHistory, operator: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metrics of a stage; ``operator`` is Spark's report on its stateful operator."""
    operators = [_operator_metrics(hosted, program, history) for hosted in stage.hosted]
    totals = {
        name: sum(operator[name] for operator in operators)
        for name in ("inserted", "retracted", "state_rows", "state_bytes")
    }
    times = [operator[part] for part in ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs") if part in operator]
    return {
        "level": stage.number,
        "state_rows": totals["state_rows"],
        "state_bytes": totals["state_bytes"],
        "retraction_ratio": totals["retracted"] / totals["inserted"] if totals["inserted"] else None,
        "time_ms": sum(times) if times else None,
        "operators": operators,
    }


def _operator_metrics(hosted: HostedKernel, program: StagedPlan, history: RunHistory) -> dict[str, Any]:
    """Return the metrics of a stateful operator: its CTIs, output and state."""
    axis, readings = program.axis, history.readings.kernel(hosted.name)
    return {
        "operator": program.titles[hosted.name][0],
        **instant_fields("cti_in", min(ctis_in(program, hosted, history.readings).values()), axis),
        **instant_fields("cti_out", readings.output_cti, axis),
        "inserted": readings.inserted or 0,
        "retracted": readings.retracted or 0,
        "evaluated": readings.evaluated or 0,
        "bins_read": readings.bins_read or 0,
        "cpu_ms": (readings.cpu_us_now or 0) / 1_000,
        "held_rows": readings.held_rows or 0,
        "state_rows": readings.state_rows or 0,
        "state_bytes": readings.state_bytes or 0,
    }


def _stateful_operators(spark: Mapping[str, Any], stages: int) -> Sequence[Mapping[str, Any]]:
    """Return Spark's report on the stateful operator of each stage; Spark begins with the last."""
    operators = spark.get("stateOperators") or []
    return operators[::-1] if len(operators) == stages else [{}] * stages


def progress_record(program: StagedPlan, history: RunHistory) -> dict[str, Any]:
    """Return the last micro-batch, and the progress of the sources after it; before the first one None and zeros."""
    last, axis = history.last, program.axis
    has_readings = last is not None and bool(last.readings)
    fields = {
        "version": VERSION,
        "batch": None if last is None else last.number,
        "at": None if last is None or last.began_at is None else iso_moment(last.began_at),
        "duration_ms": None if last is None else last.duration_ms,
        "rows": 0 if last is None else last.rows,
        "inserted": 0 if last is None else last.inserted,
        "retracted": 0 if last is None else last.retracted,
        "sources": {
            source.name: {
                "rows": source.new_rows if has_readings else 0,
                **instant_fields("cti", source.cti, axis),
                **instant_fields("watermark", source.watermark, axis),
            }
            for source in source_statuses(program, history).values()
        },
        "spark": {} if last is None else dict(last.spark),
    }
    return Readout(fields)


def progress_line(program: StagedPlan, history: RunHistory, name: str | None) -> str:
    """Return one line on the last micro-batch; its counts of late and repeated rows are those of that micro-batch only."""
    last, axis = history.last, program.axis
    query = name or "query"
    if last is None:
        return f"{query}: no micro-batch yet"
    duration = "" if last.duration_ms is None else f" in {last.duration_ms / 1000:.1f} s"
    retracted = f", {last.retracted:,} taken back" if last.retracted else ""
    parts = [f"{query}: batch {last.number}, {last.rows:,} rows{duration}, {last.inserted:,} results{retracted}"]
    for source in source_statuses(program, history).values():
        lag = f" (lag {show_duration(source.lag, axis)})" if source.lag else ""
        parts.append(f"{source.name} at {instant_text(source.cti, axis)}{lag}")
    new = {key: count - history.late_before.get(key, 0) for key, count in history.late.items()}
    repeated = sum(count for key, count in new.items() if key.endswith("|duplicates"))
    refused = sum(new.values()) - repeated
    counts = [f"{n:,} {what}" for n, what in ((refused, "late or invalid"), (repeated, "delivered again")) if n]
    return "; ".join([*parts, *counts])
