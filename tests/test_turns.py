"""Every case of what takes turns has its turn, in as many commits as are said, and names of it are names of tests."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.turns import EVERY, ROOT, in_turn, turn_of


def item(name: str, file: str = "laws/test_cost.py") -> Any:
    return SimpleNamespace(name=name, path=ROOT / file)


def test_every_case_has_its_turn_once() -> None:
    items = [item(name) for name in ("test_a[1]", "test_a[2]", "test_a[3]", "test_b", "test_c")]
    every = {"laws/test_cost.py": 3, "laws/test_cost.py::test_b": 2}
    tried = [in_turn(items, turn, every) for turn in range(6)]
    assert [sum(one in kept for kept in tried) for one in items] == [2, 2, 2, 3, 2]
    assert in_turn([item("test_d", "test_stream.py")], 0, every)


@pytest.mark.parametrize("arguments", [["tests/laws/test_cost.py"], ["tests/laws/test_cost.py::test_a"]])
def test_what_names_a_file_tries_all(arguments: list[str]) -> None:
    assert turn_of({}, arguments) is turn_of({"STREAMQ_TURN": "all"}, []) is turn_of({"STREAMQ_SOAK": "1"}, []) is None
    assert turn_of({"STREAMQ_TURN": "7"}, ["tests/laws"]) == 7
    assert turn_of({}, ["tests"]) is not None


@pytest.mark.parametrize("name", EVERY)
def test_what_takes_turns_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert re.search(rf"^def {test}\(" if test else "^def test_", (Path(ROOT) / file).read_text(), re.MULTILINE)
