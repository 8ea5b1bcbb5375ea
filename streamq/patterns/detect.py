"""Detect: the node of a pattern as the user wrote it, which the compiler replaces by joins and scans.

Readers of a plan, the oracle above all, can so judge a pattern by its syntax. (Barga et al., Consistent Streaming Through Time:
A Vision for Event Stream Processing, section 3.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from streamq.functions.logic import conjuncts
from streamq.patterns.conditions import Conjunct, Variables
from streamq.patterns.definition_lowering import EventType
from streamq.patterns.definitions import matches_of, mentions_ids
from streamq.patterns.parser import parse
from streamq.patterns.pattern_text import render, shown_part
from streamq.patterns.pattern_tree import variables_below
from streamq.patterns.syntax import Program
from streamq.plan.expr import Expr
from streamq.plan.node import Node, Traits, WrittenPattern, node
from streamq.plan.schema import Schema
from streamq.stream import Stream


@dataclass(frozen=True)
class Definitions:
    """The definitions of a program, by their text in normal form."""

    text: str

    @classmethod
    def from_program(cls, program: Program, source: str | None = None) -> Definitions:
        """Return a program's definitions; errors show places in ``source``, the text that the user wrote."""
        definitions = cls(render(program))
        definitions.__dict__.update(program=program, source=source)
        return definitions

    @cached_property
    def source(self) -> str | None:
        """The text that the user wrote; None if there is none, or if verbs have added to it."""
        return None

    @cached_property
    def program(self) -> Program:
        """The definitions as trees."""
        return parse(self.text)


@node
class Detect(Node):
    """The matches of a pattern; ``names``: event types of ``inputs``; ``conditions``: more of the last one, over ``x.v``."""

    inputs: tuple[Node, ...]
    names: tuple[str, ...]
    definitions: Definitions
    conditions: tuple[Expr, ...] = ()

    title = "pattern"

    def _schema(self) -> Schema:
        return self.expansion.schema

    def _traits(self) -> Traits:
        return replace(self.expansion.traits, mixes_windows=False, on_windows=False, implied_windows=None)

    @cached_property
    def expansion(self) -> Node:
        """The matches with the columns of OUTPUT."""
        matches = self.event_type(has_ids=False)
        return matches.stream.select(*matches.fields).plan

    @property
    def types(self) -> Mapping[str, Node]:
        """The plans of the event types, by their names."""
        return dict(zip(self.names, self.inputs, strict=True))

    def event_type(self, *, has_ids: bool) -> EventType:
        """Return the matches as events of a type, with their roots and contributors, and with ids if asked."""
        if has_ids not in self._event_types:
            self._event_types[has_ids] = self._lowered(has_ids)
        return self._event_types[has_ids]

    @cached_property
    def _event_types(self) -> dict[bool, EventType]:
        """The matches lowered so far: with ids, without ids, or both."""
        return {}

    def _lowered(self, has_ids: bool) -> EventType:
        """Return the matches as events of a type; inputs have ids if the matches must have some, or a definition reads them."""
        program = self.definitions.program
        is_asked = has_ids or mentions_ids(program, {name: plan.schema.names for name, plan in self.types.items()})
        types = {name: event_type(plan, has_ids=is_asked) for name, plan in self.types.items()}
        return matches_of(program, types, self._conjuncts, has_ids=has_ids)

    def _conjuncts(self, variables: Variables) -> Iterator[Conjunct]:
        """Yield the conditions that AND connects in those of functions."""
        parts = (part for condition in self.conditions for part in conjuncts(condition))
        return (variables.conjunct(variables.of_matches(part)) for part in parts)

    @property
    def patterns(self) -> tuple[WrittenPattern, ...]:
        return tuple(
            WrittenPattern(d.name, shown_part(d.pattern), frozenset(variables_below(d.pattern)))
            for d in self.definitions.program.definitions
        )

    def detail(self) -> str:
        """The definitions on one line."""
        return " ".join(self.definitions.text.split())


def event_type(plan: Node, *, has_ids: bool) -> EventType:
    """Return the rows of a plan as events of a type: matches if the plan is a pattern, else single events."""
    if isinstance(plan, Detect):
        return plan.event_type(has_ids=has_ids)
    stream = Stream(plan, {})
    return EventType(stream, tuple(stream.columns))
