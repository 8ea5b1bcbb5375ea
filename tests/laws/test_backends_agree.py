"""The law of laws: in-process = oracle, for any query, arrival order, cut, restart, number of buckets and set of rules.

Differential test against SQL over the history (SEMANTICS section 1); Spark samples the same law in tests/spark.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from streamq.compiler.local import LocalRun
from streamq.compiler.program import CHANGELOG, FINAL, Options
from streamq.compiler.rewriter import rewrite
from streamq.compiler.rules import RULES
from streamq.compiler.stages import compile_stages
from streamq.query import local_history
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.testing.generate import Case, cases
from streamq.testing.history import assert_same_history, comparable


def played(case: Case, output: str, rules: Any, buckets: int, restart: bool) -> list[pa.Table]:
    """The deltas of each micro-batch, and of the end of the stream."""
    run = LocalRun(
        compile_stages(rewrite(case.plan, rules).plan, Options(output=output, buckets=buckets)), static=case.static
    )
    out = []
    for batch in case.batches:
        out.append(run.batch(batch))
        if restart:
            run = run.restart()
    out.append(run.finish(case.until))
    assert not run.totals, f"nothing was late or invalid: {run.totals}"
    return out


def net(tables: list[pa.Table]) -> pa.Table:
    """Deltas summed into a history; a weight below zero is a row taken back that was never there."""
    table = pa.concat_tables(tables)
    names = [n for n in table.column_names if n != WEIGHT]
    weights: Counter[Any] = Counter()
    rows: dict[Any, int] = {}
    for i, row in enumerate(table.to_pylist()):
        key = tuple(comparable(row[n]) for n in names)
        weights[key] += row[WEIGHT]
        rows.setdefault(key, i)
    assert all(n >= 0 for n in weights.values()), "a row was taken back that was never there"
    copies = [rows[key] for key, n in weights.items() for _ in range(n)]
    return as_history(table.select(names).take(pa.array(copies, pa.int64())))


def as_history(table: pa.Table) -> pa.Table:
    return table.rename_columns([{LE: "start", RE: "end"}.get(n, n) for n in table.column_names])


def bounded(case: Case) -> Case:
    """The case with a bound on windows of lifetimes without an end that no watermark goes beyond.

    A stream reports such windows as its watermark reaches them, also those that start after the greatest endpoint of the
    window's own input, where a batch stops by default (SEMANTICS section 3): given a bound, both mean the same.
    """
    times = [t for _, row in case.arrival for n in ("t", "start", "end", "new_end") if (t := row.get(n)) is not None]
    # two shifts at most, by at most six ticks each
    return replace(case, until=max(times, default=0) + 13)


subsets = st.one_of(
    st.just(RULES),
    st.just(()),
    st.lists(st.sampled_from(range(len(RULES))), unique=True).map(lambda at: tuple(RULES[i] for i in sorted(at))),
)


@given(case=cases().map(bounded), rules=subsets, buckets=st.sampled_from([1, 3]), restart=st.booleans())
def test_final_output_is_the_oracles_history(case: Case, rules: Any, buckets: int, restart: bool) -> None:
    """Final rows are given once each, are never taken back, and are the whole answer."""
    out = pa.concat_tables(played(case, FINAL, rules, buckets, restart))
    assert pc.all(pc.equal(out.column(WEIGHT), 1)).as_py() is not False
    assert_same_history(as_history(out.drop_columns([WEIGHT])), case.answer())


@given(case=cases().map(bounded), rules=subsets, buckets=st.sampled_from([1, 3]), restart=st.booleans())
def test_changelog_folds_into_the_oracles_history(case: Case, rules: Any, buckets: int, restart: bool) -> None:
    """Speculative rows and their retractions add up to the answer."""
    assert_same_history(net(played(case, CHANGELOG, rules, buckets, restart)), case.answer())


@given(case=cases(), rules=subsets)
def test_literal_answer_is_the_oracles_history(case: Case, rules: Any) -> None:
    """All input at once and its end, as ``show()`` does: windows stop where the input's greatest finite endpoint is."""
    plan = case.plan
    found = local_history(plan, {**case.tables, **case.static}, rules)
    assert_same_history(as_history(found.drop_columns([WEIGHT])), case.answer())
