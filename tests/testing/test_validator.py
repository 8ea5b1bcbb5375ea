"""What breaks a rule of a physical stream is found, with its row; what breaks none is not."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import Counter
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamq as sq
from streamq.testing.validator import RULES, StreamViolation, check_stream, find_breaches
from streamq.time import INFINITY

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
    late = str(find_breaches([sq.insert(3, 9), sq.insert(4, 9), sq.insert(2, 9)], order="full"))
    assert "has sync time 2, before 4 of row 1" in late, "the greatest before it, by however little"


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
        "1 breach of 'match': every retraction matches an event",
        "  row 1502: retract [1, 8) to 2, v=1: no event [1, 8) of this payload is there",
        "    |------)    [1, 8)  taken back",
        "    |-------)   [1, 9)  insert, row 0",
        "    |-------)   [1, 9)  insert, row 3",
        "1,501 breaches of 'cti': no item changes anything before an earlier CTI, and no CTI goes back",
        "  row 2: insert [0, 9), v=0: changes the history at 0, after cti 4",
        "    |--------)   [0, 9)  inserted",
        "        !        4       cti, row 1",
        "  row 3: insert [1, 9), v=1: changes the history at 1, after cti 4",
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
        "with row 3 a retraction to 2024-03-09T03:00:00Z; changes the history at 2024-03-09T03:00:00Z",
        "starts while another event of its key is alive",
        "comes before the event [2024-03-09T05:00:00Z, inf) that it takes back",
        "goes back from 2024-03-09T04:00:00Z",
        "a start of NULL or infinity",
        "has sync time 2024-03-09T02:00:00Z, before 2024-03-09T06:00:00Z of row 4",
    ):
        assert part in text
    signal = str(find_breaches([(1, 3, {"k": 1}), (4, None, {"k": 1})], shape="signal", key="k"))
    assert "  row 0: insert [1, 3), k=1: its key's next sample starts at 4" in signal
    assert "    |-)    [1, 3)    this\n       |>  [4, inf)  the next sample, row 1" in signal
