"""Read Spark event logs without Spark: find, decompress and check them, and list their application and stages.

A log is a file of JSON lines (plain, zstd or gzip) or, Spark's default, a directory of such rolled files, some of
which may be compacted. Logs are read in bounded memory; parts that cannot be read are skipped and noted.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from streamq.errors import SourceError, counted

CHUNK: Final = 1 << 18
PIECE: Final = 1 << 6
"""Compressed bytes that are decompressed at once: so much may be lost beside what is damaged."""
_PART = re.compile(r"events_(\d+)_.+")
_NAMED = re.compile(rb'\{"Event":"([^"]+)"')
_BEGINNING: Final = b'{"Event":"SparkListener'


@dataclass
class EventLog:
    """An event log: its files in reading order and, once it has been read, a sentence for each unreadable part."""

    path: Path
    parts: tuple[Path, ...]
    in_progress: bool = False
    missing: tuple[int, ...] = ()
    damage: list[str] = field(default_factory=list, repr=False)

    def events(self, *names: str) -> Iterator[dict[str, Any]]:
        """Yield the events of these names (``"SparkListenerTaskEnd"``) in log order, as dicts.

        Lines and bytes that are unreadable are skipped, and noted in ``damage``. Raises SourceError for a codec that is not
        understood and for a file that cannot be read.
        """
        wanted = {name.encode() for name in names}
        numbers = ", ".join(map(str, self.missing))
        self.damage = [f"{counted(len(self.missing), 'rolled file')} missing (number {numbers})"] if numbers else []
        for part in self.parts:
            broken = 0
            for line in _lines(part, self.damage):
                named, is_whole = _NAMED.match(line), line.endswith(b"\n")
                if named and named[1] not in wanted and line.rstrip().endswith(b"}") and is_whole:
                    continue  # a whole line of another event, which need not be parsed
                event = _parse(line)
                if event is None and is_whole:
                    broken += bool(line.strip())
                elif event is None:
                    cut = f"the last line is cut off, {counted(len(line), 'byte')} of it skipped"
                    self.damage.append(f"{part.name}: {cut}")
                elif event["Event"] in names:
                    yield event
            if broken:
                wrong = f"{counted(broken, 'line')} that {'is' if broken == 1 else 'are'} no event skipped"
                self.damage.append(f"{part.name}: {wrong}")

    def describe(self) -> str:
        """Return a line with the path, the number of files, their size, and a note if the application was still running."""
        size = sum(part.stat().st_size for part in self.parts)
        running = ", in progress" if self.in_progress else ""
        return f"{self.path} ({counted(len(self.parts), 'file')}, {size / 1000:,.0f} kB{running})"


def find_log(path: str | Path) -> EventLog:
    """Return the event log at a path: a file, a rolled directory ``eventlog_v2_<app>``, or a folder with exactly one log.

    Raises SourceError if the path does not exist, is not readable, or holds no Spark log or more than one.
    """
    scheme, colon, rest = str(path).partition("://")
    if colon and scheme != "file":
        raise refusal("a log that is not on this machine", f"found {path}", "Copy it here first.")
    where = Path(rest if colon else str(path)).expanduser()
    try:
        if not where.exists():
            running = where.with_name(f"{where.name}.inprogress")
            hint = f"Did you mean {running.name!r}?" if running.exists() else ""
            raise refusal("no such file or directory", f"found nothing at {where}", hint)
        is_running = where.name.endswith(".inprogress")
        log = _from_directory(where) if where.is_dir() else EventLog(where, (where,), is_running)
        _check(log)
    except OSError as error:
        raise _unreadable(where, error) from error
    return log


def application_title(log: EventLog) -> str:
    """Return the name and the id of a log's application, and its version of Spark, with ? for what the log lacks."""
    known: dict[str, Any] = {}
    for event in log.events("SparkListenerLogStart", "SparkListenerApplicationStart"):
        known |= event
    name, id, spark = (known.get(key) or "?" for key in ("App Name", "App ID", "Spark Version"))
    return f"{name} ({id}), Spark {spark}"


def stage_labels(log: EventLog) -> dict[int, str]:
    """Return a label for each stage, by number: the number and the last description of its job, or else its name.

    A label has 40 characters at most; no two are equal.
    """
    labels: dict[int, str] = {}
    for event in log.events("SparkListenerStageSubmitted", "SparkListenerStageCompleted"):
        info, described = part_of(event, "Stage Info"), part_of(event, "Properties").get("spark.job.description")
        number = info.get("Stage ID")
        if isinstance(number, int) and (described or number not in labels):
            labels[number] = f"{number} {described or info.get('Stage Name', '')}".replace("\n", " ")[:40]
    return labels


