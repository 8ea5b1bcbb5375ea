"""Print the figures of the house that docs/architecture.md shows: lines, files, imports and tests, and the size of each folder.

python scripts/house.py [--check]: with --check nothing is printed, and figures of the page that are not up to date are an error.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    rows = figures()
    if not parser.parse_args().check:
        print(*(f"{name}: {value:,}" for name, value in rows.items()), *folders(), sep="\n")
        return
    stated = dict(re.findall(r"^\| ([^|]+?) \| ([\d,.]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    wrong = [
        f"{name}: {stated.get(name)} there, {value:,} here"
        for name, value in rows.items()
        if is_other(stated.get(name), value)
    ]
    if wrong:
        sys.exit("docs/architecture.md has other figures of the house: " + "; ".join(wrong))


def is_other(stated: str | None, value: float) -> bool:
    """True if a figure of the page differs by more than two in a hundred: it need not change with each line."""
    return stated is None or abs(float(stated.replace(",", "")) - value) > 0.02 * value


def figures() -> dict[str, float]:
    """The figures, by name."""
    product = list(python_files("streamq"))
    texts = {path: path.read_text(encoding="utf-8") for path in product}
    code = sum(code_lines(text) for text in texts.values())
    imports = sum(import_lines(text) for text in texts.values())
    tests = [path for path in (ROOT / "tests").rglob("*") if path.suffix in (".py", ".toml")]
    return {
        "lines of `streamq/`": sum(map(lines, texts.values())),
        "of these code": code,
        "of these `streamq/testing/`": sum(lines(text) for path, text in texts.items() if "testing" in path.parts),
        "files": len(product),
        "imports and `__all__`, % of the code": round(100 * imports / code, 1),
        "files of 60 lines or fewer": sum(
            lines(text) <= 60 for path, text in texts.items() if path.name != "__init__.py"
        ),
        "lines of `tests/`, with tables": sum(lines(path.read_text(encoding="utf-8")) for path in tests),
    }


def folders() -> Iterator[str]:
    """The lines and files of each folder of the product."""
    sizes, files = Counter[str](), Counter[str]()
    for path in python_files("streamq"):
        folder = "/".join(path.relative_to(ROOT).parts[:2] if len(path.relative_to(ROOT).parts) > 2 else ("streamq",))
        sizes[folder] += lines(path.read_text(encoding="utf-8"))
        files[folder] += 1
    for folder in sorted(sizes):
        yield f"{folder + '/':<24} {files[folder]:>4} files {sizes[folder]:>7,} lines"


def python_files(folder: str) -> Iterator[Path]:
    yield from sorted((ROOT / folder).rglob("*.py"))


def lines(text: str) -> int:
    return len(text.splitlines())


def code_lines(text: str) -> int:
    """The lines that are neither blank, comments nor docstrings."""
    docstring_lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    shown = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in shown if line.strip() and line.strip()[0] != "#" and number not in docstring_lines)


def import_lines(text: str) -> int:
    """The lines of imports and of ``__all__``."""
    spans = []
    for node in ast.walk(ast.parse(text)):
        names = (
            [target.id for target in node.targets if isinstance(target, ast.Name)]
            if isinstance(node, ast.Assign)
            else []
        )
        if isinstance(node, ast.Import | ast.ImportFrom) or "__all__" in names:
            spans.append((node.end_lineno or node.lineno) - node.lineno + 1)
    return sum(spans)


if __name__ == "__main__":
    main()
