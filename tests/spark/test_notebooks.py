"""Every notebook that starts Spark runs from top to bottom, in a kernel of its own; what it claims it asserts itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = [p for p in sorted((ROOT / "notebooks").glob("*.ipynb")) if "sq.session" in p.read_text(encoding="utf-8")]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel with this interpreter, known to this test only; it finds streamq and leaves nothing at home."""
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    # over a few rows Spark is faster where it interprets
    (tmp_path / "conf").mkdir()
    settings = ("spark.sql.codegen.wholeStage false", "spark.sql.codegen.factoryMode NO_CODEGEN")
    (tmp_path / "conf" / "spark-defaults.conf").write_text("\n".join(settings))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    return folder.name


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_runs(path: Path, kernel: str, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name=kernel, resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output.output_type == "error"] == []
