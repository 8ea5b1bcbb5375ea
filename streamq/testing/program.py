"""Write a query as a program: the calls that made it, as a user would write them, over literal tables, ready to run."""

from __future__ import annotations

import builtins
import datetime as dt
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamq.compiler.plan_json import plan_to_json, to_text
from streamq.errors import CallResult, MakingCall, PlanError, check_keywords
from streamq.operators import JoinTable, Source
from streamq.operators.grouped_stream import Group, GroupedStream
from streamq.plan.expr import Col, Expr, as_expr
from streamq.plan.node import Node, nodes, number_sources, rename_tables
from streamq.plan.passes import expression_nodes
from streamq.plan.schema import Field
from streamq.reading import table_readers
from streamq.run.batch.answers import read_connectors
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.kernel import DROP
from streamq.stream import Stream
from streamq.testing.arrival import plain_values
from streamq.testing.program_text import (
    WIDTH,
    UnwritableCode,
    call,
    expression,
    free_name,
    is_name,
    listed,
    module_name,
    string,
    value,
)
from streamq.testing.progress_policies import room_of as room_of_progress
from streamq.testing.sources.room import room_of as room_of_source
from streamq.user_code.repository import called_modules
from streamq.user_code.udo import StatefulCall

TESTING = "from streamq import testing as t"
"""The import that a program's tables need."""

_IMPORTS = {
    "dt": "import datetime as dt", "zoneinfo": "import zoneinfo", "Decimal": "from decimal import Decimal",
}  # fmt: skip
_NAMES = ("col", "lit", "when")
SHORT = 60
"""The greatest length, in characters, of a chain of calls on one line, and of one within a call of another stream."""
_LONGEST_CHAIN = 30
"""The greatest number of verbs in a chain; longer chains are split and their parts named."""


