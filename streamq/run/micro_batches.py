"""The micro-batches of a run, as reported by Spark or the in-process host, and the totals of a run."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamq.html import Readout
from streamq.runtime.hosts.envelope import READINGS, TAPPED, TOTALS
from streamq.runtime.hosts.readings import NO_READINGS, Readings, combine_readings

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
        return -1 if self.last is None else self.last.number

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
