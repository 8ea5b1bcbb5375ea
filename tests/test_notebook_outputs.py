"""The notebooks hold the outputs of their code, with pictures, and nothing of the machine on which they were executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.notebooks import NOTEBOOKS, Node, code_cells, code_digest, read_notebook

MACHINE = re.compile(r"(?:/tmp/|/home/|/root/|/work/|\.venv|0x[0-9a-f]{6,}|localhost|127\.0\.0\.1)")
"""A text that differs between machines, or between runs."""

SHOWING = re.compile(r"(?:\.(?:plot|show|chart|explain)|^display|^print)\(.*\)$", re.MULTILINE)
"""A line of code that shows something."""

MOST_BYTES = 400_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_is_kept_with_the_outputs_of_its_code(path: Path) -> None:
    notebook = read_notebook(path)
    cells = code_cells(notebook)
    assert notebook.metadata.get("executed") == code_digest(notebook), f"make notebooks NAMES={path.stem}"
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert [cell.source for cell in cells if SHOWING.search(cell.source) and not cell.outputs] == []
    kinds = {output.get("name", output.output_type) for cell in cells for output in cell.outputs}
    assert kinds <= {"stdout", "display_data", "execute_result"}
    shown = [str(output) for cell in cells for output in cell.outputs]
    assert [text for text in shown if MACHINE.search(text)] == []
    assert any("<svg" in text for text in shown)
    assert path.stat().st_size < MOST_BYTES


def test_the_digest_changes_with_any_code_and_with_nothing_else() -> None:
    def digest(*sources: str, words: str = "") -> str:
        cells = [Node(cell_type="code", source=source) for source in sources]
        return code_digest(Node(cells=[Node(cell_type="markdown", source=words), *cells]))

    assert digest("a = 1", "a") == digest("a = 1", "a", words="words")
    assert len({digest("a = 1", "a"), digest("a", "a = 1"), digest("a = 2", "a"), digest("a = 1a")}) == 4
