"""No import goes upwards, lazy and type-only imports included, and no circle of modules is large.

A layer holds the modules whose names begin as it says; a module is of the layer whose prefix is the longest.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "streamq"

LAYERS = (
    ("streamq.errors", "streamq.choices", "streamq.html", "streamq.screens", "streamq.time"),
    ("streamq.policies",),
    ("streamq.plan",),
    ("streamq.runtime",),
    (
        "streamq.connectors",
        "streamq.functions",
        "streamq.aggregates",
        "streamq.windows",
        "streamq.progress_policies",
        "streamq.user_code",
    ),
    ("streamq.operators",),
    ("streamq.compiler",),
    ("streamq.run",),
    ("streamq",),
    ("streamq.testing", "streamq.pytest_plugin", "streamq.demo"),
)
"""From the bottom to the top."""


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


IMPORT = re.compile(r"^[ \t]*(?:from (streamq\S*) import (\([^)]*\)|.*)|import (.*))", re.MULTILINE)
"""An import, wherever it stands but in DOCSTRINGS. Parsing takes fifty times as long."""

DOCSTRINGS = re.compile('""".*?"""', re.DOTALL)


@functools.cache
def imports(module: str) -> frozenset[str]:
    """Return the modules of streamq that a module names in any import."""
    names: set[str] = set()
    text = DOCSTRINGS.sub("", MODULES[module].read_text(encoding="utf-8"))
    for source, parts, wholes in IMPORT.findall(text):
        imported = re.findall(r"[\w.]+(?= as |[,\s)]|$)", re.sub(r"#.*| as \w+", "", parts or wholes))
        if not source:
            names.update(name for name in imported if name in MODULES)
        elif source in MODULES:
            names.update(name if (name := f"{source}.{part}") in MODULES else source for part in imported)
    return frozenset(names)


def layer(module: str) -> int:
    """The number of a module's layer; the language is what no other prefix names."""
    prefixes = {prefix: number for number, layer in enumerate(LAYERS) for prefix in layer}
    parts = module.split(".")
    return next(prefixes[p] for n in range(len(parts), 0, -1) if (p := ".".join(parts[:n])) in prefixes)


def test_no_import_goes_upwards() -> None:
    upwards = [f"{m} -> {other}" for m in MODULES for other in imports(m) if layer(other) > layer(m)]
    assert upwards == []


def test_no_circle_is_larger_than_a_few_modules() -> None:
    reached = {m: {other for other in imports(m) if other != m} for m in MODULES}
    changed = True
    while changed:
        changed = False
        for below in reached.values():
            more = set().union(*(reached[other] for other in below)) - below
            if more:
                below |= more
                changed = True
    circles = {frozenset(o for o in below if m in reached[o]) for m, below in reached.items() if m in below}
    assert [sorted(circle) for circle in circles if len(circle) > 3] == []
