"""Execute the notebooks, each in a kernel of its own, and write them back with their outputs.

python scripts/notebooks.py [NAME ...]

NAME is a file of notebooks/ without its ending, such as 01_first_query; without names all are executed. What a cell writes to
stderr, such as Spark's messages as it starts and progress bars, is dropped; execution times are not written. The
notebook's metadata hold a digest of its code, so that a test sees outputs that are older than the code.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

SECONDS = 600
"""The most seconds that a cell may run."""


class Node(dict[str, Any]):
    """A part of a notebook, with its entries as attributes."""

    __getattr__ = dict.__getitem__


def read_notebook(path: Path) -> Node:
    """Read a notebook as ``nbformat`` does, which takes seconds to be imported."""
    notebook: Node = json.loads(path.read_text(encoding="utf-8"), object_hook=Node)
    for cell in notebook.cells:
        cell["source"] = "".join(cell.source)
    return notebook


def main(names: list[str]) -> None:
    """Execute the notebooks of these names, or all."""
    import nbformat

    for path in [ROOT / "notebooks" / f"{name}.ipynb" for name in names] or NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        execute(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB")


def execute(notebook: NotebookNode) -> None:
    """Run a notebook in a new kernel, in a folder that is then removed, and put its outputs into it."""
    from nbclient import NotebookClient
    from nbformat import NotebookNode

    metadata = dict(notebook.metadata)
    # the kernel inherits the environment; streamq is the one beside this script
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        options = {"timeout": SECONDS, "record_timing": False, "coalesce_streams": True}
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options).execute()
    for cell in code_cells(notebook):
        cell.outputs = [output for output in cell.outputs if is_kept(output)]
    # not the kernel's version of Python
    notebook.metadata = NotebookNode({**metadata, "executed": code_digest(notebook)})


def is_kept(output: NotebookNode) -> bool:
    """Return False for what a cell writes to stderr, such as progress bars, which are there only where a machine is slow."""
    return bool(output.get("name") != "stderr")


def code_cells(notebook: Node | NotebookNode) -> list[Any]:
    """Return the cells of a notebook that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def code_digest(notebook: Node | NotebookNode) -> str:
    """Return a digest of all code of a notebook, in the order of its cells."""
    sources = [cell.source for cell in code_cells(notebook)]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


if __name__ == "__main__":
    main(sys.argv[1:])
