"""Failing cases as files: written down as JSON, read back, and run again the way they failed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from streamq.compiler.plan_json import decoded, encoded, plan_from_json, plan_to_json
from streamq.compiler.rules import RULES
from streamq.errors import PlanError, sentence
from streamq.testing.arrival import Item
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.oracle import EVALUATED
from streamq.testing.table import table

SUFFIX = ".streamq.json"
"""How the names of such files end; the pytest plugin collects them as tests."""

FORMAT = 1


def case_to_json(case: Case, how: Execution, says: str = "") -> str:
    """A case and the way it is run as text, deterministic; ``says``: what went wrong, for a reader."""
    items = [
        [name, item.kind, item.start, item.end, item.new_end, _encoded(dict(item.payload))]
        for name, item in case.arrival
    ]
    static = {
        name: {"columns": _ddl(rows), "rows": [_encoded(tuple(row.values())) for row in rows.to_pylist()]}
        for name, rows in case.static.items()
    }
    document = {"format": FORMAT, "says": says.splitlines(), "how": asdict(how), "cut": case.cut, "until": case.until}
    parts = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in document.items()]
    lines = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in items)
    parts.append(f'"arrival": [\n  {lines}\n]' if items else '"arrival": []')
    parts.append(f'"static": {json.dumps(static, ensure_ascii=False)}')
    parts.append(f'"plan": {json.dumps(plan_to_json(case.plan), ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def case_from_json(text: str) -> tuple[Case, Execution]:
    """What :func:`case_to_json` wrote. Raises PlanError for other text, and for rules that there are no longer."""
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise PlanError(sentence("replay", "a case of another format", f"found {found['format']!r}, not {FORMAT}"))
        arrival = tuple(
            (name, Item(kind, start, end, new_end, _decoded(payload)))
            for name, kind, start, end, new_end, payload in found["arrival"]
        )
        static = {
            name: table(given["columns"], [_decoded(row) for row in given["rows"]])
            for name, given in found["static"].items()
        }
        written: dict[str, Any] = found["how"]
        how = Execution(**{n: _tupled(v) for n, v in written.items()})
        case = Case(plan_from_json(found["plan"]), arrival, tuple(found["cut"]), found["until"], static)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(sentence("replay", "not a case", f"{type(error).__name__}: {error}")) from error
    gone = set(how.rules or ()) - {rule.name for rule in RULES}
    if gone:
        raise PlanError(sentence("replay", "rules that do not exist", f"found {', '.join(sorted(gone))}"))
    return case, how


def replay(path: str | Path) -> None:
    """Run a saved case again as it was run; raises VerificationFailed where it still fails.

    ::

        t.replay("tests/replays/late_left_piece.streamq.json")
    """
    from streamq.testing.verify import check

    case, how = case_from_json(Path(path).read_text(encoding="utf-8"))
    try:
        check(case, [how])
    except PlanError:
        # a function that the oracle does not translate is evaluated as itself, as verify has it
        check(case, [how], expressions=EVALUATED)


def saved(case: Case, how: Execution, says: str, folder: str | Path, name: str) -> Path:
    """The file, named ``name``, into which a case has been written; one that was there is overwritten."""
    path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-')}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(case_to_json(case, how, says), encoding="utf-8")
    return path


def _encoded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {"struct": [[name, _encoded(v)] for name, v in value.items()]}
    return [_encoded(v) for v in value] if isinstance(value, list | tuple) else encoded(value)


def _decoded(value: Any) -> Any:
    match value:
        case {"struct": list(parts)}:
            return {name: _decoded(v) for name, v in parts}
        case list():
            return tuple(_decoded(v) for v in value)
    return decoded(value)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _ddl(rows: pa.Table) -> str:
    return ", ".join(f"`{f.name}` {from_arrow_type(f.type).simpleString()}" for f in rows.schema)


__all__ = ["SUFFIX", "case_from_json", "case_to_json", "replay", "saved"]