def part_of(event: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object within an event; an empty one if there is none, as in damaged lines."""
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def refusal(wrong: str, instead: str = "", hint: str = "") -> SourceError:
    """Return the error for a log that cannot be read."""
    return SourceError("event log", wrong, instead, hint)


def _unreadable(path: Path, error: OSError) -> SourceError:
    return refusal("a file that cannot be read", f"{path} gave: {error.strerror or error}")


# files


def _from_directory(folder: Path) -> EventLog:
    """Return the rolled log, or the only log, in a folder; raise SourceError if there is none or more than one."""
    children = sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    if any(_PART.fullmatch(child.name) for child in children):
        return _rolled(folder, children)
    logs = [child for child in children if _is_log(child)]
    if len(logs) == 1:
        return find_log(logs[0])
    if not logs:
        instead = f"found {counted(len(children), 'other entry', 'other entries')}" if children else "it is empty"
        hint = "Was the application started with spark.eventLog.enabled=true?"
        raise refusal(f"no Spark event log in {folder}", instead, hint)
    logs.sort(key=lambda log: log.stat().st_mtime, reverse=True)
    names = ", ".join(log.name for log in logs[:8]) + (", ..." if len(logs) > 8 else "")
    raise refusal(f"{len(logs)} logs in {folder}", f"found, newest first: {names}", "Choose one of them.")


def _rolled(folder: Path, children: list[Path]) -> EventLog:
    """Return a rolled log. A compacted file replaces all files up to its number, so reading begins at the last compacted one.

    ``children`` are the entries of the folder; numbers without a file, up to the last, are ``missing``.
    """
    numbered = [(int(match[1]), child) for child in children if (match := _PART.fullmatch(child.name))]
    first = max((number for number, child in numbered if child.suffix == ".compact"), default=0)
    # a compacted file follows the one that it replaces
    parts = {number: child for number, child in numbered if number >= first}
    missing = tuple(number for number in range(first or 1, max(parts)) if number not in parts)
    is_running = any(child.name.startswith("appstatus_") and child.suffix == ".inprogress" for child in children)
    return EventLog(folder, tuple(parts[number] for number in sorted(parts)), is_running, missing)


def _is_log(path: Path) -> bool:
    """True if a path is a rolled log, or a file that begins with an event of Spark's; False if it cannot be read."""
    try:
        if path.is_dir():
            return any(_PART.fullmatch(child.name) for child in path.iterdir())
        return _is_spark(_first_line(path))
    except (SourceError, OSError):
        return False


def _check(log: EventLog) -> None:
    """Raise SourceError unless the log's first whole line is one of Spark's; a log without any whole line is refused too."""
    for part in log.parts:
        line = _first_line(part)
        if _is_spark(line):
            return
        if line and not line.startswith(_BEGINNING):
            hint = 'Each line should be JSON with an "Event" of Spark\'s.'
            raise refusal("not a Spark event log", f"{part} begins with {line[:40]!r}", hint)
    hint = "Spark buffers what it writes: try again later."
    raise refusal("nothing readable in it", f"{log.parts[0]} has no whole line yet", hint)


# lines


def _first_line(path: Path) -> bytes:
    """Return the first line of a file, or the beginning of one that is not JSON; b"" if nothing can be read."""
    chunk = next(filter(None, _chunks(path, [])), b"")
    return next(_lines(path, []), b"") if chunk.startswith(b"{") else chunk.partition(b"\n")[0]


def _is_spark(line: bytes) -> bool:
    event = _parse(line)
    return event is not None and "SparkListener" in event["Event"]


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as an event; None if it is no JSON object with an event's name."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("Event"), str) else None


def _lines(path: Path, damage: list[str]) -> Iterator[bytes]:
    """Yield the lines of a file with their line ends, which the last may lack; what cannot be decompressed goes to ``damage``."""
    begun = bytearray()
    for chunk in _chunks(path, damage):
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            yield bytes(begun + line + b"\n")
            begun.clear()
        begun += rest
    if begun:
        yield bytes(begun)


def _chunks(path: Path, damage: list[str]) -> Iterator[bytes]:
    """Yield the decompressed chunks of a file; raise SourceError if it cannot be read."""
    try:
        with path.open("rb") as file:
            codec = _codec(path, file.read(16))
            file.seek(0)
            match codec:
                case "zstd":
                    new_decoder = zstandard.ZstdDecompressor().decompressobj
                    yield from _frames(file, codec, new_decoder, zstandard.ZstdError, damage)
                case "gzip":
                    yield from _frames(file, codec, lambda: zlib.decompressobj(31), zlib.error, damage)
                case _:
                    yield from iter(lambda: file.read(CHUNK), b"")
    except OSError as error:
        raise _unreadable(path, error) from error


def _frames(
    file: BinaryIO, codec: str, new_decoder: Callable[[], Any], error: type[Exception], damage: list[str]
) -> Iterator[bytes]:
    """Decompress frame after frame, fed in pieces so small that a damaged one takes hardly a line with it.

    ``new_decoder`` makes the decoder of a frame, which raises ``error``; then the rest is skipped, and ``damage`` says so.
    """
    path = Path(file.name)
    decoder, is_open = new_decoder(), False
    while piece := file.read(PIECE):
        while piece:
            try:
                decoded = decoder.decompress(piece)
            except error:
                at, size = file.tell() - len(piece), path.stat().st_size
                wrong = f"cut off or damaged from about byte {at:,} of {size:,}, the rest skipped"
                damage.append(f"{path.name}: {codec} data that is {wrong}")
                return
            if decoded:
                yield decoded
            piece, is_open = decoder.unused_data, not decoder.eof
            if decoder.eof:
                decoder = new_decoder()
    if is_open:
        damage.append(f"{path.name}: the last {codec} frame has no end")


def _codec(path: Path, head: bytes) -> str:
    """Return the codec of a file by its first bytes; raise SourceError for those that cannot be read."""
    codecs = {
        b"\x28\xb5\x2f\xfd": "zstd",
        b"\x1f\x8b": "gzip",
        b"LZ4Block": "lz4",
        b"\x82SNAPPY\x00": "snappy",
        b"ZV": "lzf",
        b"PK\x03\x04": "zip",
    }
    codec = next((codec for magic, codec in codecs.items() if head.startswith(magic)), "")
    if codec not in ("", "zstd", "gzip"):
        hint = "Write it with Spark's default, spark.eventLog.compression.codec=zstd."
        raise refusal(f"a log compressed with {codec}", f"found {path}", hint)
    return codec
