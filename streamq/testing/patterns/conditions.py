"""Evaluate conditions of the CEDR language over events in plain Python, with three truth values."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streamq.patterns import syntax as s


def joint_names(one: str, other: str, many: Mapping[str, int]) -> tuple[str, str]:
    """Return the names by which a condition on two variables reads them.

    ``f@`` is the list of all events of a variable ``f`` under a REPEAT. If both variables are under the same REPEAT, the
    condition is on one repetition, so both keep their names.
    ``many``: the numbers of the REPEATs of such variables.
    """
    if one in many and many.get(one) == many.get(other):
        return one, other
    first, second = (f"{name}@" if name in many else name for name in (one, other))
    return first, second


class UnjudgedPattern(Exception):
    """A pattern has something that these rules do not evaluate; the message names it."""


INTEGERS = 2**31
"""Integers below it are exact in every type; larger results may overflow in Spark, which these rules do not model."""

Bound = dict[str, dict[str, Any] | None]
"""Fields by variable; None for an absent one."""


Owned = tuple[str, str]
"""A field with its variable."""

EVERY_HAS = ("vs", "root", "id", "contributors")
"""The names that every variable has beside its fields, in lower case."""


@dataclass(frozen=True)
class Condition:
    """A condition and the variables that it names; ``fields`` are those fields of sub-patterns that stand in it."""

    expression: s.Expression
    variables: frozenset[str]
    fields: frozenset[Owned] = frozenset()


RUNS: Mapping[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": lambda there: sum(there) if there else None,
    "min": lambda there: min(there, key=order_key, default=None),
    "max": lambda there: max(there, key=order_key, default=None),
    "avg": lambda there: sum(there) / len(there) if there else None,
    "collect": list,
}
"""Aggregates of the values of a run that are not NULL."""


def aggregate_run(function: str, values: list[Any]) -> Any:
    """Return an aggregate of the values of a run, which are in order; only ``first`` and ``last`` take NULLs into account.

    With no values but NULL, a count is 0, ``collect`` an empty list, and the rest NULL. Raises UnjudgedPattern for the sum or
    mean of values other than integers, and for the least or greatest of nested values.
    """
    if function in ("first", "last"):
        return values[0 if function == "first" else -1]
    there = [v for v in values if v is not None]
    if function in ("sum", "avg") and any(type(v) is not int for v in there):
        raise UnjudgedPattern(f"a {function} of other values than integers")
    return RUNS[function](there)


def run_argument(expression: s.Expression, repeated: Collection[str]) -> tuple[str, str | None] | None:
    """Return the repeated variable of an aggregate, and its field, if it has one; None for another expression."""
    match expression:
        case s.Apply(function, (s.EventField(variable, name),)) if function.lower() in (*RUNS, "first", "last"):
            if variable in repeated:
                return str(variable), name
            if variable is None and name in repeated:
                return name, None
    return None


def evaluate(expression: s.Expression, bound: Bound, functions: Mapping[str, Any]) -> Any:
    """Return the value of an expression, with None for NULL.

    A field of a variable that is absent or not in ``bound`` is NULL, and so is any aggregate of an absent run, also a count.
    ``bound`` has an entry ``f@`` for a repeated variable ``f``, with the events of its run under ``@run``. ``functions`` are
    those of users, by name. Raises UnjudgedPattern for what these rules do not evaluate, and for a field that its event
    does not have.
    """
    if (of := run_argument(expression, [v[:-1] for v in bound if v.endswith("@")])) is not None:
        assert isinstance(expression, s.Apply)
        run = bound[f"{of[0]}@"]
        if run is None:
            return None
        one = [
            evaluate(s.EventField(None, of[1]), {"": fields}, functions) if of[1] else True for fields in run["@run"]
        ]
        return aggregate_run(expression.function.lower(), one)
    match expression:
        case s.EventField(variable, name):
            fields = bound.get(variable or "")
            if fields is None:
                return None
            own = name if name in fields else f"@{name}"
            if own not in fields:
                raise UnjudgedPattern(f"the field {name}")
            return fields[own]
        case s.Literal(value):
            return value
        case s.Apply("case when", parts):
            for condition, chosen in zip(parts[::2], parts[1::2], strict=False):
                if evaluate(condition, bound, functions) is True:
                    return evaluate(chosen, bound, functions)
            return evaluate(parts[-1], bound, functions) if len(parts) % 2 else None
        case s.Apply("cast as", (operand, s.Literal(kind))):
            operand_value = evaluate(operand, bound, functions)
            if operand_value is not None and (kind not in CASTS or type(operand_value) is not int):
                raise UnjudgedPattern(f"a cast to {kind}")
            return None if operand_value is None else CASTS[kind](operand_value)
        case s.Apply(function, arguments):
            return apply_function(function, [evaluate(a, bound, functions) for a in arguments], functions)
    raise AssertionError(expression)


def apply_function(function: str, values: list[Any], functions: Mapping[str, Any]) -> Any:
    """Return the result of a function, in logic with three values; those of STRICT are NULL if an operand is.

    Functions of users are called with any operands. Raises UnjudgedPattern for other functions, for operands of different types
    or of nested ones, and for a large number.
    """
    if function in ("is null", "is not null"):
        return (values[0] is None) == (function == "is null")
    if function in ("and", "or"):
        decisive = function == "or"
        return decisive if decisive in values else None if None in values else not decisive
    if function == "in":
        return apply_function("or", [apply_function("=", [values[0], v], {}) for v in values[1:]], {})
    if function == "between":
        value, low, high = values
        return apply_function(
            "and", [apply_function(">=", [value, low], {}), apply_function("<=", [value, high], {})], {}
        )
    if function in functions:
        return functions[function](*values)
    if function not in STRICT:
        raise UnjudgedPattern(f"the function {function}")
    if any(v is None for v in values):
        return None
    kinds = {_family(v) for v in values}
    if len(kinds) > 1:
        raise UnjudgedPattern("operands of different types")
    if function in COMPARED:
        return COMPARED[function](*map(order_key, values))
    result = STRICT[function](*values)
    if isinstance(result, int) and abs(result) >= INTEGERS:
        raise UnjudgedPattern("a large number")
    return result


def _family(value: Any) -> type:
    """Return the type that stands for all types comparable with a value's; raise UnjudgedPattern for arrays, structs and maps."""
    if isinstance(value, bool | str | bytes | Decimal):
        return type(value)
    if isinstance(value, int | float):
        return float
    if isinstance(value, dt.datetime | dt.date | dt.timedelta):
        return type(value)
    raise UnjudgedPattern(f"values of type {type(value).__name__}")


