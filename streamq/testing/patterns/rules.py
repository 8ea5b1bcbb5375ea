"""The CEDR language over lists of events in plain Python, match by match; the rules of its operators, whose verbs are here, too.

A condition is checked as soon as each of its variables is bound to an event or known to be absent. So it holds for events of one
match and for events of a test for non-existence, and an operator selects among matches that fulfil all conditions checked so far.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa

from streamq.choices import Consumption
from streamq.patterns import syntax as s
from streamq.patterns.operators.at_least import All, AnyOf, AtLeast, AtMost, Sequence
from streamq.patterns.operators.negation import CancelWhen, Not, Unless, UnlessBefore
from streamq.patterns.operators.repeat import Repeat
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Part
from streamq.testing.arrival import instant_at
from streamq.testing.patterns.conditions import EVERY_HAS, Bound, Condition, conditions, evaluate, order_key
from streamq.testing.patterns.matches import (
    SCOPES,
    Chain,
    EventType,
    Match,
    Texts,
    by_rule,
    compose,
    counts,
    event_id,
    event_types,
    id_fields,
    match_id,
    ordered_occurrences,
    repeated_variables,
    room_of,
    seen_events,
    select_chains,
    sub_patterns,
    variables,
)
from streamq.time import INTEGER, instant_ticks, ticks


class Evaluation:
    """The matches of one definition's pattern, over the events of each type.

    ``keys`` are the attributes in which all events of a match must agree, ``functions`` those of users, by name.
    """

    def __init__(
        self,
        types: Mapping[str, EventType],
        where: Several[Condition],
        functions: Mapping[str, Any],
        keys: Several[str],
        axis: str,
    ):
        self.types, self.where, self.functions, self.keys, self.axis = types, where, functions, keys, axis

    def holds(self, bound: Bound) -> bool:
        """Return True unless a condition is false or NULL; skip one on an absent or not yet bound variable or field."""
        for condition in self.where:
            if condition.variables <= bound.keys() and all(bound[v] is not None for v in condition.variables):
                if any(name in (bound[v] or {})["@absent"] for v, name in condition.fields):
                    continue
                if evaluate(condition.expression, bound, self.functions) is not True:
                    return False
        return True

    def agree(self, one: Bound, other: Bound) -> bool:
        """Return True if each event of one match has the keys of each event of the other; both may have the same variables.

        NULL equals nothing, so an event with a NULL key does not even agree with itself; absent events, and events without the
        field of a key, are not compared by it. Events of the same match are not compared.
        """
        for key in self.keys:
            left, right = ([f[key] for f in bound.values() if f is not None and key in f] for bound in (one, other))
            if any(a is None or a != b for a in left for b in right):
                return False
        return True

    # --- patterns

    def part(self, part: s.Part) -> list[Match]:
        """Return the matches of a part that fulfil the conditions on them, with its variable, if it has one, bound.

        An event's variable is that of the part or the name of its type; a sub-pattern's has the fields of :meth:`composite`.
        """
        if isinstance(part.pattern, Type):
            name = part.variable or part.pattern.name
            events = [
                replace(e, till=e.vs + 1, bound={name: e.bound[""]}) for e in self.types[part.pattern.name].events
            ]
        else:
            events = room_of(part.pattern).matches(part.pattern, self)
            if part.variable is not None:
                for e in events:
                    own = {"@Vs": instant_at(e.vs, self.axis), "@root": instant_at(e.root, self.axis)}
                    own |= id_fields(e.text, e.inputs)
                    e.bound[part.variable] = {**self.composite(part, e.bound), **own}
        return [e for e in events if self.holds(e.bound)]

    def composite(self, part: s.Part, bound: Bound) -> dict[str, Any]:
        """Return the fields of a sub-pattern's match: those that exactly one of its events has, and NULL for those that none has.

        The latter are named in the field ``@absent``; a field that several of its events have is left out.
        """
        events = {name: self.types[kind.name].fields for name, kind in seen_events(part) if name in bound}
        fields = {field for names in events.values() for field in names if field.lower() not in EVERY_HAS}
        absent = {f for f in fields if all(bound[v] is None for v, names in events.items() if f in names)}
        values: dict[str, Any] = {"@absent": absent, **dict.fromkeys(absent)}
        for field in fields - absent:
            there = [(bound[v] or {})[field] for v, names in events.items() if field in names and bound[v] is not None]
            if len(there) == 1:
                values[field] = there[0]
        return values

    def ticks(self, within: s.Scope) -> int:
        """Return a scope in ticks."""
        return ticks(within, self.axis)

    def matches_without(self, positive: s.Part, negated: s.Part, between: Callable[[Match, int], bool]) -> list[Match]:
        """Return the positive matches, as they are, for which no negated one fulfils the conditions on both.

        Only a negated match counts for whose start ``between(positive match, start)`` is true.
        """
        others = self.part(negated)
        return [
            e
            for e in self.part(positive)
            if not any(between(e, z.vs) and self.holds({**e.bound, **z.bound}) for z in others)
        ]

    def has_told_parts(self, parts: Several[s.Part]) -> bool:
        """True if an event's own id says which of the parts it is of: each is another type, and none has matches for events."""
        kinds = [part.pattern for part in parts if isinstance(part.pattern, Type)]
        names = {kind.name for kind in kinds}
        return len(names) == len(parts) and not any(self.types[name].has_matches for name in names)

    def identify(
        self, operator: str, chain: Several[tuple[int, Match]], parts: Several[s.Part], *, is_whole: bool
    ) -> tuple[str | None, Texts]:
        """Return the id of a match of some of the parts, and those of its contributors, in the order of the parts.

        ``chain`` are its events with the numbers of their parts. Unless ``is_whole``, which says that every match has an event of
        every part, or events say themselves which part they are of, the id has these numbers.
        """
        in_order = sorted(chain, key=lambda numbered: numbered[0])
        ids = tuple(e.text for _, e in in_order)
        places = None if is_whole or self.has_told_parts(parts) else [i for i, _ in in_order]
        return match_id(operator, ids, places), ids

    def ordered_matches(
        self, operator: str, parts: Several[s.Part], orders: Several[tuple[int, ...]], within: int
    ) -> list[Match]:
        """Return the matches of one event of each part in an order, after selection and consumption.

        The events follow each other strictly, within ``within`` ticks. ``orders`` are the orders that may come, as numbers of
        parts; the variables of parts that are not in the order are absent. Ids of matches begin with ``operator``.
        """
        is_whole = all(len(order) == len(parts) for order in orders)
        inputs = [self.part(part) for part in parts]
        consumed: set[Any] = set()
        matches = []
        for completing in ordered_occurrences([(i, e) for i, es in enumerate(inputs) for e in es], parts):
            whole: list[Chain] = []
            for order in orders:
                absent = {v: None for i, part in enumerate(parts) if i not in order for v in variables(part)}
                for i, e in completing:
                    if i == order[-1] and e.id not in consumed:
                        whole += self.chains(inputs, order[:-1], ((i, e),), {**absent, **e.bound}, within, consumed)
            for chain in select_chains(whole, parts):
                missing: Bound = {v: None for i, p in enumerate(parts) if i not in dict(chain) for v in variables(p)}
                text, ids = self.identify(operator, chain, parts, is_whole=is_whole)
                matches.append(compose(chain, within, missing, id(parts), text, ids))
                consumed |= {e.id for i, e in chain if parts[i].consumption == Consumption.CONSUME}
        return matches

    def chains(
        self,
        inputs: Several[list[Match]],
        left: tuple[int, ...],
        chain: Chain,
        bound: Bound,
        within: int,
        consumed: set[Any],
    ) -> Iterator[Chain]:
        """Yield the chains that end with this one and have events of the parts in ``left`` before it.

        Their events are not consumed, lie within ``within`` ticks and fulfil all conditions on them. ``bound`` are the variables
        of the chain so far, and the absent ones.
        """
        if not left:
            yield chain
            return
        *before, i = left
        for e in inputs[i]:
            is_in_order = e.vs < chain[0][1].vs and chain[-1][1].vs - e.vs <= within
            if is_in_order and e.id not in consumed and self.holds({**bound, **e.bound}):
                yield from self.chains(inputs, tuple(before), ((i, e), *chain), {**bound, **e.bound}, within, consumed)


