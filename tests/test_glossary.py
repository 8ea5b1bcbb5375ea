"""Words that once meant several things are used in one sense: what a name holds says whether it is that one.

The senses stand in docs/glossary.md. A parameter, field or variable with such a name has a type that the
word allows: ``level`` holds a level of consistency, never the number of a stage.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.parsed import python_files

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "glossary.md"

SENSES = {
    "level": {"Level", "LevelName", "str"},
    "levels": {"Level", "LevelName", "str"},
    "ahead": {"int", "Duration"},
    "max_ahead": {"int", "Duration"},
    "kernel": {"Kernel", "HostedKernel", "WindowAggregateKernel"},
    "kernels": {"Kernel", "HostedKernel"},
    "hosted": {"HostedKernel"},
    "hosting": set(),
    "host": set(),
    "hosts": set(),
}
"""The types that may stand in the annotation of a name; one of them does."""


class Annotated(NamedTuple):
    """A name of the code with its type."""

    path: str
    name: str
    words: frozenset[str]


MENTION = re.compile(rf"\b({'|'.join(SENSES)})\s*:")
"""A name that may have an annotation: files without one need not be parsed."""


def annotated() -> Iterator[Annotated]:
    for path in python_files("streamq"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if MENTION.search(text) else ():
            match node:
                case (
                    ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation)
                    | ast.arg(arg=name, annotation=ast.expr() as annotation)
                ) if name in SENSES:
                    words = frozenset(re.findall(r"\w+", ast.unparse(annotation)))
                    yield Annotated(path.relative_to(ROOT).as_posix(), name, words)


def test_a_word_holds_what_it_means() -> None:
    others = {(one.path, one.name) for one in annotated() if not one.words & SENSES[one.name]}
    assert sorted(others) == []


def test_the_words_stand_in_the_glossary() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and "*only*" in line]
    words = {word for row in rows for word in row.split("|")[1].replace(",", " ").split()}
    assert words == {"level", "ahead", "kernel", "hosting", "hosted"}
    assert words <= set(SENSES)
