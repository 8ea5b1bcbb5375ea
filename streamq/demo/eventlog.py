"""Read Spark event logs without Spark: find, decompress and check them, and list their stages and application.

A log is a file of JSON lines (plain, zstd or gzip) or, Spark's default, a directory of such rolled files, some of
which may be compacted. Logs are read in bounded memory; unreadable parts are counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeGuard

from streamq.demo.lines import Lines, refusal, show_count
from streamq.errors import SourceError

LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999, in milliseconds; later instants in a log are invalid."""
_PART = re.compile(r"events_(\d+)_.+")
_NAMED = re.compile(rb'\{"Event":"([^"]+)"')


@dataclass(frozen=True)
class App:
    """The application of a log; fields that the log lacks are None (``ended``: it still runs, or was killed)."""

    name: str | None
    id: str | None
    spark: str | None
    started: datetime | None
    ended: datetime | None


@dataclass(frozen=True)
class SparkStage:
    """A stage: its name, the description of its job (if any), the number of tasks of its first attempt, and of attempts."""

    id: int
    name: str
    description: str | None
    tasks: int
    attempts: int


@dataclass
class EventLog:
    """An event log: its files in reading order and, once it has been read, its unreadable parts."""

    path: Path
    parts: tuple[Path, ...]
    in_progress: bool = False
    missing: tuple[int, ...] = ()
    _losses: list[str] | None = field(default=None, repr=False)

    def events(self, *names: str) -> Iterator[dict[str, Any]]:
        """Yield the events in log order as dicts; with names (``"SparkListenerTaskEnd"``) only those, which is much faster.

        Lines and bytes that are unreadable are skipped, and counted once all are read: see `damage`. Raises SourceError for a
        codec that is not understood, a line that is too long, and a file that cannot be read further; OSError if one
        cannot be opened.
        """
        losses = []
        if self.missing:
            losses.append(
                f"{show_count(len(self.missing), 'rolled file')} missing (number {', '.join(map(str, self.missing))})"
            )
        wanted = {name.encode() for name in names}
        for part in self.parts:
            broken = 0
            lines = Lines(part)
            for line in lines:
                named = _NAMED.match(line)
                if wanted and named and named[1] not in wanted and line.endswith(b"}") and line is not lines.tail:
                    continue  # a whole line of another event, which need not be parsed
                event = _parse(line)
                if event is None:
                    broken += line is not lines.tail and bool(line.strip())
                    lines.lost += len(line) if line is lines.tail else 0
                elif not wanted or event["Event"].encode() in wanted:
                    yield event
            losses += lines.losses()
            if broken:
                losses.append(
                    f"{part.name}: {show_count(broken, 'line')} that {'is' if broken == 1 else 'are'} no event skipped"
                )
        self._losses = losses

    @property
    def damage(self) -> tuple[str, ...]:
        """A sentence for each unreadable part of the log; reads the log unless it has been read."""
        if self._losses is None:
            for _ in self.events():
                pass
        return tuple(self._losses or ())

    def lose(self, what: str) -> None:
        """Add a sentence on a part of the log that was left out, if the log has been read."""
        if self._losses is not None:
            self._losses.append(what)

    def describe(self) -> str:
        """Return a line with the path, the number of files, their size, and a note if the application was still running."""
        size = sum(part.stat().st_size for part in self.parts)
        running = ", in progress" if self.in_progress else ""
        return f"{self.path} ({show_count(len(self.parts), 'file')}, {size / 1000:,.0f} kB{running})"


def find_log(path: str | Path) -> EventLog:
    """Return the event log at a path: a file, a rolled directory ``eventlog_v2_<app>``, or a folder with exactly one log.

    Raises SourceError if the path does not exist, is not readable, or holds no Spark log or more than one.
    """
    where = _local(path)
    try:
        if not where.exists():
            raise refusal("no such file or directory", f"found nothing at {where}", _neighbours(where))
        log = (
            _from_directory(where) if where.is_dir() else EventLog(where, (where,), where.name.endswith(".inprogress"))
        )
        _check(log)
    except PermissionError as error:
        raise refusal(
            "no permission to read",
            f"found {error.filename or where}",
            "Spark writes its logs readable for their owner only.",
        ) from error
    except OSError as error:
        raise refusal("a file that cannot be read", f"{where} gave: {error.strerror or error}") from error
    return log


def stages(log: EventLog) -> dict[int, SparkStage]:
    """Return the submitted or completed stages of a log, by id; the attempts and the description are the latest."""
    by_id: dict[int, SparkStage] = {}
    for event in log.events("SparkListenerStageSubmitted", "SparkListenerStageCompleted"):
        info = part_of(event, "Stage Info")
        if not is_within(info.get("Stage ID"), 2**63):
            continue
        number, earlier_attempt = info["Stage ID"], by_id.get(info["Stage ID"])
        description = part_of(event, "Properties").get("spark.job.description") or (
            earlier_attempt.description if earlier_attempt else None
        )
        tasks = earlier_attempt.tasks if earlier_attempt else info.get("Number of Tasks", 0)
        attempts = max(info.get("Stage Attempt ID", 0) + 1, earlier_attempt.attempts if earlier_attempt else 0)
        by_id[number] = SparkStage(number, info.get("Stage Name", ""), description, tasks, attempts)
    return by_id


def app(log: EventLog) -> App:
    """Return the application of a log: name, id, Spark's version, start and end, each from the last event of its kind."""
    name = number = version = started = ended = None
    for event in log.events("SparkListenerLogStart", "SparkListenerApplicationStart", "SparkListenerApplicationEnd"):
        match event["Event"]:
            case "SparkListenerLogStart":
                version = event.get("Spark Version")
            case "SparkListenerApplicationStart":
                name, number, started = event.get("App Name"), event.get("App ID"), _instant(event.get("Timestamp"))
            case "SparkListenerApplicationEnd":
                ended = _instant(event.get("Timestamp"))
    return App(name, number, version, started, ended)


