"""The table of rules: a function, a law and a test each."""

from pathlib import Path

from streamq.compiler.rules import RULES


def test_every_law_stands_in_its_function_and_has_a_test() -> None:
    for rule in RULES:
        left, _, right = rule.law.partition(" => ")
        assert "" not in (left, right), rule.name
        assert Path(__file__).with_name(f"test_{rule.name}.py").exists(), rule.name


def test_names_are_unique() -> None:
    assert len({r.name for r in RULES}) == len(RULES)