def define_type(
    definition: s.Definition, types: Mapping[str, EventType], functions: Mapping[str, Any], axis: str
) -> EventType:
    """Return the events of a definition: matches with the fields of OUTPUT, or those of all events and the root.

    Without OUTPUT, a field is named ``variable_field``; that of a repeated variable is a list. Matches outside the slice of
    occurrence are left out; lifetimes are cut to the slice of validity, and empty ones left out.
    """
    many = repeated_variables(definition.pattern)
    names = [name for name, _ in event_types(definition.pattern)]
    where = list(conditions(definition.where, names, many, sub_patterns(definition.pattern)))
    keys = [k for c in definition.where if isinstance(c, s.CorrelationKey) and c.equal for k in c.attributes]
    evaluation = Evaluation(types, where, functions, keys, axis)
    outputs: dict[str, s.Expression] = {field.name: field.expression for field in definition.output}
    if not outputs:
        own = [(v, f) for v, kind in seen_events(definition.pattern) for f in types[kind.name].fields]
        lists = {(v, f): s.Apply("collect", (s.EventField(v, f),)) for v, f in own if v in many}
        outputs |= {f"{v}_{f}": lists.get((v, f), s.EventField(v, f)) for v, f in own} | {
            "root": s.EventField("@root", "root")
        }
    events = []
    for e in evaluation.part(definition.pattern):
        root = {"@root": instant_at(e.root, axis)}
        fields = {name: evaluate(o, {**e.bound, "@root": root}, functions) for name, o in outputs.items()}
        starts, ends = e.vs, e.till
        cut = definition.occurrence
        if cut is not None and not (bound_of(cut.start, e.vs, axis) <= e.vs < bound_of(cut.end, e.vs + 1, axis)):
            continue
        if cut := definition.validity:
            starts, ends = max(starts, bound_of(cut.start, starts, axis)), min(ends, bound_of(cut.end, ends, axis))
        if starts < ends:
            # whether a definition's contributors are those of its match, or the match itself, is not said
            bound: Bound = {"": {"@Vs": instant_at(starts, axis), **root, **id_fields(e.text), **fields}}
            events.append(replace(e, id=(definition.name, e.id), rank=None, vs=starts, till=ends, bound=bound))
    return EventType(tuple(outputs), events, has_matches=True)