def is_within(value: Any, limit: int) -> TypeGuard[int]:
    """True for an integer from 0 to below ``limit``; damaged lines may hold any other value."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _instant(milliseconds: Any) -> datetime | None:
    """Return milliseconds since 1970 as a datetime; None for any other value."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if is_within(milliseconds, LAST_MS) else None


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as an event; None if it is no JSON object with an event's name."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("Event"), str) else None


def part_of(event: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object within an event; an empty one if there is none."""
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _local(path: str | Path) -> Path:
    """Return a path, or a ``file:`` URL, as a path on this machine; raise SourceError for an empty one and for other schemes."""
    text = str(path)
    scheme, colon, rest = text.partition("://")
    if not text.strip():
        raise refusal("an empty path", "", "Give a file or a directory.")
    if colon and scheme != "file":
        raise refusal("a log that is not on this machine", f"found {text}", "Copy it here first.")
    if not colon and text.startswith("file:"):
        rest, colon = text.removeprefix("file:"), ":"
    return Path(rest if colon else text).expanduser()


def _neighbours(where: Path) -> str:
    """Return a hint at the log with, or without, the suffix ``.inprogress``; "" if there is none."""
    there = where.with_name(where.name + ".inprogress")
    done = where.with_name(where.name.removesuffix(".inprogress"))
    other = there if there.exists() else done if done != where and done.exists() else None
    return f"Did you mean {other.name!r}?" if other else ""


def _from_directory(folder: Path) -> EventLog:
    """Return the rolled log, or the only log, in a folder; raise SourceError if there is none or more than one."""
    children = sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    if any(_PART.fullmatch(child.name) for child in children):
        return _rolled(folder, children)
    if folder.name.startswith("eventlog_v2_"):
        instead = ", ".join(child.name for child in children) or "nothing"
        raise refusal(
            "a rolled log without event files",
            f"found {instead} in {folder}",
            "A copy must take the files 'events_<n>_<app>' along.",
        )
    logs = [child for child in children if _is_log(child)]
    if len(logs) == 1:
        return find_log(logs[0])
    if not logs:
        instead = (
            f"found {show_count(len(children), 'other entry').replace('entrys', 'entries')}"
            if children
            else "it is empty"
        )
        raise refusal(
            f"no Spark event log in {folder}", instead, "Was the application started with spark.eventLog.enabled=true?"
        )
    logs.sort(key=lambda log: log.stat().st_mtime, reverse=True)
    names = ", ".join(log.name for log in logs[:8]) + (", ..." if len(logs) > 8 else "")
    raise refusal(f"{len(logs)} logs in {folder}", f"found, newest first: {names}", "Choose one of them.")


def _rolled(folder: Path, children: list[Path]) -> EventLog:
    """Return a rolled log. A compacted file replaces all files up to its number, so reading begins at the last compacted one.

    ``children`` are the entries of the folder; numbers without a file, up to the last, are ``missing``.
    """
    parts: dict[int, Path] = {}
    first = 0
    for child in children:
        match = _PART.fullmatch(child.name)
        if match is None:
            continue
        number = int(match[1])
        if child.name.endswith(".compact"):
            first = max(first, number)
        if number not in parts or child.name.endswith(".compact"):
            parts[number] = child
    numbers = [number for number in sorted(parts) if number >= first]
    missing = tuple(number for number in range(first or 1, numbers[-1]) if number not in parts)
    running = any(child.name.startswith("appstatus_") and child.name.endswith(".inprogress") for child in children)
    return EventLog(folder, tuple(parts[number] for number in numbers), running, missing)


def _is_log(path: Path) -> bool:
    """True if a path is a rolled log, or a file that begins with an event of Spark's; False if it cannot be read."""
    try:
        if path.is_dir():
            return path.name.startswith("eventlog_v2_") or any(_PART.fullmatch(child.name) for child in path.iterdir())
        return path.is_file() and _is_spark(Lines(path).first() or b"")
    except (SourceError, OSError):
        return False


def _is_spark(line: bytes) -> bool:
    """True if a line is an event of a Spark listener."""
    event = _parse(line)
    return event is not None and "SparkListener" in event["Event"]


def _check(log: EventLog) -> None:
    """Raise SourceError unless the log's first whole line is one of Spark's; a log without any whole line is refused too."""
    if all(part.stat().st_size == 0 for part in log.parts):
        wait = (
            "Spark buffers what it writes: try again when the application has run a while."
            if log.in_progress
            else "Spark leaves one behind when it is killed early."
        )
        raise refusal("an empty file", f"{log.parts[0]} has 0 bytes", wait)
    for part in log.parts:
        lines = Lines(part)
        line = lines.first()
        if line is None or (line is lines.tail and line.startswith(b'{"Event":"SparkListener') and not _is_spark(line)):
            continue  # no whole line has been flushed to this file yet
        if not _is_spark(line):
            raise refusal(
                "not a Spark event log",
                f"{part} begins with {_excerpt(line)}",
                'Each line should be JSON with an "Event" of Spark\'s.',
            )
        return
    raise refusal(
        "nothing readable in it",
        f"{log.parts[0]} has no whole line yet",
        "Spark buffers what it writes: try again later.",
    )


def _excerpt(line: bytes) -> str:
    """Return the first 40 bytes of a line, or 12 if they are no text, as Python shows them."""
    text = line[:40].decode("utf-8", "replace")
    shown = repr(text if text.isprintable() else line[:12])
    return shown + (" ..." if len(line) > 40 else "")
