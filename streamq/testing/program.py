"""Write a plan as a program: the Python text that a user would write to build the query, ready to run."""

from __future__ import annotations

import builtins
import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import streamq as sq
from streamq.compiler.plan_json import plan_to_json, to_text
from streamq.errors import PlanError, sentence
from streamq.json_reading import table_readers
from streamq.keywords import check_keywords
from streamq.operators import JoinTable, Source
from streamq.plan.node import Node, nodes, number_sources
from streamq.plan.schema import Field
from streamq.plan.tree import fold
from streamq.runtime.arrow_types import arrow_type
from streamq.sources.intervals import Intervals
from streamq.stream import Stream
from streamq.testing.program_text import WIDTH, call, is_name, listed, string, value
from streamq.testing.program_verbs import Names, inputs, takes_all_by_name, verbs
from streamq.testing.python_values import plain_values
from streamq.testing.table import table

if TYPE_CHECKING:
    import pyarrow as pa

TESTING = "from streamq import testing as t"
"""The import that a program's tables need."""

_IMPORTS = {
    "dt": "import datetime as dt", "zoneinfo": "import zoneinfo", "Decimal": "from decimal import Decimal",
}  # fmt: skip
_NAMES = ("col", "lit", "when")
_RESERVED = frozenset({"sq", "t", "f", "l", "r", "text", "tables", *_IMPORTS, *_NAMES, *dir(builtins)})
SHORT = 60
"""The greatest length, in characters, of a chain of verbs that is written on one line."""
_LONGEST_CHAIN = 30
"""The greatest number of verbs in a chain; longer chains are split and their parts named."""


@check_keywords
def program(plan: Node, tables: Mapping[str, pa.Table], result: str = "q", last: str = "") -> str:
    """Return the text of a program that builds a query with the public API, over literal tables, and names it ``result``.

    ``tables`` are the rows of the sources and of static tables by name, as :func:`streamq.testing.oracle.oracle` takes
    them; others are ignored. ``last`` are statements to append. Streams used twice get a name; other verbs are chained. The query
    that the program builds has the plan's digest (of :func:`number_sources` plans). Parts of it that no public verb builds are
    read from JSON by ``sq.from_json``. Raises PlanError if a table is missing, and for a pyspark Column.

    >>> import streamq as sq
    >>> from streamq.testing.table import table
    >>> trips = table("at bigint, zone string, fare double", [(1, "a", 3), (4, None, 8.5)])
    >>> q = sq.points(trips, time="at", name="trips").where(sq.col("fare") > 5)
    >>> print(program(q.group_by("zone").tumbling_window(5).select(n=sq.count()).plan, q.tables))
    import streamq as sq
    from streamq import col
    from streamq import testing as t
    <BLANKLINE>
    trips = sq.points(
        t.table("at bigint, zone string, fare double", [(1, "a", 3.0), (4, None, 8.5)]),
        time="at",
        name="trips",
    )
    q = (
        trips.where(col("fare") > 5)
        .group_by("zone")
        .tumbling_window(5)
        .select(n=sq.count())
    )
    """
    numbered_plan, names = number_sources(plan)
    tables_by_number = {names[name]: rows for name, rows in tables.items() if name in names}
    readers = table_readers(numbered_plan)
    for name in readers:
        if name not in tables_by_number:
            there = ", ".join(tables_by_number) or "none"
            raise PlanError(sentence("program", f"no table {name!r}", f"there are: {there}"))
    fields = {name: _fields(nodes_) for name, nodes_ in readers.items()}
    steps = _steps(numbered_plan, readers, fields)
    rows = {name: _table(fields[name], tables_by_number[name]) for name in readers}
    body = "\n".join([_body(steps, rows, result), *([last] if last else [])])
    return f"{_head(body)}\n\n{body}\n"


# tables


def _fields(readers: Iterable[Source | JoinTable]) -> tuple[Field, ...]:
    """Return the columns of a table that is read by all these nodes."""
    return tuple({f.name: f for reader in readers for f in reader.columns}.values())


