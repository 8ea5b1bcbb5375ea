"""What a program must hold to beyond its grammar: counts, negations, variables, and where conditions may stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import perm

from streamq.choices import Consumption, Selection
from streamq.patterns.rendering import shown_expression
from streamq.patterns.source_text import MAX_DEPTH, MAX_EVENTS, MAX_VALUES, Refusal
from streamq.patterns.syntax import (
    All,
    AnyOf,
    Apply,
    AtLeast,
    AtMost,
    AttributeEquals,
    CancelWhen,
    Condition,
    CorrelationKey,
    Definition,
    Literal,
    Not,
    Part,
    Pattern,
    Program,
    Sequence,
    Type,
    Unless,
)


def check_program(program: Program) -> None:
    """Raise Refusal at the first place of a program that no operator could mean."""
    contributors: dict[str, int] = {}
    names = [definition.name for definition in program.definitions]
    for at, definition in enumerate(program.definitions):
        if definition.name in contributors:
            raise Refusal(definition.place, "two definitions of one name", f"found {definition.name!r} again")
        _check_uses(definition, names[at:])
        _check_depth(definition.pattern)
        _check_variables(definition)
        for part in _innermost_first(definition.pattern):
            _check_pattern(part.pattern, contributors)
        for condition in definition.where:
            _check_condition(condition, top=True)
        _check_output(definition)
        contributors[definition.name] = contributor_count(definition.pattern.pattern, contributors)


def orders_of_one_type(program: Program) -> Iterator[tuple[str, int, int]]:
    """Yield each type of which an ALL or ATLEAST takes several events in any order: its name, how many, in how many orders."""
    for definition in program.definitions:
        for part in parts_of(definition.pattern):
            match part.pattern:
                case All(parts):
                    count = len(parts)
                case AtLeast(count, parts):
                    pass
                case _:
                    continue
            kinds = Counter(p.pattern.name for p in parts if isinstance(p.pattern, Type))
            for name, number in kinds.items():
                together = min(count, number)
                if together > 1:
                    yield name, together, perm(number, together)


def compared_with_null(program: Program) -> Iterator[str]:
    """Yield each comparison with NULL in the conditions of a program, as written: none is ever true."""
    for definition in program.definitions:
        waiting: list[object] = list(definition.where)
        while waiting:
            expression = waiting.pop()
            if isinstance(expression, Apply):
                waiting += expression.arguments
                nulls = [argument for argument in expression.arguments if isinstance(argument, Literal)]
                if expression.function in COMPARISONS and any(null.value is None for null in nulls):
                    yield shown_expression(expression)


COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


def children(pattern: Pattern) -> tuple[Part, ...]:
    """Return the parameters of an operator, in the order of the text."""
    match pattern:
        case Sequence(parts) | All(parts) | AnyOf(parts) | AtLeast(_, parts) | AtMost(_, parts):
            return parts
        case Unless(first, second) | Not(first, second) | CancelWhen(first, second):
            return (first, second)
    return ()


def parts_of(whole: Part) -> Iterator[Part]:
    """Yield a part and all parts below it, in the order of the text."""
    waiting = [whole]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(children(part.pattern))


def _innermost_first(whole: Part) -> list[Part]:
    """Return a part and all parts below it, each behind its own: what is wrong inside is not told as what is wrong around it."""
    parts, waiting = [], [whole]
    while waiting:
        part = waiting.pop()
        parts.append(part)
        waiting += children(part.pattern)
    return parts[::-1]


def variables_below(whole: Part) -> list[str]:
    """Return what the events below a part are called: by their variables, those without one by their types."""
    return [part.variable or part.pattern.name for part in parts_of(whole) if isinstance(part.pattern, Type)]


def chooses(parts: Iterable[Part]) -> bool:
    """Whether a parameter does not just take each event, again and again."""
    return any(p.selection != Selection.EACH or p.consumption != Consumption.REUSE for p in parts)


def contributor_count(pattern: Pattern, defined: Mapping[str, int]) -> int:
    """Return how many contributors a match of a pattern has; ``defined`` says it of earlier definitions, other types have one."""
    match pattern:
        case Type(name):
            return defined.get(name, 1)
        case Sequence(parts) | All(parts):
            return len(parts)
        case AtLeast(count):
            return count
        case CancelWhen(part) | Not(_, part):
            return contributor_count(part.pattern, defined)
    return 1


def _check_depth(whole: Part) -> None:
    """Raise Refusal for operators nested deeper than brackets of a text may be: verbs can do that."""
    level = [whole]
    for _ in range(MAX_DEPTH + 1):
        level = [below for part in level for below in children(part.pattern)]
    if level:
        hint = "Make an earlier definition of a part, or a stream of its own."
        raise Refusal(level[0].place, f"operators nested more than {MAX_DEPTH} deep", "", hint)


def _check_uses(definition: Definition, names: Iterable[str]) -> None:
    """Raise Refusal for a type that is this definition itself, or one of ``names``, which are defined only after it."""
    for part in parts_of(definition.pattern):
        if isinstance(part.pattern, Type) and part.pattern.name in names:
            if part.pattern.name == definition.name:
                wrong, hint = (
                    "a definition that uses itself",
                    "A pattern is made of events and of definitions before it.",
                )
            else:
                wrong, hint = "a definition used before it stands", "Put it first."
            raise Refusal(part.place, wrong, f"found {part.pattern.name!r}", hint)


def _check_variables(definition: Definition) -> None:
    variables: set[str] = set()
    events = [part for part in parts_of(definition.pattern) if isinstance(part.pattern, Type)]
    if len(events) > MAX_EVENTS:
        hint = "Make definitions of some of them, or streams that are joined."
        raise Refusal(
            events[MAX_EVENTS].place, f"a pattern of more than {MAX_EVENTS} events", f"found {len(events):,}", hint
        )
    for part in parts_of(definition.pattern):
        if part.variable is not None:
            if part.variable in variables:
                raise Refusal(part.place, "a variable used twice", f"found {part.variable!r} again")
            alike = next((v for v in variables if v.lower() == part.variable.lower()), None)
            if alike is not None:
                hint = "Columns are told apart by more than that."
                raise Refusal(
                    part.place, "variables that differ in case only", f"found {part.variable!r} and {alike!r}", hint
                )
            variables.add(part.variable)


def _check_pattern(pattern: Pattern, defined: Mapping[str, int]) -> None:
    match pattern:
        case Sequence((_,)):
            raise Refusal(pattern.place, "SEQUENCE of one", "", "It takes two patterns or more.")
        case AtLeast(count, parts) if not 1 <= count <= len(parts):
            observed = f"found {count} of {len(parts)}"
            raise Refusal(
                pattern.count_place, "the count of ATLEAST is between 1 and the number of its patterns", observed
            )
        case AtMost(count) if count < 1:
            raise Refusal(pattern.count_place, "the count of ATMOST is 1 or more", f"found {count}")
        case Unless(part, negated, _, nth):
            _check_negated(negated)
            available = contributor_count(part.pattern, defined)
            if nth is not None and not 1 <= nth <= available:
                observed = f"found {nth}, and the pattern has {available}"
                raise Refusal(pattern.count_place, "UNLESS counts from a contributor that is not there", observed)
        case Not(negated, part):
            _check_negated(negated)
            _check_negation_scope(part, defined)
        case CancelWhen(_, negated):
            _check_negated(negated)


def _check_negated(part: Part) -> None:
    if part.selection != Selection.EACH or part.consumption != Consumption.REUSE:
        observed = f"found {part.selection.upper()} {part.consumption.upper()}"
        hint = "Nothing of it is in a match, so there is nothing to select or consume."
        raise Refusal(part.place, "a negated pattern is taken as EACH REUSE", observed, hint)


def _check_negation_scope(part: Part, defined: Mapping[str, int]) -> None:
    """Raise Refusal unless a match has a first and a last contributor, between which NOT can look."""
    pattern = part.pattern
    hint = "Write NOT(type, SEQUENCE(...)); ATLEAST and ALL serve as well."
    if not isinstance(pattern, Sequence | AtLeast | All):
        raise Refusal(pattern.place, "an unscoped negation: NOT over neither SEQUENCE, ATLEAST nor ALL", "", hint)
    if contributor_count(pattern, defined) < 2:
        raise Refusal(pattern.place, "an unscoped negation: NOT over a pattern with a single contributor", "", hint)


def _check_condition(condition: Condition, top: bool) -> None:
    """Raise Refusal for a condition over all variables that is only part of another one."""
    waiting: list[tuple[Condition, bool]] = [(condition, top)]
    while waiting:
        match waiting.pop():
            case Apply("in", arguments) as values, _ if len(arguments) > MAX_VALUES + 1:
                hint = "Join the stream with a table of them first: stream.join_table(values, on=...)."
                raise Refusal(
                    values.place, f"IN of more than {MAX_VALUES:,} values", f"found {len(arguments) - 1:,}", hint
                )
            case Apply(_, arguments), _:
                waiting += ((argument, False) for argument in reversed(arguments))
            case (CorrelationKey() | AttributeEquals()) as node, False:
                name = "CorrelationKey" if isinstance(node, CorrelationKey) else "[... EQUAL ...]"
                hint = "Connect it with the others by AND."
                raise Refusal(
                    node.place, f"{name} is a whole condition of WHERE", "found it inside an expression", hint
                )


def _check_output(definition: Definition) -> None:
    names: set[str] = set()
    for field in definition.output:
        _check_condition(field.expression, top=False)
        if field.name in names:
            raise Refusal(field.place, "two output fields of one name", f"found {field.name!r} again")
        names.add(field.name)
