"""Every notebook runs from top to bottom, without the names of others; what it claims it asserts itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import INTERPRETED, NO_ORIGINS

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotebookClient]:
    """One kernel with this interpreter, so that one JVM gets warm; it finds streamq and leaves nothing at home."""
    folder = tmp_path_factory.mktemp("kernel")
    place = folder / "jupyter" / "kernels" / "python3"
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (place / "kernel.json").write_text(json.dumps(spec))
    (folder / "conf").mkdir()
    settings = (f"{key} {value}" for key, value in (INTERPRETED | NO_ORIGINS).items())
    (folder / "conf" / "spark-defaults.conf").write_text("\n".join(settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
        patch.setenv("SPARK_CONF_DIR", str(folder / "conf"))
        client = NotebookClient(nbformat.v4.new_notebook(), timeout=600, kernel_name="python3")
        with client.setup_kernel(cwd=str(folder)):
            yield client


SHARED = """%reset -f
from pyspark.sql import SparkSession
for query in SparkSession.getActiveSession().streams.active if SparkSession.getActiveSession() else ():
    raise AssertionError(f"{query.name} goes on")
SparkSession.stop = lambda spark: None
"""


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_runs(path: Path, client: NotebookClient) -> None:
    """What the one before it called anything is forgotten; its Spark goes on, which to start takes longer than most notebooks."""
    client.nb = nbformat.read(path, as_version=4)
    client.nb.cells.insert(0, nbformat.v4.new_code_cell(SHARED))
    client.execute(cleanup_kc=False)
    outputs = [output for cell in client.nb.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output.output_type == "error"] == []
