"""Faults are made as they should be, are in place in their own process only, and are seen by ``verify``."""

from __future__ import annotations

import ast
import importlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.__main__ import targets
from tests.mutation.equivalent import Equivalents, key
from tests.mutation.faults import ROOT, faults_of
from tests.mutation.planting import plant
from tests.mutation.processes import Ended, in_processes
from tests.mutation.reach import PROBE, probed

FAULTS = {
    "a < b": {"a <= b", "a < (b) - 1"},
    "a >= b": {"a > b", "a >= (b) - 1"},
    "re < INFINITY": {"re <= INFINITY"},
    "(a + b) == c": {"(a + b) != c", "(a - b) == c"},
    "0 <= a < b": {"0 < a < b", "0 <= (a) + 1 < b", "0 <= a <= b", "0 <= a < (b) - 1"},
    "a is not None and b": {"a is None and b", "a is not None or b"},
    "a - b": {"a + b", "(b) - (a)"},
    "(a | b) - 1": {"(a | b)", "(a & b) - 1"},
    "~(a & b)": {"(a & b)", "~(a | b)"},
    "not a": {"a"},
    "a if b else c": {"a if not (b) else c"},
    "pc.less(a, 1)": {"pc.less_equal(a, 1)"},
    "np.minimum.at(least, a, b)": {"np.maximum.at(least, a, b)", "np.minimum.at(least, b, a)"},
    "min(a, b)": {"max(a, b)"},
    "runs(low, high)": {"runs(high, low)"},
    "ints(table, LE)": set(),
    "np.where(a, b, c)": {"np.where(a, c, b)"},
    "np.searchsorted(a, b)": {'np.searchsorted(a, b, side="right")', "np.searchsorted(b, a)"},
    "np.searchsorted(a, f(b), 'left')": {"np.searchsorted(a, f(b), 'right')"},
    "saturating(a, 1)": {"((a) + (1))"},
    "pc.fill_null(a, 0)": {"(a)"},
    "a.fill_null(0)": {"(a)"},
    "a.dictionary_encode(null_encoding='encode', n=1)": {"a.dictionary_encode(n=1)"},
    "a.dictionary_encode(null_encoding='encode')": {"a.dictionary_encode()"},
    "pa.array((a), kind, mask=b, size=1)": {"pa.array((a), kind, size=1)", "pa.array((kind), a, mask=b, size=1)"},
    "pc.ScalarAggregateOptions(min_count=1)": {"pc.ScalarAggregateOptions(min_count=0)"},
    "pa.array(a, mask=b)": {"pa.array(a)"},
    "np.isnan(a)": {"(np.isnan(a) & False)"},
    "f'{a < b}'": set(),
}
"""An expression, and what stands there instead, one at a time."""


@pytest.mark.parametrize("text", FAULTS)
def test_faults_of_an_expression(text: str) -> None:
    assert {fault.source for fault in faults_of("x.py", f"{text}\n")} == {f"{after}\n" for after in FAULTS[text]}


def test_where_a_fault_stands() -> None:
    source = "class A:\n    limit: int = 2 - x\n\n    def f(self):\n        # é\n        return ('é', g(\n            a < b))\n"
    faults = faults_of("streamq/x.py", source)
    assert {(f.function, f.statement, f.line) for f in faults} == {("", 2, 2), ("A.f", 6, 7)}
    first = next(f for f in faults if f.what == "<= for <")
    assert (first.before, first.after, first.module) == ("a < b))", "a <= b))", "streamq.x")
    assert str(first) == "streamq/x.py:7 (<= for <)\n  - a < b))\n  + a <= b))"


def test_statements_without_an_answer_have_no_faults() -> None:
    source = "if TYPE_CHECKING:\n    a < b\nassert a < b\ndef f(x: a | b) -> c | d:\n    raise E(a < b)\n"
    assert faults_of("x.py", source) == []


