"""ATMOST: an event of any part, with at most so many events of all parts in the scope that ends with it."""

from __future__ import annotations

from typing import Any

from streamq.choices import Consumption
from streamq.patterns.operators.at_least import AtMost
from streamq.patterns.syntax import Part
from streamq.testing.patterns.conditions import Bound
from streamq.testing.patterns.matches import Match, ordered_occurrences
from streamq.testing.patterns.room import SCOPES, Drawing, OperatorRoom, counts
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation, absent_column, query_of_types, ticks_of
from streamq.testing.patterns.sql_conditions import guard
from streamq.testing.patterns.trees import variables


class AtMostRoom(OperatorRoom[AtMost]):
    """The room of :class:`AtMost`."""

    kind = AtMost
    function = "at_most"
    arguments = {("at_most", "within"): SCOPES, ("at_most", "count"): counts(1, 3)}

    def positive(self, tree: AtMost) -> tuple[Part, ...]:
        return tree.parts

    def matches(self, tree: AtMost, evaluation: Evaluation) -> list[Match]:
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

    def relation(self, tree: AtMost, query: Query) -> Relation:
        """Return a union over the parts: each event for which a subquery counts few enough events.

        The conditions over the parts' variables are done with then; they apply to pairs of an event and one that is counted.
        """
        inputs, within = [query.part(part) for part in tree.parts], ticks_of(tree.within)
        fields = {v: names for r in inputs for v, names in r.fields.items()}
        conditions = [c for c in query.conditions if c.variables <= set(fields)]
        bodies = [query_of_types(inputs)]
        for i, one in enumerate(inputs):
            counted = []
            for j, other in enumerate(inputs):
                visible = {**dict.fromkeys(other.fields, "x"), **dict.fromkeys(one.fields, f"e{i}")}
                tests = [f"x._vs > e{i}._vs - {within}", f"x._vs <= e{i}._vs"]
                tests += [guard(c, visible) for c in conditions if c.variables <= set(visible)]
                tests += [
                    f'(NOT e{i}."{a}." OR NOT x."{b}." OR e{i}."{a}.{key}" = x."{b}.{key}")'
                    for key in query.keys
                    for a in one.events
                    for b in other.events
                ]
                counted.append(f"SELECT x._id FROM {other.name} x WHERE {' AND '.join(tests)}")
                assert i != j or all(not c.variables <= set(one.fields) for c in conditions)
            header = f"concat('<', e{i}._id) AS _id, e{i}._vs, e{i}._vs + {within}, e{i}._root, [e{i}._vs]"
            columns = [
                column if j == i else absent_column(column) for j, r in enumerate(inputs) for column in r.columns()
            ]
            bodies.append(
                f"SELECT {header}, {', '.join(columns)} FROM {one.name} e{i} "
                f"WHERE (SELECT count(DISTINCT _id) FROM ({' UNION ALL '.join(counted)})) <= {tree.count}"
            )
        query.take_conditions(dict.fromkeys(fields, ""))
        return query.relation(" UNION ALL ".join(bodies), fields, tuple(e for r in inputs for e in r.events))

    def drawn(self, drawing: Drawing) -> AtMost:
        parts = drawing.parts(1, 3)
        return AtMost(drawing.number(1, 9), parts, drawing.scope())

    def contributors(self, tree: AtMost, drawing: Drawing) -> int:
        return 1
