"""Answers compared as bags of rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from streamq.demo.chart import compare_answers


def test_order_and_the_last_bits_of_floats_do_not_matter() -> None:
    left = [{"k": 1, "v": 0.1 + 0.2}, {"k": 2, "v": None}]
    right = [{"k": 2, "v": None}, {"k": 1, "v": 0.3}]
    difference = compare_answers(left, right, ["k", "v"])
    assert difference
    assert difference.common == 2


def test_how_often_a_row_occurs_matters() -> None:
    difference = compare_answers([{"k": 1}, {"k": 1}], [{"k": 1}, {"k": 3}], ["k"])
    assert not difference
    assert difference.differences("batch", "streaming") == ["only in batch: k=1", "only in streaming: k=3"]
    assert (
        compare_answers([{"k": n} for n in range(5)], [], ["k"]).differences("a", "b", limit=2)[-1] == "... and 3 more"
    )


def test_an_instant_is_the_same_in_every_zone() -> None:
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    for other in (at.replace(tzinfo=None), at.astimezone(timezone(timedelta(hours=2)))):
        assert compare_answers([{"t": at}], [{"t": other}], ["t"])