@pytest.mark.slow
@pytest.mark.parametrize("file", ["streamq/runtime/time/lateness.py", "streamq/runtime/arrow/columnar.py"])
def test_every_fault_of_a_module_is_one_change_that_parses(file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    faults = faults_of(file)
    assert len(faults) > 30 and len({fault.source for fault in faults}) == len(faults)
    right = ast.dump(ast.parse(source))
    assert all(ast.dump(ast.parse(fault.source)) != right for fault in faults)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose module ``outer`` has taken a function from ``inner``."""
    (tmp_path / "planted_here").mkdir()
    (tmp_path / "planted_here/__init__.py").write_text("")
    (tmp_path / "planted_here/inner.py").write_text("def below(a, b):\n    return a < b\n")
    (tmp_path / "planted_here/outer.py").write_text("from planted_here.inner import below\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "planted_here/inner.py"


def test_a_fault_is_in_place_in_its_own_process_only(package: Path) -> None:
    (fault,) = (f for f in faults_of(str(package), package.read_text()) if f.what == "<= for <")

    def task(speaker: Any) -> bool:
        plant({"planted_here.inner": compile(fault.source, fault.file, "exec")}, ("planted_here",))
        return importlib.import_module("planted_here.outer").below(1, 1)

    assert not importlib.import_module("planted_here.outer").below(1, 1)
    assert list(in_processes([("fault", task)], 1)) == [("fault", Ended(True))]
    assert not importlib.import_module("planted_here.outer").below(1, 1)
    assert package.read_text() == "def below(a, b):\n    return a < b\n"


@pytest.mark.slow
def test_processes_end_whatever_they_do() -> None:
    def endless(speaker: Any) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        speaker.say("looping", -used.ru_utime - used.ru_stime)
        while True:
            pass

    def gone(speaker: Any) -> None:
        speaker.say("leaving", 60)
        os._exit(3)

    def greedy(speaker: Any) -> int:
        return len(bytearray(1 << 40))

    ended = dict(in_processes([("endless", endless), ("gone", gone), ("greedy", greedy), ("right", lambda _: 1)], 2))
    assert ended["endless"] == Ended(None, "does not end", "looping")
    assert ended["gone"] == Ended(None, "the process ended by itself: 3", "leaving")
    assert ended["greedy"].reason.strip().endswith("MemoryError")
    assert ended["right"] == Ended(1)


def test_statements_note_that_they_run() -> None:
    file = "streamq/runtime/hosts/result_rows.py"
    lines = {node.lineno for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.Return)}
    reached: list[Any] = []
    names: dict[str, Any] = {"__name__": __name__, PROBE: reached.append}
    exec(probed(file), names)
    assert reached == []
    names["replacement_masks"](*(importlib.import_module("numpy").array([1, 2]),) * 2)
    assert {at for name, at in reached if name == file} & lines


TRIAL = """
import json
from tests.mutation.faults import faults_of
from tests.mutation.runs import Settings, Trials
file = "streamq/runtime/grid_ranges.py"
def run():
    trials = Trials(Settings(few=6, nearest=1, examples=6, tests=False))
    ((_, reach),) = trials.reach([file], ["query tumbling"])
    faults = [f for f in faults_of(file) if f.function == "grid_index"][:2]
    return reach.wrong, [(f.after, v.by, v.name) for f, v in trials.verdicts(faults)]
print(json.dumps(run()))
"""


@pytest.mark.slow
def test_verify_sees_a_fault() -> None:
    ran = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    wrong, verdicts = json.loads(ran.stdout)
    assert wrong == "" and any(by == "verify" and name == "query tumbling" for _, by, name in verdicts)


def test_the_modules_in_which_faults_are_planted_are_there() -> None:
    assert len(targets()) > 40 and [file for file in targets() if not (ROOT / file).exists()] == []


def test_equivalent_faults_are_there_and_have_reasons() -> None:
    equivalents = Equivalents.read()
    assert equivalents.stale() == []
    assert all(reason.strip() for reason in equivalents.reasons.values())


def test_an_entry_that_matches_nothing_is_stale(tmp_path: Path) -> None:
    file = "streamq/runtime/hosts/result_rows.py"
    first, *_ = faults_of(file)
    entry = dict(zip(("file", "function", "before"), key(first), strict=False))
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in entry.items())
    after = json.dumps([first.after, "gone"])
    (tmp_path / "some.toml").write_text(f'[[equivalent]]\n{lines}after = {after}\nreason = "why"\n')
    equivalents = Equivalents.read(tmp_path / "some.toml")
    assert equivalents.reason(first) == "why"
    assert equivalents.stale() == [(*key(first)[:3], "gone")]
