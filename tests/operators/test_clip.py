"""clip: an event ends at the first start, strictly after its own, of a matching event of the other stream."""

from __future__ import annotations

import streamq as sq
from tests.judged import answer

NAN = float("nan")


def spans(*rows: tuple[int, int | None]) -> sq.Stream:
    return sq.events([(*row, {"k": 1}) for row in rows])


def ends(s: sq.Stream) -> list[tuple[int, int | None]]:
    return [row[:2] for row in answer(s)]


def test_keys_are_equal_as_spark_has_it_and_may_have_other_names() -> None:
    events = sq.events([(1, 9, {"k": k}) for k in (-0.0, NAN, 2.0)])
    by = sq.events([(i + 3, 99, {"id": k}) for i, k in enumerate((0.0, NAN))])
    assert sorted(ends(events.clip(by, [("k", "id")]))) == [(1, 3), (1, 4), (1, 9)]
    assert ends(spans((1, 9)).clip(sq.events([(3, 4, {"id": 1.0}), (2, 4, {"id": 1.5})]), {"k": "id"})) == [(1, 3)]
