"""Compare the late output of a run with the counts of its sources and with the model of late items."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamq.choices import CountReason
from streamq.operators import Source
from streamq.operators.source import AS_END
from streamq.testing.arrival import Item, closed
from streamq.testing.case import Case
from streamq.testing.deltas import WrongOutput
from streamq.testing.expectation import Expectation, count_key
from streamq.testing.timeline import interval, shown
from streamq.time import INFINITY

REASONS = {"dropped": CountReason.DROPPED, "adjusted": CountReason.ADJUSTED, "duplicate": CountReason.DUPLICATES}
"""The count that each reason of a late output belongs to; rows with any other reason count as invalid."""

LATE = (CountReason.DROPPED, CountReason.ADJUSTED)

Row = tuple[str, int | None, int | None]
"""The count of a late row, its start, and its end; None if the source has no end column or the end is infinity."""


def check_late_output(
    case: Case, tables: Sequence[pa.Table], counted: Mapping[str, int], expected: Expectation
) -> None:
    """Raise WrongOutput if the rows of a late output disagree with the counts, or with the items that the model sets aside."""
    rows = [row for table in tables for row in table.to_pylist()]
    for name, source in case.sources.items():
        own = [row for row in rows if row["source"] == source.shown_name()]
        written = Counter(REASONS.get(row["reason"], CountReason.INVALID) for row in own)
        for reason in (*LATE, CountReason.DUPLICATES, CountReason.INVALID):
            many = counted.get(count_key(case, name, reason), 0)
            if written[reason] != many:
                raise WrongOutput(
                    f"{many} rows of {name} are counted as {reason}, but the late output has {written[reason]}"
                )
        if name in expected.set_aside and not source.ids:
            late = [row for row in own if row["reason"] in LATE]
            wanted = [(reason, item) for reason, item in expected.set_aside[name] if reason in LATE]
            _check_rows(case, source, late, wanted, is_whole=name not in expected.filtered)


def _check_rows(
    case: Case, source: Source, rows: Sequence[Any], wanted: Sequence[tuple[str, Item]], *, is_whole: bool
) -> None:
    """Raise WrongOutput if late rows differ from the wanted items; unless ``is_whole``, a filter may have dropped some."""
    has_ends = AS_END in source.consumed.values()
    written = Counter(_row(row["reason"], row["start"], row["end"] if has_ends else None) for row in rows)
    expected = Counter(_row(reason, item.start, item.end if has_ends else None) for reason, item in wanted)
    wrong = written - expected
    missing = expected - written if is_whole else Counter[Row]()
    if wrong or missing:
        (reason, start, end), *_ = [*wrong, *missing]
        lifetime = (
            interval(start, closed(end), case.axis) if has_ends and start is not None else shown(start or 0, case.axis)
        )
        has = "has" if wrong else "lacks"
        raise WrongOutput(f"the late output {has} the row {lifetime} of {source.table}, counted as {reason}")
    arrived = [(reason, item.start, item.payload) for reason, item in wanted]
    for row in rows:
        payload = json.loads(row["payload"])
        same = [p for reason, start, p in arrived if (reason, start) == (row["reason"], row["start"])]
        if not any(_agrees(payload, other) for other in same):
            raise WrongOutput(
                f"the late output has {payload}, counted as {row['reason']}, which did not arrive at {source.table}"
            )


def _row(reason: str, start: int | None, end: int | None) -> Row:
    return reason, start, None if end == INFINITY else end


def _agrees(written: Mapping[str, Any], arrived: Mapping[str, Any]) -> bool:
    """True if a row's columns equal those of an item; only values that JSON represents exactly are compared."""
    return all(
        name in arrived and (written[name] == value if isinstance(value, str | bool | int) or value is None else True)
        for name, value in ((name, arrived.get(name)) for name in written)
    )


__all__ = ["check_late_output"]