@check_keywords
def program(query: Stream, tables: Mapping[str, pa.Table] | None = None) -> str:
    """Return the text of a program that builds a query with the public API, over literal tables, and names it ``q``.

    The program makes the calls that made the query. ``tables``: the rows of sources and static tables by name (None: those of the
    query). Streams used twice get a name; other verbs are chained. The query that the program builds has the plan's digest (of
    :func:`number_sources` plans). What no call made, or a call with an argument that has no text, is read from JSON by
    ``sq.from_json``. Modules are looked up by their names. Raises PlanError if a table is missing, and for a
    pyspark Column.

    >>> import streamq as sq
    >>> from streamq.testing.table import table
    >>> trips = table("at bigint, zone string, fare double", [(1, "a", 3), (4, None, 8.5)])
    >>> q = sq.points(trips, time="at", name="trips").where(sq.col("fare") > 5)
    >>> print(program(q.group_by("zone").tumbling_window(5).select(n=sq.count())))
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
    plan, names = number_sources(query.plan)
    read = read_connectors(query.tables if tables is None else tables, "program")
    rows = {names[name]: table for name, table in read.items() if name in names}
    return whole_program({"q": plan}, rows, statements({"q": query}))


def whole_program(
    plans: Mapping[str, Node], tables: Mapping[str, pa.Table], calls: str, last: Sequence[str] = ()
) -> str:
    """Return a program: imports, modules, the sources of plans over their tables, then ``calls``, then the lines ``last``.

    ``plans`` have numbered sources and are given by the names of the queries; without ``calls`` these are read from JSON.
    """
    variables = variables_of(list(plans.values()))
    for name in variables:
        if name not in tables:
            there = ", ".join(tables) or "none"
            raise PlanError("program", f"no table {name!r}", f"there are: {there}")
    nodes_of = {
        name: [node for plan in plans.values() for node in table_readers(plan).get(name, [])] for name in variables
    }
    texts = {name: table_text(readers, tables[name]) for name, readers in nodes_of.items()}
    body: list[str] = []
    if calls:
        looked_up = {module.name: module_name(module) for plan in plans.values() for module in called_modules(plan)}
        for name, shown in looked_up.items():
            body.append(f"{shown} = sq.modules.get({string(name)})  # your module; run its code first")
        # a source that follows another comes after it
        for name in sorted(
            variables, key=lambda name: any(isinstance(n, Source) and n.policy.progress.leader for n in nodes_of[name])
        ):
            node = nodes_of[name][0]
            text = source_text(node, texts[name], variables) if isinstance(node, Source) else texts[name]
            body.append(f"{variables[name]} = {text}")
        body.append(calls)
    else:
        body += [
            f"{query} = {_from_json(plan, {n: texts[n] for n in table_readers(plan)})}" for query, plan in plans.items()
        ]
    statements = "\n".join([*body, *last])
    return f"{_head(statements)}\n\n{statements}\n"


def statements(queries: Mapping[str, Stream]) -> str:
    """Return the statements that make the queries by their calls, over sources and tables under their :func:`variables`.

    It is empty if that cannot be written: several sources, or a source and a static table, read one table.
    """
    readers: dict[str, list[Source | JoinTable]] = {}
    for query in queries.values():
        for name, there in table_readers(query.plan).items():
            readers.setdefault(name, []).extend(there)
    if any(
        len({(type(n), n.digest if isinstance(n, Source) else "") for n in there}) > 1 for there in readers.values()
    ):
        return ""
    variables = variables_of([query.plan for query in queries.values()])
    writer = _Writer(variables, queries)
    return "\n".join(writer.lines)


# calls


class _Writer:
    """Writes the calls that made some queries as statements, in ``lines``.

    ``variables`` are the names of sources and static tables by their names in plans, ``named`` those of other objects by id;
    ``kept`` keeps the objects, so that no other one gets the id of one. A stream is named if it is used more than once or is the
    origin of a column. Within the function of an ``apply``, ``depth`` is above 0 and nothing is named.
    """

    def __init__(self, variables: Mapping[str, str], queries: Mapping[str, Stream]):
        self.variables, self.lines = variables, list[str]()
        self.named: dict[int, str] = {}
        self.kept: list[Any] = list(queries.values())
        self.depth = 0
        self.origins: dict[str, Stream] = {}
        self.uses = Counter(id(query) for query in queries.values())
        self._count(list(queries.values()))
        for name, query in queries.items():
            self._state(query, name)

    def _count(self, waiting: list[Any]) -> None:
        """Count how often each object below is used, and note the streams from which columns are taken."""
        wanted, streams, seen = set[str](), list[Stream](), set[int]()
        while waiting:
            part = waiting.pop()
            if isinstance(part, Expr):
                wanted |= {
                    col.origin for col in expression_nodes(part) if isinstance(col, Col) and col.origin is not None
                }
            if not isinstance(part, CallResult) or id(part) in seen:
                continue
            seen.add(id(part))
            streams += [part] if isinstance(part, Stream) else []
            if part.made_by is not None:
                parts = [*_parts(part.made_by.target), *_parts(part.made_by.args), *_parts(part.made_by.keywords)]
                self.uses.update(id(one) for one in parts if isinstance(one, CallResult))
                waiting += parts
        self.origins = {stream.plan.digest: stream for stream in streams if stream.plan.digest in wanted}

    def _is_named(self, made: CallResult) -> bool:
        is_origin = isinstance(made, Stream) and self.origins.get(made.plan.digest) is made
        return not self.depth and made.made_by is not None and (self.uses[id(made)] > 1 or is_origin)

    def _state(self, made: CallResult, name: str = "") -> str:
        """Append the statement that makes an object, unless it has been, and return its name."""
        if id(made) not in self.named:
            chain = self._chain(made)
            name = name or free_name("s", {*self.variables.values(), *self.named.values()} | RESERVED)
            self.named[id(made)] = name
            self.kept.append(made)
            line = f"{name} = {''.join(chain)}"
            if len(chain) > 2 or len(line) > SHORT or "\n" in line:
                first, *rest = chain
                parts = [first + "".join(rest[:1]), *rest[1:]]
                broken = "\n".join("    " + part.replace("\n", "\n    ") for part in parts)
                line = f"{name} = (\n{broken}\n)" if len(parts) > 1 and (len(line) > SHORT or "\n" in line) else line
            self.lines.append(line)
        return self.named[id(made)]

    def _chain(self, made: CallResult) -> list[str]:
        """Return the beginning of a chain and its calls; of a stream with a call that has no text, what reads it from JSON.

        Raises UnwritableCode for an object that is no stream yet.
        """
        parts: list[str] = []
        one: CallResult = made
        try:
            while True:
                if id(one) in self.named:
                    parts.append(self.named[id(one)])
                    break
                if parts and (self._is_named(one) or (len(parts) >= _LONGEST_CHAIN and not self.depth)):
                    parts.append(self._state(one))
                    break
                by = one.made_by
                if by is None:
                    parts.append(self._unmade(one))
                    break
                arguments = self._arguments(one, by)
                if by.target is None:
                    room = "t" if by.function.__module__.startswith("streamq.testing") else "sq"
                    parts.append(call(f"{room}.{by.function.__name__}", arguments))
                    break
                parts.append(call(f".{_verb(by)}", arguments))
                one = by.target
        except UnwritableCode:
            if not isinstance(made, Stream) or self.depth:
                raise
            return [self._unmade(made)]
        return parts[::-1]

    def _unmade(self, made: CallResult) -> str:
        """Return the variable of a source, or a call that reads another stream's plan from JSON, over sources and tables."""
        if not isinstance(made, Stream) or (self.depth and not isinstance(made.plan, Source)):
            raise UnwritableCode("what no call has made")
        plan = made.plan
        if isinstance(plan, Source):
            return self.variables[plan.table]
        is_source = {n.table: isinstance(n, Source) for n in nodes(plan) if isinstance(n, Source | JoinTable)}
        names = {name: self.variables[name] if source else name for name, source in is_source.items()}
        return _from_json(rename_tables(plan, names), {names[name]: self.variables[name] for name in is_source})

    def _arguments(self, made: CallResult, by: MakingCall) -> list[str]:
        """Return the arguments of a call as text; raise UnwritableCode for one that has none."""
        args = list(by.args)
        if by.function.__name__ == "apply":
            sub_plan, *_ = (*args, *by.keywords.values())
            return [self._sub_plan(by.target, sub_plan)]
        keywords, shown = dict(by.keywords), list[str]()
        if by.function.__name__ == "join_table":
            keywords.pop("table", None)
            table = next(n.table for n in reversed(nodes(made.plan)) if isinstance(n, JoinTable))  # type: ignore[attr-defined]
            args, shown = args[1:], [self.variables[table]]
        shown += [self._argument(arg) for arg in args]
        if not all(map(is_name, keywords)):
            raise UnwritableCode("a name that cannot be a keyword")
        return [*shown, *(f"{name}={self._argument(one)}" for name, one in keywords.items())]

    def _sub_plan(self, grouped: GroupedStream[Any], sub_plan: Callable[[Any], Any]) -> str:
        """Return the function of an ``apply`` as a lambda: what it makes of a group's stream, which is called ``g``."""
        group = grouped.stream._derive(Group(grouped.stream.plan, grouped.keys))
        name = free_name("g", {*self.variables.values(), *self.named.values()})
        self.named[id(group)] = name
        self.kept.append(group)
        self.depth += 1
        try:
            return f"lambda {name}: {''.join(self._chain(sub_plan(group)))}"
        finally:
            self.depth -= 1

    def _argument(self, argument: Any) -> str:
        """Return an argument of a call as text; raise UnwritableCode for one that has none, such as a class."""
        match argument:
            case CallResult():
                text = "" if self._is_named(argument) else "".join(self._chain(argument))
                return (
                    text if self.depth or (text and len(text) <= SHORT and "\n" not in text) else self._state(argument)
                )
            case Expr():
                return expression(argument, self._column)
            case StatefulCall(operator=operator, args=args, where=where):
                arguments = [expression(arg, self._column) for arg in args]
                arguments += [f"{name}={value(option)}" for name, option in operator.options.items()]
                arguments += [] if where is None else [f"where={expression(where, self._column)}"]
                return call(module_name(operator), arguments)
            case list() | tuple() if type(argument) in (list, tuple):
                shown = listed([self._argument(one) for one in argument], "[]" if isinstance(argument, list) else "()")
                return shown if len(argument) != 1 or isinstance(argument, list) else f"{shown[:-1]},)"
            case dict():
                return "{" + ", ".join(f"{value(k)}: {self._argument(v)}" for k, v in argument.items()) + "}"
            case str() | int() | float() | None:
                return value(argument)
        if inspect.isfunction(argument):
            return _function(argument)
        if hasattr(argument, "item"):
            # of NumPy
            return self._argument(argument.item())
        text = value(argument)
        if not text.startswith(("dt.", "Decimal(")):
            raise UnwritableCode(type(argument).__name__)
        return text

    def _column(self, column: Col) -> str:
        """Return a column as text, of a stream ``s`` as ``s["v"]``."""
        stream = self.origins.get(column.origin or "")
        if stream is None:
            return f"col({string(column.name)})"
        name = self.variables[stream.plan.table] if isinstance(stream.plan, Source) else self._state(stream)
        return f"{name}[{string(column.name)}]"


