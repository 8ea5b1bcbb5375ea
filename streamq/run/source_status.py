"""The progress of a run's sources and kernels, from its latest readings, and instants as reports show them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamq.choices import CountReason
from streamq.progress.generate import GeneratedCtis
from streamq.run.micro_batches import RunHistory
from streamq.runtime.hosts.readings import Readings
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_ticks

if TYPE_CHECKING:
    from streamq.compiler.staged_plan import Relation, StagedPlan
    from streamq.runtime.hosts.hosted_kernel import HostedKernel


def instant_text(t: int, axis: str) -> str:
    """Return an instant as text, without a fraction of a second that is zero; infinities are "its end" and "no CTI"."""
    if t == INFINITY:
        return "its end"
    if t == MINUS_INFINITY:
        return "no CTI"
    return show_ticks(t, axis).replace("T", " ").replace(".000000", "").removesuffix("Z")


def finite_instant(t: int | None) -> int | None:
    """Return an instant; None for the two infinities."""
    return None if t in (INFINITY, MINUS_INFINITY) else t


def instant_fields(name: str, t: int | None, axis: str) -> dict[str, Any]:
    """Return an instant in ticks as ``name`` and, on the timestamp axis, in ISO 8601 as ``name_at``; None for infinities."""
    return {name: finite_instant(t), f"{name}_at": iso(t) if axis == TIMESTAMP and t is not None else None}


def iso(t: int) -> str | None:
    """Return microseconds since 1970 as ISO 8601; None for an instant outside the calendar's range."""
    if finite_instant(t) is None:
        return None
    try:
        return iso_moment(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=t))
    except OverflowError:
        return None


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
class SourceStatus:
    """The status of one source of a run: its progress, its numbers of rows, and its policy.

    ``cti`` and ``watermark`` are in ticks (or the sentinels), ``rows`` counts all of its rows and ``new_rows`` those of the last
    micro-batch. ``least_start`` is the least start so far and ``middle_start`` one in the middle of the last rows. ``moved_at``
    and ``heard_at`` are when its CTI last moved and when it last brought events, in milliseconds since 1970. ``late`` counts
    rows by reason. ``progress`` is its policy, ``leader`` the name of the source whose progress it has, if it has not its own.
    ``moved_by`` is what a user calls an item that moves its watermark.

    Of a source whose policy keeps parts of it apart: ``round`` is the number of the last micro-batch in which one was heard of,
    ``quiet_round`` the one in which that part was last heard of that has been silent for longest, and ``straggler`` the part that
    holds its CTI back, by its own, ``straggler_cti``.
    """

    name: str
    progress: ProgressPolicy = _ANY
    cti: int = MINUS_INFINITY
    watermark: int = MINUS_INFINITY
    rows: int = 0
    new_rows: int = 0
    least_start: int | None = None
    middle_start: int | None = None
    moved_at: int | None = None
    heard_at: int | None = None
    late: Mapping[str, int] = field(default_factory=dict)
    leader: str | None = None
    moved_by: str = "row"
    round: int = 0
    quiet_round: int | None = None
    straggler: str | None = None
    straggler_cti: int | None = None

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


@dataclass(frozen=True)
class SourceProgress:
    """The progress of a source as operators see it: its CTI and its watermark, in ticks."""

    cti: int
    watermark: int


def source_statuses(program: StagedPlan, history: RunHistory) -> dict[str, SourceStatus]:
    """Return the status of each source, by relation."""
    return {relation.name: _status(program, relation, history) for relation in program.sources}


def allowed_silence(program: StagedPlan) -> dict[str, int]:
    """Return the ``idle_after`` of each source that has one, in microseconds of the wall clock, by relation."""
    silences = {r.name: r.source.policy.progress.idle_after for r in program.sources if r.source}
    return {relation: silence for relation, silence in silences.items() if silence is not None}


def followers(program: StagedPlan) -> Mapping[str, str]:
    """Return, for each source that follows another, the relation of that other source, by the follower's relation."""
    return program.stages[0].follows if program.stages else {}


def tables_of(program: StagedPlan) -> dict[str, str]:
    """Return the sources' tables by relation."""
    return {r.name: r.source.table for r in program.sources if r.source}


def _status(program: StagedPlan, relation: Relation, history: RunHistory) -> SourceStatus:
    """Return the status of the source of a relation; without readings its instants are MINUS_INFINITY or None, its counts 0."""
    assert relation.source is not None
    name, progress = relation.source.shown_name(), relation.source.policy.progress
    readings = history.readings.source(relation.name)
    leaders = [r.source.shown_name() for r in program.sources if r.source and r.source.table == progress.leader]
    reasons = [reason for source, _, reason in (key.rpartition("|") for key in program.late_reasons) if source == name]
    return SourceStatus(
        name=name,
        progress=progress,
        cti=MINUS_INFINITY if readings.cti is None else readings.cti,
        watermark=MINUS_INFINITY if readings.watermark is None else readings.watermark,
        rows=readings.rows or 0,
        new_rows=readings.new_rows or 0,
        least_start=readings.least_start,
        middle_start=readings.middle_start,
        moved_at=readings.moved_at or None,
        heard_at=readings.heard_at or None,
        late={reason: history.late.get(f"{name}|{reason}", 0) for reason in reasons},
        leader=next(iter(leaders), None),
        moved_by=relation.source.items.mover,
        round=readings.round or 0,
        quiet_round=readings.quiet_round,
        straggler=readings.straggler,
        straggler_cti=readings.straggler_cti,
    )


def kernels(program: StagedPlan) -> dict[str, HostedKernel]:
    """Return the kernels of all stages by their output relations, in order of the stages."""
    return {hosted.name: hosted for stage in program.stages for hosted in stage.hosted}


def progress_of_sources(program: StagedPlan, readings: Readings) -> dict[str, SourceProgress]:
    """Return the progress of the sources as operators see it at the level of consistency, by relation.

    Without stages it is the source's own.
    """
    from streamq.runtime.time.consistency import progress_at_level

    own = {}
    for relation in program.sources:
        name, source = relation.name, readings.source(relation.name)
        cti = MINUS_INFINITY if source.cti is None else source.cti
        own[name] = (cti, MINUS_INFINITY if source.watermark is None else source.watermark)
    for stage in program.stages[:1]:
        paces = progress_at_level(program.options.counted_level, own, stage.follows)
        return {relation: SourceProgress(pace.c, pace.w) for relation, pace in paces.items()}
    return {relation: SourceProgress(c, w) for relation, (c, w) in own.items()}


def ctis_in(program: StagedPlan, hosted: HostedKernel, readings: Readings) -> dict[int, int]:
    """Return the CTI at the end of each channel of a kernel, after the channel's steps have changed it, by channel number."""
    from streamq.runtime.time.progress_map import map_progress

    sources = progress_of_sources(program, readings)

    def cti_of(relation: str) -> int:
        if relation in sources:
            return sources[relation].cti
        cti = readings.kernel(relation).output_cti
        return MINUS_INFINITY if cti is None else cti

    return {
        channel.number: map_progress(cti_of(channel.relation), channel.progress_maps) for channel in hosted.channels
    }
