"""Expectations: what a run of a case is to give, what it is to count, and what its sources promise meanwhile."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamq.choices import CountedAs
from streamq.testing.admission import admitted, legal
from streamq.testing.arrival import Item, bounds
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.sources.room import repeated, unmatched
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class Expectation:
    """What a run of a case is to give: the answer of ``case``, in which nothing is late, and what is counted meanwhile.

    ``ctis``: how far sources come beside what the rows of ``case`` say; ``set_aside``: by source what goes to a late output, of
    those of which something is late; ``sure_duplicates``: by source, how many rows must
    count as duplicates even if they are late; ``filtered``: sources of whose late items only those are counted that pass a
    filter; ``refused``: a late item fails the run; ``spared``: unless a filter drops that item before it is judged.
    """

    case: Case
    counts: Counter[str]
    ctis: Mapping[str, int] = field(default_factory=dict)
    set_aside: Mapping[str, Sequence[tuple[CountedAs, Item]]] = field(default_factory=dict)
    sure_duplicates: Mapping[str, int] = field(default_factory=dict)
    filtered: frozenset[str] = frozenset()
    refused: bool = False
    spared: bool = False


def expectation(case: Case, how: Execution, promised: Sequence[Any] | None = None) -> Expectation:
    """What a case is to give run in some way: what is late depends on the cut, and on how long history is remembered.

    ``promised``: the CTIs that came from outside with each micro-batch, where they are not those of :func:`promises`.
    """
    counts = repetitions(case)
    if how.whole:
        return Expectation(case, counts)
    remember = [level.remember for level in (how.levels if how.restart else how.levels[:1])]
    if promised is None:
        promised = promises(case, how.slack) if how.slack else []
    ctis = _greatest_ctis(pair for batch in promised for pair in batch)
    seen = admitted(case, promised, remember)
    if not seen:
        return Expectation(case, counts, ctis)
    ctis = _greatest_ctis([*ctis.items(), *((name, one.come) for name, one in seen.items())])
    shown = {case.sources[name].shown_name() for name in seen}
    counts = Counter({key: n for key, n in counts.items() if key.rpartition("|")[0] not in shown})
    counts |= {count_key(case, name, reason): n for name, one in seen.items() for reason, n in one.counts.items()}
    filtered = frozenset(name for name, one in seen.items() if one.filtered)
    sure_duplicates = {name: one.sure_duplicates for name, one in seen.items()}
    refused = [one for one in seen.values() if one.refused]
    spared = all(one.filtered for one in refused)
    return Expectation(
        legal(case, seen),
        counts,
        ctis=ctis,
        set_aside={name: one.set_aside for name, one in seen.items()},
        sure_duplicates=sure_duplicates,
        filtered=filtered,
        refused=bool(refused),
        spared=spared,
    )


def _greatest_ctis(ctis: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """The greatest finite instant of each source."""
    greatest: dict[str, int] = {}
    for name, c in ctis:
        if name is not None and MINUS_INFINITY < c < INFINITY:
            greatest[name] = max(c, greatest.get(name, c))
    return greatest


def count_key(case: Case, name: str, reason: str) -> str:
    """The key under which a run counts the items of a source, by the reason why it counts them."""
    return f"{case.sources[name].shown_name()}|{reason}"


def repetitions(case: Case) -> Counter[str]:
    """What is counted of a case in which nothing is late: what its sources deliver again, and rows that are no events."""
    counts = {
        count_key(case, name, CountedAs.DUPLICATES): repeated(s, case.arrived(name)) for name, s in case.sources.items()
    }
    counts |= {
        count_key(case, name, CountedAs.INVALID): unmatched(s, case.arrived(name)) for name, s in case.sources.items()
    }
    return Counter({key: n for key, n in counts.items() if n})


def promises(case: Case, slack: Sequence[int | None]) -> list[list[tuple[str | None, int]]]:
    """After each micro-batch what every source can promise, some way behind what is true of all that is still to come."""
    due = {name: iter(bounds(case.arrived(name))) for name in case.sources}
    coming = [(of, next(due[of])) for of, _ in case.arrival]
    ctis_by_batch: list[list[tuple[str | None, int]]] = []
    # windows that it reaches are reported, whatever their bound is
    most = case.latest + 5 if case.until is None else min(case.latest + 5, case.until)
    seen = 0
    for n, behind in zip(case.cut, itertools.cycle(slack)):
        seen += n
        ctis: list[tuple[str | None, int]] = []
        for name in due if behind is not None else ():
            least = min((bound for of, bound in coming[seen:] if of == name), default=INFINITY)
            ctis.append((name, min(least, most) - (behind or 0)))
        ctis_by_batch.append(ctis)
    return ctis_by_batch


__all__ = ["Expectation", "count_key", "expectation", "promises", "repetitions"]