def _table(fields: Sequence[Field], table: pa.Table | None = None) -> str:
    """Return a table as the text ``t.table(...)``; without ``table``, a table without rows."""
    shown = [f"{_quoted(f.name)} {f.type.simpleString()}" for f in fields]
    rows = [] if table is None else _rows(fields, table)
    return call("t.table", [string(", ".join(shown)), listed(rows)])


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _rows(fields: Sequence[Field], table: pa.Table) -> list[str]:
    """Return each row of a table as the text of a tuple of the ``fields`` in their order, on several lines if it is long."""
    columns = [_values(table.column(f.name).cast(arrow_type(f.type))) for f in fields]
    rows = []
    for row in zip(*columns, strict=True):
        line = value(tuple(row))
        rows.append(line if len(line) <= WIDTH else listed([value(v) for v in row], "()"))
    return rows


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values in Python.

    Instants are all returned as ticks if each is within a second of the epoch, as generated ones are, or if one is beyond the
    range of Python's datetime.
    """
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return plain_values(column)
    ticks = column.cast(pa.int64()).to_pylist()
    if all(n is None or abs(n) < 1_000_000 for n in ticks):
        return ticks
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if column.type.tz else None)
    try:
        return [None if n is None else epoch + dt.timedelta(microseconds=n) for n in ticks]
    except OverflowError:
        # beyond the range of Python's datetime
        return ticks


# steps


@dataclass(frozen=True)
class Step:
    """A node of the plan that the program builds from other steps.

    ``by``: VERBS: by calling verbs; STREAM: from the node's JSON, over the streams of its inputs; TABLES: from the JSON of the
    node and all nodes below it, over tables.
    """

    node: Node
    inputs: tuple[Node, ...]
    by: str

    @property
    def is_call(self) -> bool:
        """True if the step is written as a function call that names all its inputs, and not as a chain on the first."""
        return self.by == STREAM or takes_all_by_name(self.node)


VERBS, STREAM, TABLES = "verbs", "stream", "tables"


def _steps(plan: Node, readers: Mapping[str, Sequence[Node]], fields: Mapping[str, tuple[Field, ...]]) -> list[Step]:
    """Return the steps of the program, inputs first; the last one builds the plan.

    It is the only step, from JSON, where tables without names make it impossible to build parts apart. ``readers`` are the nodes
    that read each table, ``fields`` its columns.
    """
    # a table without a name gets a new number wherever it is passed, so two nodes would no longer read one source
    if any(name.startswith("#") and len(steps) > 1 for name, steps in readers.items()):
        return [Step(plan, (), TABLES)]
    empty = {name: _table(steps) for name, steps in fields.items()}
    steps: dict[str, Step] = {}
    stack = [plan]
    while stack:
        node = stack.pop()
        if node.digest not in steps:
            streams = inputs(node)
            by = next((by for by in (VERBS, STREAM) if _builds(by, node, streams, empty)), TABLES)
            steps[node.digest] = Step(node, () if by == TABLES else streams, by)
            stack.extend(steps[node.digest].inputs)
    if any(name.startswith("#") for name in readers) and any(step.by == TABLES for step in steps.values()):
        return [Step(plan, (), TABLES)]
    return [steps[n.digest] for n in nodes(plan) if n.digest in steps]


def _builds(by: str, node: Node, streams: Sequence[Node], tables: Names) -> bool:
    """True if a step that is written the way ``by`` builds the node; its text is evaluated over streams without rows."""
    names = {s.digest: f"x{i}" for i, s in enumerate(streams)}
    try:
        text = _over(Step(node, tuple(streams), by), names, tables)
        plan = eval(text, _namespace() | {names[s.digest]: Stream(s, {}) for s in streams}).plan
    except Exception:
        # any error means that this way does not build the node
        return False
    if isinstance(node, Source | JoinTable) and node.table.startswith("#"):
        plan = replace(plan, table=node.table)
    return plan.digest == node.digest


def _over(step: Step, names: Names, tables: Names) -> str:
    """Return the text of one step over the names of its inputs."""
    if step.by == VERBS:
        text = "".join(verbs(step.node, names, tables))
        return f"{names[step.inputs[0].digest]}{text}" if step.inputs and not step.is_call else text
    if step.by == TABLES:
        return _from_json(step.node, {name: tables[name] for name in table_readers(step.node)})
    streams = {_stub(names[s.digest], step.node): names[s.digest] for s in step.inputs}
    stubs = {s.digest: _stub_source(_stub(names[s.digest], step.node), s) for s in step.inputs}

    def visit(part: Node, below: list[Node]) -> Node:
        return stubs.get(part.digest) or (part.with_children(below) if below else part)

    whole = fold(step.node, visit)
    return _from_json(whole, streams | {name: tables[name] for name in table_readers(whole) if name not in streams})


def _stub(name: str, node: Node) -> str:
    """Return the name of a stream in the JSON of a node over it: the stream's own, unless the node's table has that name."""
    return f"{name}_" if isinstance(node, JoinTable) and node.table == name else name


def _stub_source(name: str, node: Node) -> Node:
    """Return a source with the payload and the time axis of a stream."""
    time = node.schema.axis_type
    return Intervals(name, (Field("start", time), Field("end", time), *node.schema.fields), "start", "end")


def _from_json(node: Node, bindings: Mapping[str, str]) -> str:
    """Return a call of ``sq.from_json`` that reads the node over streams and tables, by their names in ``bindings``."""
    text = f'r"""\n{to_text(plan_to_json(node))}"""'
    if all(is_name(name) and name not in ("text", "tables") for name in bindings):
        return call("sq.from_json", [text, *(f"{name}={shown}" for name, shown in bindings.items())])
    return call("sq.from_json", [text, "{" + ", ".join(f"{string(n)}: {shown}" for n, shown in bindings.items()) + "}"])


def _namespace() -> dict[str, Any]:
    """Return all names that a program may import."""
    import zoneinfo
    from decimal import Decimal
    from types import SimpleNamespace

    from pyspark.sql import types

    imported = {"sq": sq, "f": sq.functions, "t": SimpleNamespace(table=table), **{n: getattr(sq, n) for n in _NAMES}}
    return {**vars(types), **imported, "dt": dt, "zoneinfo": zoneinfo, "Decimal": Decimal}


# text


def _body(steps: Sequence[Step], rows: Mapping[str, str], result: str) -> str:
    """Return the statements of the program: tables that are read twice, then each step that has a name.

    ``rows`` are the texts of the tables by name; ``result`` is the name of the last step.
    """
    used = Counter(name for step in steps for name in _tables_of(step))
    named_steps = _named(steps)
    names: dict[str, str] = {}
    used_names = {result, *_RESERVED}
    for step in steps:
        if step.node.digest in named_steps:
            names[step.node.digest] = result if step is steps[-1] else _name(step, used_names)
    lines: list[str] = []
    texts: dict[str, str] = {}
    for name, count in used.items():
        if count > 1:
            texts[name] = _free(f"{name if is_name(name) else 'table'}_rows", used_names)
            lines.append(f"{texts[name]} = {rows[name]}")
        else:
            texts[name] = rows[name]
    by_digest = {step.node.digest: step for step in steps}
    for step in steps:
        if step.node.digest in names:
            lines.append(_statement(step, by_digest, names, texts))
    return "\n".join(lines)


def _tables_of(step: Step) -> list[str]:
    """Return the names of the tables that the text of a step passes."""
    if step.by == TABLES:
        return list(table_readers(step.node))
    return [step.node.table] if isinstance(step.node, Source | JoinTable) else []


def _named(steps: Sequence[Step]) -> set[str]:
    """Return the digests of the steps that get a name.

    These are sources, steps used twice or as the second input of another, function calls and their inputs, the ends of long
    chains, and the last step.
    """
    uses = Counter(s.digest for step in steps for s in step.inputs)
    digests = {step.node.digest for step in steps if not step.inputs or uses[step.node.digest] > 1}
    digests |= {s.digest for step in steps for s in step.inputs[0 if step.is_call else 1 :]}
    digests |= {step.node.digest for step in steps if step.is_call} | {steps[-1].node.digest}
    length: dict[str, int] = {}
    for step in steps:
        before = 0 if not step.inputs or step.inputs[0].digest in digests else length[step.inputs[0].digest]
        length[step.node.digest] = before + 1
        if before + 1 >= _LONGEST_CHAIN:
            digests.add(step.node.digest)
    return digests


def _name(step: Step, used_names: set[str]) -> str:
    """Return an unused name for a step: a source's table or kind, else ``s``; add it to ``used_names``."""
    own = step.node.table if isinstance(step.node, Source) else ""
    return _free(
        own if is_name(own) else step.node.title.split()[-1] if isinstance(step.node, Source) else "s", used_names
    )


