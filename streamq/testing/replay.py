"""Failing cases as files: written down as JSON, read back, and run again the way they failed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from streamq.choices import OutputForm
from streamq.compiler.constants_json import decoded, encoded
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.rules import RULES
from streamq.errors import PlanError, SourceError, StreamqError, nearest, sentence
from streamq.operators import JoinTable, Source
from streamq.plan.node import Node, nodes
from streamq.runtime.event import CTI
from streamq.testing.arrival import Item, table_of
from streamq.testing.case import Arrival, Case, Meant
from streamq.testing.execution import BATCH, LITERAL, SPARK, STARTS, STREAM, Execution
from streamq.testing.oracle import EVALUATED, TRANSLATED
from streamq.testing.python_values import plain_values
from streamq.testing.sources.room import room_of, row
from streamq.testing.table import table
from streamq.testing.trial import check
from streamq.time import INFINITY, MINUS_INFINITY

SUFFIX = ".streamq.json"
"""How the names of such files end; the pytest plugin collects them as tests."""

FORMAT = 1
BACKENDS = (LITERAL, STREAM, BATCH, SPARK)
OUTPUTS = (OutputForm.FINAL, OutputForm.CHANGELOG)
WAYS = (TRANSLATED, EVALUATED)

PARTS = ("format", "how", "cut", "until", "arrival", "static", "plan")
"""The parts of a file; besides, ``says`` is for a reader, and older files have no ``expressions``.

