"""Some faults of ``faults.toml`` are caught by ``verify`` as it is by default; ``test_survivors.py`` tries all, in a soak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamq import testing as t
from streamq.testing.trial import check
from tests.mutation.mutant import IN_PROCESS, MUTANTS, caught, made_anew
from tests.mutation.queries import QUERIES

ALWAYS = (
    "offset subtracted",
    "open ends not waited for",
    "extension lost",
    "CTI at the last closed end",
    "constants inlined bare",
)
"""One of windows, of filters, of sources, of progress, of laws."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ALWAYS)
def test_a_fault_is_caught(name: str, tmp_path: Path) -> None:
    # among the failures that are saved these have no place
    failed = caught(MUTANTS[name], str(tmp_path))
    # without the fault the same case is right: that, and nothing else, was caught
    case = failed.first.case
    assert check(replace(case, plan=made_anew(case.plan)), [failed.first.how])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({MUTANTS[n].query for n in ALWAYS}))
def test_without_a_fault_its_query_is_right(name: str) -> None:
    t.verify(QUERIES[name](), profile=replace(IN_PROCESS, examples=2), may_fail=True)


@pytest.mark.slow
def test_each_fault_changes_a_function() -> None:
    for mutant in MUTANTS.values():
        (edit,) = mutant.edits
        assert edit.changes() and mutant.query in QUERIES, mutant.name
