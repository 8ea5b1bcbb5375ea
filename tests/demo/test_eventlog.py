"""Event logs in every form that Spark leaves them in, and in those that accidents do."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamq.demo.__main__ import EDGES, disorder, task_edges
from streamq.demo.eventlog import application_title, find_log, stage_labels
from streamq.errors import SourceError
from tests.demo.some_logs import (
    APP_END,
    APP_START,
    DATA,
    EPOCH,
    LOG,
    LOG_START,
    ended,
    put,
    rows,
    started,
    text,
    zstd,
    zstd_flushed,
    zstd_frames,
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("app-1", LOG),
        ("app-1.gz", gzip.compress(LOG)),
        ("members.gz", gzip.compress(LOG[:4000]) + gzip.compress(LOG[4000:])),
        ("app-1.zstd", zstd(LOG)),
        ("frames.zst", zstd_frames(LOG)),
        ("misnamed.txt", zstd(LOG)),
        ("misnamed.zstd", LOG),
        ("no-last-line-break", LOG.rstrip(b"\n")),
        ("windows", LOG.replace(b"\n", b"\r\n")),
    ],
)
def test_every_form_of_one_file_is_the_same_log(name: str, data: bytes, tmp_path: Path) -> None:
    log = find_log(put(tmp_path / name, data))
    edges = task_edges(log)
    assert edges.to_pylist() == rows(LOG, tmp_path)
    assert edges.num_rows == 400
    assert not log.damage


def test_a_running_log_ends_in_an_open_frame(tmp_path: Path) -> None:
    log = find_log(put(tmp_path / "app-1.zstd.inprogress", zstd_flushed(LOG)))
    assert log.in_progress
    assert task_edges(log).to_pylist() == rows(LOG, tmp_path)
    assert log.damage == ["app-1.zstd.inprogress: the last zstd frame has no end"]
    assert "in progress" in log.describe()


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("form", ["plain", "gzip", "frames", "flushed"])
def test_a_truncated_log_gives_every_whole_line(form: str, cut: float, tmp_path: Path) -> None:
    forms = {
        "plain": bytes,
        "gzip": gzip.compress,
        "frames": zstd_frames,
        "flushed": zstd_flushed,
    }
    whole = rows(LOG, tmp_path)
    data = forms[form](LOG)
    log = find_log(put(tmp_path / "cut", data[: int(len(data) * cut)]))
    edges = task_edges(log).to_pylist()
    assert edges == whole[: len(edges)]
    assert cut * 0.7 - 0.1 < len(edges) / len(whole) < min(1, cut * 1.3 + 0.1)
    assert log.damage
    assert all(line.startswith("cut: ") for line in log.damage)


BAD = b'{"Event":"SparkListenerJobStart","Jo\n[1]\n\xff\xfe\n\n{"no":"event"}\n'


@pytest.mark.parametrize(
    ("data", "damage"),
    [
        (LOG + b'{"Event":"SparkListenerBlock', "the last line is cut off, 28 bytes of it skipped"),
        (text(LOG_START) + BAD + LOG, "4 lines that are no event skipped"),
    ],
)
def test_a_cut_line_is_counted_in_bytes_and_broken_ones_also_where_they_would_not_be_wanted(
    data: bytes, damage: str, tmp_path: Path
) -> None:
    log = find_log(put(tmp_path / "log", data))
    assert task_edges(log).num_rows == 400
    assert log.damage == [f"log: {damage}"]


@pytest.mark.parametrize("form", [zstd_frames, gzip.compress])
def test_damage_in_the_middle_is_placed(form: Any, tmp_path: Path) -> None:
    data = bytearray(form(LOG))
    middle = len(data) // 2
    data[middle : middle + 400] = bytes(400)
    log = find_log(put(tmp_path / "damaged", bytes(data)))
    whole = rows(LOG, tmp_path)
    edges = task_edges(log).to_pylist()
    assert 0 < len(edges) < 400
    assert edges[:50] == whole[:50]
    assert any("damaged" in line and "byte" in line for line in log.damage)


def rolled(folder: Path, parts: dict[str, bytes], status: str = "appstatus_app-1") -> Path:
    for name, data in parts.items():
        put(folder / name, data)
    put(folder / status, b"")
    put(folder / f".{status}.crc", b"crc\0")
    return folder


def test_rolled_files_are_read_by_number(tmp_path: Path) -> None:
    lines = LOG.splitlines(keepends=True)
    parts = {f"events_{n + 1}_app-1.zstd": zstd(b"".join(lines[n * 40 : n * 40 + 40])) for n in range(11)}
    folder = rolled(tmp_path / "logs" / "eventlog_v2_app-1", parts)
    expected = rows(LOG, tmp_path)
    for path in (folder, folder.parent, str(folder), folder.as_uri()):
        log = find_log(path)
        assert len(log.parts) == 11
        assert not log.in_progress
        assert task_edges(log).to_pylist() == expected
        assert not log.damage


def test_a_compacted_file_stands_for_those_before_it(tmp_path: Path) -> None:
    compacted = text(LOG_START, APP_START, ended(3, 5, 30))
    parts = {
        "events_1_app-1": text(LOG_START, started(1, 0)),
        "events_2_app-1": text(ended(1, 0, 9)),
        "events_2_app-1.compact": compacted,
        "events_3_app-1": text(started(4, 40), ended(4, 40, 50)),
    }
    log = find_log(rolled(tmp_path / "eventlog_v2_app-1", parts))
    assert [part.name for part in log.parts] == ["events_2_app-1.compact", "events_3_app-1"]
    edges = task_edges(log)
    assert edges["task_id"].to_pylist() == [3, 3, 4, 4]
    assert edges["edge"].to_pylist() == ["start", "end"] * 2
    assert not log.damage


@pytest.mark.parametrize(
    ("begun", "number", "edges", "damage"),
    [(text(LOG_START, started(1, 0)), 4, 401, ["2 rolled files missing (number 2, 3)"]), (b"", 2, 400, [])],
)
def test_a_rolled_file_may_be_missing_or_just_begun(
    begun: bytes, number: int, edges: int, damage: list[str], tmp_path: Path
) -> None:
    parts = {"events_1_app-1": LOG, f"events_{number}_app-1": begun.replace(b'"Task ID":1', b'"Task ID":1000')}
    log = find_log(rolled(tmp_path / "eventlog_v2_app-1", parts, "appstatus_app-1.inprogress"))
    assert log.in_progress
    assert task_edges(log).num_rows == edges
    assert log.damage == damage


REFUSED = {
    "empty file": ("empty", b""),
    "empty file in progress": ("empty.inprogress", b""),
    "only line breaks": ("blank", b"\n\n\n"),
    "half of the first line": ("half", b'{"Event":"SparkListenerLogSt'),
    "nothing flushed": ("start.zstd.inprogress", zstd_flushed(b"")[:9] or b"\x28\xb5\x2f\xfd"),
    "text": ("notes.txt", b"dear diary\n"),
    "JSON of something else": ("other.json", b'{"Event":"click","x":1}\n{"Event":"click"}\n'),
    "a JSON array": ("array.json", b'["Event"]\n'),
    "binary garbage": ("noise", bytes(range(1, 256)) * 40),
    "gzip of text": ("text.gz", gzip.compress(b"dear diary\n")),
    "zstd of text": ("text.zstd", zstd(b"dear diary\n")),
    "not really gzip": ("broken.gz", b"\x1f\x8b\x08\x00 and so on"),
    "lzf": ("app-1.lzf", b"ZV\x01\x00\x10\x00\x20abcdef"),
    "zip": ("logs.zip", b"PK\x03\x04abc"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_log_is_refused_in_words(case: str, tmp_path: Path) -> None:
    name, data = REFUSED[case]
    with pytest.raises(SourceError, match=r"^event log: .+[.?]$") as raised:
        find_log(put(tmp_path / name, data))
    assert "\n" not in str(raised.value)
    assert name in str(raised.value)
    if case == "lzf":
        assert "spark.eventLog.compression.codec=zstd" in str(raised.value)


def test_a_missing_path_is_refused_and_the_nearest_offered(tmp_path: Path) -> None:
    put(tmp_path / "app-1.inprogress", LOG)
    with pytest.raises(SourceError, match=r"no such file.*Did you mean 'app-1.inprogress'\?"):
        find_log(tmp_path / "app-1")
    with pytest.raises(SourceError, match="not on this machine"):
        find_log("hdfs://name/logs/app-1")


def test_directories_without_or_with_several_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no Spark event log in .*it is empty"):
        find_log(tmp_path)
    put(tmp_path / "notes.txt", b"dear diary")
    with pytest.raises(SourceError, match="no Spark event log in .*found 1 other entry"):
        find_log(tmp_path)
    put(tmp_path / "app-1", LOG)
    assert find_log(tmp_path).path.name == "app-1"
    rolled(tmp_path / "eventlog_v2_app-2", {"events_1_app-2": LOG})
    os.utime(tmp_path / "app-1", (1, 1))
    with pytest.raises(SourceError, match="2 logs in .*newest first: eventlog_v2_app-2, app-1"):
        find_log(tmp_path)
    with pytest.raises(SourceError, match="no Spark event log in .*found 1 other entry"):
        find_log(put(tmp_path / "eventlog_v2_x" / "appstatus_x", b"").parent)


def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "app-1", LOG)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SourceError, match="app-1 gave: Permission denied"):
        find_log(path)


def edges_of(tmp_path: Path, *events: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Edge, task, microseconds since the first instant."""
    table = task_edges(find_log(put(tmp_path / "app-1", text(LOG_START, *events))))
    assert table.schema == EDGES
    micros = (ts - EPOCH * 1000 for ts in table["ts"].cast(pa.int64()).to_pylist())
    return list(zip(table["edge"].to_pylist(), table["task_id"].to_pylist(), micros, strict=True))


