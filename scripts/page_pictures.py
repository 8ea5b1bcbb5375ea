"""Write the pictures of docs/pictures.md: SVG files in docs/images, each drawn by the block of Python above it.

python scripts/page_pictures.py

A line ``![...](images/NAME.svg)`` below a block shows the value of the block's last expression, a picture of histories.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "pictures.md"

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n!\[[^]]*\]\((images/\w+\.svg)\))?", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Write the files."""
    for file, text in drawings():
        file.write_text(text, encoding="utf-8")


def drawings() -> Iterator[tuple[Path, str]]:
    """Yield the files of the page's pictures, and the text that each should have."""
    names: dict[str, Any] = {"__name__": "page"}
    for code, file in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if file:
            *statements, last = ast.parse(code).body
            exec(compile(ast.Module(statements, []), str(PAGE), "exec"), names)
            assert isinstance(last, ast.Expr), f"a block without a picture: {code}"
            picture = eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)
            yield PAGE.parent / file, picture.svg.replace("><", ">\n<") + "\n"


if __name__ == "__main__":
    main()
