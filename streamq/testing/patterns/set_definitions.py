"""The set definitions of the CEDR language as SQL for DuckDB, written from the tree of a text, independently of the compiler.

A sub-pattern is a relation of a WITH clause. Its columns are ``_id``, ``_vs``, ``_till`` (the end of its lifetime), ``_root``,
``_contributors`` (their Vs, in order), and for each variable, also of sub-patterns, ``"x."`` (true if it is there), ``"x.Vs"``,
``"x.root"`` and ``"x.field"``. A condition stands at the lowest operator that sees all its variables: in the NOT EXISTS of a
negation if one of them is negated there, else as a filter. Selection and consumption have no set definition: see brute_force.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from streamq.patterns import syntax as s
from streamq.patterns.parser import parse
from streamq.patterns.pattern_tree import Type
from streamq.testing.patterns.conditions import Owned, fields_of
from streamq.testing.patterns.room import room_of
from streamq.testing.patterns.sql_conditions import (
    OF_LISTS,
    THERE,
    Condition,
    conjuncts,
    equal_keys,
    guard,
    sql,
    value,
)
from streamq.testing.patterns.trees import event_types, sub_patterns

HEADER = ("_id", "_vs", "_till", "_root", "_contributors")
HEADS = {"_vs": "Vs", "_root": "root"}
"""Built-in fields of every variable, by column; a field of the same name hides one."""


@dataclass(frozen=True)
class Relation:
    """A relation of the WITH clause: fields by variable, and the variables of events in the order of the text."""

    name: str
    fields: Mapping[str, tuple[str, ...]]
    events: tuple[str, ...] = ()

    def columns(self) -> list[str]:
        heads = ("", *HEADS.values())
        return [f'"{v}.{f}"' for v, names in self.fields.items() for f in dict.fromkeys((*heads, *names))]


@dataclass
class Query:
    """The SQL of a program in the making; ``types`` are relations with the columns of HEADER and fields."""

    types: dict[str, tuple[str, tuple[str, ...]]]
    clauses: list[str] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    composites: frozenset[Owned] = frozenset()
    """The fields of sub-patterns that conditions and OUTPUT name."""
    keys: tuple[str, ...] = ()
    """The attributes of CorrelationKey(..., EQUAL), in which events of one variable agree as well where they are counted."""

    def relation(self, body: str, fields: Mapping[str, tuple[str, ...]], events: tuple[str, ...]) -> Relation:
        """Add a relation with the query ``body`` to the WITH clause, and return it."""
        name = f"r{len(self.clauses)}"
        self.clauses.append(f"{name} AS ({body})")
        return Relation(name, fields, events)

    # --- conditions

    def take_conditions(self, visible: Mapping[str, str]) -> list[str]:
        """Remove the conditions whose variables, one at least, are all visible, and return them as SQL.

        ``visible`` maps the visible variables to the aliases of their relations.
        """
        here = [c for c in self.conditions if c.variables and c.variables <= set(visible)]
        self.conditions = [c for c in self.conditions if c not in here]
        return [guard(c, visible) for c in here]

    # --- patterns

    def part(self, part: s.Part) -> Relation:
        """Return the matches of a part that fulfil the conditions on them, with columns of its variable, if it has one.

        A sub-pattern's variable has only those fields that conditions or OUTPUT name.
        """
        if isinstance(part.pattern, Type):
            return self.primitive(part.pattern, part.variable or part.pattern.name)
        relation: Relation = room_of(part.pattern).relation(part.pattern, self)
        if part.variable is None:
            return relation
        columns = [
            f'true AS "{part.variable}."',
            *(f'{own} AS "{part.variable}.{name}"' for own, name in HEADS.items()),
        ]
        names = sorted(name for v, name in self.composites if v == part.variable)
        for name in names:
            owners = [v for v in relation.events if name in relation.fields[v] and not v.endswith("@")]
            values, there = ", ".join(f'"{v}.{name}"' for v in owners), " OR ".join(f'"{v}."' for v in owners)
            columns.append(f'coalesce({values}) AS "{part.variable}.{name}"')
            columns.append(f'({there}) AS "{part.variable}.{name}{THERE}"')
        own = tuple(column for name in names for column in (name, f"{name}{THERE}"))
        body = f"SELECT *, {', '.join(columns)} FROM {relation.name}"
        named = self.relation(body, {**relation.fields, part.variable: own}, relation.events)
        return self.filter_relation(named)

    def filter_relation(self, relation: Relation) -> Relation:
        """Return the relation, filtered by the conditions over its variables, which are done with then."""
        conditions = self.take_conditions(dict.fromkeys(relation.fields, "e"))
        if not conditions:
            return relation
        body = f"SELECT * FROM {relation.name} e WHERE {' AND '.join(conditions)}"
        return self.relation(body, relation.fields, relation.events)

    def primitive(self, kind: Type, variable: str) -> Relation:
        """Return the events of a type that fulfil the conditions on them alone, with columns of their variable."""
        table, names = self.types[kind.name]
        columns = [f'true AS "{variable}."']
        columns += [f'{own} AS "{variable}.{name}"' for own, name in HEADS.items() if name not in names]
        columns += [f'"{name}" AS "{variable}.{name}"' for name in names]
        body = f"SELECT {', '.join(HEADER)}, {', '.join(columns)} FROM {table}"
        return self.filter_relation(self.relation(body, {variable: names}, (variable,)))

    def ordered_relation(self, parts: Sequence[s.Part], orders: Sequence[tuple[int, ...]], within: int) -> Relation:
        """Return the matches of one event of each part, strictly one after the other: a union over the orders.

        ``orders`` are the orders that may come, as numbers of parts; columns of parts that are not in an order are NULL,
        and false where they say if a variable is there. The conditions over the variables of all parts are done with then.
        """
        inputs = [self.part(part) for part in parts]
        fields = {v: names for r in inputs for v, names in r.fields.items()}
        visible = {v: f"e{i}" for i, r in enumerate(inputs) for v in r.fields}
        conditions = [c for c in self.conditions if c.variables <= set(fields)]
        bodies = []
        for order in orders:
            first, last = f"e{order[0]}", f"e{order[-1]}"
            tests = [f"e{a}._vs < e{b}._vs" for a, b in itertools.pairwise(order)]
            tests += [f"{last}._vs - {first}._vs <= {within}"]
            there = {v for i in order for v in inputs[i].fields}
            tests += [guard(c, visible) for c in conditions if c.variables <= there]
            header = [
                f"concat('{len(self.clauses)}(', {', '.join(f'e{i}._id' for i in order)}, ')') AS _id",
                f"{last}._vs AS _vs",
                f"greatest({first}._vs + {within}, {last}._vs + 1) AS _till",
                f"least({', '.join(f'e{i}._root' for i in order)}) AS _root",
                f"[{', '.join(f'e{i}._vs' for i in order)}] AS _contributors",
            ]
            columns = [
                column if i in order else absent_column(column) for i, r in enumerate(inputs) for column in r.columns()
            ]
            tables = ", ".join(f"{inputs[i].name} e{i}" for i in order)
            bodies.append(f"SELECT {', '.join([*header, *columns])} FROM {tables} WHERE {' AND '.join(tests)}")
        self.take_conditions(visible)
        return self.relation(
            " UNION ALL ".join([query_of_types(inputs), *bodies]), fields, tuple(e for r in inputs for e in r.events)
        )

    def relation_without(self, positive: s.Part, negated: s.Part, between: str, header: str = "") -> Relation:
        """Return the matches ``e`` of a pattern with no match ``z`` of another that fulfils ``between`` and conditions on both.

        ``header`` are SQL expressions for the columns of HEADER; those of ``e`` if it is empty. The conditions on both are done
        with then.
        """
        one, other = self.part(positive), self.part(negated)
        visible = {**dict.fromkeys(one.fields, "e"), **dict.fromkeys(other.fields, "z")}
        tests = " AND ".join([between, *self.take_conditions(visible)])
        columns = ", ".join([header or ", ".join(f"e.{name}" for name in HEADER), *(f"e.{c}" for c in one.columns())])
        body = f"SELECT {columns} FROM {one.name} e WHERE NOT EXISTS (SELECT 1 FROM {other.name} z WHERE {tests})"
        names = ", ".join([*HEADER, *one.columns()])
        return self.relation(f"SELECT * FROM ({body}) AS matches ({names})", one.fields, one.events)

    # --- definitions

    def definition(self, definition: s.Definition) -> None:
        """Add the relation of a definition, and make it a type, with the fields of OUTPUT, or those of all events and the root.

        Without OUTPUT, a field is named ``variable_field``; that of a repeated variable is a list without NULLs. Matches outside
        the slice of occurrence are left out; lifetimes are cut to the slice of validity, and empty ones left out.
        """
        kinds = {name: self.types[kind.name][1] for name, kind in event_types(definition.pattern)}
        self.conditions = list(conjuncts(definition, tuple(kinds)))
        self.keys = equal_keys(definition)
        expressions = [*definition.where, *(f.expression for f in definition.output)]
        fields = (fields_of(e, sub_patterns(definition.pattern)) for e in expressions if isinstance(e, s.Expression))
        self.composites = frozenset[Owned]().union(*fields)
        relation = self.part(definition.pattern)
        # the conditions that remain name no variable
        whole = " AND ".join(["true", *(guard(c, {}) for c in self.conditions)])
        if definition.output:
            visible = dict.fromkeys(relation.fields, "e")
            outputs = {f.name: sql(f.expression, visible) for f in definition.output}
        else:
            outputs = {f"{v.rstrip('@')}_{f}": field_column(v, f) for v in relation.events for f in relation.fields[v]}
            outputs["root"] = "e._root"
        starts, ends = "e._vs", "e._till"
        tests = [whole, *within_slice(definition.occurrence, "e._vs")]
        if cut := definition.validity:
            starts = f"greatest({starts}, {value(cut.start)})" if cut.start else starts
            ends = f"least({ends}, {value(cut.end)})" if cut.end else ends
            tests.append(f"{starts} < {ends}")
        header = f"e._id, {starts} AS _vs, {ends} AS _till, e._root, e._contributors"
        columns = ", ".join(f'{e} AS "{name}"' for name, e in outputs.items())
        body = f"SELECT {header}, {columns} FROM {relation.name} e WHERE {' AND '.join(tests)}"
        self.clauses.append(f'"{definition.name}" AS ({body})')
        self.types[definition.name] = (f'"{definition.name}"', tuple(outputs))


def field_column(variable: str, name: str) -> str:
    """Return the column of a field where there is no OUTPUT: of a repeated variable the list of its values."""
    column = f'e."{variable}.{name}"'
    return OF_LISTS["collect"].format(column) if variable.endswith("@") else column


def columns_of(inputs: Sequence[Relation]) -> list[str]:
    return [f"e{i}.{column}" for i, r in enumerate(inputs) for column in r.columns()]


def query_of_types(inputs: Sequence[Relation]) -> str:
    """Return a query without rows that has the columns of all inputs, so that absent columns have types in the union."""
    columns = [*(f"e0.{name}" for name in HEADER), *columns_of(inputs)]
    return f"SELECT {', '.join(columns)} FROM {', '.join(f'{r.name} e{i}' for i, r in enumerate(inputs))} WHERE false"


def absent_column(column: str) -> str:
    return f"false AS {column}" if column.endswith('."') else f"NULL AS {column}"


def ticks_of(within: s.Scope) -> int:
    """Return a scope on the integer axis."""
    assert isinstance(within, int)
    return within


def within_slice(bounds: s.Slice | None, instant: str) -> list[str]:
    """Return the conditions that an instant lies within a slice, one for each bound that it has."""
    if bounds is None:
        return []
    low = [f"{instant} >= {value(bounds.start)}"] if bounds.start else []
    return low + ([f"{instant} < {value(bounds.end)}"] if bounds.end else [])


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the one connection, because opening one takes longer than most answers."""
    return duckdb.connect(config={"threads": 1})


def set_answer(text: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the matches of a text's last definition over histories, all of them tables ``start, end, payload...``.

    Times and scopes are integers. Selection and consumption in the text are ignored.
    """
    connection = database()
    query = Query({})
    for name, table in tables.items():
        payload = tuple(n for n in table.column_names if n not in ("start", "end"))
        connection.register(f"table {name}", table)
        header = f"'{name}' || row_number() OVER () AS _id, start AS _vs, \"end\" AS _till"
        header += ", start AS _root, [start] AS _contributors"
        columns = "".join(f', "{n}"' for n in payload)
        query.clauses.append(f'"type {name}" AS (SELECT {header}{columns} FROM "table {name}")')
        query.types[name] = (f'"type {name}"', payload)
    program = parse(text)
    for definition in program.definitions:
        query.definition(definition)
    last = program.definitions[-1].name
    columns = "".join(f', "{n}"' for n in query.types[last][1])
    clauses = ",\n".join(query.clauses)
    matches = f'SELECT _vs AS start, _till AS "end"{columns} FROM "{last}"'
    return connection.sql(f"WITH {clauses}\n{matches}").arrow().read_all()
