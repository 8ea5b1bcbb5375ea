"""The status of a run after its micro-batches: its totals, its sources, its stages; its reports as plain values and a line."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from streamq.choices import CountReason, RunState
from streamq.compiler.staged_plan import Relation, StagedPlan
from streamq.html import Readout
from streamq.policies import show_level
from streamq.progress_policies import GeneratedCtis
from streamq.runtime.envelope import READINGS, TAPPED, TOTALS
from streamq.runtime.hosts.hosted_kernel import HostedKernel
from streamq.runtime.hosts.readings import NO_READINGS, Readings, SourceReadings, combine_readings
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.time.consistency import progress_at_level
from streamq.runtime.time.progress import LevelProgress, map_progress
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, instant_label, show_duration, show_ticks

RESULTS = "streamq"
"""The name under which Spark's reports hold the counts of results, and the reports of buckets."""

REPORTS = {"readings": READINGS, "late": TOTALS, "tapped": TAPPED}
"""The names of reports of buckets beside those counts, each a list of JSON texts, and the channels that they come from."""


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One micro-batch: its start, its duration, and the numbers of its input and output rows.

    ``readings`` are the reports of the stages, empty if no stage ran; ``late`` are running totals by ``source|reason``;
    ``spark`` is Spark's own report, empty if there is none.
    """

    number: int
    began_at: dt.datetime | None = None
    duration_ms: int | None = None
    rows: int = 0
    inserted: int = 0
    retracted: int = 0
    readings: Readings = NO_READINGS
    late: Mapping[str, int] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=dict)

    def per_second(self, rate: str) -> float | None:
        """Return a rate of rows that Spark reports, by the rows that the sources count; None if there is none.

        Of a file that workers read Spark counts one row.
        """
        of_spark, count = self.spark.get(rate), self.spark.get("numInputRows")
        return of_spark * self.rows / count if of_spark and count else of_spark


NO_MICRO_BATCH = MicroBatch(number=-1)
"""The last micro-batch of a run that has had none."""


@dataclass(frozen=True, kw_only=True)
class RunHistory:
    """The totals and latest values of a run, after some of its micro-batches.

    ``last_with_results`` is the last micro-batch that wrote or took back rows. ``readings`` are the latest ones of the stages,
    ``inserted_before`` the number of rows that each kernel had returned before this run. ``late`` are totals by
    ``source|reason``, ``late_before`` those before the last micro-batch. ``rows``, ``inserted`` and ``retracted`` count those of
    this run. ``unseen`` counts micro-batches whose report Spark no longer had.
    """

    last: MicroBatch | None = None
    last_with_results: MicroBatch | None = None
    readings: Readings = NO_READINGS
    inserted_before: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    late_before: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    inserted: int = 0
    retracted: int = 0
    unseen: int = 0

    @property
    def number(self) -> int:
        """The number of the last micro-batch; -1 before the first."""
        return (self.last or NO_MICRO_BATCH).number

    def late_counts(self, reasons: Sequence[str]) -> Readout:
        """Return the counts of late and other odd rows: those of ``reasons``, 0 if there are none, and all others there are."""
        return Readout({**dict.fromkeys(reasons, 0), **self.late})

    def with_micro_batch(self, micro_batch: MicroBatch) -> RunHistory:
        """Return the history with a micro-batch added; the same history if it has that micro-batch already.

        Numbers between the last micro-batch and this one are counted as unseen. If it has no readings, or no counts of late rows,
        those before stand.
        """
        if micro_batch.number <= self.number:
            return self
        has_results = micro_batch.inserted or micro_batch.retracted
        unseen = 0 if self.last is None else micro_batch.number - self.number - 1
        return replace(
            self,
            last=micro_batch,
            last_with_results=micro_batch if has_results else self.last_with_results,
            readings=micro_batch.readings or self.readings,
            inserted_before=self.inserted_before if self.readings else _inserted_before(micro_batch.readings),
            late=micro_batch.late or self.late,
            late_before=self.late,
            rows=self.rows + micro_batch.rows,
            inserted=self.inserted + micro_batch.inserted,
            retracted=self.retracted + micro_batch.retracted,
            unseen=self.unseen + unseen,
        )


def _inserted_before(readings: Readings) -> dict[str, int]:
    """Return the rows that each kernel had returned before its first micro-batch in this run: all, less those of that one."""
    return {
        name: (r.inserted or 0) - (r.inserted_now or 0)
        for name, r in readings.of_kernels.items()
        if r.inserted is not None
    }


def is_of_a_micro_batch(report: Mapping[str, Any]) -> bool:
    """False for a Spark report of a trigger without work: it has the number of the next micro-batch, which has not run yet."""
    return "addBatch" in report["durationMs"]


def from_spark(report: Mapping[str, Any]) -> MicroBatch:
    """Return the micro-batch of a Spark report (``StreamingQueryProgress.json``, parsed).

    Its rows are those that the sources' readings count, without readings those that Spark counts.
    """
    observed = observed_values(report)
    readings = combine_readings(map(json.loads, observed.get("readings", ())))
    late: Counter[str] = Counter()
    for totals in map(json.loads, observed.get("late", ())):
        late.update(totals)
    rows = sum(source.new_rows or 0 for source in readings.of_sources.values())
    return MicroBatch(
        number=report["batchId"],
        began_at=dt.datetime.fromisoformat(report["timestamp"]),
        duration_ms=report.get("batchDuration"),
        rows=rows if readings else report.get("numInputRows") or 0,
        inserted=observed.get("inserted", 0),
        retracted=observed.get("retracted", 0),
        readings=readings,
        late=late,
        spark=report,
    )


def observed_values(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, other than NULL, that a report observed under RESULTS."""
    columns = (report.get("observedMetrics") or {}).get(RESULTS) or {}
    if "schema" in columns:
        # Spark Connect reports names and values separately
        columns = dict(zip((f["name"] for f in columns["schema"]["fields"]), columns["values"], strict=True))
    return {column: value for column, value in columns.items() if value is not None}


