"""The documentation shows what is true: its runnable blocks, the doctests, the names and the paths; no Spark."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import itertools
import re
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest

import streamq
from streamq.operators.grouped_stream import GroupedStream
from streamq.operators.per_window import PerWindow
from streamq.operators.windowed_stream import WindowedStream
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_tree import Contributor
from streamq.run.running import Run
from streamq.stream import Stream

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONG = {"README.md", "testing.md", "verify.py"}
"""The pages and modules whose examples take seconds."""
MODULES = [p for p in sorted((ROOT / "streamq").rglob("*.py")) if ">>> " in p.read_text(encoding="utf-8")]

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, its line."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in FENCED.finditer(text)]


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def marked(path: Path) -> Any:
    """A file as a parameter; slow, if it takes seconds."""
    return pytest.param(path, marks=[pytest.mark.slow] * (path.name in LONG))


@pytest.mark.parametrize("page", [*map(marked, PAGES)], ids=lambda p: p.name)
def test_blocks_print_what_stands_below_them(page: Path) -> None:
    found = blocks(page)
    names: dict[str, Any] = {"__name__": "page"}
    for block, below in itertools.pairwise([*found, Block("", "", 0)]):
        if block.language != "python":
            continue
        code = compile("\n" * block.line + block.text, str(page), "exec")
        if below.language != "text":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert trimmed(printed.getvalue()) == trimmed(below.text), f"{page.name}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_public_names_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [name for name in sorted(set(re.findall(r"\bsq\.(\w+)", text))) if not hasattr(streamq, name)] == []
    links = [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (page.parent / link).exists()]
    assert links == []
    anchor = importlib.import_module("scripts.language_page").anchor
    for name, place in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        other = (page.parent / name) if name else page
        headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
        assert place in map(anchor, headings), f"{name}#{place}"


def test_the_language_page_is_what_the_docstrings_say() -> None:
    page = importlib.import_module("scripts.language_page")
    text = page.page()
    assert page.PAGE.read_text(encoding="utf-8") == text, "make docs"
    assert all(f"](#{page.anchor(e.name)})" in text for entries in page.sections().values() for e in entries)


def test_the_language_page_has_every_public_function_that_is_no_expression() -> None:
    sections = importlib.import_module("scripts.language_page").sections()
    names = {name for entries in sections.values() for entry in entries for name in (entry.name, *entry.also)}
    functions = {name: value for name in dir(streamq) if inspect.isfunction(value := getattr(streamq, name))}
    missing = [name for name in functions if f"sq.{name}" not in names]
    expressions = (ROOT / "docs" / "expressions.md").read_text()
    assert [name for name in missing if not re.search(rf"\b{name}\(", expressions)] == []


OWNERS: dict[type, tuple[str, ...]] = {
    Stream: ("stream",),
    GroupedStream: ("group",),
    WindowedStream: ("window",),
    PerWindow: ("window",),
    Pattern: ("pattern", "stream"),
    Contributor: ("contributor",),
    Run: ("run",),
}
"""What the language page calls the objects whose verbs it lists."""

NO_VERBS = {"group.select", "group.agg", "window.stamp"}
"""Two that refuse for want of a window, and where results live."""


def is_verb(member: Any) -> bool:
    return isinstance(member, FunctionType | property)


def test_the_language_page_has_every_verb_and_an_example_of_it() -> None:
    page = importlib.import_module("scripts.language_page")
    entries = [entry for entries in page.sections().values() for entry in entries]
    listed = {e.name for e in entries}
    listed |= {n if "." in n else f"{e.name.partition('.')[0]}.{n}" for e in entries for n in e.also}
    for cls, owners in OWNERS.items():
        for name in (n for n, f in inspect.getmembers_static(cls, is_verb) if not n.startswith("_")):
            named = {f"{owner}.{name}" for owner in owners}
            assert named & (listed | NO_VERBS), f"{cls.__name__}.{name} is not on the page"
    owned = ("Verbs", "Windows", "Groups", "What a window makes of its members", "Aggregates", "Patterns")
    for title in owned:
        plain = {e.name for e in page.sections()[title] if ">>> " not in (e.function.__doc__ or "")}
        assert plain <= {"pattern.text"}, title


def test_the_tables_of_expressions_are_what_the_functions_say() -> None:
    made = importlib.import_module("scripts.expressions_page")
    text = made.PAGE.read_text(encoding="utf-8")
    assert made.page(text) == text, "make docs"
    rooms = [f for room in made.ROOMS for f in vars(room).values() if isinstance(f, made.BuiltIn)]
    assert made.NOTES.keys() <= {f.name for f in rooms if f.arrow is not None}


@pytest.mark.parametrize("path", [*map(marked, MODULES)], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_docstrings_show_what_happens(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    failures: list[str] = []
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=failures.append)
    assert not failures, "".join(failures)
