"""Every operator has its parts, in one place each: node, batch lowering, streaming form, oracle, generator, tests."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import Phase, find, settings
from pyspark.sql import types as t

import streamq as sq
from streamq.aggregates import built_in
from streamq.functions.built_in import BuiltIn
from streamq.operators import Source, WindowAggregate, written_operators
from streamq.operators.operator import Operator
from streamq.patterns.definitions import Detect
from streamq.patterns.operators import operators
from streamq.patterns.pattern import Pattern
from streamq.plan.aggregate import Aggregate, AggregateFunction
from streamq.plan.aggregation import is_mergeable
from streamq.plan.expr import Col
from streamq.plan.function import BUILT_IN
from streamq.plan.node import NODES, Node, nodes
from streamq.plan.partial import ReducedColumn
from streamq.plan.schema import Field, Schema
from streamq.plan.spark_types import function_names
from streamq.progress_policies import verbs
from streamq.runtime.kernel import LATE_POLICIES
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.testing.case import Case
from streamq.testing.intent import Intent
from streamq.testing.oracle import ORACLE
from streamq.testing.oracle.aggregates import ORACLE_OF
from streamq.testing.patterns.matches import rooms as pattern_rooms
from streamq.testing.progress_policies import ROOMS as PROGRESS_ROOMS
from streamq.testing.scenario import concrete
from streamq.testing.sources.room import WEIGHTS, WEIGHTS_ON_TIME
from streamq.testing.sources.room import rooms as source_rooms
from tests.drawn.queries import composition
from tests.golden_table import read_table
from tests.patterns.pattern_cases import SETS
from tests.programs import compiled
from tests.spark.expression_calls import called

ROOT = Path(__file__).parent.parent


def test_every_node_has_a_batch_lowering() -> None:
    """Its own, or that of the operators which it is expanded into."""
    assert all(issubclass(kind, Operator) or kind.expansion is not Node.expansion for kind in NODES.values())


def test_every_logical_operator_has_an_oracle() -> None:
    assert set(ORACLE) == {*written_operators(), Detect}


def test_every_operator_of_patterns_has_a_room_for_tests_with_its_function_or_verb() -> None:
    kinds = {operator.keyword: operator for operator in operators().values()}
    assert set(pattern_rooms()) == set(kinds.values())
    for keyword, operator in kinds.items():
        verb = pattern_rooms()[operator].verb
        assert verb in sq.__all__ or hasattr(Pattern, verb), keyword


def test_every_operator_of_patterns_stands_in_texts_that_the_laws_try() -> None:
    for keyword in operators():
        assert any(re.search(rf"\b{keyword}\(", text) for text in SETS.values()), keyword


@pytest.mark.slow
def test_every_logical_operator_and_aggregate_is_drawn_by_the_generator_and_streams() -> None:
    """What no generated query holds would escape the laws."""
    missing: set[type[Node] | AggregateFunction] = {*written_operators(), *built_in().values()}

    def complete(case: Case) -> bool:
        plan = nodes(case.plan)
        aggregates = {a.function for n in plan if isinstance(n, WindowAggregate) for _, a in n.aggregates}
        new = missing & {*(type(n) for n in plan), *aggregates}
        if new:
            assert compiled(case.plan).stages, "whatever it is, it streams"
        missing.difference_update(new)
        return not missing

    many = settings(max_examples=3000, database=None, deadline=None, phases=[Phase.generate])
    # with this seed some 430 cases have all
    find(concrete(composition(2, 5), Intent(events=1)), complete, settings=many, random=random.Random(1))
    assert not missing


def test_every_source_and_each_of_its_policies_has_a_room_in_the_test_framework() -> None:
    """So that the models, the generators and the programs that are printed know it."""
    assert set(source_rooms()) == {kind for kind in written_operators() if issubclass(kind, Source)}
    kinds = [ProgressPolicy]
    for kind in kinds:
        kinds += kind.__subclasses__()
    policies = {kind for kind in kinds[1:] if kind.__module__.startswith("streamq.")}
    assert {kind.name for kind in policies} == set(verbs())
    assert set(PROGRESS_ROOMS) == policies
    assert set(LATE_POLICIES.values()) == set(WEIGHTS) == set(WEIGHTS_ON_TIME)


def test_every_aggregate_has_an_oracle_and_what_computes_it() -> None:
    assert set(ORACLE_OF) == {*built_in().values()}
    column = ReducedColumn("x", ("a", "b"), None, None, (0.5,))
    schema = Schema((Field("v", t.LongType()),), "integer")
    for function in built_in().values():
        aggregate = Aggregate(function, (Col("v"),) * function.drawing.arguments, None, function.drawing.options[0])
        assert is_mergeable(aggregate, schema) or function.reduction(column), function.name


def test_every_function_that_runs_in_process_is_judged() -> None:
    """By Spark, which :mod:`tests.spark.test_expressions` calls."""
    assert {name for name, function in BUILT_IN.items() if function.arrow is not None} - called() == set()


def test_every_function_states_its_type_where_it_runs_in_process() -> None:
    """Without it no query over literal data could use the function."""
    assert [n for n, f in BUILT_IN.items() if isinstance(f, BuiltIn) and f.arrow is not None and f.result is None] == []


def test_no_room_of_functions_hides_a_function_of_sparks() -> None:
    rooms = {path.stem for path in (ROOT / "streamq" / "functions").glob("*.py")}
    assert rooms & {*function_names()} == set()


def test_every_operator_and_kernel_has_a_test_of_its_name() -> None:
    """An operator's may have the name of its room, if others are there, or be its plan in the table of verbs, too."""
    tests = {p.stem for p in (ROOT / "tests").rglob("test_*.py")}
    plans = " ".join(read_table("plans_of_verbs.txt").values())
    for folder in ("operators", "sources"):
        for path in sorted((ROOT / "streamq" / folder).glob("*.py")):
            for name in re.findall(r"\n@node\nclass (\w+)", path.read_text()):
                own = "test" + re.sub("([A-Z])", lambda capital: f"_{capital[1].lower()}", name)
                is_tested = f"{name}(" in plans or tests & {own, f"{own}_", f"test_{path.stem}"}
                assert is_tested, f"{name} of {folder}/{path.stem} has no test"
    for path in sorted((ROOT / "streamq/runtime/kernels").glob("*.py")):
        is_room = path.stem != "__init__" and "def " in path.read_text()
        assert not is_room or f"test_{path.stem}" in tests, f"{path.stem} has no test"
