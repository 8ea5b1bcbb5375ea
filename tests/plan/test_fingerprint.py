"""What tells a user's code from other code: whatever changes its answers, and nothing else; the same in every process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamq.plan.fingerprint import fingerprint, text_of

CODE = '''
import math
import threading
from functools import partial
import neighbour

RATES = {"a": 1, "b": 2}
NAMES = {"x", "y", "z"}
LOCK = threading.Lock()

def helper(x):
    return x + 1

def top(x):
    """A docstring."""
    return later(helper(x)) + neighbour.more(x) + RATES["a"] + len(NAMES) + math.floor(x)

def later(x):
    return 0 if LOCK.locked() else x * 2

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

class Base:
    factor = 2

    @staticmethod
    def scaled(x):
        return x * 3

class Module(Base):
    @property
    def twice(self):
        return 2

    def add(self, x):
        return self.scaled(x) * self.factor + self.twice

def outer(n):
    return lambda x: x + n

held = outer(4)
bound = Module().add
given = partial(helper, 7)
'''
NEIGHBOUR = """
STEP = 5

def more(x):
    return x + STEP

def other(x):
    return x
"""
NAMES = ("top", "even", "Module", "held", "bound", "given")


def write(folder: Path, code: str = CODE, neighbour: str = NEIGHBOUR) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "user_code.py").write_text(code)
    (folder / "neighbour.py").write_text(neighbour)
    return folder


def fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprints of the modules in a folder's files, which are forgotten again."""
    sys.path.insert(0, str(folder))
    try:
        code = importlib.import_module("user_code")
        return {name: fingerprint(getattr(code, name)) for name in NAMES}
    finally:
        sys.path.remove(str(folder))
        for name in ("user_code", "neighbour"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fingerprints(write(tmp_path_factory.mktemp("before")))


def test_another_process_another_folder(before: dict[str, str], tmp_path: Path) -> None:
    folder = write(tmp_path / "elsewhere")
    script = f"import user_code as code; print(*(fingerprint(getattr(code, name)) for name in {NAMES}))"
    environment = os.environ | {"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}", "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", f"from streamq.plan.fingerprint import fingerprint; {script}"]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.split() == list(before.values())
    assert len(set(before.values())) == len(NAMES)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('"""A docstring."""', '"""Another."""', ""),
        ('    """A docstring."""\n', "", ""),
        ("def later(x):", 'def later(x):\n    """New."""', ""),
        ("class Base:", 'class Base:\n    """New."""', ""),
        ("len(NAMES)", "2 * len(NAMES)", "top"),
        ("return x + 1", "return x + 2", "top given"),
        ("x * 2", "x * 4", "top"),
        ('"a": 1', '"a": 3', "top"),
        ('"z"}', '"w"}', "top"),
        ("n != 0 and", "n > 0 and", "even"),
        ("factor = 2", "factor = 4", "Module bound"),
        ("return x * 3", "return x * 5", "Module bound"),
        ("return 2\n", "return 3\n", "Module bound"),
        ("outer(4)", "outer(5)", "held"),
        ("partial(helper, 7)", "partial(helper, 8)", "given"),
    ],
)
def test_what_changes_an_answer_is_told(
    before: dict[str, str], tmp_path: Path, old: str, new: str, changed: str
) -> None:
    assert CODE.count(old) == 1
    after = fingerprints(write(tmp_path / "code", CODE.replace(old, new)))
    assert {name for name in NAMES if after[name] != before[name]} == set(changed.split())


def test_a_neighbouring_file_counts_as_far_as_it_is_read(before: dict[str, str], tmp_path: Path) -> None:
    after = fingerprints(write(tmp_path / "a", neighbour=NEIGHBOUR.replace("STEP = 5", "STEP = 6")))
    assert {name for name in NAMES if after[name] != before[name]} == {"top"}
    after = fingerprints(write(tmp_path / "b", neighbour=NEIGHBOUR.replace("    return x\n", "    return -x\n")))
    assert after == before


def test_values_that_only_a_pickle_tells() -> None:
    assert text_of(object) != text_of(int)
    with pytest.raises(TypeError, match="cannot pickle"):
        text_of(value for value in ())


def test_code_that_names_itself_is_read_once() -> None:
    class Node:
        def __init__(self) -> None:
            self.parent = self

        def __call__(self) -> object:
            return self.parent

    assert fingerprint(Node()) == fingerprint(Node())
