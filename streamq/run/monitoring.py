"""What a run says of itself, as plain values: from what its stages tell every micro-batch to metrics, progress and a line.

Pure functions over readings (``streamq.runtime.readings``); where those come from, Spark's reports or the in-process host,
makes no difference. Why there is no output is ``streamq.run.diagnosis``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamq.runtime.readings import OBSERVED
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_duration, show_ticks

if TYPE_CHECKING:
    from streamq.compiler.program import Program, Relation
    from streamq.runtime.stage import Hosted

VERSION = 1
"""Of the names in ``metrics``, ``progress`` and ``why().to_dict()``: changes when one changes its meaning or goes."""

RESULTS = "streamq"
"""Under which Spark's reports have the rows that came out, and what was late or no event."""


@dataclass(frozen=True)
class Report:
    """One micro-batch: when it began, how long it took, what came in and went out; ``told`` is empty where no stage ran.

    late: running totals by ``source|reason``; spark: Spark's own report, where there is one.
    """

    number: int
    at: dt.datetime | None = None
    duration_ms: int | None = None
    rows: int = 0
    inserted: int = 0
    retracted: int = 0
    told: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What is known of a run after some of its micro-batches.

    told: the stages' latest readings; earlier: the rows that each kernel had handed on before this run; late: totals;
    late_before: those before the last micro-batch; unseen: micro-batches whose results nobody counted, for Spark keeps a
    hundred reports.
    """

    last: Report | None = None
    result: Report | None = None
    told: Mapping[str, int] = field(default_factory=dict)
    earlier: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    late_before: Mapping[str, int] = field(default_factory=dict)
    inserted: int = 0
    retracted: int = 0
    unseen: int = 0

    @property
    def number(self) -> int:
        """The last micro-batch; -1 before the first."""
        return -1 if self.last is None else self.last.number

    def after(self, report: Report) -> Seen:
        """With one micro-batch more; one that is known already changes nothing."""
        if report.number <= self.number:
            return self
        first = self.last is None
        return replace(
            self,
            last=report,
            result=report if report.inserted or report.retracted else self.result,
            told=report.told or self.told,
            earlier=self.earlier if self.told else _given_before(report.told),
            late=self.late if not report.late else report.late,
            late_before=self.late,
            inserted=self.inserted + report.inserted,
            retracted=self.retracted + report.retracted,
            unseen=self.unseen + (0 if first else report.number - self.number - 1),
        )


def _given_before(told: Mapping[str, int]) -> dict[str, int]:
    kernels = [name.removeprefix("given|") for name in told if name.startswith("given|")]
    return {kernel: told[f"given|{kernel}"] - told.get(f"made|{kernel}", 0) for kernel in kernels}


def from_spark(spark: Mapping[str, Any]) -> Report:
    """Spark's report on a micro-batch (``StreamingQueryProgress.json``, parsed)."""
    told, counted = _observed(spark, OBSERVED), _observed(spark, RESULTS)
    inserted, retracted = counted.pop("inserted", 0), counted.pop("retracted", 0)
    rows = sum(n for name, n in told.items() if name.startswith("fresh|"))
    return Report(
        spark["batchId"],
        dt.datetime.fromisoformat(spark["timestamp"]),
        spark.get("batchDuration"),
        rows if told else spark.get("numInputRows") or 0,
        inserted,
        retracted,
        told,
        counted,
        spark,
    )


def _observed(spark: Mapping[str, Any], name: str) -> dict[str, int]:
    found = (spark.get("observedMetrics") or {}).get(name) or {}
    if "schema" in found:
        # so Spark Connect has them: values beside their names
        found = dict(zip((f["name"] for f in found["schema"]["fields"]), found["values"], strict=True))
    return {k: v for k, v in found.items() if v is not None}


# readings, by source and kernel


@dataclass(frozen=True)
class SourceReading:
    """What is known of a source: c and W in ticks (or the sentinels), rows so far and in the last micro-batch.

    least and midst: the least start so far, and one in the midst of the last rows; moved and heard: when c last moved, and
    when events last came, in milliseconds since 1970. delay, every, follows (a source's name) and idle_after (in microseconds)
    are its policy. row: what moves its progress, of edges only a start.
    """

    name: str
    delay: int | None
    c: int = MINUS_INFINITY
    w: int = MINUS_INFINITY
    rows: int = 0
    fresh: int = 0
    least: int | None = None
    midst: int | None = None
    moved: int | None = None
    heard: int | None = None
    late: Mapping[str, int] = field(default_factory=dict)
    every: int = 1
    follows: str | None = None
    idle_after: int | None = None
    row: str = "row"

    @property
    def events(self) -> int:
        """Rows that are events."""
        return self.rows - self.late.get("invalid", 0)

    @property
    def refused(self) -> int:
        """Rows that came late, however they were dealt with; those that repeat others are not late."""
        return self.late.get("dropped", 0) + self.late.get("adjusted", 0)

    @property
    def lag(self) -> int | None:
        """How far its CTI is behind its greatest start; None before there are both, and where the CTI is another's."""
        if self.follows is not None or _finite(self.c) is None or _finite(self.w) is None:
            return None
        return max(0, self.w - self.c)


