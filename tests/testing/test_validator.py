"""What breaks a rule of a physical stream is found, with its row; what breaks none is not."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.operators import Select, Source
from streamq.compiler.plan import nodes
from streamq.compiler.program import CHANGELOG
from streamq.errors import InvalidEvent, PlanError, SourceError
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.testing.generate import Case, Row, cuts, physical_streams
from streamq.testing.history import comparable, fold_physical
from streamq.testing.validator import RULES, StreamViolation, check_stream, find_breaches
from streamq.time import INFINITY, MINUS_INFINITY
from tests.laws.test_progress import Watched, watched

NAN = float("nan")


def broken(rows: Any, **declared: Any) -> list[tuple[str, int]]:
    """The rules broken and by which rows."""
    found = find_breaches(rows, **declared)
    assert Counter(breach.rule for breach in found.breaches) == found.counts
    return [(breach.rule, breach.position) for breach in found.breaches]


def changelog(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table(
        {name: [row[i] for row in rows] for i, name in enumerate(["kind", "start", "end", "new_end"])},
        schema=pa.schema([("kind", pa.string()), *((n, pa.int64()) for n in ("start", "end", "new_end"))]),
    )


# what is always judged


def test_rows_that_are_no_items_are_breaches_and_not_judged_further() -> None:
    rows = [
        {"kind": "insert", "start": None, "end": 3, "new_end": None},
        {"kind": "update", "start": 1, "end": 3, "new_end": None},
        {"kind": None, "start": 1, "end": 3, "new_end": None},
        {"kind": 7, "start": 1, "end": 3, "new_end": None},
        {"kind": "insert", "start": 3, "end": 3, "new_end": None},
        {"kind": "Retract", "start": 3, "end": 5, "new_end": 2},
        {"kind": "cti", "start": None, "end": None, "new_end": None},
        {"kind": "insert", "start": INFINITY, "end": None, "new_end": None},
        {"kind": "INSERT", "start": 3, "end": 5, "new_end": None},
    ]
    assert broken(rows) == [("item", n) for n in range(8)]


def test_a_retraction_takes_back_an_event_of_its_start_end_and_payload() -> None:
    there = sq.insert(1, 5, k="a", v=NAN)
    for payload, start, end, fits in (
        ({"k": "a", "v": NAN}, 1, 5, True),
        ({"k": "a", "v": None}, 1, 5, False),
        ({"k": "b", "v": NAN}, 1, 5, False),
        ({"k": "a", "v": NAN}, 1, 6, False),
        ({"k": "a", "v": NAN}, 2, 5, False),
    ):
        rows = [there, sq.retract(start, end, 9, **payload)]
        assert broken(rows) == ([] if fits else [("match", 1)])


@pytest.mark.parametrize("value", [NAN, None, -0.0, 0.0, [1, NAN], {"a": None}, Decimal("1.50"), "", b"x"])
def test_payloads_equal_themselves(value: Any) -> None:
    rows = [
        {"kind": "insert", "start": 1, "end": 5, "new_end": None, "v": value},
        {"kind": "retract", "start": 1, "end": 5, "new_end": 1, "v": 0.0 if value == 0 else value},
    ]
    check_stream(rows)
    check_stream(pa.Table.from_pylist(rows))
    check_stream(pd.DataFrame(rows))


def test_each_event_is_taken_back_once_and_a_chain_follows_its_ends() -> None:
    chain = [sq.insert(1, 5), sq.retract(1, 5, 8), sq.retract(1, 8, 3), sq.retract(1, 3, 1)]
    check_stream(chain, order="chain")
    assert broken([*chain, sq.retract(1, 3, 1)]) == [("match", 4)]
    assert broken([sq.insert(1, 5), sq.insert(1, 5), *[sq.retract(1, 5, 1)] * 3]) == [("match", 4)]


def test_what_builds_on_a_lost_row_is_not_counted_again() -> None:
    assert broken([sq.retract(1, 5, 8), sq.retract(1, 8, 3), sq.retract(1, 3, 1)]) == [("match", 0)]
    assert broken([sq.retract(1, 5, 8), sq.retract(1, 8, 5)]) == [("match", 0)]
    assert broken([sq.retract(1, 5, 5)]) == [("match", 0)]


def test_an_id_names_the_event_whatever_the_payload() -> None:
    rows = [
        {"kind": "insert", "start": 1, "end": 5, "new_end": None, "n": 7, "v": "a"},
        {"kind": "retract", "start": 1, "end": 5, "new_end": 3, "n": 7, "v": None},
    ]
    assert broken(rows) == [("match", 1)]
    check_stream(rows, id="n")
    assert broken([rows[0], {**rows[1], "n": 8}], id="n") == [("match", 1)]


def test_a_retraction_may_wait_for_its_event_until_a_cti_is_past_the_start() -> None:
    insert, retract = sq.insert(5, 9), sq.retract(5, 9, 7)
    check_stream([retract, sq.cti(5), insert])
    assert broken([retract, sq.cti(6), insert]) == [("match", 0), ("cti", 2)]
    assert broken([retract, sq.cti(6), insert], ctis=False) == []
    assert broken([retract, insert], order="chain") == [("order", 0)]
    assert broken([retract], order="chain") == [("match", 0)]
    batches = changelog(("retract", 5, 9, 7), ("cti", 6, None, None), ("insert", 5, 9, None))
    check_stream(batches.append_column("n", pa.array([1, 2, 2])), batch="n")


def test_what_leads_in_a_circle_needs_an_event_to_lead_around() -> None:
    rows = changelog(("insert", 1, 5, None), ("retract", 1, 5, 8), ("retract", 1, 5, 9), ("retract", 1, 9, 5))
    check_stream(rows.append_column("n", pa.array([1, 1, 1, 1])), batch="n", order="chain")
    apart = rows.append_column("n", pa.array([1, 1, 2, 2]))
    check_stream(apart, batch="n")
    assert broken(apart, batch="n", order="chain") == [("order", 2)]


# CTIs


def test_nothing_changes_before_a_cti() -> None:
    rows = [sq.insert(1, 9), sq.insert(4, None), sq.cti(5)]
    for item, late in (
        (sq.insert(5, 6), False),
        (sq.insert(4, 6), True),
        (sq.retract(1, 9, 5), False),
        (sq.retract(1, 9, 4), True),
        (sq.retract(4, None, 4), True),
        (sq.retract(1, 9, 12), False),
        (sq.cti(5), False),
        (sq.cti(4), True),
    ):
        assert broken([*rows, item]) == ([("cti", 3)] if late else [])
        assert broken([*rows, item], ctis=False) == []


def test_a_cti_takes_effect_at_the_end_of_its_micro_batch() -> None:
    rows = pd.DataFrame(
        [("cti", 5, None, 1), ("insert", 4, 6, 1), ("cti", 3, None, 1), ("cti", 4, None, 2), ("insert", 4, 7, 2)],
        columns=["kind", "start", "end", "n"],
    )
    assert broken(rows, batch="n") == [("cti", 3), ("cti", 4)]
    assert broken(rows.iloc[::-1], batch="n") == [("cti", 0), ("cti", 1)]
    assert [p for _, p in broken(rows.drop(columns="n"))] == [1, 2, 3, 4]


def test_a_delete_and_an_insert_in_one_micro_batch_are_a_retraction() -> None:
    made = {"kind": "insert", "start": 1, "end": 9, "new_end": None, "v": 1, "n": 0}
    promise = {"kind": "cti", "start": 5, "end": None, "new_end": None, "v": None, "n": 0}
    gone = {**made, "kind": "retract", "new_end": 1, "n": 1}
    for end, v, rules in ((7, 1, 0), (None, 1, 0), (9, 1, 0), (4, 1, 1), (7, 2, 2)):
        again = {**made, "end": end, "v": v, "n": 1}
        for pair in ((gone, again), (again, gone)):
            assert [rule for rule, _ in broken([made, promise, *pair], batch="n")] == ["cti"] * rules
    rows = [{**row, "n": n} for n, row in enumerate([made, promise, gone, {**made, "end": 7}])]
    assert broken(rows, batch="n") == [("cti", 2), ("cti", 3)]


def test_what_a_micro_batch_takes_and_gives_again_is_no_change() -> None:
    before = [("insert", 1, 4, None), ("insert", 1, 9, None), ("cti", 5, None, None)]
    gone = [("retract", 1, 4, 1), ("retract", 1, 9, 1)]

    def late(*rows: tuple[Any, ...]) -> int:
        table = changelog(*before, *rows).append_column("n", pa.array([1] * 3 + [2] * len(rows)))
        return len(broken(table, batch="n", order="chain"))

    assert late(gone[0], ("insert", 1, 4, None)) == 0
    assert late(*gone, ("insert", 1, 4, None), ("insert", 1, 6, None)) == 0
    # one is gone, the other lives longer
    assert late(*gone, ("insert", 1, 10, None)) == 1
    assert late(*gone, ("insert", 1, 10, None), ("insert", 1, 11, None)) == 1
    assert late(*gone) == 2


# order


def test_full_order_is_that_of_sync_times() -> None:
    check_stream([sq.insert(1, 9), sq.insert(1, 3), sq.retract(1, 9, 7), sq.insert(7, 8), sq.cti(2)], order="full")
    rows = [sq.insert(1, 9), sq.insert(8, 9), sq.retract(1, 9, 7), sq.insert(8, 9), sq.insert(2, 9)]
    assert broken(rows, order="full") == [("order", 2), ("order", 4)]
    check_stream(rows, order="chain")


def test_inside_a_micro_batch_order_means_nothing() -> None:
    rows = [sq.retract(1, 8, 3), sq.retract(1, 5, 8), sq.insert(9, 10), sq.insert(1, 5)]
    table = pa.Table.from_pylist([{"kind": i.kind, "start": i.start, "end": i.end, "new_end": i.new_end} for i in rows])
    check_stream(table.append_column("n", pa.array([3] * 4)), batch="n", order="full")
    assert broken(table, order="chain") == [("order", 0), ("order", 1)]


# shapes


def test_points_last_a_tick() -> None:
    check_stream([(1, 2), (4, 5)], shape="point")
    check_stream([sq.insert(1, 2), sq.retract(1, 2, 1)], shape="point")
    rows = [sq.insert(1, 3), sq.insert(1, 2), sq.retract(1, 2, None), sq.insert(7, None)]
    assert broken(rows, shape="point") == [("shape", 0), ("shape", 2), ("shape", 3)]
    tick = dt.timedelta(microseconds=1)
    at = dt.datetime(2024, 3, 9)
    check_stream([(at, at + tick)], shape="point")
    assert broken([(at, at + 2 * tick)], shape="point") == [("shape", 0)]


def test_edges_are_open_until_their_end_is_given_once() -> None:
    opened = sq.insert(1, None)
    check_stream([opened, sq.retract(1, None, 5)], shape="edge")
    for rows in (
        [sq.insert(1, 5)],
        [opened, sq.retract(1, None, 5), sq.retract(1, 5, 6)],
        [opened, sq.retract(1, None, 1)],
        [opened, sq.retract(1, None, None)],
    ):
        assert broken(rows, shape="edge") == [("shape", len(rows) - 1)]


def test_edges_of_a_key_follow_each_other() -> None:
    rows = [sq.insert(1, None, k=1), sq.insert(3, None, k=2), sq.retract(1, None, 4, k=1), sq.insert(4, None, k=1)]
    check_stream(rows, shape="edge", key="k")
    assert broken([*rows, sq.insert(6, None, k=1)], shape="edge", key="k") == [("shape", 4)]
    assert broken([*rows, sq.insert(2, None, k=1)], shape="edge", key="k") == [("shape", 3), ("shape", 4)]
    assert broken([(1, 9, {"k": 1}), (3, 6, {"k": 2}), (5, 7, {"k": 2})], shape="edge", key="k") == [("shape", 2)]
    history = [(1, 9, {"k": 1}), (2, 4, {"k": 1}), (8, 9, {"k": 1}), (9, 12, {"k": 1}), (2, 3, {"k": 2})]
    assert broken(history, shape="edge", key=["k"]) == [("shape", 1), ("shape", 2)]


def test_a_changelog_of_edges_folds_first() -> None:
    """An end in the micro-batch of its start leaves one insert; a delete and an insert give the end."""
    rows = pd.DataFrame(
        [
            ("insert", 1, None, None, "a", 0),
            ("insert", 1, 3, None, "b", 0),
            ("retract", 1, None, 1, "a", 1),
            ("insert", 1, 6, None, "a", 1),
        ],
        columns=["kind", "start", "end", "new_end", "k", "n"],
    )
    check_stream(rows, shape="edge", key="k", batch="n")
    assert broken(rows.drop(columns="n"), shape="edge", key="k") == [("shape", 1), ("shape", 2), ("shape", 3)]


def test_a_sample_lives_until_the_next_later_one_of_its_key() -> None:
    rows = [(1, 4, {"k": 1}), (1, 4, {"k": 1}), (2, 7, {"k": 2}), (4, 9, {"k": 1}), (7, None, {"k": 2})]
    check_stream(rows, shape="signal", key="k")
    assert broken([*rows, (1, 5, {"k": 1})], shape="signal", key="k") == [("shape", 5)]
    assert broken([*rows, (8, None, {"k": 1})], shape="signal", key="k") == [("shape", 3)]
    assert broken(rows, shape="signal", key=()) == [("shape", n) for n in (0, 1, 2, 3)]


def test_the_last_sample_may_end_where_one_is_still_to_come() -> None:
    rows = [sq.insert(1, None, k=1), sq.retract(1, None, 6, k=1)]
    check_stream([*rows, sq.cti(6)], shape="signal", key="k")
    assert broken([*rows, sq.cti(7)], shape="signal", key="k") == [("shape", 1)]
    check_stream([*rows, sq.insert(6, None, k=1), sq.cti(7)], shape="signal", key="k")


# what may be given


def test_forms_of_the_same_rows() -> None:
    at = dt.datetime(2024, 3, 9, tzinfo=dt.UTC)
    hour = dt.timedelta(hours=1)
    items = [sq.insert(at, None, v=1), sq.cti(at + 3 * hour), sq.retract(at, None, at + 2 * hour, v=1)]
    rows = [{"kind": i.kind, "start": i.start, "end": i.end, "new_end": i.new_end, **dict(i.payload)} for i in items]
    naive = [{n: v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for n, v in row.items()} for row in rows]
    ticks = [{n: int(v.timestamp()) if isinstance(v, dt.datetime) else v for n, v in row.items()} for row in rows]
    frame = pd.DataFrame(ticks)
    assert frame["end"].isna().all()
    assert frame["new_end"].dtype == np.float64
    zoned = pd.DataFrame(rows).astype({"start": "datetime64[s, America/New_York]", "kind": "category"})
    seconds = pa.Table.from_pylist(naive).set_column(
        1, "start", pa.array([r["start"] for r in naive], pa.timestamp("s"))
    )
    for form in (items, iter(items), rows, naive, ticks, frame, frame.to_dict("records"), zoned, seconds,
                 pa.Table.from_pylist(rows), pd.DataFrame(rows).to_dict("records")):  # fmt: skip
        assert broken(form) == [("cti", 2)]


def test_dates_are_their_midnights() -> None:
    days = [dt.date(2024, 3, n) for n in (1, 2, 3)]
    table = pa.table({"start": days[:2], "end": days[1:]})
    check_stream(table)
    assert broken([(days[1], days[0])]) == [("item", 0)]


def test_a_history_is_inserts_whatever_its_payload() -> None:
    table = pa.table({"start": [1, 2], "end": [3, None], "kind": ["a", "b"], "new_end": ["x", "y"]})
    assert broken(table.drop_columns("new_end")) == [("item", 0), ("item", 1)]
    check_stream(table, kind=None)
    check_stream(table.drop_columns(["kind", "new_end"]))
    check_stream(table.slice(0, 0), kind=None)
    check_stream([])


def test_columns_may_have_other_names() -> None:
    rows = [{"op": "insert", "le": 1, "re": 9, "to": None}, {"op": "retract", "le": 1, "re": 8, "to": 3}]
    assert broken(rows, kind="op", start="le", end="re", new_end="to") == [("match", 1)]


@pytest.mark.parametrize(
    ("rows", "declared", "message"),
    [
        (
            [{"kind": "insert", "at": 1, "end": 2}],
            {},
            "no column 'start'; there are: 'kind', 'at', 'end'. Say which is: start=",
        ),
        ([{"kind": "retract", "start": 1, "end": 2}], {}, "no column 'new_end'"),
        ([{"new_end": 1, "start": 1, "end": 2}], {}, "no column 'kind'"),
        ([{"start": 1, "end": 2}], {"kind": "op"}, "no column 'op'"),
        ([{"start": 1, "end": 2}], {"id": "n"}, "no column 'n'.*id="),
        ([{"start": 1, "end": 2}], {"batch": "n"}, "no column 'n'.*batch="),
        ([{"start": 1, "end": 2}], {"shape": "edge", "key": "k"}, "no column 'k'.*key="),
        ([{"start": 1, "end": 2.5}], {}, "column 'end' holds no times; found 2.5"),
        (pd.DataFrame({"start": [1.5], "end": [2]}), {}, "column 'start' holds no times; found 1.5"),
        ([{"start": "1", "end": 2}], {}, "column 'start' holds no times; found '1'"),
        (pa.table({"start": ["1"], "end": [2]}), {}, "column 'start' holds no times; found string"),
        ([{"start": True, "end": 2}], {}, "holds no times"),
        ([{"start": 2**70, "end": None}], {}, "holds no times"),
        ([{"start": 1, "end": dt.date(2024, 1, 1)}], {}, "all timestamps or all integers"),
        ([(1, 2), (dt.datetime(2024, 1, 1), None)], {}, "timestamps and integers"),
        ([{"start": 1, "end": 2, "n": None}], {"batch": "n"}, "a batch of NULL"),
        ([{"start": 1, "end": 2, "n": "9"}], {"batch": "n"}, "column 'n' holds no times"),
        ([7], {}, "not a row; found 7"),
        (7, {}, "no physical stream; found int"),
        ("nowhere", {}, "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_read_is_an_error(rows: Any, declared: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        check_stream(rows, **declared)


@pytest.mark.parametrize("declared", [{"shape": "points"}, {"order": "chained"}, {"shape": "signal"}])
def test_wrong_arguments_are_an_error(declared: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="check_stream: "):
        check_stream([(1, 2)], **declared)


# a sink's folder


MADE, PROMISED, GONE = (
    changelog(("insert", 1, 5, None)),
    changelog(("cti", 4, None, None)),
    changelog(("retract", 1, 5, 2)),
)


def test_folders_of_micro_batches_tell_the_order(tmp_path: Path) -> None:
    for number, table in ((2, PROMISED), (10, GONE), (1, MADE)):
        (tmp_path / f"batch={number}").mkdir()
        pq.write_table(table, tmp_path / f"batch={number}" / "part-0.parquet")
    assert broken(tmp_path, order="chain") == [("cti", find(tmp_path, "retract"))]
    assert "of micro-batch 10" in str(find_breaches(str(tmp_path)))


def find(folder: Path, kind: str) -> int:
    """Where the row of a kind is read."""
    found = pq.read_table(folder).column("kind").to_pylist()
    return found.index(kind)


def log(folder: Path, entry: str, *files: str) -> None:
    lines = [f'{{"path":"file://{folder}/{name}","isDir":false,"modificationTime":1,"action":"add"}}' for name in files]
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    (folder / "_spark_metadata" / entry).write_text("\n".join(["v1", *lines]))


def test_the_log_of_a_file_sink_tells_the_order_and_what_counts(tmp_path: Path) -> None:
    for name, table in (("c", MADE), ("b", PROMISED), ("a", GONE), ("left over", GONE)):
        pq.write_table(table, tmp_path / name)
    log(tmp_path, "0", "c")
    log(tmp_path, "1", "b")
    log(tmp_path, "2.compact", "b", "a", "c")
    (tmp_path / "_spark_metadata" / ".2.compact.crc").write_bytes(b"\0")
    assert broken(tmp_path, order="chain") == [("cti", 2)]
    (tmp_path / "_spark_metadata" / "0").unlink()
    assert broken(tmp_path, ctis=False) == []
    with pytest.raises(SourceError, match="rows without an order cannot be judged for CTIs.*batch=.*ctis=False"):
        check_stream(tmp_path)
    with pytest.raises(SourceError, match="cannot be judged for order"):
        check_stream(tmp_path, order="chain")


def test_a_folder_without_micro_batches_is_a_bag(tmp_path: Path) -> None:
    pq.write_table(pa.concat_tables([GONE, MADE]), tmp_path / "part-0.parquet")
    check_stream(tmp_path)
    pq.write_table(GONE, tmp_path / "part-1.parquet")
    assert [rule for rule, _ in broken(tmp_path)] == ["match"]


# the report


def test_the_report_counts_all_and_shows_the_first() -> None:
    rows = [sq.insert(1, 9, v=1), sq.cti(4), *[sq.insert(n % 3, 9, v=n) for n in range(1500)], sq.retract(1, 8, 2, v=1)]
    with pytest.raises(StreamViolation) as raised:
        check_stream(rows, most=2)
    checked = pickle.loads(pickle.dumps(raised.value)).checked
    assert checked.counts == {"match": 1, "cti": 1501}
    assert [breach.position for breach in checked.breaches] == [1502, 2, 3]
    assert checked.breaches[0].row == {"kind": "retract", "start": 1, "end": 8, "new_end": 2, "v": 1}
    assert str(raised.value).splitlines() == [
        "check_stream: 1,502 breaches in 1,503 rows",
        "1 breach of 'match': every retraction takes back an event that is there",
        "  row 1502: retract [1, 8) to 2, v=1: no event [1, 8) of this payload is there",
        "    |------)    [1, 8)  taken back",
        "    |-------)   [1, 9)  insert, row 0",
        "    |-------)   [1, 9)  insert, row 3",
        "1,501 breaches of 'cti': nothing changes before a CTI that came before it, and no CTI goes back",
        "  row 2: insert [0, 9), v=0: changes what is at 0, after cti 4",
        "    |--------)   [0, 9)  inserted",
        "        !        4       cti, row 1",
        "  row 3: insert [1, 9), v=1: changes what is at 1, after cti 4",
        "    |-------)   [1, 9)  inserted",
        "       !        4       cti, row 1",
        "  ... and 1,499 more",
    ]


def test_breaches_come_in_order_of_the_micro_batches() -> None:
    rows = [{"kind": "?", "start": 1, "end": 2, "n": n} for n in (3, 1, 2)]
    assert [position for _, position in broken(rows, batch="n")] == [1, 2, 0]


def test_every_kind_of_breach_can_be_shown() -> None:
    """Of each rule, with what is drawn beside it."""
    at = dt.datetime(2024, 3, 9, tzinfo=dt.UTC)
    hours = [at + dt.timedelta(hours=n) for n in range(10)]
    edge = [
        {"kind": "insert", "start": hours[1], "end": None, "new_end": None, "k": 1, "n": 1},
        {"kind": "cti", "start": hours[4], "end": None, "new_end": None, "k": None, "n": 1},
        {"kind": "retract", "start": hours[1], "end": None, "new_end": hours[1], "k": 1, "n": 2},
        {"kind": "insert", "start": hours[1], "end": hours[3], "new_end": None, "k": 1, "n": 2},
        {"kind": "retract", "start": hours[5], "end": None, "new_end": hours[6], "k": 1, "n": 2},
        {"kind": "insert", "start": hours[2], "end": None, "new_end": None, "k": 1, "n": 3},
        {"kind": "insert", "start": hours[5], "end": None, "new_end": None, "k": 1, "n": 3},
        {"kind": "cti", "start": hours[2], "end": None, "new_end": None, "k": None, "n": 3},
        {"kind": "insert", "start": None, "end": None, "new_end": None, "k": 1, "n": 3},
        {"kind": "retract", "start": hours[7], "end": None, "new_end": hours[8], "k": 1, "n": 3},
    ]
    text = str(find_breaches(edge, shape="edge", order="full", batch="n", key="k"))
    assert all(f"of {rule!r}" in text for rule in RULES)
    for part in (
        "retract [2024-03-09T01:00:00Z, inf) to 2024-03-09T01:00:00Z, k=1 of micro-batch 2: "
        "with row 3 a retraction to 2024-03-09T03:00:00Z; changes what is at 2024-03-09T03:00:00Z",
        "starts while another event of its key is alive",
        "comes before the event [2024-03-09T05:00:00Z, inf) that it takes back",
        "goes back from 2024-03-09T04:00:00Z",
        "a start of NULL or infinity",
        "has sync time 2024-03-09T02:00:00Z, behind 2024-03-09T06:00:00Z of row 4",
    ):
        assert part in text
    signal = str(find_breaches([(1, 3, {"k": 1}), (4, None, {"k": 1})], shape="signal", key="k"))
    assert "  row 0: insert [1, 3), k=1: its key's next sample starts at 4" in signal
    assert "    |-)    [1, 3)    this\n       |>  [4, inf)  the next sample, row 1" in signal


# against a slow check


@dataclass(frozen=True)
class Recording:
    """Rows, the micro-batch of each, and whether they have ids."""

    rows: list[Row]
    batches: list[int]
    ids: bool

    def parts(self) -> list[list[Row]]:
        found = zip(self.batches, self.rows, strict=True)
        return [[row for _, row in part] for _, part in itertools.groupby(found, key=lambda pair: pair[0])]


def slow(recording: Recording) -> set[str]:
    """The rules that a recording breaks, by definition and one event at a time."""
    found: set[str] = set()
    so_far: list[Row] = []
    c = greatest = -INFINITY
    living: Counter[Any] = Counter()
    totals: Counter[Any] = Counter()
    for part in recording.parts():
        syncs = list(changed(recording, part))
        if any(sync < c for sync in syncs) or any(row["start"] < c for row in part if row["kind"] == "cti"):
            found.add("cti")
        if any(sync < greatest for sync in syncs):
            found.add("full")
        greatest = max([greatest, *syncs])
        c = max([c, *(row["start"] for row in part if row["kind"] == "cti")])
        if not takes_turns(recording, part, living):
            found |= {"full", "chain"}
        for row in part:
            for place, weight in deltas(recording, row):
                totals[place] += weight
        living = +totals
        so_far += part
        if any(n < 0 and start < c for (_, start, _), n in totals.items()):
            found.add("match")
    try:
        fold_physical(so_far, "id" if recording.ids else None)
    except InvalidEvent:
        found.add("match")
    return found


def whose(recording: Recording, row: Row) -> Any:
    return row["id"] if recording.ids else tuple(comparable(row[name]) for name in "kv")


def deltas(recording: Recording, row: Row) -> Iterator[tuple[Any, int]]:
    if row["kind"] == "cti":
        return
    event = whose(recording, row), row["start"]
    end, new_end = (INFINITY if row[name] is None else row[name] for name in ("end", "new_end"))
    if row["kind"] == "insert":
        yield (*event, end), 1
    else:
        yield (*event, end), -1
        if new_end > row["start"]:
            yield (*event, new_end), 1


def changed(recording: Recording, part: list[Row]) -> Iterator[int]:
    """The earliest instants that a micro-batch changes, an event each."""
    by_event: dict[Any, list[Row]] = {}
    for row in part:
        if row["kind"] != "cti":
            by_event.setdefault((whose(recording, row), row["start"]), []).append(row)
    for (_, start), rows in by_event.items():
        if len(rows) == 1:
            ends = [INFINITY if rows[0][name] is None else rows[0][name] for name in ("end", "new_end")]
            yield start if rows[0]["kind"] == "insert" else min(ends)
            continue
        net: Counter[int] = Counter()
        for row in rows:
            for (_, _, end), weight in deltas(recording, row):
                net[end] += weight
        ends = [end for end, weight in net.items() if weight]
        if ends:
            yield start if sum(net.values()) else min(ends)


def takes_turns(recording: Recording, part: list[Row], living: Counter[Any]) -> bool:
    """Whether the retractions of a micro-batch can be made one after the other."""
    there = Counter(living)
    moves = []
    for row in part:
        changes = list(deltas(recording, row))
        if row["kind"] == "insert":
            there[changes[0][0]] += 1
        elif row["kind"] == "retract":
            moves.append(changes)
    seen: set[Any] = set()

    def made(there: Counter[Any], left: tuple[int, ...]) -> bool:
        if not left:
            return True
        # which retractions are left says which events there are
        if left in seen:
            return False
        seen.add(left)
        for i in left:
            (place, _), *new = moves[i]
            if there[place] > 0:
                after = Counter(there)
                after[place] -= 1
                for end, _ in new:
                    after[end] += 1
                if made(after, tuple(j for j in left if j != i)):
                    return True
        return False

    return made(there, tuple(range(len(moves))))


@st.composite
def recordings(draw: Any, corrupted: bool, ids: bool | None = None) -> Recording:
    """A legal stream, row by row or in micro-batches; maybe with some rows lost, doubled, moved or changed."""
    ids = draw(st.booleans()) if ids is None else ids
    rows = draw(physical_streams(value=draw(st.sampled_from(["int", "double"])), ids=ids, most=5))
    for _ in range(draw(st.integers(1, 3)) if corrupted else 0):
        if rows:
            rows = corrupt(rows, draw)
    cut = draw(st.one_of(st.just((1,) * len(rows)), cuts(len(rows))))
    return Recording(rows, [n for n, length in enumerate(cut) for _ in range(length)], ids)


def corrupt(rows: list[Row], draw: Any) -> list[Row]:
    at, other = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(rows) - 1))
    row, by = rows[at], draw(st.sampled_from([-3, -1, 1, 2, 5]))
    match draw(st.sampled_from(["lose", "double", "move", "swap", "new_end", "cti"])):
        case "lose":
            return rows[:at] + rows[at + 1 :]
        case "double":
            return rows[:other] + [row] + rows[other:]
        case "move":
            rest = rows[:at] + rows[at + 1 :]
            return rest[:other] + [row] + rest[other:]
        case "swap":
            rows = list(rows)
            rows[at], rows[other] = rows[other], rows[at]
            return rows
        case "new_end" if row["kind"] == "retract":
            end = row["new_end"]
            new_end = row["start"] + 1 if end is None else max(row["start"], end + by)
            return rows[:at] + [{**row, "new_end": new_end}] + rows[at + 1 :]
        case "cti" if row["kind"] == "cti":
            return rows[:at] + [{**row, "start": row["start"] + by}] + rows[at + 1 :]
    return rows


def found_in(recording: Recording, order: str | None = None) -> set[str]:
    rows = [{**row, "batch": n} for row, n in zip(recording.rows, recording.batches, strict=True)]
    found = find_breaches(rows, id="id" if recording.ids else None, batch="batch", order=order)
    assert found.ok == (not found.breaches)
    assert str(found)
    return set(found.counts)


@given(recordings(corrupted=False))
def test_a_legal_stream_breaks_nothing(recording: Recording) -> None:
    assert found_in(recording) == set()


@given(recordings(corrupted=True))
def test_a_corrupted_stream_is_found_out_where_it_is_illegal(recording: Recording) -> None:
    """Lost, doubled and moved rows, wrong ends, hasty CTIs: whether a rule is broken is what a slow check by definition says."""
    expected = slow(recording)
    assert found_in(recording) == expected & {"match", "cti"}
    if "match" not in expected:
        for order in ("chain", "full"):
            assert ("order" in found_in(recording, order)) == (order in expected)


@given(recordings(corrupted=True))
def test_forms_and_the_place_of_the_micro_batches_change_nothing(recording: Recording) -> None:
    rows = [{**row, "n": n} for row, n in zip(recording.rows, recording.batches, strict=True)]
    kinds = {"kind": pa.string(), **dict.fromkeys(["start", "end", "new_end", "n"], pa.int64())}
    kinds |= {"k": pa.string(), "v": pa.float64()} | ({"id": pa.int64()} if recording.ids else {})
    table = pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()})
    declared = {"batch": "n", "id": "id" if recording.ids else None, "most": 1000}
    found = find_breaches(rows, **declared)
    same = find_breaches(table, **declared)
    assert [(b.rule, b.position) for b in same.breaches] == [(b.rule, b.position) for b in found.breaches]
    assert find_breaches(table.sort_by([("n", "descending")]), **declared).counts == found.counts


def test_dropping_an_insert_that_has_a_retraction_is_found() -> None:
    """Each insert of a long chain of events, each of which is taken back."""
    rows = [item for n in range(20) for item in (sq.insert(n, None, v=n), sq.retract(n, None, n + 3, v=n), sq.cti(n))]
    check_stream(rows, order="chain")
    for n in range(20):
        assert broken(rows[: 3 * n] + rows[3 * n + 1 :]) == [("match", 3 * n)]


# our own output


def delivered(table: pa.Table, number: int, names: Sequence[str]) -> list[Row]:
    """A micro-batch's deltas as the rows of a changelog."""
    rows: list[Row] = []
    for delta in table.to_pylist():
        end = None if delta[RE] == INFINITY else delta[RE]
        kind, new_end = ("insert", None) if delta[WEIGHT] > 0 else ("retract", delta[LE])
        row = {"kind": kind, "start": delta[LE], "end": end, "new_end": new_end, **{n: delta[n] for n in names}}
        rows += [{**row, "batch": number}] * abs(delta[WEIGHT])
    return rows


