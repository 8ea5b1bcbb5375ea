"""The framework finds what is wrong: each mutant is caught by ``verify`` as it is by default; some always, all in a soak."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamq import testing as t
from streamq.testing.trial import check
from tests.mutation.mutant import IN_PROCESS, broken, caught, made_anew
from tests.mutation.mutants import MUTANTS
from tests.mutation.queries import QUERIES

PAGE = Path(__file__).parents[2] / "docs" / "mutants.md"

ALWAYS = (
    "offset subtracted",
    "left join filtered afterwards",
    "extension lost",
    "CTI at the last closed end",
    "remainder of basic windows dropped",
)
"""One of windows, of operators over two streams, of sources, of progress, of laws."""

SOAK = bool(os.environ.get("STREAMQ_SOAK"))
TRIED = [pytest.param(n, marks=[pytest.mark.spark] if MUTANTS[n].spark else []) for n in (MUTANTS if SOAK else ALWAYS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_a_mutant_is_caught(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    spark: Any = request.getfixturevalue("spark") if mutant.spark else None
    # among the failures that are saved these have no place
    failed = caught(mutant, str(tmp_path))
    assert mutant.breaks in ("", broken(failed.first))
    # without the mistake the same case is right: that, and nothing else, was caught
    case = failed.first.case
    assert check(replace(case, plan=made_anew(case.plan)), [failed.first.how], spark)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES if SOAK else sorted({MUTANTS[n].query for n in ALWAYS}))
def test_without_a_mutant_its_query_is_right(name: str) -> None:
    t.verify(QUERIES[name](), profile=IN_PROCESS if SOAK else replace(IN_PROCESS, examples=2), may_fail=True)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_stands_in_for_a_function_that_exists_and_takes_what_that_takes(name: str) -> None:
    """Else it is an error of its own, or is never made."""
    for target, attribute, instead in MUTANTS[name].changes:
        right = inspect.getattr_static(target, attribute)
        right = right.__func__ if isinstance(right, classmethod | staticmethod) else right
        if not inspect.isfunction(right) or not inspect.isfunction(instead):
            continue
        parameters = inspect.signature(right).parameters.values()
        positional = (p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
        inspect.signature(instead).bind(*(None for p in positional if p.default is p.empty))


def test_the_page_lists_every_mutant() -> None:
    listed = re.findall(
        r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| \d+ \| [< \d]+ \|$", PAGE.read_text(encoding="utf-8"), re.M
    )
    assert [(name, wrong) for name, wrong, *_ in listed] == [(m.name, m.wrong) for m in MUTANTS.values()]
    assert [name for name, _, _, by in listed if MUTANTS[name].breaks not in ("", by)] == []
    assert len(MUTANTS) >= 25 and {m.query for m in MUTANTS.values()} <= set(QUERIES)
