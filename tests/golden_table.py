"""Tables of cases in ``tests/golden/``: a call, as Python, and indented below it the text that it gives.

Lines that begin with ``#`` are headings. ``STREAMQ_GOLDEN=1 pytest`` of a table's test writes its texts anew; read the difference
before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
INDENT = "    "


def read_table(name: str) -> dict[str, str]:
    """The text of each call of a table."""
    texts: dict[str, list[str]] = {}
    below: list[str] = []
    for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines():
        if line.startswith(INDENT):
            below.append(line.removeprefix(INDENT))
        elif line and not line.startswith("#"):
            assert line not in texts, f"twice in {name}: {line}"
            below = texts[line] = []
    return {call: "\n".join(lines) for call, lines in texts.items()}


def check_table(name: str, shown: Callable[[str], str]) -> None:
    """Assert that each call of a table gives its text, by a function from calls to texts."""
    texts, found = read_table(name), {}
    for call in texts:
        try:
            found[call] = shown(call)
        except Exception as failure:
            failure.add_note(f"case: {call}")
            raise
    if os.environ.get("STREAMQ_GOLDEN"):
        lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
        kept = (line for line in lines if not line.startswith(INDENT))
        below = {call: "".join(f"\n{INDENT}{line}" for line in text.splitlines()) for call, text in found.items()}
        (GOLDEN / name).write_text("".join(f"{line}{below.get(line, '')}\n" for line in kept), encoding="utf-8")
        texts = read_table(name)
    assert found == texts
