"""Columnar work on tables: what the kernels share."""

from __future__ import annotations

import pyarrow as pa

from streamq.runtime.columnar import net
from streamq.runtime.event import LE, RE


def test_net_of_deltas_with_columns_that_have_no_order() -> None:
    lists = pa.array([[1.0, None], [1.0, None], [float("nan")], [float("nan")], []], pa.list_(pa.float64()))
    table = pa.table({"x": lists, LE: [1, 1, 1, 1, 1], RE: [2, 2, 2, 2, 2], "__w": [1, 1, 1, -1, -1]})
    found = net(pa.concat_tables([table, table.slice(0, 1)]))
    assert sorted((r["x"], r["__w"]) for r in found.to_pylist()) == [([], -1), ([1.0, None], 3)]
