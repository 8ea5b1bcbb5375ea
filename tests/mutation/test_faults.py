"""Faults of ``faults.toml`` are noticed: by laws, and by ``verify`` as it is by default; a soak, which takes hours, tries all."""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from streamq import testing as t
from streamq.plan.function import NamedObject
from streamq.testing.trial import check
from tests.mutation.faults import FAULTS, IN_PROCESS, caught, law_of
from tests.mutation.queries import QUERIES

ALWAYS = (
    "offset subtracted",
    "open ends not waited for",
    "extension lost",
    "CTI at the last closed end",
    "constants inlined bare",
)
"""One of windows, of filters, of sources, of progress, of laws."""
VERIFIED = [name for name, fault in FAULTS.items() if fault.query]
CALLS = [(name, law, of) for name, fault in FAULTS.items() for law, of in fault.laws]


def made_anew(value: Any) -> Any:
    """A plan, or a part of it, made once more without the mistake, so that it knows nothing that was computed with it."""
    if isinstance(value, tuple):
        return tuple(map(made_anew, value))
    if not is_dataclass(value) or isinstance(value, NamedObject | type):
        return value
    return replace(value, **{f.name: made_anew(getattr(value, f.name)) for f in fields(value) if f.init})


@pytest.mark.slow
@pytest.mark.parametrize("name", VERIFIED if os.environ.get("STREAMQ_SOAK") else ALWAYS)
def test_verify_notices(name: str, tmp_path: Path) -> None:
    # among the failures that are saved these have no place
    failed = caught(FAULTS[name], str(tmp_path))
    # without the fault the same case is right: that, and nothing else, was caught
    case = failed.first.case
    assert check(replace(case, plan=made_anew(case.plan)), [failed.first.how])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({FAULTS[n].query for n in ALWAYS}))
def test_without_a_fault_its_query_is_right(name: str) -> None:
    t.verify(QUERIES[name](), profile=replace(IN_PROCESS, examples=2), may_fail=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "law", "of"), CALLS, ids=lambda part: str(part))
def test_a_law_notices(name: str, law: str, of: tuple[Any, ...], request: pytest.FixtureRequest) -> None:
    if law.startswith("spark."):
        # the session of the tests, and none that they would find active
        request.getfixturevalue("spark")
    with FAULTS[name].in_place(), pytest.raises(AssertionError):
        law_of(law)(*of)


def test_each_fault_changes_a_function_and_has_what_must_notice_it() -> None:
    for name, fault in FAULTS.items():
        assert all(list(edit.changes()) for edit in fault.edits), name
        assert fault.laws or fault.query in QUERIES, name
    for law in {law for _, law, _ in CALLS}:
        assert callable(law_of(law))
