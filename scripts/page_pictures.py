"""Write the pictures of the pages in ``PAGES``: SVG files in docs/images, each drawn by the block above it.

python scripts/page_pictures.py

A line ``![...](images/NAME.svg)`` below a block shows the value of the block's last expression, a picture.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGES = tuple(DOCS / page for page in ("pictures.md", "gallery.md", "consistency.md", "tutorial.md"))

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n!\[[^]]*\]\((images/\w+\.svg)\))?", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Write the files."""
    for file, text in drawings():
        file.write_text(text, encoding="utf-8")


def drawings() -> Iterator[tuple[Path, str]]:
    """Yield the files of the pages' pictures, and the text that each should have."""
    for page in PAGES:
        names: dict[str, Any] = {"__name__": "page"}
        for code, file in BLOCK.findall(page.read_text(encoding="utf-8")):
            *statements, last = ast.parse(code).body
            if not file:
                # blocks of pictures build on it, unless it only shows how something is written
                if all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in (*statements, last)):
                    exec(compile(code, str(page), "exec"), names)
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(ast.Module(statements, []), str(page), "exec"), names)
            assert isinstance(last, ast.Expr), f"a block without a picture: {code}"
            picture = eval(compile(ast.Expression(last.value), str(page), "eval"), names)
            yield page.parent / file, picture.svg.replace("><", ">\n<") + "\n"


if __name__ == "__main__":
    main()
