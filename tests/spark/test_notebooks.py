"""Every notebook runs from top to bottom, without the names of others; what it claims it asserts itself."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def shell(
    spark: SparkSession, plain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    """IPython as a kernel has it, in this process: the Spark of this run is warm, and the notebook does not stop it."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkSession, "stop", lambda spark: None)
    # IPython puts its own in the place of these
    for owner, name in ((sys, "displayhook"), (sys, "excepthook"), (builtins, "display")):
        monkeypatch.setattr(owner, name, getattr(owner, name, None), raising=False)
    # a doctest before may have left Python's last result, in whose presence IPython keeps none of its own
    monkeypatch.delattr(builtins, "_", raising=False)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield InteractiveShell.instance(user_module=ModuleType("__main__"))
    InteractiveShell.clear_instance()


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_runs(path: Path, shell: InteractiveShell, spark: SparkSession) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            shell.run_cell(cell.source, store_history=True).raise_error()
    assert not spark.streams.active
