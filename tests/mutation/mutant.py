"""Mutants: one deliberate mistake each, put in place of our own code while a query that it should spoil is verified.

Replacing our own functions is the very point here, and has no place in any other test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from streamq import testing as t
from streamq.testing.deltas import WrongOutput
from streamq.testing.watch import ProgressViolation
from tests.mutation.queries import QUERIES

HISTORY = "history differs"
FINAL_TAKEN_BACK = "final row taken back"
NEVER_WAS = "row taken back that never was"
MISCOUNTED = "counted wrongly"
LATE_OUTPUT = "late output differs"
BREACHED = "CTI breached"
GOES_BACK = "CTI goes back"
ENDLESS = "does not end"
FAILS = "fails"

SAID = (
    (WrongOutput, "a final row is taken back", FINAL_TAKEN_BACK),
    (WrongOutput, "a row is taken back that was not there", NEVER_WAS),
    (WrongOutput, "counted are", MISCOUNTED),
    (WrongOutput, "the late output", LATE_OUTPUT),
    (ProgressViolation, "its CTI goes back", GOES_BACK),
    (ProgressViolation, "changes before", BREACHED),
    (ProgressViolation, "it does not end", ENDLESS),
)
"""How a property that was broken shows: the kind of error, and what it says."""


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    ``wrong``: what the mutant does; ``query``: its name in QUERIES; ``changes``: (target, attribute, what stands there
    instead); ``breaks``: the property that catches it, where it can be no other ("": whichever is seen to be broken first);
    ``spark``: whether the mistake is in code that runs on Spark only.
    """

    name: str
    wrong: str
    query: str
    changes: tuple[tuple[Any, str, Any], ...]
    breaks: str = ""
    spark: bool = False

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """While the mistake is made."""
        with contextlib.ExitStack() as stack:
            for target, attribute, instead in self.changes:
                stack.enter_context(patch.object(target, attribute, instead))
            yield


IN_PROCESS = replace(t.PROFILES["default"], batch=0, streams=0, shrinking=0.0)
"""What verify tries by default before it comes to Spark; a smaller case than the first is not asked for."""

ON_SPARK = replace(t.PROFILES["default"], shrinking=0.0)
"""What it tries by default."""


def caught(mutant: Mutant, failures: str | None = None) -> t.VerificationFailed:
    """How verify's default settings catch it; ``failures``: where the case is saved. Raises AssertionError if they do not."""
    tried = replace(ON_SPARK if mutant.spark else IN_PROCESS, failures=failures)
    with mutant.in_place():
        try:
            report = t.verify(QUERIES[mutant.query], profile=tried)
        except t.VerificationFailed as failed:
            return failed
    raise AssertionError(f"{mutant.name} survives: {report}")


def broken(failed: t.VerificationFailed) -> str:
    """The property that a failure says is broken."""
    if failed.difference is not None:
        return HISTORY
    for kind, said, name in SAID:
        if isinstance(failed.error, kind) and said in str(failed.error):
            return name
    return FAILS


def wrapped(target: Any, attribute: str, around: Callable[..., Any]) -> tuple[Any, str, Any]:
    """A change of a function: ``around`` is called with the right function and its arguments."""
    right = getattr(target, attribute)
    return target, attribute, lambda *args, **kwargs: around(right, *args, **kwargs)
