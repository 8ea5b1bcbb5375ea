"""Join and anti-join the matches of two patterns, with the conditions on both."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.choices import JoinKind
from streamq.functions.comparison import EQUAL
from streamq.operators.join import Join
from streamq.patterns.conditions import Conjunct, condition_on
from streamq.patterns.matches import Matches, conjunction_or_none, tick_count
from streamq.plan.expr import Call, Col, Expr
from streamq.plan.schema import Schema
from streamq.stream import Stream


class Pair:
    """Two patterns to be joined; ``keys`` are columns that both have, ``conjuncts`` the conditions on both."""

    def __init__(self, left: Matches, right: Matches, keys: Sequence[str], conjuncts: Sequence[Conjunct]):
        self.left, self.right = left, right
        self.variables = {**left.variables, **right.variables}
        self.events = (*left.events, *right.events)
        self.optional = left.optional | right.optional
        self.keys = tuple(keys)
        self.conjuncts = conjuncts

    def joined(self, left: Stream, right: Stream, *more: Expr) -> Matches:
        """Return the pairs that live at once and fulfil the conditions, and ``more`` conditions.

        ``left`` and ``right`` are the matches with the lifetimes that decide which of them live at once. Start and root of a pair
        are those of its right match; contributors and ids are left empty for the caller, who sets them.
        """
        stream = left._derive(self._join(left, right, JoinKind.INNER, more), right)
        last = self.right
        return Matches(
            stream=stream,
            variables=self.variables,
            events=self.events,
            starts=last.starts,
            root=last.root,
            contributors=(),
            lasts=tick_count(1),
            optional=self.optional,
        )

    def without(self, left: Stream, right: Stream, *more: Expr) -> Stream:
        """Return the left matches with no right one that lives at once and fulfils the conditions, and ``more`` conditions.

        ``left`` and ``right`` are the matches with the lifetimes that decide which of them live at once.
        """
        return left._derive(self._join(left, right, JoinKind.ANTI, more), right)

    def _join(self, left: Stream, right: Stream, how: JoinKind, more: Sequence[Expr]) -> Join:
        """Return the join of both sides by the keys and by equations between columns, filtered by the other conditions."""
        columns = [(c, self._equal(c, left.schema, right.schema)) for c in self.conjuncts]
        equal = [pair for _, pair in columns if pair is not None]
        fields = (*left.schema.fields, *(f for f in right.schema.fields if f.name not in self.keys))
        schema = left.schema.with_fields(fields)
        conditions = [condition_on(c, self.variables, schema, self.optional) for c, pair in columns if pair is None]
        return Join(
            left.plan,
            right.plan,
            on=(*((k, k) for k in self.keys), *equal),
            where=conjunction_or_none([*more, *conditions]),
            how=how,
            left_names=tuple((n, n) for n in left.schema.names),
            right_names=tuple((n, n) for n in right.schema.names if n not in self.keys),
        )

    def _equal(self, conjunct: Conjunct, left: Schema, right: Schema) -> tuple[str, str] | None:
        """Return the columns, one of either side and of one type, that a condition equates; None for any other condition.

        None also for a condition on an event that a match may lack, because that is skipped for such a match.
        """
        match conjunct.condition:
            case Call(function, (Col() as one, Col() as other)) if (
                function is EQUAL and not conjunct.names & self.optional
            ):
                for a, b in ((one.name, other.name), (other.name, one.name)):
                    if a in left.names and b in right.names:
                        return (a, b) if left.type_of(a) == right.type_of(b) else None
        return None


__all__ = ["Pair"]
