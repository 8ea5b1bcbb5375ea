"""The validator finds nothing in legal streams, and in our own output."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.operators import Source
from streamq.plan.node import nodes, number_sources
from streamq.plan.schema import Field
from streamq.runtime.hosts.result_rows import changelog_rows
from streamq.testing.arrival import TICKS
from streamq.testing.generate import cuts
from streamq.testing.intent import Intent
from streamq.testing.payload_values import value_types
from streamq.testing.payloads import rows as payloads
from streamq.testing.sources.physical import physical_items
from streamq.testing.sources.room import ArrivalPlan
from streamq.testing.validator import check_stream, find_breaches
from streamq.time import MINUS_INFINITY
from tests.judges.kernels import watch_kernels
from tests.programs import compiled

pytestmark = pytest.mark.slow

Row = dict[str, Any]


@st.composite
def legal_streams(draw: Any) -> tuple[list[Row], str | None]:
    """Rows of a legal stream, row by row or in micro-batches, and the column of their ids, if they have any."""
    id = draw(st.sampled_from([None, "id"]))
    columns = [Field("k", t.StringType()), Field("v", draw(value_types())[1])]
    # what comes again is no breach of a source with ids; of a recorded stream, which nobody has taken in, it is one
    intent = Intent(events=5, duplicates=None if id is None else False)
    rows = [item.plain for item in draw(physical_items(ArrivalPlan(payloads(columns, intent), intent, TICKS, id=id)))]
    cut = draw(st.one_of(st.just((1,) * len(rows)), cuts(len(rows))))
    batches = [number for number, length in enumerate(cut) for _ in range(length)]
    return [{**row, "batch": number} for row, number in zip(rows, batches, strict=True)], id


@given(legal_streams())
def test_a_legal_stream_breaks_nothing(recording: tuple[list[Row], str | None]) -> None:
    rows, id = recording
    found = find_breaches(rows, id=id, batch="batch")
    assert found.ok and found.counts == {} and str(found)


# our own output


CORRECTED: dict[str, Callable[[sq.Stream, sq.Stream], sq.Stream]] = {
    "to_signal": lambda s, t: s.to_signal("k"),
    "last_rows": lambda s, t: s.last_rows(3, 2, key="k"),
    "clip": lambda s, t: s.clip(t, on="k"),
    "anti join": lambda s, t: s.join(t, on="k", how="anti"),
    "left join": lambda s, t: s.join(t, on="k", how="left", suffixes=("", "_t")),
    "except": lambda s, t: s.except_(t),
    "snapshot": lambda s, t: s.snapshot_window().select(n=sq.count()),
    "session": lambda s, t: s.set_duration(1).group_by("k", "v").session_window(3, stamp="align").select(n=sq.count()),
    "hopping": lambda s, t: s.hopping_window(4, 2).select(n=sq.count()),
}
"""Queries whose rows are taken back, or get other ends, while late events come in."""


def disordered(seed: int) -> list[tuple[int, int | None, dict[str, Any]]]:
    """Events that come up to ten ticks behind the latest; some never end."""
    rng = random.Random(seed)
    starts = sorted(range(40), key=lambda n: n + rng.random() * 10)
    return [(n, rng.choice([None, n + 1, n + rng.randint(1, 12)]), {"k": rng.choice("ab"), "v": n % 2}) for n in starts]


@pytest.mark.parametrize("name", CORRECTED)
def test_our_own_changelog_breaks_nothing(name: str) -> None:
    """Five events a micro-batch, with the CTI of the result."""
    made = [sq.events(disordered(seed), name=f"s{seed}", progress=sq.generate(10)) for seed in (1, 2)]
    query = CORRECTED[name](*made)
    tables = {source.table: query.tables[source.table] for source in nodes(query.plan) if isinstance(source, Source)}
    run = LocalRun(watch_kernels(compiled(number_sources(query.plan)[0], OutputForm.CHANGELOG, buckets=1, ctis=True)))
    names = query.plan.schema.names
    rows: list[Row] = []
    for number, at in enumerate(range(0, 40, 5)):
        made = run.batch({n: table.slice(at, 5) for n, table in tables.items()})
        rows += [{**row, "batch": number} for row in changelog_rows(made).to_pylist()]
        if run.cti > MINUS_INFINITY:
            promise = {"kind": "cti", "start": run.cti, "batch": number}
            rows.append(dict.fromkeys(("end", "new_end", *names)) | promise)
    rows += [{**row, "batch": 8} for row in changelog_rows(run.finish()).to_pylist()]
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["retract"] > 2
    assert kinds["cti"] > 2
    declared = {"shape": "signal", "key": "k"} if name == "to_signal" else {}
    check_stream(rows, batch="batch", order="chain", **declared)