def test_edges_keep_the_order_of_the_log(tmp_path: Path) -> None:
    edges = edges_of(tmp_path, started(1, 0), started(2, 5), ended(2, 5, 9), started(3, 8), ended(1, 0, 20))
    assert edges == [("start", 1, 0), ("start", 2, 5000), ("end", 2, 9000), ("start", 3, 8000), ("end", 1, 20000)]
    assert disorder(task_edges(find_log(tmp_path / "app-1"))) == 1000


@pytest.mark.parametrize(
    ("events", "edges"),
    [
        ([started(1, 7), ended(1, 7, 7)], [("start", 1, 7000), ("end", 1, 7001)]),
        ([started(1, 7), ended(1, 7, 3)], [("start", 1, 7000), ("end", 1, 7001)]),
        (
            [started(1, 0), started(1, 0), ended(1, 0, 5), ended(1, 0, 5), started(1, 0), started(2, 1)],
            [("start", 1, 0), ("end", 1, 5000), ("start", 2, 1000)],
        ),
        ([ended(1, 2, 5)], [("start", 1, 2000), ("end", 1, 5000)]),
    ],
    ids=["no length", "less than none", "several", "no start"],
)
def test_a_task_has_one_start_and_at_most_one_end_which_is_later(events: Any, edges: Any, tmp_path: Path) -> None:
    assert edges_of(tmp_path, *events) == edges


