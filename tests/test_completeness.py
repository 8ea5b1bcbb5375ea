"""Every operator has its parts, in one place each: node, batch lowering, streaming form, oracle, generator, tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, find, settings

from streamq.compiler.program import Options
from streamq.compiler.rules import RULES
from streamq.compiler.stages import compile_stages
from streamq.operators import BATCH, LOGICAL
from streamq.plan.node import NODES, Node, nodes
from streamq.testing.case import Case
from streamq.testing.generate import cases
from streamq.testing.oracle import ORACLE

ROOT = Path(__file__).parent.parent


def test_every_node_has_a_batch_lowering() -> None:
    assert set(BATCH) == set(NODES.values())


def test_every_logical_operator_has_an_oracle() -> None:
    assert set(ORACLE) == set(LOGICAL)


@pytest.mark.slow
def test_every_logical_operator_is_drawn_by_the_generator_and_streams() -> None:
    """An operator that no generated query holds would escape the laws."""

    drawn: set[type[Node]] = set()

    def complete(case: Case) -> bool:
        kinds = {type(n) for n in nodes(case.plan)}
        if kinds - drawn:
            assert compile_stages(case.plan, Options()).stages, "whatever it is, it streams"
        drawn.update(kinds)
        return drawn == set(LOGICAL)

    few = settings(max_examples=300, database=None, derandomize=True, deadline=None, phases=[Phase.generate])
    find(cases(), complete, settings=few)


def test_every_room_rule_and_kernel_has_a_test_of_its_name() -> None:
    tests = {p.stem for p in (ROOT / "tests").rglob("test_*.py")}
    for folder in ("operators", "compiler/rules", "runtime/kernels"):
        for path in sorted((ROOT / "streamq" / folder).glob("*.py")):
            text = path.read_text()
            public = "\n@node\n" in text if folder == "operators" else path.stem != "__init__" and "def " in text
            assert not public or f"test_{path.stem}" in tests, f"{folder}/{path.stem} has no test"
    assert all(f"test_{rule.name}" in tests for rule in RULES)
