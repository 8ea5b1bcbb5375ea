"""Published examples, in-process and by the oracle; each is a case of ``golden_cases.py``."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.time import INFINITY
from tests.golden_cases import ARRIVING, CASES, Arriving, Golden, Row, in_order
from tests.judged import answer
from tests.programs import compiled


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_is_the_published_one(case: Golden) -> None:
    assert case.seen(answer(case.query())) == case.expected


@pytest.mark.parametrize("case", ARRIVING, ids=lambda case: case.name)
def test_items_arrive_one_by_one(case: Arriving) -> None:
    query = case.query()
    ((name, table),) = query.tables.items()
    run = LocalRun(compiled(rewrite(query.plan).plan, case.output, buckets=1))
    out = [run.batch({name: table.slice(at, 1)}) for at in range(table.num_rows)]
    found = {number: changes(deltas) for number, deltas in enumerate([*out, run.finish()], start=1) if deltas.num_rows}
    assert found == {number: in_order(rows) for number, rows in case.steps.items()}
    counted: Counter[str] = Counter()
    for totals in run.totals.values():
        counted.update(totals)
    assert counted == {f"{name}|{reason}": n for reason, n in case.counted.items()}


def changes(deltas: pa.Table) -> list[Row]:
    """Deltas as rows ``start, end, payload...``, an open end None; ``-`` before what is taken back."""
    names = [n for n in deltas.column_names if n not in (LE, RE, WEIGHT)]
    return in_order(
        (
            *(() if row[WEIGHT] > 0 else ("-",)),
            row[LE],
            None if row[RE] == INFINITY else row[RE],
            *(row[n] for n in names),
        )
        for row in deltas.to_pylist()
    )


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in (*CASES, *ARRIVING)]
    assert len(set(names)) == len(names)