def test_events_of_a_strange_shape_are_passed_over(tmp_path: Path) -> None:
    strange = [{"Event": "SparkListenerTaskEnd"}, {"Event": "SparkListenerTaskStart", "Task Info": [1]}]
    assert edges_of(tmp_path, *strange, ended(1, 0, 4, failed=True)) == [("start", 1, 0), ("end", 1, 4000)]
    log = find_log(tmp_path / "app-1")
    start, end = task_edges(log).to_pylist()
    assert log.damage == ["2 task events without a task id or a time skipped"]
    assert end["failed"] is True and start["failed"] is None


def test_the_application_and_its_stages(tmp_path: Path) -> None:
    stage = {"Stage ID": 3, "Stage Attempt ID": 0, "Stage Name": "count at x.py:1", "Number of Tasks": 8}
    submitted = {
        "Event": "SparkListenerStageSubmitted",
        "Stage Info": stage,
        "Properties": {"spark.job.description": "zones"},
    }
    again = {
        "Event": "SparkListenerStageSubmitted",
        "Stage Info": stage | {"Stage Attempt ID": 1, "Number of Tasks": 2},
    }
    log = find_log(put(tmp_path / "app-1", text(LOG_START, APP_START, submitted, again, APP_END)))
    assert stage_labels(log) == {3: "3 zones"}
    assert application_title(log) == "a (app-1), Spark 4.3.0"
    assert application_title(find_log(put(tmp_path / "app-2", text(LOG_START)))) == "? (?), Spark 4.3.0"


def test_a_log_that_spark_wrote() -> None:
    log = find_log(DATA)
    assert len(log.parts) == 2
    assert not log.damage
    edges = task_edges(log)
    ends = edges.filter(pa.compute.equal(edges["edge"], "end"))
    assert edges.num_rows == 2 * ends.num_rows
    assert pa.compute.sum(ends["failed"]).as_py() == 1
    labels = stage_labels(log)
    assert len(labels) == 7
    described = {label.partition(" ")[2] for label in labels.values()}
    assert described == {"trips by zone", "smoothed readings", "fares against readings"}
    assert application_title(log).startswith("uneven zones (")
