"""Whatever stands in backticks on a page of the documentation exists: paths, symbols, commands, targets, options, extras."""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import keyword
import re
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import streamq
import streamq.testing
from streamq.operators.grouped_stream import GroupedStream
from streamq.operators.windowed_stream import WindowedStream
from streamq.run.running import Run
from streamq.run.status.open_metrics import FAMILIES
from streamq.stream import Stream
from tests.parsed import python_files

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = ("streamq", "tests", "benchmarks", "scripts")

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TICKED = re.compile(r"`([^`\n]+)`")

ELSEWHERE = {
    "_change_type": "a column of Delta's and Spark's change feeds",
    "maxOffsetsPerTrigger": "an option of Spark's Kafka source",
    "mergeSchema": "an option of Spark's Parquet reader",
    "timeMode": "an argument of Spark's transformWithState",
    "logout": "a column of an example",
    "cpu": "a column of an example",
    "create_map": "a function of pyspark.sql.functions",
    "closures": "a word of Python's",
}
"""Names that are not ours, and whose they are."""

OWNERS: dict[str, Any] = {
    "sq": streamq,
    "t": streamq.testing,
    "stream": Stream,
    "query": Stream,
    "run": Run,
    "window": WindowedStream,
    "group": GroupedStream,
}
"""What the pages' variables are, as far as their attributes go; an attribute of another class is looked up by its name."""

LIBRARIES = {"pyarrow": "pyarrow", "pa": "pyarrow", "pc": "pyarrow.compute", "pyspark": "pyspark", "json": "json"}

MADE_BY_RUNNING = (".venv", ".hypothesis", ".streamq-failures")


@functools.cache
def files() -> frozenset[str]:
    """The names of all files of the project."""
    folders = [ROOT / folder for folder in (*CODE, "docs", "notebooks", "requirements")]
    return frozenset(
        p.name for folder in [ROOT, *folders] for p in (folder.rglob("*") if folder != ROOT else ROOT.iterdir())
    )


@functools.cache
def codes() -> dict[Path, list[CodeType]]:
    """The compiled code of each module and of all that is defined in it."""
    loaders = {path: SourceFileLoader(path.stem, str(path)) for folder in CODE for path in python_files(folder)}
    return {path: parts_of(loader.get_code(path.stem)) for path, loader in loaders.items()}


def parts_of(code: CodeType) -> list[CodeType]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return [code, *(part for one in inner for part in parts_of(one))]


def symbols_in(codes: list[CodeType]) -> set[str]:
    """The names that a module defines or uses: of functions, classes, variables, attributes, arguments, columns."""
    names: set[str] = set()
    for code in codes:
        names.update(code.co_names, code.co_varnames, code.co_cellvars)
        for constant in code.co_consts:
            # several constants, or the names of a call's arguments, are a tuple or a set of them
            texts = constant if isinstance(constant, tuple | frozenset) else (constant,)
            names.update(text for text in texts if isinstance(text, str) and text.isidentifier())
    return names


@functools.cache
def symbols() -> frozenset[str]:
    """The names of the whole code, but for those that this module lists."""
    own = Path(__file__)
    return frozenset().union(*(symbols_in(parts) for path, parts in codes().items() if path != own))


@functools.cache
def arguments() -> frozenset[str]:
    """The parameters of all functions."""
    return frozenset(name for parts in codes().values() for code in parts for name in arguments_of(code))


def arguments_of(code: CodeType) -> tuple[str, ...]:
    gathering = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + gathering]


def exists(code: str, page: Path) -> bool:
    """Whether what stands in backticks exists; True for what is neither a name nor a command, such as a value."""
    if code.split()[0] in ("make", "python", "pip", "pytest"):
        return command_exists(code)
    if re.fullmatch(r"[\w.-]+/[\w./-]*", code):
        return path_exists(code, page)
    if re.fullmatch(r"[\w-]+\.(py|pyi|md|ipynb|toml|txt|sh|properties)", code):
        return code in files()
    if match := re.fullmatch(r"([A-Za-z_][\w.]*)(\(.*\))?", code):
        return name_exists(match[1].split(".")) or code in extras() or code in {family.sample for family in FAMILIES}
    if match := re.fullmatch(r"([a-z_]\w*)=.*", code):
        return match[1] in arguments() | symbols()
    return True