def _free(name: str, used_names: set[str]) -> str:
    """Return a name that is not used, with the least number from 2 on appended if necessary, and add it to ``used_names``."""
    free_name, n = name, 1
    while free_name in used_names:
        n += 1
        free_name = f"{name}{n}"
    used_names.add(free_name)
    return free_name


def _statement(step: Step, steps: Mapping[str, Step], names: Names, tables: Names) -> str:
    """Return the assignment that builds a named step, with the unnamed steps before it as one chain of verbs."""
    name = names[step.node.digest]
    if step.by != VERBS or not step.inputs or step.is_call:
        return f"{name} = {_over(step, names, tables)}"
    chain = verbs(step.node, names, tables)
    while (first := step.inputs[0].digest) not in names:
        step = steps[first]
        chain = verbs(step.node, names, tables) + chain
    chain[0] = names[first] + chain[0]
    line = f"{name} = {''.join(chain)}"
    if len(chain) == 1 or (len(line) <= SHORT and "\n" not in line):
        return line
    return f"{name} = (\n" + "\n".join("    " + part.replace("\n", "\n    ") for part in chain) + "\n)"


def _head(body: str) -> str:
    """Return the import of streamq, and those of the names that the statements use."""
    code = re.sub(r'r"""\n.*?\n"""', "", body, flags=re.DOTALL)
    code = re.sub(r'"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])*'", '""', code)

    def uses(name: str) -> bool:
        return re.search(rf"(?<![\w.]){name}\b(?!=[^=])", code) is not None

    lines = [line for name, line in _IMPORTS.items() if uses(name)]
    types = sorted(n for n in set(re.findall(r"(?<![\w.])([A-Z]\w*Type|StructField)\(", code)))
    third = [f"from pyspark.sql.types import {', '.join(types)}"] if types else []
    ours = [n for n in _NAMES if uses(n)] + (["functions as f"] if uses("f") else [])
    own = ["import streamq as sq", *([f"from streamq import {', '.join(ours)}"] if ours else [])]
    return "\n".join(
        ["\n".join(part) + "\n" for part in (lines, third) if part] + own + ([TESTING] if uses("t") else [])
    )


__all__ = ["TESTING", "program"]
