"""Translate conditions of the CEDR language to SQL for DuckDB, over columns ``"x.field"``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamq.patterns import syntax as s
from streamq.testing.patterns.conditions import Owned, fields_of, run_argument, variables_of
from streamq.testing.patterns.trees import (
    joint_names,
    negated,
    parts_below,
    positive,
    repeated_variables,
    seen_events,
    sub_patterns,
)

THERE = "?"
"""Ends the name of the column that says if an event below a sub-pattern has a field of that name."""

INFIX = {name: name for name in ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "%")}


@dataclass(frozen=True)
class Condition:
    """A condition of WHERE, which is skipped for a match without one of its variables, or of its ``fields`` of sub-patterns."""

    expression: s.Expression
    variables: frozenset[str]
    fields: frozenset[Owned] = frozenset()


def _visible(whole: s.Part) -> frozenset[str]:
    """Return the variables that the operator around a part sees: all but those of negated events below it."""
    return frozenset(name for name, _ in seen_events(whole))


def _visible_together(whole: s.Part) -> list[frozenset[str]]:
    """Return the sets of variables that an operator sees together: those of matches, and of negations with their patterns."""
    together = [_visible(whole)]
    for part in parts_below(whole):
        around = frozenset[str]().union(*map(_visible, positive(part)))
        together += [around | _visible(other) for other in negated(part)]
    return together


def conjuncts(definition: s.Definition, events: tuple[str, ...]) -> Iterator[Condition]:
    """Yield the conditions of WHERE; CorrelationKey becomes one for every two variables that an operator sees together.

    ``events`` are the variables of events, negated ones too; an AttributeEquals becomes a condition on each of them. Any other
    condition is yielded as it is, with its variables.
    """
    together, many = _visible_together(definition.pattern), repeated_variables(definition.pattern)
    for condition in definition.where:
        match condition:
            case s.AttributeEquals(attribute, literal):
                for name in events:
                    yield Condition(s.Apply("=", (s.EventField(name, attribute), literal)), frozenset({name}))
            case s.CorrelationKey(attributes, equal):
                for attribute in attributes:
                    for one, other in itertools.combinations(events, 2):
                        if any({one, other} <= group for group in together):
                            pair = joint_names(one, other, many)
                            fields = tuple(s.EventField(name, attribute) for name in pair)
                            yield Condition(s.Apply("=" if equal else "<>", fields), frozenset(pair))
            case _:
                composites = fields_of(condition, sub_patterns(definition.pattern), many)
                yield Condition(condition, frozenset(variables_of(condition, many)), composites)


def equal_keys(definition: s.Definition) -> tuple[str, ...]:
    """Return the attributes of all CorrelationKey(..., EQUAL) in WHERE, in order; one of UNIQUE has none."""
    keys = [c.attributes for c in definition.where if isinstance(c, s.CorrelationKey) and c.equal]
    return tuple(key for attributes in keys for key in attributes)


def guard(condition: Condition, visible: Mapping[str, str]) -> str:
    """Return a condition that is true of a match without one of its variables, or of its fields of sub-patterns."""
    missing = [f'NOT {visible[v]}."{v}."' for v in sorted(condition.variables)]
    missing += [f'NOT {visible[v]}."{v}.{field}{THERE}"' for v, field in sorted(condition.fields)]
    return f"({' OR '.join([*missing, sql(condition.expression, visible)])})"


OF_LISTS = {
    "count": "len(list_filter({}, lambda v: v IS NOT NULL))",
    "sum": "CAST(list_sum({}) AS BIGINT)",
    "min": "list_min({})",
    "max": "list_max({})",
    "avg": "list_avg({})",
    "first": "({})[1]",
    "last": "({})[-1]",
    "collect": "list_filter({}, lambda v: v IS NOT NULL)",
}
"""Aggregates of a run as functions of the list of its values."""


def sql(expression: s.Expression, visible: Mapping[str, str]) -> str:
    """Return an expression as SQL; ``visible`` are the aliases of the relations with its variables.

    An aggregate of a run is a function of the list of its values; a field of ``f@`` alone, which is a key, is its first value.
    An operator that the oracle does not know fails as in :func:`apply_operator`.
    """
    if (of := run_argument(expression, [v[:-1] for v in visible if v.endswith("@")])) is not None:
        assert isinstance(expression, s.Apply)
        run = f"{of[0]}@"
        return OF_LISTS[expression.function.lower()].format(f'{visible[run]}."{run}.{of[1] or "Vs"}"')
    match expression:
        case s.EventField(variable, name):
            assert variable is not None
            if variable.endswith("@"):
                # a key, which all events of a run share
                return f'{visible[variable]}."{variable}.{name}"[1]'
            return f'{visible[variable]}."{variable}.{name}"'
        case s.Literal():
            return value(expression)
        case s.Apply("case when", parts):
            pairs = zip(parts[::2], parts[1::2], strict=False)
            branches = " ".join(f"WHEN {sql(c, visible)} THEN {sql(v, visible)}" for c, v in pairs)
            return f"(CASE {branches} ELSE {sql(parts[-1], visible) if len(parts) % 2 else 'NULL'} END)"
        case s.Apply("cast as", (operand, s.Literal(kind))):
            return f"CAST({sql(operand, visible)} AS {kind})"
        case s.Apply(function, arguments):
            values = [sql(a, visible) for a in arguments]
            return f"({apply_operator(function, values)})"
    raise AssertionError(expression)


def apply_operator(operator: str, values: Sequence[str]) -> str:
    """Return an operator of SQL values as SQL, without parentheses around it.

    The operators are those of INFIX, AND, OR, NOT, IS [NOT] NULL, a minus sign, IN and BETWEEN. Any other, such as a division or
    a user's function, is a KeyError with two values, else an AssertionError.
    """
    match operator, values:
        case ("and" | "or") as word, _:
            return f" {word} ".join(values)
        case "not", [only]:
            return f"NOT {only}"
        case ("is null" | "is not null") as test, [only]:
            return f"{only} {test}"
        case "negative", [only]:
            return f"-{only}"
        case "in", [one, *rest]:
            return f"{one} IN ({', '.join(rest)})"
        case "between", [one, low, high]:
            return f"{one} BETWEEN {low} AND {high}"
        case infix, [one, other]:
            return f"{one} {INFIX[infix]} {other}"
    raise AssertionError(operator)


def value(literal: s.Literal) -> str:
    """Return a literal as SQL."""
    match literal.value:
        case str() as text:
            return "'" + text.replace("'", "''") + "'"
        case None:
            return "NULL"
        case other:
            return str(other)