``meant`` has the plan that the verbs mean and how they were called, where they have made another plan.
"""

OPTIONAL = ("says", "expressions", "meant")
"""Parts that a file may be without."""

AGAIN = "Delete it, or save the case again."


def case_to_json(case: Case, how: Execution, says: str = "", expressions: str = EVALUATED) -> str:
    """A case and the way it is run as text, deterministic; ``says``: what went wrong, for a reader.

    ``expressions``: how the oracle takes them when the case is run again, as :func:`streamq.testing.oracle.oracle` has it.
    """
    items = [
        [name, item.kind, item.start, item.end, item.new_end, _encoded(dict(item.payload))]
        for name, item in case.arrival
    ]
    static = {
        name: {
            "columns": _ddl(rows),
            "rows": _rows(rows),
        }
        for name, rows in case.static.items()
    }
    document = {
        "format": FORMAT,
        "says": says.splitlines(),
        "how": asdict(how),
        "expressions": expressions,
        "cut": case.cut,
        "until": case.until,
    }
    parts = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in document.items()]
    lines = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in items)
    parts.append(f'"arrival": [\n  {lines}\n]' if items else '"arrival": []')
    parts.append(f'"static": {json.dumps(static, ensure_ascii=False)}')
    parts.append(f'"plan": {json.dumps(plan_to_json(case.plan), ensure_ascii=False)}')
    if case.meant is not None:
        meant = {"text": case.meant.text.splitlines(), "plan": plan_to_json(case.meant.plan)}
        parts.append(f'"meant": {json.dumps(meant, ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def case_from_json(text: str, file: str = "") -> tuple[Case, Execution, str | None]:
    """What :func:`case_to_json` wrote: the case, how it is run, how the oracle takes expressions (None: not said).

    Every part is checked. Raises PlanError for other text, naming the part, what is wrong with it, and the ``file``.
    """
    try:
        document = _document(text)
        how = _how(document["how"])
        plan = _plan("plan", document["plan"])
        meant = _meant(document.get("meant"))
        arrival = _arrival(document["arrival"], plan)
        cut = _cut(document["cut"], len(arrival))
        until = document["until"]
        if until is not None and not _is_instant(until):
            _wrong("until", f"{until!r} is no number of ticks")
        static = _static(document["static"], plan)
        expressions = document.get("expressions")
        if expressions is not None and expressions not in WAYS:
            _wrong("expressions", _none_of(expressions, WAYS))
    except _Wrong as error:
        where = f"not a case in {file!r}" if file else "not a case"
        raise PlanError(sentence("replay", where, str(error), AGAIN)) from error.__cause__
    return Case(plan, arrival, cut, until, static, meant), how, expressions


def replay(path: str | Path) -> None:
    """Run a saved case again as it was run; raises VerificationFailed where it still fails.

    Raises SourceError where there is no such file, and PlanError for one that is no case, naming the part that is wrong.

    ::

        t.replay("tests/replays/late_left_piece.streamq.json")
    """
    case, how, expressions = case_from_json(_text(path), str(path))
    if expressions is not None:
        check(case, [how], expressions=expressions)
        return
    try:
        check(case, [how])
    except PlanError:
        # a function that the oracle does not translate is evaluated as itself, as verify has it
        check(case, [how], expressions=EVALUATED)


def saved(case: Case, how: Execution, says: str, folder: str | Path, name: str, expressions: str = EVALUATED) -> Path:
    """The file, named ``name``, into which a case has been written; one that was there is overwritten."""
    path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-')}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(case_to_json(case, how, says, expressions), encoding="utf-8")
    return path


def _text(path: Any) -> str:
    if not isinstance(path, str | Path):
        hint = "A failure that was saved has its path in failed.saved."
        raise PlanError(sentence("replay", "not the path of a saved case", f"found {type(path).__name__}", hint))
    file = Path(path)
    if file.is_dir():
        hint = f"Give one of its files, or run all by: pytest {file}."
        raise SourceError(sentence("replay", "a folder, not a saved case", f"found {str(path)!r}", hint))
    if not file.exists():
        there = [f.name for f in file.parent.glob(f"*{SUFFIX}")]
        raise SourceError(sentence("replay", "no such file", f"found {str(path)!r}", nearest(file.name, there)))
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PlanError(sentence("replay", f"not a case in {str(path)!r}", "text: not UTF-8", AGAIN)) from error


# parts


class _Wrong(Exception):
    """What is wrong with a part of a file."""


def _wrong(part: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise _Wrong(f"{part}: {what}") from cause


def _none_of(word: Any, words: Sequence[str]) -> str:
    return f"{word!r} is none of {', '.join(map(repr, words))}"


def _brief(error: Exception) -> str:
    """What an error says, without its verb and its hints."""
    first = str(error).splitlines()[0].partition(". ")[0].rstrip(".")
    return first.partition(": ")[2] if isinstance(error, StreamqError) else first


def _is_instant(value: Any) -> bool:
    return type(value) is int and MINUS_INFINITY <= value <= INFINITY


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        _wrong("text", f"no JSON ({error})", error)
    if not isinstance(document, dict):
        _wrong("text", f"found {type(document).__name__}, not an object of parts")
    if "format" in document and document["format"] != FORMAT:
        _wrong("format", f"found {document['format']!r}, this streamq reads {FORMAT}")
    for name in document.keys() - {*PARTS, *OPTIONAL}:
        _wrong(name, f"no such part. {nearest(name, [*PARTS, *OPTIONAL])}".rstrip(". "))
    for name in PARTS:
        if name not in document:
            _wrong(name, "is not there")
    return document


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


HOW: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "backend": (lambda value: value in BACKENDS, f"one of {', '.join(BACKENDS)}"),
    "output": (lambda value: value in OUTPUTS, f"one of {', '.join(OUTPUTS)}"),
    "rules": (lambda value: value is None or _list_of(lambda v: isinstance(v, str))(value), "null or a list of names"),
    "buckets": (_whole(1), "a number from 1"),
    "restart": (_flag, "true or false"),
    "slack": (_list_of(lambda v: v is None or _is_instant(v)), "a list of numbers and nulls"),
    "watch": (_flag, "true or false"),
    "blocks": (_list_of(lambda v: v is None or _is_instant(v)), "a list of numbers and nulls"),
    "remember": (_list_of(lambda v: v is None or _is_instant(v)), "a list of numbers and nulls"),
    "started": (lambda value: value in STARTS, f"one of {', '.join(STARTS)}"),
    "zone": (lambda value: isinstance(value, str), "a text"),
    "silent": (_flag, "true or false"),
    "ctis": (_flag, "true or false"),
    "early": (_flag, "true or false"),
    "late_output": (_flag, "true or false"),
}
"""The parts of an Execution: what fits, and how that is called."""

ADDED = {"blocks", "remember", "started", "zone", "silent", "ctis", "early", "late_output"}
"""The parts that older files have not."""


def _how(part: Any) -> Execution:
    if not isinstance(part, dict):
        _wrong("how", f"found {part!r}, not an object of {', '.join(HOW)}")
    for name in part:
        if name not in HOW:
            _wrong("how", f"no part {name!r}; there are: {', '.join(HOW)}")
    for name, (fits, wanted) in HOW.items():
        if name not in part and name not in ADDED:
            _wrong("how", f"{name} is not there")
        if name in part and not fits(part[name]):
            _wrong("how", f"{name} is {wanted}, found {part[name]!r}")
    gone = set(part["rules"] or ()) - {rule.name for rule in RULES}
    if gone:
        _wrong("how", f"rules that do not exist: {', '.join(sorted(gone))}")
    written: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in part.items()}
    return Execution(**written)


def _plan(name: str, part: Any) -> Node:
    try:
        return plan_from_json(part)
    except StreamqError as error:
        _wrong(name, _brief(error), error)


def _meant(part: Any) -> Meant | None:
    match part:
        case None:
            return None
        case {"text": list(lines), "plan": plan} if all(isinstance(line, str) for line in lines):
            return Meant(_plan("meant", plan), "\n".join(lines))
    _wrong("meant", "is not an object of text and plan")


def _cut(lengths: Any, many: int) -> tuple[int, ...]:
    if not _list_of(_whole(0))(lengths):
        _wrong("cut", f"found {lengths!r}, not a list of the lengths of micro-batches")
    if sum(lengths) != many:
        _wrong("cut", f"micro-batches of {sum(lengths)} items, the arrival has {many}")
    return tuple(lengths)


def _arrival(part: Any, plan: Node) -> Arrival:
    if not isinstance(part, list):
        _wrong("arrival", f"found {part!r}, not a list of items")
    sources = {node.table: node for node in nodes(plan) if isinstance(node, Source)}
    return tuple(_item(f"arrival, item {i}", entry, sources) for i, entry in enumerate(part, start=1))


def _item(part: str, entry: Any, sources: Mapping[str, Source]) -> tuple[str, Item]:
    if not isinstance(entry, list) or len(entry) != 6:
        _wrong(part, f"found {entry!r}, not [source, kind, start, end, new_end, payload]")
    name, kind, start, end, new_end, payload = entry
    if not isinstance(name, str) or name not in sources:
        _wrong(part, f"no source {name!r} in the plan; there are: {', '.join(sources)}")
    source = sources[name]
    kinds = room_of(source).items
    if kind not in kinds:
        _wrong(part, f"the kind is {kind!r}, which source {name!r} has not; it has: {', '.join(kinds)}")
    if not all(time is None or _is_instant(time) for time in (start, end, new_end)):
        _wrong(part, f"times are numbers of ticks, found {[start, end, new_end]!r}")
    item = Item(kind, start, end, new_end, _payload(part, payload))
    own = set(row(source, Item(kind, start)))
    wanted = [] if kind == CTI else [f.name for f in source.columns if f.name not in own]
    if kind != CTI and set(item.payload) != set(wanted):
        _wrong(part, f"the payload has {_listed(item.payload)}, the source {_listed(wanted)}")
    try:
        table_of(source, [row(source, item)])
    except (PlanError, pa.ArrowException, OverflowError) as error:
        _wrong(part, _brief(error), error)
    return name, item


def _listed(names: Any) -> str:
    return f"columns {', '.join(map(repr, names))}" if names else "no columns"


def _payload(part: str, encoded_payload: Any) -> dict[str, Any]:
    match encoded_payload:
        case {"struct": [*_]}:
            value = _value(part, encoded_payload)
            assert isinstance(value, dict)
            return value
    _wrong(part, f"the payload is {encoded_payload!r}, not {{'struct': [[column, value], ...]}}")


def _static(part: Any, plan: Node) -> dict[str, pa.Table]:
    if not isinstance(part, dict):
        _wrong("static", f"found {part!r}, not tables by name")
    tables = {}
    for name, entry in part.items():
        match entry:
            case {"columns": str(columns), "rows": [*rows]}:
                pass
            case _:
                _wrong("static", f"table {name!r} is not an object of columns and rows")
        try:
            tables[name] = table(columns, [_value("static", row) for row in rows])
        except StreamqError as error:
            _wrong("static", f"table {name!r}: {_brief(error)}", error)
    for node in nodes(plan):
        if isinstance(node, JoinTable):
            if node.table not in tables:
                _wrong("static", f"no table {node.table!r}, which the plan looks up")
            for f in node.columns:
                if f.name not in tables[node.table].column_names:
                    _wrong("static", f"table {node.table!r} has no column {f.name!r}, which the plan reads")
    return tables


def _value(part: str, encoded_value: Any) -> Any:
    try:
        return _decoded(encoded_value)
    except (PlanError, ValueError, TypeError, RecursionError) as error:
        _wrong(part, f"no value: {encoded_value!r}", error)


# values


def _encoded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {"struct": [[name, _encoded(v)] for name, v in value.items()]}
    if isinstance(value, tuple):
        # an entry of a map
        return {"pair": [_encoded(v) for v in value]}
    return [_encoded(v) for v in value] if isinstance(value, list) else encoded(value)


def _decoded(value: Any) -> Any:
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


__all__ = ["SUFFIX", "case_from_json", "case_to_json", "replay", "saved"]
