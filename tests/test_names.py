"""One word, one name: no two classes or functions of the product have one name, nor two files but rooms that mirror each other.

The product is ``streamq/`` without ``streamq/testing``, which says the same things once more and mirrors their names.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamq
import streamq.testing
from tests.parsed import parsed, python_files

PACKAGE = Path(__file__).parents[1] / "streamq"


def product_files() -> list[Path]:
    return [path for path in python_files("streamq") if not path.is_relative_to(PACKAGE / "testing")]


def shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in product_files():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(shown(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


MIRRORED = (
    # an operator, its meaning, and the kernel that runs it; a kind of sources, and its kernel
    {"operators", "runtime/evaluators", "runtime/kernels"},
    {"sources", "runtime/kernels"},
)
"""Folders whose rooms mirror each other: a file of one name in them is about the same noun."""


def test_no_two_files_have_one_name_but_rooms_that_mirror_each_other() -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for path in product_files():
        if path.name != "__init__.py":
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
    "main": "what a module runs as a program",
    "why_not": "of each rule, the reason why it does not fire",
}
"""Functions that several modules have, because a caller asks each of them the same."""


def test_no_two_functions_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in product_files():
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in MANY:
                places[node.name].append(shown(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_no_function_of_a_module_has_a_name_that_says_nothing() -> None:
    functions = [(shown(p), n.name) for p in product_files() for n in parsed(p).body if isinstance(n, ast.FunctionDef)]
    assert [f"{path}: {name}" for path, name in functions if VAGUE.fullmatch(name.strip("_"))] == []


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


def classes() -> Iterator[ast.ClassDef]:
    """Yield the classes of all modules of the product and of ``streamq/testing``."""
    for path in python_files("streamq"):
        yield from (node for node in parsed(path).body if isinstance(node, ast.ClassDef))


PARTICIPLE = re.compile(r"(?:[a-z]*(?<!e)ed|[a-z]+ing|made|shown|given|found|told|taken|held|sent|left|broken)$", re.I)
"""A word that may be a participle: not ``Feed`` or ``Need``."""

NOUNS = {
    "DefinitionLowering": "a noun",
    "Drawing": "a noun",
    "Expected": "users write it, and it is what they expect",
    "Finding": "a noun",
    "Firing": "a noun",
    "Hopping": "the kind of windows that users know by this word",
    "LawBroken": "an error says what happened",
    "Matching": "a noun",
    "Meeting": "a noun",
    "ModuleFailed": "an error says what happened",
    "Pairing": "a noun",
    "QueryFailed": "an error says what happened",
    "Ranking": "a noun",
    "Recording": "a noun",
    "Rounding": "a noun",
    "Sharing": "a noun",
    "StreamLowering": "a noun",
    "StreamqWarning": "a noun",
    "VerificationFailed": "an error says what happened",
    "_QueryDrawing": "a noun",
}
"""Classes whose names end as participles do, and why they may."""


def last_word(name: str) -> str:
    """Return the last word of a class name."""
    return str(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]", name)[-1])


def test_no_class_is_named_by_a_participle() -> None:
    assert {node.name for node in classes() if PARTICIPLE.match(last_word(node.name))} == set(NOUNS)


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
    methods = {(node.name, part.name) for node in classes() for part in node.body if isinstance(part, ast.FunctionDef)}
    assert {f"{owner}.{name}" for owner, name in methods if PREPOSITIONS.fullmatch(name.strip("_"))} == set(KEPT)