@functools.cache
def extras() -> frozenset[str]:
    """The names of the optional dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(project["optional-dependencies"])


def command_exists(command: str) -> bool:
    match command.split():
        case ["make", *targets]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            there = {
                *re.findall(r"^([a-z]+):", makefile, re.MULTILINE),
                *re.findall(r"\$\((?:if \$\()?([A-Z_]+)\)", makefile),
            }
            return all(target.partition("=")[0] in there for target in targets)
        case ["python", "-m", module, *rest]:
            there = (ROOT / module.replace(".", "/"), (ROOT / module.replace(".", "/")).with_suffix(".py"))
            words = [word for word in rest if re.fullmatch("[a-z]+", word)]
            return any(path.exists() for path in there) and set(words) <= symbols()
        case ["pip", "install", wanted]:
            return set(re.findall(r"\[(.*)\]", wanted)) <= extras()
    return True


def path_exists(path: str, page: Path) -> bool:
    if path.startswith(MADE_BY_RUNNING):
        return True
    return (ROOT / path).exists() or (page.parent / path).exists()


def name_exists(parts: list[str]) -> bool:
    """Whether a dotted name exists: of the package and of libraries truly, of other objects by each of its parts."""
    head, *rest = parts
    if head == "spark":  # a session's attribute, or a setting of Spark's
        return True
    if head in ("streamq", *LIBRARIES):
        return in_library(".".join([LIBRARIES.get(head, head), *rest]))
    if head in OWNERS and rest:
        # a metric is called as the object that has it: query.rows, run.sql
        is_metric = head in ("query", "run") and rest[0] in symbols()
        return hasattr(OWNERS[head], rest[0]) or is_metric
    modules = paths_by_stem().get(head, [])
    if rest and modules and head not in symbols():
        return any(rest[0] in symbols_in(codes()[path]) for path in modules)
    return all(name in words() for name in parts if name)


@functools.cache
def words() -> frozenset[str]:
    """Every name that may stand by itself: of the code, of its files, of Python, and of others."""
    return symbols() | paths_by_stem().keys() | {*ELSEWHERE, *dir(builtins), *keyword.kwlist} | files()


@functools.cache
def paths_by_stem() -> dict[str, list[Path]]:
    """The modules of the whole code by the last part of their names."""
    paths: dict[str, list[Path]] = {}
    for path in codes():
        paths.setdefault(path.stem, []).append(path)
    return paths


def in_library(name: str) -> bool:
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for attribute in parts[n:]:
            if not hasattr(owner, attribute):
                return False
            owner = getattr(owner, attribute)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_stands_in_backticks_exists(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    if page.name == "coming_from.md":
        # the first column has the names of other systems
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
    assert [code for code in dict.fromkeys(TICKED.findall(text)) if not exists(code.strip(), page)] == []


@pytest.mark.parametrize(
    "code",
    ["streamq/compiler/no_such.py", "no_such.py", "make nothing", "python -m streamq.nothing", "sq.nothing()",
     "run.nothing_at_all", "streamq.errors.NoSuchError", "_no_such_name", 'pip install "streamq[nothing]"',
     "no_such_argument=1", "stages._no_such"],
)  # fmt: skip
def test_what_does_not_exist_is_seen(code: str) -> None:
    assert not exists(code, ROOT / "docs" / "page.md")


CITED = re.compile(r'docs/(\w+\.md)(?:,\s+"([^"]+)")?')
ELSEWHERE_WRITTEN = re.compile(r"\b(?:SEMANTICS|DESIGN|API)(?:\.md\b|,? (?:sections? )?[A-Z]?\d)")


def test_pages_that_the_code_cites_exist_and_have_the_heading() -> None:
    headings = {page.name: re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES}
    wrong = []
    for path in sorted(p for folder in CODE for p in (ROOT / folder).rglob("*.py") if p != Path(__file__)):
        text = path.read_text(encoding="utf-8")
        for page, heading in CITED.findall(text):
            if page not in headings or (heading and " ".join(heading.split()) not in headings[page]):
                wrong.append(f"{path.relative_to(ROOT)}: {page}, {heading}")
        wrong += [f"{path.relative_to(ROOT)}: {cited}" for cited in ELSEWHERE_WRITTEN.findall(text)]
    assert wrong == []


def test_no_page_cites_what_is_not_in_the_repository() -> None:
    assert [page.name for page in PAGES if ELSEWHERE_WRITTEN.search(page.read_text(encoding="utf-8"))] == []