def bound_of(literal: s.Literal | None, otherwise: int, axis: str) -> int:
    """Return the bound of a slice in ticks; ``otherwise`` if it has none on this side."""
    if literal is None:
        return otherwise
    at: Any = int(literal.value) if axis == INTEGER else dt.datetime.fromisoformat(str(literal.value))  # type: ignore[arg-type]
    ticks = instant_ticks(at, axis)
    assert ticks is not None
    return ticks


def primitives(name: str, history: pa.Table, axis: str = INTEGER) -> EventType:
    """Return the events of a stream's history; an ordinal tells equal ones apart. Raises UnjudgedPattern for nested values."""
    numbers: dict[Any, int] = {}
    fields = tuple(n for n in history.column_names if n not in ("start", "end"))
    events = []
    for row in history.sort_by("start").to_pylist():
        start, end, payload = row["start"], row["end"], {n: row[n] for n in fields}
        values = tuple((v is not None, None if v is None else order_key(v)) for v in payload.values())
        ordinal = numbers[start, values] = numbers.get((start, values), -1) + 1
        id = (name, start, values, ordinal)
        instant = instant_at(start, axis)
        text = event_id(name, start, ordinal, payload.values())
        bound: Bound = {"": {"@Vs": instant, "@root": instant, **id_fields(text, (text,)), **payload}}
        event = Match(
            id=id,
            rank=id,
            vs=start,
            till=end,
            root=start,
            contributors=(start,),
            bound=bound,
            text=text,
            inputs=(text,),
        )
        events.append(event)
    return EventType(fields, events)


