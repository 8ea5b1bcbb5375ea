"""A stamped changelog that is read as of an instant is the history that had been sent by then, for every operator and output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq.errors import InvalidEvent, PlanError, TypeMismatch
from streamq.runtime.hosts.result_rows import SENT, STAMP, changelog_rows
from streamq.testing.history import net, same_history
from tests.changed_query import ChangingRun
from tests.laws.test_changed_outputs import QUERIES, arguments, results

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
CHANGELOGS = ("changelog", "early", "in order")


def stamped(deltas: pa.Table, sent: datetime) -> pa.Table:
    """The deltas of a micro-batch as rows of a stamped changelog."""
    column = pa.array([sent] * deltas.num_rows, pa.timestamp("us", tz="UTC"))
    rows = changelog_rows(deltas.append_column(SENT, column))
    return rows.rename_columns([STAMP if name == SENT else name for name in rows.column_names])


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(QUERIES)),
    form=st.sampled_from(CHANGELOGS),
    seed=st.integers(0, 1 << 20),
    pauses=st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_a_changelog_as_of_an_instant_is_what_had_been_sent(name: str, form: str, seed: int, pauses: list[int]) -> None:
    queries, tables = results(name, 1, seed)
    run = ChangingRun(*queries, **arguments((form,)))
    size = {n: -(-table.num_rows // len(pauses)) for n, table in tables.items()}
    parts = [
        run.batch({n: table.slice(number * size[n], size[n]) for n, table in tables.items()})
        for number in range(len(pauses))
    ]
    sent = [deltas for (deltas,) in [*parts, run.finish()]]
    # two micro-batches may begin within one tick of the clock
    instants = [BEGAN + timedelta(milliseconds=sum(pauses[:number])) for number in range(len(sent))]
    rows = pa.concat_tables([stamped(deltas, instant) for deltas, instant in zip(sent, instants, strict=True)])
    by_instant = {instant: number + 1 for number, instant in enumerate(instants)}
    for instant, count in by_instant.items():
        answer = sq.physical(rows, as_of=instant).to_arrow()
        expected = net(sent[:count])
        difference = same_history(answer.select(expected.column_names), expected)
        assert difference is None, f"{name}, {form}, as of {instant}\n{difference}"
    assert sq.physical(rows, as_of=BEGAN - timedelta(days=1)).to_arrow().num_rows == 0


ROW = {"kind": "insert", "start": 1, "end": 5, "new_end": None, "v": 7}
SENT_AT = pa.timestamp("us", tz="UTC")


def changes(*stamps: Any, type: pa.DataType = SENT_AT) -> pa.Table:
    """Inserts that were sent at these instants."""
    rows = {name: pa.array([value] * len(stamps)) for name, value in ROW.items() if name != "new_end"}
    return pa.table({**rows, "new_end": pa.nulls(len(stamps), pa.int64()), "sent": pa.array(stamps, type)})


def test_the_stamp_is_no_payload() -> None:
    rows = changes(BEGAN)
    assert sq.physical(rows, sent="sent").schema.names == ("v",)
    assert sq.physical(rows, as_of=BEGAN).schema.names == ("v",)


def test_a_row_without_a_stamp_is_no_event_and_a_stamp_is_a_timestamp() -> None:
    with pytest.raises(InvalidEvent, match="no instant at which it was sent"):
        sq.physical(changes(BEGAN, None), as_of=BEGAN).to_arrow()
    with pytest.raises(TypeMismatch, match="'sent' holds no instants at which rows were sent; it is a bigint"):
        sq.physical(changes(1, type=pa.int64()), as_of=BEGAN)
    with pytest.raises(sq.errors.TimeError, match="physical"):
        sq.physical(changes(BEGAN), as_of="yesterday")  # type: ignore[arg-type]


def test_only_a_changelog_is_stamped_and_it_has_no_column_called_sent() -> None:
    events = sq.events([sq.insert(1, 2, sent=1)], name="s")
    with pytest.raises(PlanError, match="payload column called 'sent'"):
        sq.result(events, output="changelog", stamped=True)
    with pytest.raises(PlanError, match="stamped=True goes with output='changelog'"):
        sq.result(events, stamped=True)
    with pytest.raises(PlanError, match="stamped is True or False"):
        sq.result(events, output="changelog", stamped=1)  # type: ignore[arg-type]
