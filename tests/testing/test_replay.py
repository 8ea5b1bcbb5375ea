"""Cases are written down, read back and run again as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.errors import PlanError, SourceError
from streamq.testing.arrival import Item, keys
from streamq.testing.backends import execute
from streamq.testing.execution import Execution, in_process
from streamq.testing.replay import case_from_json, case_to_json, replay, save
from streamq.testing.trial import check
from tests.drawn.queries import composition

few = settings(suppress_health_check=list(HealthCheck))


@few
@given(t.concrete(composition(1, 4)), st.one_of(in_process()))
def test_what_is_written_is_read_back(case: t.Case, ways: tuple[Execution, ...]) -> None:
    text = case_to_json(case, ways[0], "two\nlines")
    again, how = case_from_json(text)
    assert (again.plan, again.cut, again.until, how) == (case.plan, case.cut, case.until, ways[0])
    assert case_to_json(again, how, "two\nlines") == text
    for name, table in case.tables.items():
        assert again.tables[name].schema == table.schema
        assert keys(again.tables[name]) == keys(table)


@pytest.mark.slow
@few
@given(t.concrete(composition(1, 4)))
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
    path = save(
        case, Execution(output=OutputForm.CHANGELOG, buckets=3), "wrong", tmp_path, "tests/test_x.py::test[a b]"
    )
    assert path.name == "tests-test_x.py-test-a-b.streamq.json"
    replay(path)
    again, how = case_from_json(path.read_text())
    assert execute(again, how).num_rows == 0
    assert check(again, [Execution()])


PLAN = sq.events([(1, 5, {"k": "a", "v": 3})], name="s").tumbling_window(4).select(n=sq.count()).plan
ITEM = ["s", "insert", 1, 5, None, {"struct": [["k", "a"], ["v", 3]]}]
TEXT = case_to_json(t.Case(PLAN, (("s", Item("insert", 1, 5, payload={"k": "a", "v": 3})),), (1,)), Execution())
HOW = json.loads(TEXT)["how"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 9}, "format 9, this streamq reads 1"),
        ({"cuts": [1]}, 'can not match "cuts" to any data class field'),
        ({"how": HOW | {"backend": "strem"}}, "strem"),
        ({"how": HOW | {"rules": ["gone"]}}, "rules that do not exist: gone"),
        ({"how": HOW | {"slack": 3}}, 'wrong value type for field "how.slack"'),
        ({"cut": "rubbish"}, 'wrong value type for field "cut"'),
        ({"arrival": [["z", *ITEM[1:]]]}, "z"),
        ({"arrival": [["s", "insert", "1", *ITEM[3:]]]}, 'wrong value type for field "start"'),
        ({"arrival": [[*ITEM[:5], {"struct": [["k", "a"], ["v", "x"]]}]]}, "values that column 'v' cannot hold"),
        ({"static": {"x": {"columns": "a int"}}}, 'missing value for field "static.rows"'),
        ({"static": {"x": {"columns": "a it", "rows": []}}}, "no such type; found 'it'"),
        ({"plan": 3}, "not a plan; found a number instead of an object"),
    ],
)  # fmt: skip
def test_what_a_part_has_wrong_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=rf"^replay: not a case; .*{message}.*Delete it, or save the case again\.$"):
        case_from_json(json.dumps(json.loads(TEXT) | changes))


def test_tables_that_the_plan_looks_up_are_there() -> None:
    names = t.table("name string, size bigint", [("a", 1)])
    query = sq.events([(1, 5, {"k": "a"})], name="s").join_table(names, on=[("k", "name")], name="names")
    text = case_to_json(t.Case(query.plan, (), (), static={"names": names}), Execution())
    assert case_from_json(text)[0].static == {"names": names}


def test_what_is_no_text_of_a_case() -> None:
    for text, message in (
        ("{", "Expecting property name"),
        ("[]", "'list' object has no attribute"),
        (TEXT.replace('"cut": [1],\n', ""), 'missing value for field "cut"'),
        (TEXT.replace('"size": 4', '"size": 5'), ".*the text has been changed or damaged"),
    ):
        with pytest.raises(PlanError, match=f"replay: not a case; {message}"):
            case_from_json(text)


def test_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.streamq.json"
    path.write_text("{")
    with pytest.raises(PlanError, match="replay: not a case in '.*broken.streamq.json'; Expecting property name"):
        replay(path)
    path.write_bytes(b"\xff")
    with pytest.raises(PlanError, match="replay: not a case in '.*broken.streamq.json'; text: not UTF-8"):
        replay(path)
    with pytest.raises(SourceError, match="no such file; found '.*brokn.*'. Did you mean 'broken.streamq.json'?"):
        replay(tmp_path / "brokn.streamq.json")
    with pytest.raises(SourceError, match="a folder, not a saved case; .* run all by: pytest "):
        replay(tmp_path)
    nothing: Any = None
    with pytest.raises(PlanError, match="not the path of a saved case; found NoneType"):
        replay(nothing)