def matches_by_rules(
    program: s.Program, types: Mapping[str, EventType], axis: str = INTEGER, functions: Mapping[str, Any] | None = None
) -> EventType:
    """Return the events of a program's last definition.

    Raises UnjudgedPattern for expressions that these rules do not evaluate.
    """
    every = dict(types)
    for definition in program.definitions:
        every[definition.name] = define_type(definition, every, functions or {}, axis)
    return every[program.definitions[-1].name]


def rows_of(matches: EventType) -> list[dict[str, Any]]:
    """Return matches as rows of a history: ``start`` and ``end`` in ticks, and the fields."""
    return [
        {"start": e.vs, "end": e.till, **{n: (e.bound[""] or {})[n] for n in matches.fields}} for e in matches.events
    ]


def some_of(parts: Several[Part], count: int, within: int, evaluation: Evaluation) -> list[Match]:
    """Return the matches of ``count`` of the parts in any order."""
    return evaluation.ordered_matches(
        f"ATLEAST {count} {within}", parts, list(permutations(range(len(parts)), count)), within
    )


@by_rule(AtLeast, "at_least", "parts", within=SCOPES, count=counts(1, 2))
def matches_of_at_least(tree: AtLeast, evaluation: Evaluation) -> list[Match]:
    return some_of(tree.parts, tree.count, evaluation.ticks(tree.within), evaluation)


@by_rule(All, "all_of", "parts", within=SCOPES)
def matches_of_all_of(tree: All, evaluation: Evaluation) -> list[Match]:
    return some_of(tree.parts, len(tree.parts), evaluation.ticks(tree.within), evaluation)


@by_rule(AnyOf, "any_of", "parts")
def matches_of_any_of(tree: AnyOf, evaluation: Evaluation) -> list[Match]:
    return some_of(tree.parts, 1, 1, evaluation)


@by_rule(AtMost, "at_most", "parts", within=SCOPES, count=counts(1, 3))
def matches_of_at_most(tree: AtMost, evaluation: Evaluation) -> list[Match]:
    """Return each event that has few enough events, itself counted, in the scope that ends with it, without consumed ones.

    Events of other parts count if the conditions on both hold, those of its own part whatever the conditions; with unequal
    keys none counts. An event that one part consumes is still there for the other parts that it is in.
    """
    parts, within = tree.parts, evaluation.ticks(tree.within)
    inputs = [evaluation.part(part) for part in parts]
    matches: list[Match] = []
    consumed: set[Any] = set()
    for completing in ordered_occurrences([(i, e) for i, es in enumerate(inputs) for e in es], parts):
        gone: set[Any] = set()
        for i, e in completing:
            if e.id in consumed:
                continue
            around = {
                x.id
                for j, others in enumerate(inputs)
                for x in others
                if e.vs - within < x.vs <= e.vs and x.id not in consumed
                if i == j or evaluation.holds({**e.bound, **x.bound})
                if evaluation.agree(e.bound, x.bound)
            }
            if len(around) <= tree.count:
                text, ids = evaluation.identify(f"ATMOST {tree.count} {within}", [(i, e)], parts, is_whole=False)
                others_absent: Bound = {v: None for j, part in enumerate(parts) if j != i for v in variables(part)}
                matches.append(
                    Match(
                        id=(id(parts), i, e.id),
                        rank=None,
                        vs=e.vs,
                        till=e.vs + within,
                        root=e.root,
                        contributors=(e.vs,),
                        bound={**others_absent, **e.bound},
                        text=text,
                        inputs=ids,
                    )
                )
                if parts[i].consumption == Consumption.CONSUME:
                    gone.add(e.id)
        consumed |= gone
    return matches


