"""windowed_join: pairs of members of one window, whether or not they live at once; one row a pair and window."""

from __future__ import annotations

import streamq as sq
from tests.judged import answer


def test_windows_at_the_ends_of_the_axis_are_cut_there() -> None:
    least, most = -(2**63) + 1, 2**63 - 1
    far = sq.events([(least, least + 4, {"v": 1}), (most - 5, most - 1, {"v": 2})])
    found = answer(far.windowed_join(far.rename(v="w"), size=10))
    assert found == [(least, least + 7, 1, 1), (most - 7, None, 2, 2)]
    overlapping = answer(far.windowed_join(far.rename(v="w"), size=10, hop=4))
    assert overlapping[:2] == [(least, least + 1, 1, 1), (least, least + 5, 1, 1)]
