"""REPEAT: runs of occurrences within a scope; a run ends with each of them."""

from __future__ import annotations

from typing import Any

from streamq.choices import Consumption
from streamq.patterns.operators.repeat import Repeat
from streamq.patterns.syntax import Part
from streamq.testing.patterns.conditions import Bound
from streamq.testing.patterns.id_texts import match_id
from streamq.testing.patterns.matches import Match, ordered_occurrences
from streamq.testing.patterns.room import SCOPES, Drawing, OperatorRoom, counts
from streamq.testing.patterns.rules import Evaluation
from streamq.testing.patterns.set_definitions import Query, Relation, ticks_of

MANY = 2**31
"""More than a run has."""


class RepeatRoom(OperatorRoom[Repeat]):
    """The room of :class:`Repeat`."""

    kind = Repeat
    repeats = True
    function = "repeat"
    arguments = {("repeat", "within"): SCOPES, ("repeat", "count"): counts(1, 3), ("repeat", "most"): counts(3, 4)}

    def positive(self, tree: Repeat) -> tuple[Part, ...]:
        return (tree.pattern,)

    def matches(self, tree: Repeat, evaluation: Evaluation) -> list[Match]:
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

    def relation(self, tree: Repeat, query: Query) -> Relation:
        """Return the occurrences joined with those of equal keys before them and grouped: a row a run, with lists for columns.

        The columns are those of variables ``v@``. Consumption is ignored.
        """
        one, scope = query.part(tree.pattern), ticks_of(tree.within)
        assert len(one.events) == 1 or not query.keys, "the keys of an event that a match lacks are not known here"
        columns = [(v, f) for v, names in one.fields.items() for f in ("Vs", *names)]
        order = ", ".join(["_vs", *(f'"{v}.{f}" NULLS FIRST' for v, f in columns), "_id"])
        body = f"SELECT *, row_number() OVER (ORDER BY {order}) AS _n FROM {one.name}"
        numbered = query.relation(body, one.fields, one.events)
        keys = [f'x."{v}.{key}" = e."{v}.{key}"' for key in query.keys for v in one.events]
        tests = [f"x._vs > e._vs - {scope}", "x._n <= e._n", *keys]
        selected = [
            "concat('*', string_agg(x._id, ',' ORDER BY x._n)) AS _id",
            "any_value(e._vs) AS _vs",
            f"min(x._vs) + {scope} AS _till",
            "min(x._root) AS _root",
            "list(x._vs ORDER BY x._n) AS _contributors",
            *(f'true AS "{v}@."' for v in one.fields),
            *(f'min(x._root) AS "{v}@.root"' for v in one.fields),
            *(f'list(x."{v}.{f}" ORDER BY x._n) AS "{v}@.{f}"' for v, f in columns),
        ]
        body = (
            f"SELECT {', '.join(selected)} FROM {numbered.name} e JOIN {numbered.name} x ON {' AND '.join(tests)} "
            f"GROUP BY e._n HAVING count(*) BETWEEN {tree.count} AND {tree.most or MANY}"
        )
        runs = {f"{v}@": names for v, names in one.fields.items()}
        return query.filter_relation(query.relation(body, runs, tuple(f"{v}@" for v in one.events)))

    def drawn(self, drawing: Drawing) -> Repeat:
        count = drawing.number(1, 3)
        most = drawing.number(count - 1, 5)
        return Repeat(drawing.part(may_repeat=False), count, drawing.scope(), most if most >= count else None)

    def contributors(self, tree: Repeat, drawing: Drawing) -> int:
        return tree.count