MANY = 2**31
"""More than a run has."""


@by_rule(Repeat, "repeat", "pattern", repeats=True, within=SCOPES, count=counts(1, 3), most=counts(3, 4))
def matches_of_repeat(tree: Repeat, evaluation: Evaluation) -> list[Match]:
    """Return the run that ends with each occurrence, if its length is right: those of equal keys that are not consumed.

    A run has all such occurrences within the scope; with more than ``most`` there is no match, instead of a shorter run.
    """
    within = evaluation.ticks(tree.within)
    matches: list[Match] = []
    gone: set[Any] = set()
    before: list[Match] = []
    events = [(0, e) for e in evaluation.part(tree.pattern)]
    for ((_, e),) in ordered_occurrences(events, (tree.pattern,), are_ordered=True):
        before.append(e)
        near = (x for x in before if x.vs > e.vs - within and x.id not in gone)
        run = [x for x in near if evaluation.agree(e.bound, x.bound)]
        if not tree.count <= len(run) <= (tree.most or MANY):
            continue
        there = [fields for fields in e.bound.values() if fields is not None]
        keys = {k: next(fields[k] for fields in there if k in fields) for k in evaluation.keys}
        bound: Bound = {f"{name}@": {"@run": [x.bound[name] for x in run], **keys} for name in e.bound}
        times, ids = tuple(x.vs for x in run), tuple(x.text for x in run)
        matches.append(
            Match(
                id=("repeat", *(x.id for x in run)),
                rank=None,
                vs=e.vs,
                till=times[0] + within,
                root=min(x.root for x in run),
                contributors=times,
                bound=bound,
                text=match_id(f"REPEAT {tree.count} {tree.most or 0} {within}", ids),
                inputs=ids,
            )
        )
        if tree.pattern.consumption == Consumption.CONSUME:
            gone |= {x.id for x in run}
    return matches


@by_rule(Sequence, "sequence", "parts", within=SCOPES)
def matches_of_sequence(tree: Sequence, evaluation: Evaluation) -> list[Match]:
    within = evaluation.ticks(tree.within)
    return evaluation.ordered_matches(f"SEQUENCE {within}", tree.parts, [tuple(range(len(tree.parts)))], within)


# negations


@by_rule(Unless, "unless", "pattern", "negated", within=SCOPES)
def matches_of_unless(tree: Unless, evaluation: Evaluation) -> list[Match]:
    """Return the matches with no negated one after their start, or their nth contributor, and within the scope.

    They keep their start and last until the scope after it; their only contributor is that start.
    """
    scope, nth = evaluation.ticks(tree.within), tree.nth
    alone = evaluation.matches_without(
        tree.pattern, tree.negated, lambda e, z: 0 < z - (e.contributors[nth - 1] if nth else e.vs) < scope
    )
    return [e.alone("unless", f"UNLESS {nth or 0} {scope}", e.vs + scope) for e in alone]


@by_rule(UnlessBefore, "unless_before", "pattern", "negated", within=SCOPES)
def matches_of_unless_before(tree: UnlessBefore, evaluation: Evaluation) -> list[Match]:
    scope = evaluation.ticks(tree.within)
    alone = evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.vs - scope <= z < e.vs)
    return [e.alone("unless before", f"UNLESS_BEFORE {scope}", e.vs + 1) for e in alone]


@by_rule(Not, "without", "negated", "pattern")
def matches_of_without(tree: Not, evaluation: Evaluation) -> list[Match]:
    return evaluation.matches_without(
        tree.pattern, tree.negated, lambda e, z: e.contributors[0] < z < e.contributors[-1]
    )


@by_rule(CancelWhen, "cancel_when", "pattern", "negated")
def matches_of_cancel_when(tree: CancelWhen, evaluation: Evaluation) -> list[Match]:
    return evaluation.matches_without(tree.pattern, tree.negated, lambda e, z: e.root < z < e.vs)