def instant_text(t: int, axis: str) -> str:
    """Return an instant as text, without a fraction of a second that is zero; infinities are "its end" and "no CTI"."""
    return {INFINITY: "its end", MINUS_INFINITY: "no CTI"}.get(t) or instant_label(t, axis)


def finite_instant(t: int | None) -> int | None:
    """Return an instant; None for the two infinities."""
    return None if t in (INFINITY, MINUS_INFINITY) else t


def instant_fields(name: str, t: int | None, axis: str) -> dict[str, Any]:
    """Return an instant in ticks as ``name`` and, on the timestamp axis, in ISO 8601 as ``name_at``; None for infinities."""
    return {name: finite_instant(t), f"{name}_at": iso(t) if axis == TIMESTAMP and t is not None else None}


def iso(t: int) -> str | None:
    """Return microseconds since 1970 as ISO 8601; None for an instant outside the calendar's range."""
    text = show_ticks(t, TIMESTAMP).replace(".000000", "")
    return text if text.endswith("Z") else None


def iso_moment(moment: dt.datetime) -> str:
    """Return a moment as ISO 8601, in UTC."""
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def moment_of(milliseconds: int) -> dt.datetime:
    """Return a time of day, in milliseconds since 1970, as a datetime in UTC."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def iso_time_of_day(milliseconds: int | None) -> str | None:
    """Return a time of day, in milliseconds since 1970, as ISO 8601; None stays None."""
    return None if milliseconds is None else iso_moment(moment_of(milliseconds))


_ANY = GeneratedCtis()


@dataclass(frozen=True, kw_only=True)
class SourceStatus(SourceReadings):
    """The status of one source of a run: its latest readings, what is known before the first, and its policy.

    ``late`` counts rows by reason. ``progress`` is its policy, ``leader`` the name of the source whose progress it has, if it has
    not its own. ``moved_by`` is what a user calls an item that moves its watermark.
    """

    name: str
    progress: ProgressPolicy = _ANY
    cti: int = MINUS_INFINITY
    watermark: int = MINUS_INFINITY
    rows: int = 0
    new_rows: int = 0
    round: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    leader: str | None = None
    moved_by: str = "row"

    @property
    def events(self) -> int:
        """The number of rows that are events."""
        return self.rows - self.late.get(CountReason.INVALID, 0)

    @property
    def late_rows(self) -> int:
        """The number of late rows, dropped or adjusted; invalid rows and duplicates do not count."""
        return self.late.get(CountReason.DROPPED, 0) + self.late.get(CountReason.ADJUSTED, 0)

    @property
    def lag(self) -> int | None:
        """The distance in ticks from its CTI to its greatest start; None before it has both, and if it follows another source."""
        if self.leader is not None or finite_instant(self.cti) is None or finite_instant(self.watermark) is None:
            return None
        return max(0, self.watermark - self.cti)


def allowed_silence(program: StagedPlan) -> dict[str, int]:
    """Return the ``idle_after`` of each source that has one, in microseconds of the wall clock, by relation."""
    silences = {r.name: r.source.policy.progress.idle_after for r in program.sources if r.source}
    return {relation: silence for relation, silence in silences.items() if silence is not None}


def followers(program: StagedPlan) -> Mapping[str, str]:
    """Return, for each source that follows another, the relation of that other source, by the follower's relation."""
    return program.stages[0].follows


def source_status(program: StagedPlan, relation: Relation, history: RunHistory) -> SourceStatus:
    """Return the status of the source of a relation; without readings its instants are MINUS_INFINITY or None, its counts 0."""
    assert relation.source is not None
    name, progress = relation.source.shown_name(), relation.source.policy.progress
    readings = history.readings.source(relation.name)
    leaders = [r.source.shown_name() for r in program.sources if r.source and r.source.table == progress.leader]
    reasons = [reason for source, _, reason in (key.rpartition("|") for key in program.late_reasons) if source == name]
    instants = {"moved_at": readings.moved_at or None, "heard_at": readings.heard_at or None}
    reported = {name: value for name, value in {**vars(readings), **instants}.items() if value is not None}
    return SourceStatus(
        name=name,
        progress=progress,
        late={reason: history.late.get(f"{name}|{reason}", 0) for reason in reasons},
        leader=next(iter(leaders), None),
        moved_by=relation.source.items.mover,
        **reported,
    )


def progress_of_sources(program: StagedPlan, readings: Readings) -> dict[str, LevelProgress]:
    """Return the progress of the sources as operators see it at the level of consistency, by relation."""
    own = {}
    for relation in program.sources:
        source = readings.source(relation.name)
        c, w = (MINUS_INFINITY if t is None else t for t in (source.cti, source.watermark))
        own[relation.name] = LevelProgress(c, w, MINUS_INFINITY)
    return progress_at_level(
        program.options.counted_level, {name: (p.c, p.w) for name, p in own.items()}, program.stages[0].follows
    )


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
                "rows_per_second": last.per_second("inputRowsPerSecond"),
                "processed_per_second": last.per_second("processedRowsPerSecond"),
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
