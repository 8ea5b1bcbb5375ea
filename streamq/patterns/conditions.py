"""Translate conditions of a pattern to expressions over the columns of matches, and place each where its variables meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import types as t

from streamq.aggregates import built_in
from streamq.errors import PlanError, StreamqError, nearest
from streamq.functions.catalogue import builder
from streamq.patterns import syntax
from streamq.patterns.matches import (
    Matches,
    RunAggregate,
    VariableColumns,
    contributors_of,
    field_column,
    filter_stream,
    id_column,
    in_pattern_names,
    root_column,
    start_column,
    written_name,
)
from streamq.patterns.pattern_tree import CompositeFields, check_composite
from streamq.patterns.syntax import NOWHERE, Place, Refusal, refusal_for
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Case, Col, Expr, Lit, show
from streamq.plan.passes import columns as columns_of
from streamq.plan.passes import infer, rewrite_expression
from streamq.plan.schema import Field as Attribute
from streamq.plan.schema import Schema
from streamq.plan.spark_types import AGGREGATES, function_names
from streamq.user_code.repository import modules

OWN: Mapping[str, Callable[[str], str]] = {
    "Vs": start_column,
    "root": root_column,
    "id": id_column,
    "contributors": contributors_of,
}
"""The built-in fields of every variable, with the functions that name their columns.

