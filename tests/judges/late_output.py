"""Compare the counts of a run and its late output with the model of late items."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamq.choices import CountReason
from streamq.operators import Source
from streamq.testing.arrival import Item, end_ticks
from streamq.testing.case import Case
from streamq.testing.expectation import Expectation
from streamq.testing.history import WrongOutput, interval
from streamq.testing.history import shown as show_instant
from streamq.testing.sources.room import SetAsideItem, repeated, room_of, unmatched

REASONS = {"dropped": CountReason.DROPPED, "adjusted": CountReason.ADJUSTED, "duplicate": CountReason.DUPLICATES}
"""The count that each reason of a late output belongs to; rows with any other reason count as invalid."""

COLUMNS = ("kind", "start", "end", "new_end")
"""The columns of a late output that say what an item was, beside its payload."""

Row = tuple[CountReason, int | None, Any, int | None, int | None, int | None]
"""The count of a late row, by how many ticks it was late (None: it was not), and its COLUMNS."""


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


def expected_counts(case: Case, expected: Expectation) -> Counter[str]:
    """Return the counts of late and odd items that are expected of a run, by ``count_key``."""
    shown = {case.sources[name].shown_name() for name in expected.seen}
    counts = Counter({key: n for key, n in repetitions(case).items() if key.rpartition("|")[0] not in shown})
    return counts | Counter(
        {count_key(case, name, reason): n for name, one in expected.seen.items() for reason, n in one.counts.items()}
    )


def check_set_aside(
    case: Case, counted: Mapping[str, int], tables: Sequence[pa.Table] | None, expected: Expectation
) -> None:
    """Raise WrongOutput if the counts of a run, or the rows of its late output, are not the expected ones.

    ``counted`` are the run's counts by the keys of ``count_key``, ``tables`` the rows of the late output; None if the run has
    none.
    """
    failed_calls = {key: n for key, n in counted.items() if key.endswith(f"|{CountReason.QUARANTINED}")}
    _check_failed_calls(failed_calls, expected)
    counted = {key: n for key, n in counted.items() if key not in failed_calls}
    _check_counts(case, counted, expected)
    if tables is not None:
        check_late_output(case, tables, counted, expected)


def _check_failed_calls(counted: Mapping[str, int], expected: Expectation) -> None:
    """Raise WrongOutput if other calls of modules are counted as set aside than are expected."""
    if expected.failed_calls is None:
        return
    wanted = {f"{module}|{CountReason.QUARANTINED}": n for module, n in expected.failed_calls.items()}
    if +Counter(counted) != +Counter(wanted):
        raise WrongOutput(f"the counts are {dict(counted)}, expected {wanted}")


def _check_counts(case: Case, counted: Mapping[str, int], expected: Expectation) -> None:
    """Raise WrongOutput if the counts of late, invalid and duplicate items are not the expected ones.

    A source that is filtered may count fewer late items; a late repetition may count as dropped or as a duplicate. A count of 0
    equals none.
    """
    counted = +Counter(counted)
    wanted = dict(expected_counts(case, expected))
    for name, source in case.sources.items():
        if name in expected.seen and expected.seen[name].filtered:
            # a filter may have dropped some late items before they were judged
            for reason in (CountReason.DROPPED, CountReason.ADJUSTED):
                key = count_key(case, name, reason)
                wanted[key] = min(wanted.get(key, 0), counted[key])
        if source.ids:
            # a repetition that is also late may count as either
            again, lost = count_key(case, name, CountReason.DUPLICATES), count_key(case, name, CountReason.DROPPED)
            many = wanted.get(again, 0) + wanted.get(lost, 0)
            if counted[again] + counted[lost] == many and counted[again] >= (
                expected.seen[name].sure_duplicates if name in expected.seen else 0
            ):
                wanted |= {again: counted[again], lost: counted[lost]}
    wanted = {key: n for key, n in wanted.items() if n}
    if counted != Counter(wanted):
        raise WrongOutput(f"the counts are {dict(counted)}, expected {wanted}")


def check_late_output(
    case: Case, tables: Sequence[pa.Table], counted: Mapping[str, int], expected: Expectation
) -> None:
    """Raise WrongOutput if the rows of a late output disagree with the counts, or with the items that the model sets aside.

    The latter is checked only for sources that ``expected.seen`` has, that is, with late items.
    """
    rows = [row for table in tables for row in table.to_pylist()]
    for name, source in case.sources.items():
        own = [row for row in rows if row["source"] == source.shown_name()]
        written = Counter(_reason(row) for row in own)
        for reason in (CountReason.DROPPED, CountReason.ADJUSTED, CountReason.DUPLICATES, CountReason.INVALID):
            many = counted.get(count_key(case, name, reason), 0)
            if written[reason] != many:
                raise WrongOutput(
                    f"{many} rows of {name} are counted as {reason}, but the late output has {written[reason]}"
                )
        if name in expected.seen:
            wanted = expected.seen[name].set_aside
            _check_rows(case, source, own, wanted, is_whole=not expected.seen[name].filtered)
            _check_payloads(source, own, wanted)


def _check_rows(
    case: Case, source: Source, rows: Sequence[Any], wanted: Sequence[SetAsideItem], *, is_whole: bool
) -> None:
    """Raise WrongOutput if rows differ from the wanted items in more than the payload.

    Unless ``is_whole``, rows may be missing, because a filter may have dropped some items.
    """
    written = Counter(_row(_reason(row), row["late_by"], row) for row in rows)
    of_items = [(one, room_of(source).late_row(source, one.item)) for one in wanted]
    expected = Counter(_row(one.reason, one.late_by, row) for one, row in of_items if one.forgotten_by is None)
    for one, row in of_items:
        if one.forgotten_by is not None:
            # the source may have forgotten what this one repeats, or not
            late = _row(CountReason.DROPPED, one.forgotten_by, row)
            expected[late if written[late] > expected[late] else _row(one.reason, one.late_by, row)] += 1
    wrong = written - expected
    missing = expected - written if is_whole else Counter[Row]()
    if wrong or missing:
        first, *_ = [*wrong, *missing]
        has = "has" if wrong else "lacks"
        raise WrongOutput(f"the late output {has} the row {_shown(first, source, case.axis)}")


def _check_payloads(source: Source, rows: Sequence[Any], wanted: Sequence[SetAsideItem]) -> None:
    """Raise WrongOutput if, for some row, no item of ``wanted`` with its start and its count has its payload.

    How often an item is there does not count.
    """
    items: dict[Any, list[Item]] = {}
    for one in wanted:
        reasons = {one.reason} if one.forgotten_by is None else {one.reason, CountReason.DROPPED}
        for reason in reasons:
            items.setdefault((reason, one.item.start), []).append(one.item)
    for row in rows:
        payload = json.loads(row["payload"])
        if not any(_agrees(payload, item.columns) for item in items.get((_reason(row), row["start"]), ())):
            raise WrongOutput(
                f"the late output has {payload}, counted as {row['reason']}, which did not arrive at {source.table}"
            )


def _reason(row: Mapping[str, Any]) -> CountReason:
    return REASONS.get(row["reason"], CountReason.INVALID)


def _row(reason: CountReason, late_by: int | None, columns: Mapping[str, Any]) -> Row:
    kind, start, end, new_end = (columns[name] for name in COLUMNS)
    return reason, late_by, kind, start, end, new_end


def _shown(row: Row, source: Source, axis: str) -> str:
    """Return a row as text: ``retract [1, 6) -> 4 of s, counted as dropped, 9 ticks late``; infinity for an end of NULL."""
    reason, late_by, kind, start, end, new_end = row
    shown = f"[NULL, {end})" if start is None else interval(start, end_ticks(end), axis)
    moved = "" if new_end is None else f" -> {show_instant(new_end, axis)}"
    late = "" if late_by is None else f", {late_by} ticks late"
    return f"{f'{kind} ' if kind else ''}{shown}{moved} of {source.table}, counted as {reason}{late}"


def _agrees(written: Mapping[str, Any], arrived: Mapping[str, Any]) -> bool:
    """True if a row's columns equal those of an item; only values that JSON represents exactly are compared."""
    return all(name in arrived and _is_same(value, arrived[name]) for name, value in written.items())


def _is_same(written: Any, value: Any) -> bool:
    """True if a value in JSON equals one that arrived, or if JSON does not represent it exactly."""
    if isinstance(value, int) and isinstance(written, str):
        # an instant outside the range of Python's datetime arrives as a number
        return True
    return not (value is None or isinstance(value, str | bool | int)) or bool(written == value)
