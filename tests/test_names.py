"""One word, one name: no two classes or functions of the product have one name, nor two files but rooms that mirror each other.

The product is ``streamq/`` without ``streamq/testing``, which says the same things once more and mirrors their names.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

import streamq
import streamq.testing
from tests.parsed import python_files

PACKAGE = Path(__file__).parents[1] / "streamq"


def shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


DEFINED = re.compile(r"^(class|def|    (?:async )?def) (\w+)", re.MULTILINE)


class Definition(NamedTuple):
    """A class, a function, or a method with its class."""

    path: Path
    kind: str
    name: str
    owner: str = ""


@functools.cache
def definitions() -> tuple[Definition, ...]:
    """The classes of ``streamq/``, their methods, and the functions of its modules."""
    found = []
    for path in python_files("streamq"):
        owner = ""
        for indented, name in DEFINED.findall(path.read_text(encoding="utf-8")):
            kind = "method" if indented.startswith(" ") else indented
            owner = {"class": name, "def": ""}.get(kind, owner)
            if kind != "method" or owner:
                found.append(Definition(path, kind, name, owner if kind == "method" else ""))
    return tuple(found)


def of_product(kind: str) -> list[Definition]:
    """The classes, or functions, of the product."""
    return [one for one in definitions() if one.kind == kind and not one.path.is_relative_to(PACKAGE / "testing")]


@pytest.mark.parametrize("kind", ["class", "def"])
def test_no_two_classes_or_functions_have_one_name(kind: str) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for one in of_product(kind):
        if kind == "class" or (not one.name.startswith("_") and one.name not in MANY):
            places[one.name].append(shown(one.path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


MIRRORED = (
    # an operator, its meaning, and the kernel that runs it; a kind of sources, and its kernel
    {"operators", "runtime/evaluators", "runtime/kernels"},
    {"sources", "runtime/kernels"},
)
"""Folders whose rooms mirror each other: a file of one name in them is about the same noun."""


def test_no_two_files_have_one_name_but_rooms_that_mirror_each_other() -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for path in python_files("streamq"):
        if path.name not in ("__init__.py", "__main__.py") and not path.is_relative_to(PACKAGE / "testing"):
            folders[path.name].add(shown(path.parent))
    several = {name: places for name, places in folders.items() if len(places) > 1}
    assert {name: sorted(places) for name, places in several.items() if not any(places <= m for m in MIRRORED)} == {}


VAGUE = re.compile(
    r"about|after|alike|all|along|always|any|at|before|behind|beside|beyond|by|each|for_|from_|how|"
    r"in_order|it|key|many|of|on|once|one|other|over|same|so_many|some|that|then|this|those|together|"
    r"told|under|until|what|where|which|who|with"
)
"""Prepositions, and words that name nothing: no module has a function of such a name."""


MANY = {
    "table": "in a query a table that lies elsewhere, in a test rows that are written down",
    "main": "what a module runs as a program",
    "why_not": "of each rule, the reason why it does not fire",
}
"""Functions that several modules have, because a caller asks each of them the same."""


def test_no_function_of_a_module_has_a_name_that_says_nothing() -> None:
    functions = of_product("def")
    assert [f"{shown(one.path)}: {one.name}" for one in functions if VAGUE.fullmatch(one.name.strip("_"))] == []


# ``streamq.__all__`` is what ``from streamq import *`` promises: every name there, once, public.

HEAVY = ("IPython", "duckdb", "google", "grpc", "hypothesis", "lark", "pandas", "pytest", "rich")
"""Packages that no query needs to be written down, or that only some runs need."""

HEAVY_PARTS = ("pyspark.ml", "pyspark.pandas", "pyspark.sql.connect", "streamq.demo", "streamq.testing")


def test_every_name_resolves_and_stands_once_in_order() -> None:
    names = list(streamq.__all__)
    assert [name for name in names if not hasattr(streamq, name)] == []
    assert names == sorted(set(names))


def test_no_public_name_is_missing() -> None:
    own = {name for name, value in vars(streamq).items() if getattr(value, "__module__", "").startswith("streamq.")}
    assert sorted(name for name in own - set(streamq.__all__) if not name.startswith("_")) == []


def test_completion_in_the_test_framework_offers_what_is_public() -> None:
    assert dir(streamq.testing) == sorted(set(streamq.testing.__all__))
    assert [name for name in dir(streamq.testing) if not hasattr(streamq.testing, name)] == []


def test_the_import_loads_nothing_that_a_script_may_not_need() -> None:
    script = "import sys; import streamq; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"streamq"} == set(loaded) & {*HEAVY, "numpy", "pyarrow", "pyspark", "streamq"}


@pytest.mark.slow
def test_the_language_loads_no_more_than_spark_and_arrow() -> None:
    script = "import sys; from streamq import *; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"streamq.stream", "pyspark.sql"} <= set(loaded)
    assert [name for name in loaded if name.split(".")[0] in HEAVY or name.startswith(HEAVY_PARTS)] == []


PARTICIPLE = re.compile(r"(?:[a-z]*(?<!e)ed|[a-z]+ing|made|shown|given|found|told|taken|held|sent|left|broken)$", re.I)
"""A word that may be a participle: not ``Feed`` or ``Need``."""

NOUNS = {
    "a noun": "DefinitionLowering Drawing Finding Firing Matching Meeting Pairing Ranking Recording Rounding Sharing "
    "StreamLowering StreamqWarning _QueryDrawing",
    "users write it, and it is what they expect": "Expected",
    "the kind of windows that users know by this word": "Hopping",
    "an error says what happened": "LawBroken ModuleFailed QueryFailed VerificationFailed",
}
"""Why classes may have names that end as participles do, and which."""


def last_word(name: str) -> str:
    """Return the last word of a class name."""
    return str(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]", name)[-1])


def test_no_class_is_named_by_a_participle() -> None:
    classes = {one.name for one in definitions() if one.kind == "class"}
    assert {name for name in classes if PARTICIPLE.match(last_word(name))} == {*" ".join(NOUNS.values()).split()}


PREPOSITIONS = re.compile(
    r"about|above|across|after|against|along|among|around|as|at|before|behind|below|beside|between|"
    r"beyond|by|during|for|from|in|into|of|off|on|out|over|past|per|since|through|to|under|until|"
    r"upto|with|within|without"
)

KEPT = {
    "Expr.between": "SQL's word, which users write",
    "NegationVerbs.without": "a verb, which users write",
    "RelationClock.until": "the argument of this name of the call that ended the stream",
    "TreeBuilder.between": "a rule of the grammar",
}
"""Methods whose names are prepositions, and why they may be."""


def test_no_method_is_named_by_a_preposition() -> None:
    methods = {one for one in definitions() if one.kind == "method"}
    assert {f"{one.owner}.{one.name}" for one in methods if PREPOSITIONS.fullmatch(one.name.strip("_"))} == set(KEPT)