def sources(program: Program, seen: Seen) -> dict[str, SourceReading]:
    """The sources' readings, by relation."""
    return {r.name: _source(program, r, seen) for r in program.sources}


def allowed_silence(program: Program) -> dict[str, int]:
    """How long sources may be silent, in microseconds by the clock, by relation; those that say so."""
    found = {r.name: r.source.policy.idle_after for r in program.sources if r.source}
    return {name: most for name, most in found.items() if most is not None}


def followers(program: Program) -> Mapping[str, str]:
    """Sources that have the progress of another, by relation."""
    return program.stages[0].follows if program.stages else {}


def _source(program: Program, relation: Relation, seen: Seen) -> SourceReading:
    from streamq.operators import Edges

    assert relation.source is not None
    name, told = relation.source.shown_name(), seen.told

    def reading(what: str) -> int | None:
        return told.get(f"{what}|{relation.name}")

    policy = relation.source.policy
    followed = [r.source.shown_name() for r in program.sources if r.source and r.source.table == policy.follow]
    reasons = [reason for of, _, reason in (key.rpartition("|") for key in program.late_reasons) if of == name]
    return SourceReading(
        name,
        policy.delay,
        told.get(f"cti|{relation.name}", MINUS_INFINITY),
        told.get(f"watermark|{relation.name}", MINUS_INFINITY),
        reading("rows") or 0,
        reading("fresh") or 0,
        reading("least"),
        reading("midst"),
        reading("moved") or None,
        reading("heard") or None,
        {reason: seen.late.get(f"{name}|{reason}", 0) for reason in reasons},
        policy.every,
        next(iter(followed), None),
        policy.idle_after,
        "start" if isinstance(relation.source, Edges) else "row",
    )


def kernels(program: Program) -> dict[str, Hosted]:
    """The kernels of all stages, by the relation that they make, lower levels first."""
    return {hosted.name: hosted for stage in program.stages for hosted in stage.hosted}


