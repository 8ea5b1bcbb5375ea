"""A plan's JSON that is damaged is refused, and never read as another plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq.compiler.plan_json import from_text, plan_from_json, plan_to_json
from streamq.errors import PlanError, StreamqError
from streamq.operators import Where
from streamq.plan.node import number_sources
from tests.algebra import intervals
from tests.compiler.json_plans import DOCUMENT


def changed(change: Callable[[dict[str, Any]], Any]) -> Any:
    document = copy.deepcopy(DOCUMENT)
    replaced = change(document)
    return document if replaced is None else replaced


def put(path: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """Set what stands at a path, as ``nodes 0 table``."""

    def change(document: Any) -> None:
        *way, last = [int(p) if p.isdigit() else p for p in path.split()]
        for step in way:
            document = document[step]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: [], "not a plan; found a list instead of an object. Give what to_json"),
        (lambda d: 3.5, "not a plan; found a number instead of an object"),
        (lambda d: {}, "not a plan; found an object without 'streamq', 'digest', 'expressions', 'nodes'. Give what"),
        (lambda d: {**d, "nodes": {}}, "not a plan; 'nodes' is no list"),
        (lambda d: {"nodes": []}, "not a plan; found an object without 'streamq', 'digest', 'expressions'. Give"),
        (put("nodes", []), "not a plan"),
        (put("streamq", 99), "format 99; this version reads 1. Write it anew"),
        (put("digest", "0"), "the text has been changed or damaged; digest .* instead of 0"),
        (put("nodes 0 table", "other"), "the text has been changed or damaged"),
        (put("expressions 1 value", 2), "the text has been changed or damaged"),
        (put("nodes 0 is", "os.system"), "no class 'os.system'; there are: "),
        (put("nodes 1 is", "Wehre"), "no class 'Wehre'; there are: .* Did you mean 'Where'"),
        (put("expressions 0 is", "Opaque"), "no class 'Opaque'; there are: .*Col, Lit"),
        (put("nodes 0 policy is", "Where"), "no class 'Where'; there are: .*Field"),
        (put("nodes 0", 5), "not an entry of a plan; found 5"),
        (put("nodes 0 color", 5), "the fields of Intervals are table, .*; found .*color"),
        (lambda d: d["nodes"][0].pop("table") and None, "the fields of Intervals are table, .*; found columns"),
        (put("nodes 0 table", 5), "table of Intervals does not fit; found 5"),
        (put("nodes 0 columns", [5]), "columns of Intervals does not fit"),
        (put("nodes 0 policy", None), "policy of Intervals does not fit"),
        (put("nodes 0 policy delay", True), "delay of SourcePolicy does not fit"),
        (put("nodes 1 input", {"node": 1}), "a reference to what does not stand before it"),
        (put("nodes 1 input", {"node": -1}), "a reference to what does not stand before it"),
        (put("nodes 1 input", {"expression": 0}), "input of Where does not fit"),
        (put("nodes 1 predicate", {"expression": 9}), "a reference to what does not stand before it"),
        (put("expressions 2 args", [{"node": 0}]), "a reference to what does not stand before it"),
        (put("expressions 2 name", "udf"), "no function 'udf'"),
        (put("expressions 2 name", "uppper"), "no function 'uppper'. Did you mean 'upper'"),
        (put("expressions 0 name", "w"), "where: no column 'w'"),
        (put("nodes 0 columns 0 type", {"type": "lung"}), "not a type; found 'lung'"),
        (
            put("nodes 0 columns 0 type", {"type": {"type": "struct", "fields": 3}}),
            "not a type; found {'type': 'struct'",
        ),
        (put("nodes 0 columns 0 type", {"type": "varchar(-1)"}), r"not a type; found .varchar\(-1\)."),
        (put("nodes 0 columns 0 type", {"type": {"type": "array"}}), "not a type; found {'type': 'array'}"),
        (
            put(
                "nodes 0 columns 0 type", {"type": {"type": "array", "elementType": {"type": "udt", "pyClass": "os.x"}}}
            ),
            "a user-defined type cannot be read",
        ),
        (put("nodes 0 columns 0 name", "k"), "no column 'from'"),
    ],
)
def test_what_is_damaged_is_refused(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(StreamqError, match=message):
        plan_from_json(changed(change))


def test_names_that_do_not_fit_the_inputs_are_refused() -> None:
    s = sq.intervals(intervals(1), "from", "to", name="s").select("k")
    document = plan_to_json(s.join(s.select(j=sq.lit("k"))).plan)
    document["nodes"][-1]["left_names"] = [["nobody", "k"]]
    with pytest.raises(PlanError, match="from_json: a Join that cannot be; found "):
        plan_from_json(document)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nope"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="from_json: not JSON; .* Give what to_json"):
        from_text(text)


def test_lists_within_lists_without_end_are_refused() -> None:
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    document = changed(put("nodes 0 table", nested))
    with pytest.raises(PlanError, match="from_json: not a plan; lists within lists"):
        plan_from_json(document)


@sq.udf("int")
def is_small(k: int, limit: tuple[int, None] = (1, None)) -> int:
    return int(k < limit[0])


DOCUMENTS = [
    DOCUMENT,
    plan_to_json(
        number_sources(sq.events([(1, 2, {"k": 1})]).join(sq.events([(1, 2, {"k": 1, "w": 2})]), on="k").plan)[0]
    ),
    plan_to_json(
        number_sources(sq.events([(1, 2, {"k": 1})]).group_by("k").hopping_window(4, 2).agg(n=sq.sum("k")).plan)[0]
    ),
    plan_to_json(number_sources(sq.events([(1, 2, {"k": 1})]).where(is_small("k", limit=(3, None)) == 1).plan)[0]),
]


@settings(max_examples=max(60, settings().max_examples))
@given(st.data())
def test_no_damage_ends_in_another_plan(data: st.DataObject) -> None:
    """Whatever stands in a field, the reader gives the plan that was written or raises an error of its own."""
    written = data.draw(st.sampled_from(DOCUMENTS))
    document = copy.deepcopy(written)
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [document]
    while stack:
        part = stack.pop()
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                stack.append(value)
    at, key = data.draw(st.sampled_from(range(len(places))).map(places.__getitem__))
    values = [None, True, -1, 0, 1, 2, "", "from", "v", [], [[]], {}, {"is": "Lit"}, {"node": 0}, {"expression": 1}]
    at[key] = data.draw(st.sampled_from(values))
    if document == written:
        return
    try:
        found_plan = plan_from_json(document)
    except StreamqError:
        return
    assert found_plan.digest == written["digest"]


def test_a_defect_of_a_node_is_not_taken_for_a_damaged_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(node: Where) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(Where, "_schema", defect)
    with pytest.raises(AssertionError, match="a defect"):
        plan_from_json(DOCUMENT)
