"""The parts of a migration that need no Spark: files, offsets, names. A whole one is in tests/spark/test_changed_query.py."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamq as sq
from streamq.errors import CheckpointError, PlanError
from streamq.run.storage.files import CONTROL, Offsets, spark_sources
from streamq.run.storage.migrate import Migration, _check_forms, _check_names, _without_idle_parts
from streamq.run.storage.raw_files import RawFolder
from streamq.runtime.hosts.identity import Identity, ResultState
from tests.runtime.test_identity import MINE

LOG = b"""v1
{"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "200", "other": "x"}}
{"logOffset":3}
{"logOffset":0}"""


def test_offsets_go_along_with_their_sources() -> None:
    """Those of a source that is new are empty, and it is read from its start."""
    before = spark_sources(MINE)
    assert before == ["s", CONTROL]
    offsets = Offsets.read(LOG, before, "migrate")
    now = spark_sources(replace(MINE, sources=("other", "s"), clock=True))
    lines = offsets.to_bytes(now, "4").decode().split("\n")
    assert lines[0] == "v1" and '"spark.sql.shuffle.partitions": "4"' in lines[1] and '"other": "x"' in lines[1]
    assert lines[2:] == ["-", "-", '{"logOffset":3}', '{"logOffset":0}']
    for log in (LOG.replace(b"v1", b"v2"), LOG + b"\n-"):
        with pytest.raises(CheckpointError, match="migrate: Spark's log of offsets is of another format; found v"):
            Offsets.read(log, before, "migrate")


def test_files_are_copied_without_check_sums(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/0").write_text("old")
    (tmp_path / "a/b/.0.crc").write_text("sum")
    folder, target = (
        RawFolder.from_path(str(tmp_path / "a"), "migrate"),
        RawFolder.from_path(str(tmp_path / "c"), "migrate"),
    )
    assert (folder.files(), target.files()) == (["b/0"], [])
    folder.copy_to(target / "d", lambda content: content.replace(b"old", b"new"))
    assert target.files() == ["d/b/0"] and target.read("d/b/0") == b"new"
    target.delete()
    target.delete()
    assert not (tmp_path / "c").exists()
    with pytest.raises(CheckpointError, match="migrate: this program cannot reach the files; found nosuch://a"):
        RawFolder.from_path("nosuch://a", "migrate")


def test_parts_that_were_idle_are_awaited_anew() -> None:
    """Rounds are counted by micro-batches, of which the new checkpoint has only one."""

    def written(rounds: list[int]) -> bytes:
        file = io.BytesIO()
        pq.write_table(pa.table({"cti": [5] * len(rounds), "idle_before": rounds}), file)
        return file.getvalue()

    assert _without_idle_parts(written([0])) == written([0])
    copy = pq.read_table(io.BytesIO(_without_idle_parts(written([0, 7]))))
    assert copy.to_pydict() == {"cti": [5, 5], "idle_before": [0, 0]}
    assert _without_idle_parts(b"_SUCCESS") == b"_SUCCESS"


def test_sources_are_known_by_their_names() -> None:
    _check_names(replace(MINE, sources=("#1", "a")))
    with pytest.raises(PlanError, match="migrate: 2 sources have no name; .* Give each source its own name="):
        _check_names(replace(MINE, sources=("#1", "#2")))


def test_what_is_no_query_is_refused() -> None:
    for query in (3, [], [sq.events([(1, 2, {"v": 1})])]):
        with pytest.raises(PlanError, match="migrate: not a stream; found"):
            sq.migrate(query, "old", to="new")


def test_a_migration_says_what_it_has_read() -> None:
    done = Migration(checkpoint="old", to="new", upto=4)
    assert str(done) == "new stands where old stood after micro-batch 4"
    assert str(replace(done, begins=("a", "b"))).endswith("; a, b will be read from the start")


def of_outputs(*outputs: str, early: bool = False) -> Identity:
    results = tuple(ResultState(output=output, ctis=False, operators=()) for output in outputs)
    return replace(MINE, results=results, early=early)


def test_rows_that_only_the_new_form_sends_before_they_are_final_are_not_lost() -> None:
    changelog, final = of_outputs("changelog"), of_outputs("final")
    early = of_outputs("changelog", early=True)
    for before, now in ((changelog, final), (early, final), (early, early), (final, of_outputs("final", "changelog"))):
        _check_forms(before, now)
    hint = r'Migrate with output="final", then run with the other output'
    both = of_outputs("final", "changelog"), of_outputs("changelog", "upsert")
    for before, now in ((final, changelog), (final, early), both):
        with pytest.raises(CheckpointError, match=f"migrate: the output cannot change with the query; .* {hint}"):
            _check_forms(before, now)
    for before, now in ((changelog, early), (early, of_outputs("upsert"))):
        with pytest.raises(CheckpointError, match=f"has early={before.early}, .* Migrate with early={before.early}"):
            _check_forms(before, now)