def _verb(by: MakingCall) -> str:
    """Return the name of a call's verb; a function may have two, of which another class may define one."""
    names = (by.function.__name__, *dir(type(by.target)))
    return next(name for name in names if inspect.unwrap(getattr(type(by.target), name, None)) is by.function)  # type: ignore[arg-type]


def _parts(value: Any) -> Iterator[Any]:
    """Yield the objects in an argument, those in lists and mappings one by one."""
    match value:
        case Mapping():
            for part in value.values():
                yield from _parts(part)
        case list() | tuple():
            for part in value:
                yield from _parts(part)
        case _:
            yield value


class _Event:
    """A parameter of a user's function; its columns are written as ``parameter.column``."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Expr:
        return Col(f"{self._name}.{name}" if is_name(name) else f"{self._name}[{string(name)}]")


def _function(function: Callable[..., Any]) -> str:
    """Return a function of events as a lambda of the expression that it returns; raise UnwritableCode if it fails."""
    names = list(inspect.signature(function).parameters)
    try:
        result = as_expr(function(*map(_Event, names)))
    except Exception as error:
        # a function that fails for these parameters cannot be written
        raise UnwritableCode("a function") from error
    return f"lambda {', '.join(names)}: {expression(result, lambda column: column.name)}"


def _from_json(plan: Node, bindings: Mapping[str, str]) -> str:
    """Return a call of ``sq.from_json`` that reads a plan over streams and tables, by their names in ``bindings``."""
    text = f'r"""\n{to_text(plan_to_json(plan))}"""'
    if all(is_name(name) and name not in ("text", "tables") for name in bindings):
        return call("sq.from_json", [text, *(f"{name}={shown}" for name, shown in bindings.items())])
    return call("sq.from_json", [text, "{" + ", ".join(f"{string(n)}: {shown}" for n, shown in bindings.items()) + "}"])


def _head(body: str) -> str:
    """Return the import of streamq, and those of the names that the statements use."""
    code = re.sub(r'r"""\n.*?\n?"""', "", body, flags=re.DOTALL)
    code = re.sub(r'"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])*'", '""', code)

    def uses(name: str) -> bool:
        return re.search(rf"(?<![\w.]){name}\b(?!=[^=])", code) is not None

    lines = [line for name, line in _IMPORTS.items() if uses(name)]
    first = sorted(lines, key=lambda line: (line.startswith("from"), line))
    types = sorted(n for n in set(re.findall(r"(?<![\w.])([A-Z]\w*Type|StructField)\(", code)))
    third = [f"from pyspark.sql.types import {', '.join(types)}"] if types else []
    ours = [n for n in _NAMES if uses(n)] + (["functions as f"] if uses("f") else [])
    own = ["import streamq as sq", *([f"from streamq import {', '.join(ours)}"] if ours else [])]
    return "\n".join(
        ["\n".join(part) + "\n" for part in (first, third) if part] + own + ([TESTING] if uses("t") else [])
    )


RESERVED = frozenset(
    {"sq", "t", "f", "q", "text", "tables", "dt", "zoneinfo", "Decimal", "col", "lit", "when", *dir(builtins)}
)
"""Names that a program uses itself."""


def variables_of(plans: Sequence[Node]) -> dict[str, str]:
    """Return the names of the variables of a program for tables and sources, by the names that these have in plans."""
    variables: dict[str, str] = {}
    modules = module_names(plans)
    for plan in plans:
        numbered, names = number_sources(plan)
        readers = table_readers(numbered)
        for name, number in names.items():
            if name not in variables:
                variables[name] = variable(readers[number][0], number, {*variables.values(), *modules})
    return variables


def module_names(plans: Iterable[Node]) -> set[str]:
    """Return the names under which a program has the modules that plans call."""
    return {module_name(module) for plan in plans for module in called_modules(plan)}


def variable(reader: Source | JoinTable, table: str, used_names: set[str]) -> str:
    """Return an unused name for a table that a node reads: its own, or that of the kind of source."""
    if is_name(table):
        return free_name(table, used_names | RESERVED)
    return free_name(reader.title.split()[-1] if isinstance(reader, Source) else "table", used_names | RESERVED)


def source_text(node: Source, table: str, variables: Mapping[str, str]) -> str:
    """Return the call that builds a source over a table, with the parts of its policy that are not the default."""
    axis, policy = node.schema.axis, node.policy
    head, own = room_of_source(node).written(node)
    arguments = [table, *own]
    arguments += [] if node.zone is None else [f"zone={string(node.zone)}"]
    arguments += [] if node.table.startswith("#") else [f"name={string(node.table)}"]
    leader = policy.progress.leader
    if leader is not None:
        arguments.append(f"progress=sq.follow({variables[leader]})")
    elif policy.progress != room_of_source(node).usual_progress:
        arguments.append(f"progress={room_of_progress(node).written(policy.progress, axis)}")
    arguments += [] if policy.late is DROP else [f"late={string(policy.late.name)}"]
    arguments += [] if policy.invalid is None else [f"invalid={string(policy.invalid)}"]
    return call(head, arguments)


def table_text(readers: Sequence[Source | JoinTable], table: pa.Table) -> str:
    """Return the columns of a table that nodes read as the text ``t.table(...)``; a long row is on several lines."""
    fields = {f.name: f for reader in readers for f in reader.columns}.values()
    shown = [f"{_quoted(f.name)} {f.type.simpleString()}" for f in fields]
    rows = []
    for row in zip(*[_values(f, table) for f in fields], strict=True):
        line = value(tuple(row))
        rows.append(line if len(line) <= WIDTH else listed([value(v) for v in row], "()"))
    return call("t.table", [string(", ".join(shown)), listed(rows)])


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _values(field: Field, table: pa.Table) -> list[Any]:
    """Return a column's values in Python.

    Instants are all returned as ticks if each is within a second of the epoch, as generated ones are, or if one is beyond the
    range of Python's datetime.
    """
    column = table.column(field.name).cast(arrow_type(field.type))
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