def order_key(value: Any) -> Any:
    """Return the sort key of a value: NaN is equal to itself and greater than any number, and -0.0 is 0.0.

    Raises UnjudgedPattern for arrays, structs and maps.
    """
    if isinstance(value, float) and not isinstance(value, bool):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    if isinstance(value, int) and not isinstance(value, bool):
        return (0, value)
    _family(value)
    return value


COMPARED: Mapping[str, Callable[..., Any]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

CASTS: Mapping[Any, Callable[[int], Any]] = {"string": str, "double": float, "bigint": int}
"""Casts of integers, by type."""

STRICT: Mapping[str, Callable[..., Any]] = {
    **COMPARED,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "not": lambda a: not a,
    "negative": lambda a: -a,
}


def conditions(
    where: Sequence[s.Condition], events: Sequence[str], repeated: Mapping[str, int], sub_patterns: Collection[str]
) -> Iterator[Condition]:
    """Yield the conditions of WHERE; a repeated variable is ``f@`` in those on its runs, and ``f`` in those on each event.

    ``events`` and ``sub_patterns`` are the variables of events, in the order of the text, and of named sub-patterns. An
    AttributeEquals becomes a condition for each event, a CorrelationKey (of either kind) one for every two events and each
    attribute; any other condition is yielded as it is, with its variables.
    """
    for condition in where:
        match condition:
            case s.AttributeEquals(attribute, literal):
                for name in events:
                    yield Condition(s.Apply("=", (s.EventField(name, attribute), literal)), frozenset({name}))
            case s.CorrelationKey(attributes, equal):
                for pair, attribute in itertools.product(itertools.combinations(events, 2), attributes):
                    one, other = joint_names(*pair, repeated)
                    fields = s.EventField(one, attribute), s.EventField(other, attribute)
                    yield Condition(s.Apply("=" if equal else "<>", fields), frozenset({one, other}))
            case expression:
                yield Condition(
                    expression,
                    frozenset(variables_of(expression, repeated)),
                    fields_of(expression, sub_patterns, repeated),
                )


def fields_of(
    expression: s.Expression, sub_patterns: Collection[str], repeated: Collection[str] = ()
) -> frozenset[Owned]:
    """Return the fields of sub-patterns in an expression, without built-in ones and those inside aggregates of runs."""
    match expression:
        case _ if run_argument(expression, repeated) is not None:
            return frozenset()
        case s.EventField(str() as variable, name) if variable in sub_patterns and name.lower() not in EVERY_HAS:
            return frozenset({(variable, name)})
        case s.Apply(_, arguments):
            return frozenset[Owned]().union(*(fields_of(a, sub_patterns, repeated) for a in arguments))
    return frozenset()


def variables_of(expression: s.Expression, repeated: Collection[str] = ()) -> Iterator[str]:
    """Yield the variable of each field in an expression; ``f@`` for a repeated variable ``f`` in an aggregate of its run."""
    if (of := run_argument(expression, repeated)) is not None:
        yield f"{of[0]}@"
        return
    match expression:
        case s.EventField(variable):
            assert variable is not None, "a field without its variable"
            yield variable
        case s.Apply(_, arguments):
            for argument in arguments:
                yield from variables_of(argument, repeated)
