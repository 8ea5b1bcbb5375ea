"""A test over a table names each case that fails."""

from __future__ import annotations

import pytest

from tests.each import each


def test_every_case_that_fails_is_named_and_the_others_are_tried() -> None:
    seen = []

    @each("ab", (1, 2))
    def check(letter: str, number: int) -> None:
        seen.append((letter, number))
        assert (letter == "a") == (number == 2)

    with pytest.raises(ExceptionGroup, match="2 of 4 cases fail") as raised:
        check()
    assert len(seen) == 4
    assert [failure.__notes__ for failure in raised.value.exceptions] == [["case: 'a', 1"], ["case: 'b', 2"]]