Vs: the start of its match; root: the earliest start below it; id: its id; contributors: the ids of its contributors.
"""

TYPES = "There are bigint, double, decimal(10, 2), string, boolean, timestamp, 'array<bigint>' and others of Spark's."
OF_RUNS = ("count", "sum", "min", "max", "avg", "first", "last", "collect")
"""The aggregates of a repeated variable."""

OPERATORS: Mapping[str, Callable[..., Expr]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
    "and": lambda *parts: reduce(lambda a, b: a & b, parts),
    "or": lambda *parts: reduce(lambda a, b: a | b, parts),
    "not": lambda a: ~a,
    "is null": lambda a: a.is_null(),
    "is not null": lambda a: a.is_not_null(),
    "in": lambda a, *values: a.isin(*values),
    "between": lambda a, low, high: a.between(low, high),
    "negative": lambda a: -a,
}
"""The operators of the language as functions of expressions, without LIKE, whose pattern must be a text."""


@dataclass(frozen=True)
class Conjunct:
    """One of the conditions that AND connects, over the columns of matches.

    variables: those that it names; names: the variables of events among these and below them.
    """

    condition: Expr
    variables: frozenset[str]
    names: frozenset[str]
    place: Place = NOWHERE


@dataclass(frozen=True)
class Variables:
    """The variables of a definition.

    below: those of events that each stands for, by name; fields: the payload's columns of those that are events; negated:
    those of events that no match has; composites: the fields of those that are sub-patterns; types: those of the columns of
    events; repeated: those of which a match has several; runs: the aggregates of these that have been read, by their columns.
    """

    below: Mapping[str, frozenset[str]]
    fields: Mapping[str, tuple[str, ...]]
    negated: frozenset[str]
    composites: Mapping[str, CompositeFields]
    types: Mapping[tuple[str, str], t.DataType]
    repeated: frozenset[str] = frozenset()
    runs: dict[str, RunAggregate] = field(default_factory=dict)

    # conditions of WHERE

    def conjuncts(self, where: Iterable[syntax.Condition]) -> Iterator[Conjunct]:
        """Yield the conditions of WHERE, each condition over all variables as those that it abbreviates.

        CorrelationKey(..., EQUAL) is left out: it makes keys (``correlation``). Raises Refusal if an event lacks an attribute,
        and for CorrelationKey(..., UNIQUE) where events repeat.
        """
        for condition in where:
            match condition:
                case syntax.AttributeEquals(attribute, value):
                    for name in self.events_with(attribute, condition.place):
                        yield self.conjunct(Col(field_column(name, attribute)) == Lit(value.value), condition.place)
                case syntax.CorrelationKey(_, False) if self.repeated:
                    names = ", ".join(sorted(self.repeated & self.fields.keys()))
                    raise Refusal(
                        condition.place, "CorrelationKey UNIQUE where events repeat", f"found REPEAT of {names}"
                    )
                case syntax.CorrelationKey(attributes, False):
                    for attribute in attributes:
                        columns = [
                            Col(field_column(name, attribute)) for name in self.events_with(attribute, condition.place)
                        ]
                        for i, column in enumerate(columns):
                            yield from (self.conjunct(other != column, condition.place) for other in columns[:i])
                case syntax.CorrelationKey():
                    pass
                case _:
                    yield self.conjunct(self.read(condition), condition.place)

    def conjunct(self, condition: Expr, place: Place = NOWHERE) -> Conjunct:
        """A condition with the variables that it names."""
        owners = frozenset(name.partition(".")[0] for name in columns_of(condition))
        return Conjunct(condition, owners, frozenset(name for owner in owners for name in self.below[owner]), place)

    def correlated(self, where: Iterable[syntax.Condition]) -> Mapping[str, Place]:
        """Return the attributes of CorrelationKey(..., EQUAL), each with the place of the condition.

        Raises Refusal if an event lacks one.
        """
        keys: dict[str, Place] = {}
        for condition in where:
            if isinstance(condition, syntax.CorrelationKey) and condition.equal:
                for attribute in condition.attributes:
                    self.events_with(attribute, condition.place)
                    keys.setdefault(attribute, condition.place)
        return keys

    def events_with(self, attribute: str, place: Place) -> tuple[str, ...]:
        """Return all variables of events, also negated ones; raise Refusal if one of them lacks an attribute."""
        for name, fields in self.fields.items():
            if attribute not in fields:
                raise _no_field(name, attribute, fields, place)
        return tuple(self.fields)

    def of_matches(self, condition: Expr) -> Expr:
        """Return a condition with the columns of matches for aggregates of repeated variables, as ``read`` has them.

        Raises Refusal for any other aggregate.
        """

        def column(part: Expr) -> Expr | None:
            if not isinstance(part, Aggregate):
                return None
            match part.args, part.where:
                case (Col(name=name),), None:
                    variable, _, field_name = written_name(name).partition(".")
                    run = self._run_aggregate(part.name, syntax.EventField(variable, field_name))
                    if run is not None:
                        return run
            hint = f"Of a field of a variable that repeats there are: {', '.join(OF_RUNS)}."
            shown = show(in_pattern_names(part))
            raise Refusal(NOWHERE, "an aggregate of no run", f"found {shown}", hint)

        return rewrite_expression(condition, column)

    # expressions

    def read(self, expression: syntax.Expression) -> Expr:
        """Translate an expression to one over the columns of matches, without checking types.

        Raises Refusal for an unknown variable, field, function or type, and for arguments that an operator or function does not
        take. Aggregates of repeated variables are added to ``runs``.
        """
        match expression:
            case syntax.Literal(value):
                return Lit(value)
            case syntax.EventField(variable, name):
                return self.column(self._owner(variable, name, expression.place), name, expression.place)
            case syntax.Apply("like", (value, syntax.Literal(str() as pattern))):
                return self.read(value).like(pattern)
            case syntax.Apply("like"):
                raise Refusal(expression.place, "LIKE takes a text as its pattern")
            case syntax.Apply("case when", arguments):
                parts = tuple(map(self.read, arguments))
                return Case(parts if len(parts) % 2 else (*parts, Lit(None)))
            case syntax.Apply("cast as", (value, syntax.Literal(str() as kind) as written)):
                try:
                    return self.read(value).cast(kind)
                except PlanError as error:
                    raise refusal_for(written.place, error, "cast", TYPES) from error
            case syntax.Apply(function, arguments) if function in OPERATORS:
                return OPERATORS[function](*map(self.read, arguments))
            case syntax.Apply(function, (syntax.EventField() as of,)) if (
                aggregate := self._run_aggregate(function, of)
            ) is not None:
                return aggregate
            case syntax.Apply(function, arguments):
                call = _function(function, expression.place)
                return call([self.read(a) for a in arguments])

    def _run_aggregate(self, function: str, of: syntax.EventField) -> Expr | None:
        """Return the column of an aggregate of a repeated variable or of its field; None for any other call.

        Raises Refusal for an aggregate that runs do not have.
        """
        if of.variable in self.repeated and function.lower() in {*AGGREGATES, *built_in()} - {*OF_RUNS}:
            raise Refusal(of.place, f"{function!r} is no aggregate of a run", "", f"There are: {', '.join(OF_RUNS)}.")
        if function.lower() not in OF_RUNS:
            return None
        if of.variable is None and of.name in self.repeated:
            if function.lower() != "count":
                raise Refusal(
                    of.place, f"{function} of events", f"found {of.name}", f"Write {function}({of.name}.v), of a field."
                )
            return self.run_column("count", of.name, None, of.place)
        self._check_not_one(function, of)
        owner = self._owner(of.variable, of.name, of.place)
        if owner not in self.repeated:
            return None
        return self.run_column(function.lower(), owner, of.name, of.place)

    def _check_not_one(self, function: str, of: syntax.EventField) -> None:
        """Raise Refusal for an aggregate of a variable of which a match has one, though it has several events of another."""
        variable = of.variable or of.name
        if variable not in self.below or variable in self.repeated or not self.repeated:
            return
        run = min(self.repeated)
        whole = (
            run if function.lower() == "count" and of.variable is None else f"{run}.{of.name if of.variable else 'v'}"
        )
        raise Refusal(
            of.place, f"{variable!r} does not repeat", "", f"Write {function}({whole}), of the events that do."
        )

    def run_column(self, function: str, variable: str, name: str | None, place: Place = NOWHERE) -> Expr:
        """Return the column of an aggregate of a repeated variable, or of its field ``name``; add the aggregate to ``runs``."""
        read = None if name is None else self.column(variable, name, place)
        column = read.name if isinstance(read, Col) else None
        aggregate = RunAggregate(function, variable, column, place)
        self.runs.setdefault(aggregate.name, aggregate)
        return Col(aggregate.name)

    def column(self, variable: str, name: str, place: Place = NOWHERE) -> Expr:
        """Return the column of a variable's field, or of a built-in one; raise Refusal for none, and for one of several events.

        A field of an event hides a built-in one of the same name; a field of a sub-pattern is hidden by it. Built-in names may be
        in any case, others only as they are.
        """
        fields = self.fields.get(variable, ())
        if name in fields:
            return Col(field_column(variable, name))
        own = next((of_variable for own, of_variable in OWN.items() if own.lower() == name.lower()), None)
        if own is not None:
            return Col(own(variable))
        composite = self.composites.get(variable, {})
        if name in composite:
            runs = frozenset() if variable in self.repeated else self.repeated
            check_composite(variable, name, composite[name], runs, place)
            return Col(field_column(variable, name))
        legal = (name for name, field in composite.items() if field.is_legal)
        raise _no_field(variable, name, [*fields, *legal], place)

    def _owner(self, variable: str | None, name: str, place: Place) -> str:
        """Return the variable of a field; where the text omits it, the one that has the field and is not negated.

        Only events count there, not sub-patterns. A variable that the text names need not have the field. Raises Refusal for an
        unknown variable, and, if the variable is omitted, if none or several have the field.
        """
        if variable is not None:
            if variable not in self.below:
                every = [v for v in self.below if v in self.fields or v in self.composites]
                there = f"there are: {', '.join(every)}"
                raise Refusal(place, f"no variable {variable!r}", there, nearest(variable, every))
            return variable
        owners = [v for v, fields in self.fields.items() if name in fields and v not in self.negated]
        if len(owners) == 1:
            return owners[0]
        if owners:
            hint = f"Write {owners[0]}.{name} or {owners[1]}.{name}."
            raise Refusal(place, f"the field {name!r} of more than one variable", f"found {', '.join(owners)}", hint)
        every = [f"{v}.{f}" for v, fields in self.fields.items() for f in fields]
        raise Refusal(place, f"no field {name!r}", f"there are: {', '.join(every)}", nearest(name, every))


class PendingConditions:
    """The conditions of a definition that no operator has applied yet; each is applied once, where its variables first meet."""

    def __init__(self, conjuncts: Iterable[Conjunct]):
        self.left = list(conjuncts)

    def take(self, variables: Iterable[str]) -> list[Conjunct]:
        """Remove and return the conditions that name none but these variables."""
        there = set(variables)
        about_them = [c for c in self.left if c.variables <= there]
        self.left = [c for c in self.left if not c.variables <= there]
        return about_them

    def take_on(self, matches: Matches) -> list[Expr]:
        """Remove and return the conditions that name variables of some matches alone, over the columns of these."""
        return [on_matches(c, matches) for c in self.take(matches.variables)]

    def filter_matches(self, matches: Matches) -> Matches:
        """Filter matches by the conditions that name their variables alone, which are no longer pending then."""
        return replace(matches, stream=filter_stream(matches.stream, self.take_on(matches)))


def on_matches(conjunct: Conjunct, matches: Matches) -> Expr:
    """A condition over the columns of some matches."""
    return condition_on(conjunct, matches.variables, matches.schema, matches.optional)


def condition_on(
    conjunct: Conjunct, matches: Mapping[str, VariableColumns], schema: Schema, optional: frozenset[str]
) -> Expr:
    """Return a condition over the columns of matches; it is true of one without one of its variables.

    ``optional`` are variables of events that a match may be without. A sub-pattern may be there without some of its events; a
    condition on a field of such an event is true, too. Raises Refusal for types that do not fit.
    """
    expr = typed_expr(conjunct.condition, matches, schema, conjunct.place, boolean=True)
    if not conjunct.names & optional:
        return expr
    owners = {column: start for named in matches.values() for column, start in named.owners.items()}
    columns = columns_of(conjunct.condition)
    variables = {column.partition(".")[0] for column in columns if column not in owners}
    missing = sorted(name for name in variables if name in optional or name not in conjunct.names)
    starts = [*(matches[name].starts for name in missing), *(owners[c] for c in sorted(columns) if c in owners)]
    return reduce(lambda a, b: a | b, [*(start.is_null() for start in starts), expr])


def typed_expr(
    expr: Expr, matches: Mapping[str, VariableColumns], schema: Schema, place: Place, *, boolean: bool = False
) -> Expr:
    """Replace the columns of variables by the expressions that compute them; raise Refusal for types that do not fit.

    ``matches`` has the columns of each variable; ``boolean``: the expression must be a condition.
    """
    own = {name: column for named in matches.values() for name, column in named.columns.items()}
    columns = sorted(columns_of(expr))
    kinds = [infer(own[name], schema, "cedr") if name in own else schema.type_of(name) for name in columns]
    fields = (Attribute(written_name(name), kind) for name, kind in zip(columns, kinds, strict=True))
    written = Schema(tuple(fields), schema.axis)
    try:
        kind = infer(in_pattern_names(expr), written, "cedr")
    except StreamqError as error:
        raise refusal_for(place, error, "cedr") from error
    if boolean and not isinstance(kind, t.BooleanType | t.NullType):
        raise Refusal(place, "a condition is true or false", f"found {kind.simpleString()}")
    return rewrite_expression(expr, lambda e: own.get(e.name) if isinstance(e, Col) else None)


def asks_for_ids(conjuncts: Iterable[Conjunct]) -> bool:
    """Return True if an expression reads an id, or the ids of contributors."""
    return any(
        name.endswith((id_column(""), contributors_of(""))) for c in conjuncts for name in columns_of(c.condition)
    )


def _no_field(variable: str, name: str, fields: Iterable[str], place: Place) -> Refusal:
    """Return the refusal of an unknown field of a variable, which lists those there are."""
    every = [*fields, *OWN]
    return Refusal(place, f"no field {name!r} of {variable}", f"there are: {', '.join(every)}", nearest(name, every))


def _function(name: str, place: Place) -> Callable[[Sequence[Expr]], Expr]:
    """Return the builder of calls of a function: a ``udf`` of the user's of exactly that name, else Spark's, in lower case, too.

    Raises Refusal for an unknown name and for an aggregate; the builder raises it for wrong arguments.
    """
    own = modules.get(name) if name in modules else None
    call: Any = own if own is not None and own.kind == "udf" else None
    if call is None:
        call = next((builder(spelling) for spelling in (name, name.lower()) if spelling in function_names()), None)
    if call is None:
        hint = nearest(name, ["CorrelationKey", *function_names(), *modules])
        if name.lower() in {*AGGREGATES, *built_in()}:
            raise Refusal(
                place, f"{name!r} aggregates a window", "", "Put a window over the matches: .tumbling_window(...)."
            )
        wrong = f"no function {name!r}"
        raise Refusal(
            place, wrong, "", syntax.advice_for_name(name) or hint or "A function of your own is made by @sq.udf."
        )

    def called(arguments: Sequence[Expr]) -> Expr:
        try:
            expression: Expr = call(*arguments)
            return expression
        except StreamqError as error:
            raise refusal_for(place, error, "cedr") from error

    return called
