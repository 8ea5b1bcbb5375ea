"""Cases are written down, read back and run again as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError
from streamq.testing.arrival import Item
from streamq.testing.execution import CHANGELOG, Execution, executed
from streamq.testing.replay import case_from_json, case_to_json, replay, saved
from streamq.testing.verify import check, in_process

few = settings(suppress_health_check=list(HealthCheck))


@few
@given(t.concrete(t.composition(1, 4)), st.one_of(in_process()))
def test_what_is_written_is_read_back(case: t.Case, ways: tuple[Execution, ...]) -> None:
    text = case_to_json(case, ways[0], "two\nlines")
    again, how = case_from_json(text)
    assert (again.plan, again.cut, again.until, how) == (case.plan, case.cut, case.until, ways[0])
    assert case_to_json(again, how, "two\nlines") == text
    for name, table in case.tables.items():
        assert again.tables[name].schema == table.schema
        assert str(again.tables[name].to_pylist()) == str(table.to_pylist())


@pytest.mark.slow
@few
@given(t.concrete(t.composition(1, 4)))
def test_a_case_is_a_program(case: t.Case) -> None:
    """Run, it shows the answer that the case expects."""
    made: dict[str, sq.Stream] = {}
    exec(case.program().replace("print(q", "str(q"), made)
    found = t.history(made["q"].to_arrow(case.instant))
    t.assert_same_history(found, t.history(case.answer()))
    assert case.program().splitlines()[-1].startswith("# micro-batches:")


def test_a_saved_case_is_run_as_it_was(tmp_path: Path) -> None:
    plan = sq.events([(1, 5, {"v": 3})], name="s").tumbling_window(4).select(n=sq.count()).plan
    case = t.Case(plan, (), ())
    path = saved(case, Execution(output=CHANGELOG, buckets=3), "wrong", tmp_path, "tests/test_x.py::test[a b]")
    assert path.name == "tests-test_x.py-test-a-b.streamq.json"
    replay(path)
    assert executed(*case_from_json(path.read_text())).num_rows == 0
    assert check(*[case_from_json(path.read_text())[0], [Execution()]])


def test_functions_that_the_oracle_does_not_translate_are_evaluated(tmp_path: Path) -> None:
    query = sq.events([(1, 5, {"fare": 3.5})], name="trips").select(whole=sq.functions.round("fare"))
    case = t.Case(query.plan, (("trips", Item("insert", 1, 5, payload={"fare": 3.5})),), (1,))
    with pytest.raises(PlanError, match="round"):
        case.answer()
    replay(saved(case, Execution(), "", tmp_path, "rounded"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "{", "not a case; JSONDecodeError"),
        (lambda text: text.replace('"format": 1', '"format": 9'), "a case of another format; found 9, not 1"),
        (lambda text: text.replace('"cut"', '"cuts"'), "not a case; KeyError: 'cut'"),
        (lambda text: text.replace('"rules": null', '"rules": ["gone"]'), "rules that do not exist; found gone"),
        (lambda text: text.replace('"size": 4', '"size": 5'), "damaged"),
    ],
)
def test_errors(change: object, message: str) -> None:
    plan = sq.events([(1, 5, {"v": 3})], name="s").tumbling_window(4).select(n=sq.count()).plan
    text = case_to_json(t.Case(plan, (), ()), Execution())
    assert callable(change)
    with pytest.raises(PlanError, match=message):
        case_from_json(change(text))
