"""Published examples, in-process and by the oracle; each is a case of ``golden_cases.py``."""

from __future__ import annotations

import pytest

from tests.golden_cases import CASES, Golden
from tests.judged import answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_is_the_published_one(case: Golden) -> None:
    assert case.seen(answer(case.query())) == case.expected


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