CORRECTED: dict[str, Callable[[sq.Stream, sq.Stream], sq.Stream]] = {
    "to_signal": lambda s, t: s.to_signal("k"),
    "clip": lambda s, t: s.clip(t, on="k"),
    "anti join": lambda s, t: s.join(t, on="k", how="anti"),
    "left join": lambda s, t: s.join(t, on="k", how="left", suffixes=("", "_t")),
    "except": lambda s, t: s.except_(t),
    "snapshot": lambda s, t: s.snapshot_window().select(n=sq.count()),
    "session": lambda s, t: s.set_duration(1).group_by("k", "v").session_window(3, stamp="align").select(n=sq.count()),
    "hopping": lambda s, t: s.hopping_window(4, 2).select(n=sq.count()),
}
"""Queries whose rows are taken back, or get other ends, while late events come in."""


def disordered(seed: int) -> list[tuple[int, int | None, dict[str, Any]]]:
    """Events that come up to ten ticks behind the latest; some never end."""
    rng = random.Random(seed)
    starts = sorted(range(40), key=lambda n: n + rng.random() * 10)
    return [(n, rng.choice([None, n + 1, n + rng.randint(1, 12)]), {"k": rng.choice("ab"), "v": n % 2}) for n in starts]


@pytest.mark.parametrize("name", CORRECTED)
def test_our_own_changelog_breaks_nothing(name: str) -> None:
    """Deltas, five events a micro-batch, with the CTIs that the operator has sent."""
    made = [sq.events(disordered(seed), name=f"s{seed}", progress=sq.generate(10)) for seed in (1, 2)]
    query = CORRECTED[name](*made)
    tables = {source.table: query.tables[source.table] for source in nodes(query.plan) if isinstance(source, Source)}
    run = watched(Case(query.plan, (), ()), CHANGELOG)
    names = query.plan.schema.names
    rows: list[Row] = []
    for number, at in enumerate(range(0, 40, 5)):
        rows += delivered(run.batch({n: t.slice(at, 5) for n, t in tables.items()}), number, names)
        rows += sent(run, number, names)
    rows += delivered(run.finish(), 8, names)
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["retract"] > 2
    assert kinds["cti"] > 2
    declared = {"shape": "signal", "key": "k"} if name == "to_signal" else {}
    check_stream(rows, batch="batch", order="chain", **declared)


def sent(run: LocalRun, number: int, names: Sequence[str]) -> list[Row]:
    """The CTI of the operator that makes the result."""
    (feed,) = run.program.result
    # a projection leaves progress as it is
    assert all(isinstance(step, Select) for step in feed.path.steps)
    made = run.program.relations[feed.path.relation].name
    kernels = [hosted.kernel for stage in run.program.stages for hosted in stage.hosted]
    told = max(k.sent[made] for k in kernels if isinstance(k, Watched) and k.name == made)
    row = {"kind": "cti", "start": told, "end": None, "new_end": None, **dict.fromkeys(names), "batch": number}
    return [row] if told > MINUS_INFINITY else []
