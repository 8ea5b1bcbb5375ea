"""Signal: reads samples; each is a point that lives until the next sample of its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.keywords import check_keywords
from streamq.operators.input_table import input_table, source_name
from streamq.operators.source import axis_of
from streamq.operators.source_arguments import beside_columns, id_columns, key_columns, order_columns
from streamq.operators.source_policy import source_policy
from streamq.progress.argument import ProgressArgument
from streamq.sources.points import Points
from streamq.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@check_keywords
def signal(
    df: DataFrame | pa.Table,
    time: str,
    key: str | Sequence[str],
    *,
    order_by: str | Sequence[str] = (),
    id: str | Sequence[str] | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read samples of a signal: each sample lives until the next strictly later sample of its ``key``.

    ``key`` is one column or several, NULLs being equal; ``()`` makes all rows one signal. The last sample of a key is still
    alive; samples of one key and instant all live, side by side, unless ``order_by``, a column or several, puts them in order:
    then the last one lives. Equal values are not merged. It is the same as ``sq.points(df, time).to_signal(key, order_by)``:
    ``time`` is consumed, and the other arguments and the errors are those of :func:`points`. (docs/concepts.md, "Signals".)

    Temperatures, in rows (at, sensor, degrees)::

        temperatures = sq.signal(df, time="at", key="sensor")

        at       1    2    3    4    5    6
        sensor a |20            |21                [1,4) 20, [4,inf) 21
        sensor b      |7   |7             |8       [2,3) 7, [3,6) 7, [6,inf) 8
    """
    table = input_table(df, "signal")
    policy = source_policy("signal", axis_of(table.columns, (time,), "signal"), progress, late, invalid)
    keys = key_columns(key, table.columns, (time,), "signal")
    ids = id_columns(id, table.columns, (time,), "signal")
    aside = beside_columns(beside, table.columns, (time, *keys, *ids), "signal")
    order = order_columns(order_by, table.columns, (time, *aside), "signal")
    source = Points(source_name(name), table.columns, time, policy, ids, aside)
    return Stream(source, {source.table: table.rows}).to_signal(keys, order_by=order)
