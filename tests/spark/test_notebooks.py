"""Every notebook runs from top to bottom, without the names of others, and writes the text that it is kept with."""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import SparkSession

import streamq as sq
from scripts.notebooks import NOTEBOOKS, Node, code_cells, read_notebook


class RecordedResults(DisplayHook):
    """Records the text of a cell's value with what the cell displays, and prints nothing."""

    def write_output_prompt(self) -> None: ...

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.shell.display_pub.publish(format_dict)

    def finish_displayhook(self) -> None: ...


@pytest.fixture
def shell(
    spark: SparkSession, plain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    """IPython as a kernel has it, in this process: the Spark of this run is warm, and the notebook does not stop it."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkSession, "stop", lambda spark: None)
    # those of other tests' files
    monkeypatch.setattr(sq.modules, "_own", {})
    # IPython puts its own in the place of these
    for owner, name in ((sys, "displayhook"), (sys, "excepthook"), (builtins, "display")):
        monkeypatch.setattr(owner, name, getattr(owner, name, None), raising=False)
    # a doctest before may have left Python's last result, in whose presence IPython keeps none of its own
    monkeypatch.delattr(builtins, "_", raising=False)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = InteractiveShell.instance(
        user_module=ModuleType("__main__"),
        displayhook_class=RecordedResults,
        display_pub_class=CapturingDisplayPublisher,
    )
    # as pandas has it in a kernel; in a terminal it leaves out columns that do not fit
    with pd.option_context("display.max_columns", 20):
        yield shell
    InteractiveShell.clear_instance()


def stored_texts(cell: Node) -> tuple[str, list[str]]:
    """The text that a cell printed, and the texts of the values that it displayed."""
    printed = "".join(line for output in cell.outputs if output.output_type == "stream" for line in output.text)
    return printed, ["".join(output.data["text/plain"]) for output in cell.outputs if output.output_type != "stream"]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_runs(path: Path, shell: InteractiveShell, spark: SparkSession) -> None:
    for cell in code_cells(read_notebook(path)):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            shell.run_cell(cell.source, store_history=True).raise_error()
        texts = [output["data"]["text/plain"] for output in shell.display_pub.outputs]
        shell.display_pub.outputs.clear()
        assert (printed.getvalue(), texts) == stored_texts(cell), "make notebooks"
    assert not spark.streams.active
