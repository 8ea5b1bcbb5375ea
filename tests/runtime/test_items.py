"""Items of sources: which of them start events, which carry CTIs, which are deltas; the same in Arrow and on Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import streamq as sq
from streamq.operators import Source
from streamq.runtime.event import CTI, KIND, LE, OPENS
from streamq.runtime.hosts.packer import Items, Mark

ITEMS = pa.table({LE: [5, 9, 7], KIND: ["insert", CTI, "retract"], OPENS: [True, False, True]})


def test_items_that_nothing_is_said_of_start_events() -> None:
    items = Items()
    assert items.starts_of(ITEMS).to_pylist() == [5, 9, 7]
    assert items.ctis_of(ITEMS).to_pylist() == []
    assert items.deltas_of(ITEMS) is ITEMS
    assert items.columns == (LE,)


def test_items_that_carry_ctis_are_no_deltas() -> None:
    items = Items(starts=~Mark(KIND, CTI), ctis=Mark(KIND, CTI))
    assert items.starts_of(ITEMS).to_pylist() == [5, 7]
    assert items.ctis_of(ITEMS).to_pylist() == [9]
    assert items.deltas_of(ITEMS).column(LE).to_pylist() == [5, 7]
    assert items.columns == (LE, KIND)


def test_items_that_end_events_are_deltas() -> None:
    items = Items(starts=Mark(OPENS, True))
    assert items.starts_of(ITEMS).to_pylist() == [5, 7]
    assert items.deltas_of(ITEMS).num_rows == 3


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        (sq.points(pa.table({"at": [1]}), time="at"), (LE,)),
        (sq.edges(pa.table({"at": [1], "what": ["start"], "k": [1]}), time="at", edge="what", key="k"), (LE, OPENS)),
        (sq.events([sq.cti(3), sq.insert(3, 4, v=1)]), (LE, KIND)),
    ],
    ids=["points", "edges", "physical"],
)
def test_each_source_says_which_columns_tell(source: sq.Stream, columns: tuple[str, ...]) -> None:
    node = source.plan
    assert isinstance(node, Source)
    assert node.items.columns == columns
    (rows,) = source.tables.values()
    assert set(columns) <= set(node.rows_in_arrow(rows, streaming=False).column_names)
