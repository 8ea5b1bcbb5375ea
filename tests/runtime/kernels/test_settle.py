"""Settle: a row is final once its end is before c; until then it may still change."""

from __future__ import annotations

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.plan import numbered
from streamq.compiler.stages import FINAL, Options, compile_stages


def test_rows_wait_until_they_are_settled() -> None:
    s = sq.events([sq.insert(1, None, v=3), sq.insert(2, 5, v=4), sq.retract(1, None, 8, v=3)], name="p")
    live = LocalRun(compile_stages(numbered(s.plan)[0], Options(output=FINAL, buckets=2)))
    assert live.batch(s.tables).num_rows == 0
    assert live.batch({}, [(None, 5)]).num_rows == 0, "an end at c may still be extended"
    assert live.batch({}, [(None, 6)]).column("v").to_pylist() == [4]
    assert live.batch({}, [(None, 7)]).num_rows == 0
    assert live.finish().column("v").to_pylist() == [3]
