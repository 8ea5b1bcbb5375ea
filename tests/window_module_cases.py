"""What arrives at queries with modules: corrections and disorder in a few micro-batches; and a sample of ways to use modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import streamq as sq
from streamq import testing as t
from streamq.testing.case import Case
from tests.pairwise import covering
from tests.window_modules import ALLOWED, Choice, together

S = sq.events(
    [sq.insert(1, 4, k="a", v=3), sq.retract(1, 4, 2, k="a", v=3), sq.cti(2)],
    name="s",
    schema={"k": "string", "v": "bigint"},
)
DATA = t.Intent(
    events=6,
    duration=("short", "infinite"),
    late="none",
    invalid=False,
    payload={"k": ["a", "b"], "v": [0, 1, 2, 3, 4, None]},
)
BATCHES = 3
"""So many micro-batches a case: in the second and third what came before changes, and is read back from the state."""

SAMPLE = covering(ALLOWED, Choice.parts)


def cut(case: Case) -> Case:
    """The case in so many micro-batches; of lifetimes without an end a few windows are there behind the last instant."""
    n = len(case.arrival)
    lengths = (n * (i + 1) // BATCHES - n * i // BATCHES for i in range(BATCHES))
    return replace(case, until=case.latest + 3).with_cut(*lengths)


CASES = t.concrete(S, DATA).filter(lambda case: 8 <= len(case.arrival) <= 12).map(cut)


def over(case: Case, choices: Iterable[Choice]) -> Case:
    """The choices as one query over what arrives."""
    return replace(case, plan=together(case.query, choices).plan)
