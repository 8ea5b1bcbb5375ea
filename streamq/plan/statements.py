"""The statements of an operator: its CTI, when its rows are final, what it keeps, the part that it reads, and the cost.

They stand in docstrings, as lines ``CTI: ...``, ``Final: ...``, ``State: ...``, ``Opens: ...`` and ``Cost: ...``; explain and the
docs show them, ``State`` as ``keeps`` and ``Opens`` as ``reads``, and the law on cost checks the part that is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol


class StatementOwner(Protocol):
    """A node, or a kernel without one, whose docstring has statements; ``case``: the members of ``cases`` that hold for it."""

    cases: ClassVar[tuple[str, ...]]

    @property
    def case(self) -> tuple[str, ...]: ...


class OpenedPart(StrEnum):
    """The parts of an operator's state that a micro-batch evaluates, in the words with which the statement ``Opens`` begins."""

    NOTHING = "nothing"
    """It keeps nothing."""
    PARTS = "parts"
    """The work does not grow with the events that are open in a group."""
    WHOLE_GROUPS = "whole groups"
    """All events that are still needed of a group are evaluated once one of its rows is new or due."""


KEEPS, NOTHING_KEPT = "keeps: ", "nothing"
"""The beginning of explain's line on what an operator keeps, and the rest of that line if it keeps nothing."""


@dataclass(frozen=True)
class StateCost:
    """The events or results that an operator keeps, the part of them that a micro-batch opens, and the cost of a micro-batch."""

    keeps: str
    opens: str
    cost: str

    @property
    def opened(self) -> OpenedPart:
        """The part that a micro-batch opens; raises ValueError if the statement does not begin with one."""
        opened = next((part for part in OpenedPart if self.opens.startswith(part)), None)
        if opened is None:
            raise ValueError(f"Opens: begins with none of {', '.join(OpenedPart)}: {self.opens!r}")
        return opened

    def lines(self) -> tuple[str, ...]:
        """Return explain's lines, without one on the part that is read if that is nothing."""
        reads = () if self.opened is OpenedPart.NOTHING else (f"reads: {self.opens}",)
        return f"{KEEPS}{NOTHING_KEPT if self.keeps == 'none' else self.keeps}", *reads, f"cost: {self.cost}"


@dataclass(frozen=True)
class Statements:
    """The statements of an operator, or of a part of one; one that is missing is "".

    ``cti``: the promise on its result. ``final``: the rows that no longer change. ``state``: what it keeps, opens and computes.
    """

    cti: str
    final: str
    state: StateCost

    @staticmethod
    def from_texts(texts: Mapping[str, str]) -> Statements:
        """Return the statements with these texts, by label."""
        return Statements(texts["CTI"], texts["Final"], StateCost(texts["State"], texts["Opens"], texts["Cost"]))

    def keeping(self, keeps: str) -> Statements:
        """Return the statements with another text on what is kept."""
        return replace(self, state=replace(self.state, keeps=keeps))

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts in the order of the labels."""
        return self.cti, self.final, self.state.keeps, self.state.opens, self.state.cost


LABELS = ("CTI", "Final", "State", "Opens", "Cost")
"""The labels of the statements in a docstring."""


def _read_texts(kind: type[Any]) -> dict[str, str]:
    """Return the texts in the docstring of a class, by label; one ends at the next, or at a blank line."""
    statements: dict[str, list[str]] = {name: [] for name in LABELS}
    current: list[str] | None = None
    for line in (kind.__doc__ or "").splitlines():
        name, colon, rest = line.strip().partition(": ")
        if colon and name in statements:
            current = statements[name] = [rest]
        elif not line.strip():
            current = None
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(parts) for name, parts in statements.items()}


def read_statements(kind: type[Any]) -> Statements:
    """Return the statements in the docstring of a class, with the clauses of all its cases."""
    return Statements.from_texts(_read_texts(kind))


def statements_in_case(kind: type[Any], case: tuple[str, ...], parts: Mapping[str, type[Any]]) -> Statements:
    """Return the statements of a class, each without the clauses that do not hold in a case.

    Clauses are separated by semicolons. One that begins ``case, case: ...``, with some of the class's ``cases``, holds if one of
    them is in ``case``; others always hold. ``parts``: the classes of fields by name; a clause ``{field}``, also one of a case,
    stands for the statement of that class.
    """
    of_parts = {f"{{{name}}}": _read_texts(part) for name, part in parts.items()}

    def holds(clause: str) -> str:
        names, colon, rest = clause.partition(": ")
        labels = set(names.split(", "))
        if not colon or not labels <= set(kind.cases):
            return clause
        return rest if labels & set(case) else ""

    def in_case(label: str, text: str) -> str:
        clauses = [clause for c in text.split("; ") if (clause := holds(c))]
        return "; ".join(of_parts[c][label] if c in of_parts else c for c in clauses)

    return Statements.from_texts({label: in_case(label, text) for label, text in _read_texts(kind).items()})


def statements_of(owner: StatementOwner) -> Statements:
    """Return the statements that hold for a node or kernel, a dataclass."""
    parts = {name: type(part) for name, part in vars(owner).items()}
    return statements_in_case(type(owner), owner.case, parts)


__all__ = [
    "KEEPS",
    "LABELS",
    "NOTHING_KEPT",
    "OpenedPart",
    "StateCost",
    "StatementOwner",
    "Statements",
    "read_statements",
    "statements_in_case",
    "statements_of",
]
