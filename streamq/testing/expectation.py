"""Expectations: the answer and the counts that a run of a case must give, and the CTIs that its sources may receive."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamq.choices import CountReason
from streamq.testing.admission import admissions, without_late_items
from streamq.testing.case import Case
from streamq.testing.execution import SPARK, Execution
from streamq.testing.source_progress import clock_ctis, timeless
from streamq.testing.sources.model import SetAside
from streamq.testing.sources.room import repeated, unmatched
from streamq.time import INFINITY, MINUS_INFINITY


@dataclass(frozen=True)
class Expectation:
    """The expected outcome of a run: the answer of ``case``, which has no late items, and the counts of late and odd items.

    - ``ctis``: by source, CTIs that the rows of ``case`` do not contain
    - ``set_aside``: by source with late items, the items that its late output receives
    - ``sure_duplicates``: by source, the number of rows that must count as duplicates even if they are late
    - ``filtered``: sources whose late items count only if they pass a filter
    - ``refused``: a late item fails the run
    - ``failed_calls``: by module with quarantine, the number of its calls that fail; None if they are not compared
    - ``spared``: a filter may drop every item that fails the run before it is judged; True, too, if there is none
    """

    case: Case
    counts: Counter[str]
    ctis: Mapping[str, int] = field(default_factory=dict)
    set_aside: Mapping[str, Sequence[SetAside]] = field(default_factory=dict)
    sure_duplicates: Mapping[str, int] = field(default_factory=dict)
    filtered: frozenset[str] = frozenset()
    refused: bool = False
    spared: bool = False
    failed_calls: Mapping[str, int] | None = None


def expectation(case: Case, how: Execution, promised: Sequence[Any] | None = None) -> Expectation:
    """Return the expected outcome of running a case in some way.

    Which items are late depends on the cut and on how long history is remembered; none is if all rows are read at once. On Spark
    the case is first made ``timeless``, as a run there ends before a source could be idle.
    ``promised``: the CTIs in each micro-batch that no row brings, if they are not those of :func:`heard_ctis`.
    """
    counts = repetitions(case)
    if how.whole:
        return Expectation(case, counts)
    if how.backend == SPARK:
        # a run there is over before anything could be idle
        case = timeless(case)
    remember = [level.remember for level in (how.levels if how.restart else how.levels[:1])]
    if promised is None:
        promised = heard_ctis(case, how)
    ctis = _greatest_ctis(pair for batch in promised for pair in batch)
    seen = admissions(case, promised, remember)
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
        without_late_items(case, seen),
        counts,
        ctis=ctis,
        set_aside={name: one.set_aside for name, one in seen.items()},
        sure_duplicates=sure_duplicates,
        filtered=filtered,
        refused=bool(refused),
        spared=spared,
    )


def _greatest_ctis(ctis: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """Return the greatest finite CTI of each source that has one; CTIs without the name of a source are ignored."""
    greatest: dict[str, int] = {}
    for name, c in ctis:
        if name is not None and MINUS_INFINITY < c < INFINITY:
            greatest[name] = max(c, greatest.get(name, c))
    return greatest


def count_key(case: Case, name: str, reason: str) -> str:
    """Return the key under which a run counts the items of a source that it treats for ``reason``."""
    return f"{case.sources[name].shown_name()}|{reason}"


def repetitions(case: Case) -> Counter[str]:
    """Return the counts of a case without late items, by ``count_key``: rows delivered again, and rows that are not events.

    Counts of 0 are left out.
    """
    counts = {
        count_key(case, name, CountReason.DUPLICATES): repeated(s, case.arrived(name))
        for name, s in case.sources.items()
    }
    counts |= {
        count_key(case, name, CountReason.INVALID): unmatched(s, case.arrived(name)) for name, s in case.sources.items()
    }
    return Counter({key: n for key, n in counts.items() if n})


def outside_ctis(case: Case, how: Execution) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, the names of sources and the CTIs that they receive from outside; none without slack."""
    return promises(case, how.slack) if how.slack else [[] for _ in case.cut]


def heard_ctis(case: Case, how: Execution) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, the CTIs that no row brings: those from outside, and those made of the time of day."""
    return [[*sent, *made] for sent, made in zip(outside_ctis(case, how), clock_ctis(case), strict=True)]


def promises(case: Case, slack: Sequence[int | None]) -> list[list[tuple[str | None, int]]]:
    """Return, for each micro-batch, a CTI of each source after it: ``slack`` ticks below the greatest legal one.

    The entries of ``slack`` are used in turn; None gives no CTIs after that micro-batch. No CTI is above ``latest_promise`` less
    the slack, also of a source without further items; a later one may be lower than one before.
    """
    coming, most = case.due, case.latest_promise
    ctis_by_batch: list[list[tuple[str | None, int]]] = []
    seen = 0
    for n, behind in zip(case.cut, itertools.cycle(slack)):
        seen += n
        ctis: list[tuple[str | None, int]] = []
        for name in case.sources if behind is not None else ():
            least = min((bound for source, bound in coming[seen:] if source == name), default=INFINITY)
            ctis.append((name, min(least, most) - (behind or 0)))
        ctis_by_batch.append(ctis)
    return ctis_by_batch


__all__ = ["Expectation", "count_key", "expectation", "heard_ctis", "outside_ctis", "promises", "repetitions"]
