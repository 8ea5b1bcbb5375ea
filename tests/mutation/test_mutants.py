"""Each fault of ``faults.toml`` is caught by ``verify`` as it is by default; some always, all in a soak."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamq import testing as t
from streamq.testing.trial import check
from tests.mutation.mutant import IN_PROCESS, caught, made_anew
from tests.mutation.mutants import MUTANTS
from tests.mutation.queries import QUERIES

ALWAYS = (
    "offset subtracted",
    "open ends not waited for",
    "extension lost",
    "CTI at the last closed end",
    "constants inlined bare",
)
"""One of windows, of filters, of sources, of progress, of laws."""

SOAK = bool(os.environ.get("STREAMQ_SOAK"))
TRIED = [pytest.param(n, marks=[pytest.mark.spark] if MUTANTS[n].spark else []) for n in (MUTANTS if SOAK else ALWAYS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_a_fault_is_caught(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    spark: Any = request.getfixturevalue("spark") if mutant.spark else None
    # among the failures that are saved these have no place
    failed = caught(mutant, str(tmp_path))
    # without the fault the same case is right: that, and nothing else, was caught
    case = failed.first.case
    assert check(replace(case, plan=made_anew(case.plan)), [failed.first.how], spark)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES if SOAK else sorted({MUTANTS[n].query for n in ALWAYS}))
def test_without_a_fault_its_query_is_right(name: str) -> None:
    t.verify(QUERIES[name](), profile=IN_PROCESS if SOAK else replace(IN_PROCESS, examples=2), may_fail=True)


@pytest.mark.slow
def test_each_fault_changes_a_function() -> None:
    for mutant in MUTANTS.values():
        (edit,) = mutant.edits
        assert edit.changes() and mutant.query in QUERIES, mutant.name
