"""Write failing cases to JSON files, read them back, and run them again the way they failed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import dacite
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from streamq.compiler.constants_json import decoded, encoded, plain_hooks
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import Results
from streamq.compiler.rules import RULES
from streamq.errors import PlanError, SourceError, StreamqError, check_keywords, nearest
from streamq.operators import Source
from streamq.plan.node import Node, nodes
from streamq.testing.arrival import Item, plain_values, table_of
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.sources.room import row
from streamq.testing.table import table
from streamq.testing.trial import check

SUFFIX = ".streamq.json"
"""The suffix of the files' names; the pytest plugin collects such files as tests."""

FORMAT = 1

AGAIN = "Delete it, or save the case again."


def case_to_json(case: Case, how: Execution, says: str = "") -> str:
    """Return a case and its execution as JSON text; equal cases give equal texts.

    ``says`` describes the failure for readers.
    """
    items = [
        [name, item.kind, item.start, item.end, item.new_end, _encoded(item.columns)] for name, item in case.arrival
    ]
    static = {name: {"columns": _ddl(rows), "rows": _rows(rows)} for name, rows in case.static.items()}
    document = {"format": FORMAT, "says": says.splitlines(), "how": asdict(how), "cut": case.cut, "until": case.until}
    parts = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in document.items()]
    lines = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in items)
    parts.append(f'"arrival": [\n  {lines}\n]' if items else '"arrival": []')
    parts.append(f'"static": {json.dumps(static, ensure_ascii=False)}')
    plans = [plan_to_json(plan) for plan in case.plans]
    parts.append(f'"plan": {json.dumps(plans if len(plans) > 1 else plans[0], ensure_ascii=False)}')
    if not case.may_fail:
        parts.append('"may_fail": false')
    if case.follows_clock:
        parts.append(f'"clock": {json.dumps(case.clock)}')
    if case.calls:
        parts.append(f'"calls": {json.dumps(case.calls.splitlines(), ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def case_from_json(text: str, file: str = "") -> tuple[Case, Execution]:
    """Read the text that :func:`case_to_json` wrote: the case and its execution.

    Raises PlanError for any other text, with the ``file`` and the fault.
    """
    try:
        parts = json.loads(text)
        if parts.get("format", FORMAT) != FORMAT:
            raise ValueError(f"format {parts['format']!r}, this streamq reads {FORMAT}")
        document = dacite.from_dict(_Document, parts, _TYPES)
        gone = set(document.how.rules or ()) - {rule.name for rule in RULES}
        if gone:
            raise ValueError(f"rules that do not exist: {', '.join(sorted(gone))}")
        plan = _plan(document.plan)
        sources = {node.table: node for node in nodes(plan) if isinstance(node, Source)}
        arrival = tuple(_item(entry, sources) for entry in document.arrival)
        static = {name: table(one.columns, map(_decoded, one.rows)) for name, one in document.static.items()}
    except (StreamqError, dacite.DaciteError, pa.ArrowException, *_ERRORS) as error:
        where = f"not a case in {file!r}" if file else "not a case"
        raise PlanError("replay", where, str(error).splitlines()[0].rstrip("."), AGAIN) from error
    cut, until, clock = document.cut, document.until, document.clock
    calls = "\n".join(document.calls)
    return Case(plan, arrival, cut, until, static, clock, calls, document.may_fail), document.how


@check_keywords
def replay(path: str | Path) -> None:
    """Run a saved case again the way it was run; raise VerificationFailed if it still fails.

    It passes, too, if the query now fails by Spark's rules in the oracle as well, so that there is no answer to compare, unless
    it was verified that it does not fail.
    Raises SourceError if the file does not exist, and PlanError if it does not hold a case, which names the part at fault.

    ::

        t.replay("tests/replays/late_left_piece.streamq.json")
    """
    case, how = case_from_json(_text(path), str(path))
    check(case, [how])


def save(case: Case, how: Execution, says: str, folder: str | Path, name: str) -> Path:
    """Write a case to a file in a folder, which is created if need be, and return its path; overwrite any that exists.

    The file's name is ``name``, with other characters than letters, digits, ``_``, ``.`` and ``-`` replaced, and SUFFIX.
    """
    path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-')}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(case_to_json(case, how, says), encoding="utf-8")
    return path


def _text(path: Any) -> str:
    """Return the text of a file; raise SourceError if there is none or it is a folder, PlanError if it is not text or no path."""
    if not isinstance(path, str | Path):
        hint = "The path of a failure's file is failed.saved."
        raise PlanError("replay", "not the path of a saved case", f"found {type(path).__name__}", hint)
    file = Path(path)
    if file.is_dir():
        hint = f"Give one of its files, or run all by: pytest {file}."
        raise SourceError("replay", "a folder, not a saved case", f"found {str(path)!r}", hint)
    if not file.exists():
        there = [f.name for f in file.parent.glob(f"*{SUFFIX}")]
        raise SourceError("replay", "no such file", f"found {str(path)!r}", nearest(file.name, there))
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PlanError("replay", f"not a case in {str(path)!r}", "text: not UTF-8", AGAIN) from error


# parts


@dataclass(frozen=True)
class _WrittenTable:
    """A table that the plan looks up: its columns as DDL, its rows as encoded values."""

    columns: str
    rows: list[Any]


@dataclass(frozen=True)
class _Document:
    """The parts of a file, which older files need not have where they have a default; ``says`` and ``calls`` are for a reader."""

    format: int
    how: Execution
    cut: tuple[int, ...]
    until: int | None
    arrival: list[Any]
    static: dict[str, _WrittenTable]
    plan: Any
    says: list[str] = field(default_factory=list)
    clock: tuple[int, ...] = Case.clock
    calls: list[str] = field(default_factory=list)
    may_fail: bool = True


def _tuple(value: Any) -> Any:
    """Return a tuple in the place of the list that JSON has for it."""
    return tuple(value) if isinstance(value, list) else value


_ITEM = ("kind", "start", "end", "new_end", "payload")
_ERRORS = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
_TUPLES = (tuple[int, ...], tuple[int | None, ...], tuple[str, ...])
_TYPES = dacite.Config(type_hooks={**plain_hooks(), **dict.fromkeys(_TUPLES, _tuple)}, strict=True)


def _plan(part: Any) -> Node:
    """Return the plan that a part of a file is, of a list the root over its plans."""
    return Results(tuple(map(_plan, part))) if isinstance(part, list) else plan_from_json(part)


def _item(entry: Any, sources: Mapping[str, Source]) -> tuple[str, Item]:
    """Return the name of an item's source and the item; raise an error for what is no item of the source."""
    name, *parts = entry
    source = sources[name]
    parts[-1] = _decoded(parts[-1])
    item = dacite.from_dict(Item, dict(zip(_ITEM, parts, strict=True)), _TYPES)
    table_of(source, [row(source, item)])
    beside = {name: value for name, value in item.payload.items() if name in source.beside}
    payload = {name: value for name, value in item.payload.items() if name not in beside}
    return name, replace(item, payload=payload, beside=beside)


# values


def _encoded(value: Any) -> Any:
    """Return a value of a payload in the form that JSON has for it."""
    if isinstance(value, Mapping):
        return {"struct": [[name, _encoded(v)] for name, v in value.items()]}
    if isinstance(value, tuple):
        # an entry of a map
        return {"pair": [_encoded(v) for v in value]}
    return [_encoded(v) for v in value] if isinstance(value, list) else encoded(value)


def _decoded(value: Any) -> Any:
    """Return the value that :func:`_encoded` wrote; raise an error of _ERRORS for others."""
    match value:
        case {"struct": list(parts)}:
            return {name: _decoded(v) for name, v in parts}
        case {"pair": [_, _] as pair}:
            return tuple(_decoded(v) for v in pair)
        case list():
            return [_decoded(v) for v in value]
    return decoded(value)


def _rows(rows: pa.Table) -> list[Any]:
    return [_encoded(list(row)) for row in zip(*map(plain_values, rows.columns), strict=True)]


def _ddl(rows: pa.Table) -> str:
    return ", ".join(f"`{f.name}` {from_arrow_type(f.type).simpleString()}" for f in rows.schema)