def paces(program: Program, told: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """What the c and W of each source count as for the operators, at the run's level of consistency."""
    from streamq.runtime.consistency import paced

    said = {
        r.name: (told.get(f"cti|{r.name}", MINUS_INFINITY), told.get(f"watermark|{r.name}", MINUS_INFINITY))
        for r in program.sources
    }
    for stage in program.stages[:1]:
        said = {name: (pace.c, pace.w) for name, pace in paced(stage.consistency, said, stage.follows).items()}
    return said


def ctis_in(program: Program, hosted: Hosted, told: Mapping[str, int]) -> dict[int, int]:
    """The CTI that each channel of a kernel brings, as its steps carry it."""
    from streamq.runtime.carried import carry

    sent = {name: c for name, (c, _) in paces(program, told).items()}
    return {
        channel.number: carry(
            sent[channel.relation] if channel.relation in sent else told.get(f"out|{channel.relation}", MINUS_INFINITY),
            channel.carried,
        )
        for channel in hosted.channels
    }


# what a user sees


def metrics(program: Program, seen: Seen, state: str, now: dt.datetime | None = None) -> dict[str, Any]:
    """The metrics of a run, as ``docs/operations.md`` has them field by field."""
    axis, last, now = program.plan.schema.axis, seen.last, now or dt.datetime.now(dt.UTC)
    spark: Mapping[str, Any] = {} if last is None else last.spark
    return {
        "version": VERSION,
        "at": _iso(now),
        "state": state,
        "query": {
            "batches": seen.number + 1,
            "rows": sum(s.rows for s in sources(program, seen).values()),
            "rows_per_second": spark.get("inputRowsPerSecond"),
            "processed_per_second": spark.get("processedRowsPerSecond"),
            "duration_ms": None if last is None else last.duration_ms,
            "inserted": seen.inserted,
            "retracted": seen.retracted,
            "retraction_ratio": seen.retracted / seen.inserted if seen.inserted else None,
            "batches_unseen": seen.unseen,
        },
        "sources": {s.name: _source_metrics(s, axis, now) for s in sources(program, seen).values()},
        "stages": [
            _stage_metrics(program, level, seen, axis, found)
            for level, found in enumerate(_operators(spark, len(program.stages)))
        ],
    }


def _source_metrics(source: SourceReading, axis: str, now: dt.datetime) -> dict[str, Any]:
    finite = _finite(source.c) is not None
    behind = now.timestamp() - source.c / 1e6 if finite and axis == TIMESTAMP else None
    return {
        **instant("cti", source.c, axis),
        **instant("watermark", source.w, axis),
        "ended": source.c == INFINITY,
        "lag": source.lag,
        "behind_seconds": None if behind is None else round(behind, 3),
        "cti_moved_at": wall(source.moved),
        "rows_came_at": wall(source.heard),
        "rows": source.rows,
        **source.late,
    }


def _stage_metrics(program: Program, level: int, seen: Seen, axis: str, spark: Mapping[str, Any]) -> dict[str, Any]:
    made = []
    for hosted in program.stages[level].hosted:
        told = {
            what: seen.told.get(f"{what}|{hosted.name}", 0)
            for what in ("given", "back", "held", "state_rows", "state_bytes")
        }
        made.append(
            {
                "operator": program.titles[hosted.name][0],
                **instant("cti_in", min(ctis_in(program, hosted, seen.told).values()), axis),
                **instant("cti_out", seen.told.get(f"out|{hosted.name}", MINUS_INFINITY), axis),
                "inserted": told["given"],
                "retracted": told["back"],
                "held_rows": told["held"],
                "state_rows": told["state_rows"],
                "state_bytes": told["state_bytes"],
            }
        )
    given, back = (sum(m[what] for m in made) for what in ("inserted", "retracted"))
    spent = [spark[part] for part in ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs") if part in spark]
    return {
        "level": level,
        "state_rows": sum(m["state_rows"] for m in made),
        "state_bytes": sum(m["state_bytes"] for m in made),
        "retraction_ratio": back / given if given else None,
        "time_ms": sum(spent) if spent else None,
        "operators": made,
    }


def _operators(spark: Mapping[str, Any], stages: int) -> list[Mapping[str, Any]]:
    """Spark's report on the stateful operator of each stage; Spark begins with the last."""
    found = spark.get("stateOperators") or []
    return found[::-1] if len(found) == stages else [{}] * stages


def progress(program: Program, seen: Seen) -> dict[str, Any]:
    """The last micro-batch, and where the sources' progress stands after it."""
    last, axis = seen.last, program.plan.schema.axis
    return {
        "version": VERSION,
        "batch": None if last is None else last.number,
        "at": None if last is None or last.at is None else _iso(last.at),
        "duration_ms": None if last is None else last.duration_ms,
        "rows": 0 if last is None else last.rows,
        "inserted": 0 if last is None else last.inserted,
        "retracted": 0 if last is None else last.retracted,
        "sources": {
            s.name: {
                "rows": s.fresh if last is not None and last.told else 0,
                **instant("cti", s.c, axis),
                **instant("watermark", s.w, axis),
            }
            for s in sources(program, seen).values()
        },
        "spark": {} if last is None else dict(last.spark),
    }


def line(program: Program, seen: Seen, name: str | None) -> str:
    """The last micro-batch in one line; of what is late or comes again, too, only what it has brought."""
    last, axis = seen.last, program.plan.schema.axis
    if last is None:
        return f"{name or 'query'}: no micro-batch yet"
    took = "" if last.duration_ms is None else f" in {last.duration_ms / 1000:.1f} s"
    back = f", {last.retracted:,} taken back" if last.retracted else ""
    parts = [f"{name or 'query'}: batch {last.number}, {last.rows:,} rows{took}, {last.inserted:,} results{back}"]
    for source in sources(program, seen).values():
        lag = f" (lag {show_duration(source.lag, axis)})" if source.lag else ""
        parts.append(f"{source.name} at {shown(source.c, axis)}{lag}")
    fresh = {key: n - seen.late_before.get(key, 0) for key, n in seen.late.items()}
    again = sum(n for key, n in fresh.items() if key.endswith("|duplicates"))
    refused = sum(fresh.values()) - again
    counted = [f"{n:,} {what}" for n, what in ((refused, "late or invalid"), (again, "delivered again")) if n]
    return "; ".join([*parts, *counted])


# instants


def shown(t: int, axis: str) -> str:
    """An instant in a text: seconds are enough where they are whole."""
    if t == INFINITY:
        return "its end"
    if t == MINUS_INFINITY:
        return "no CTI"
    return show_ticks(t, axis).replace("T", " ").replace(".000000", "").removesuffix("Z")


def _finite(t: int) -> int | None:
    return None if t in (INFINITY, MINUS_INFINITY) else t


def instant(name: str, t: int, axis: str) -> dict[str, Any]:
    """An instant in ticks, and on a timestamp axis as ISO 8601; None where there is none, and at the end of the stream."""
    return {name: _finite(t), f"{name}_at": iso(t) if axis == TIMESTAMP else None}


def iso(t: int) -> str | None:
    """Microseconds since 1970 as ISO 8601; None for what no calendar has."""
    if _finite(t) is None:
        return None
    try:
        return _iso(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t))
    except OverflowError:
        return None


def _iso(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def wall(ms: int | None) -> str | None:
    """A time of day in milliseconds since 1970 as ISO 8601."""
    return None if ms is None else _iso(dt.datetime.fromtimestamp(ms / 1000, dt.UTC))
