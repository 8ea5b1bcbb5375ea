"""The paths of a kernel's output to the channels of the next stage bring each channel the rows that its own path does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq.compiler.options import Options
from streamq.compiler.ports import feed_in_arrow
from streamq.compiler.results import Egress, Results
from streamq.compiler.stages import compile_stages
from streamq.plan.expr import Expr
from streamq.plan.node import number_sources
from streamq.runtime.envelope import PROGRESS, SPOKEN
from streamq.runtime.hosts.hosted_kernel import InnerPath, OutputPaths
from streamq.runtime.hosts.packer import Packer
from streamq.runtime.hosts.processor import envelope_batches, stage_packer
from streamq.runtime.time.progress import Message, decode_messages, encode_messages

K, N, X = sq.col("k"), sq.col("n"), sq.col("x")
FILTERS: dict[str, tuple[Expr, tuple[str, str | int] | None]] = {
    "a text": (K == "a", ("k", "a")),
    "the same text": ((K == "a") & (N > 1), ("k", "a")),
    "an integer": (N == 2, ("n", 2)),
    "an integer that its column cannot hold": (sq.col("b") == 300, ("b", 300)),
    "a text behind what may fail": ((N * 2 > 0) & (K == "a"), None),
    "a text before what may fail": ((K == "a") & (N * 2 > 0), ("k", "a")),
    "a text or another": ((K == "a") | (K == "b"), None),
    "a float": (X == 1, None),
    "more than a constant": (N > 2, None),
}
EVENTS = pa.table(
    {
        "at": pa.array([], pa.int64()),
        "k": pa.array([], pa.string()),
        "n": pa.array([], pa.int64()),
        "b": pa.array([], pa.int8()),
        "x": pa.array([], pa.float64()),
    }
)


def paths_of(filters: Sequence[Expr]) -> list[tuple[int, InnerPath]]:
    """The paths of judged events to windows over each of the filters."""
    events = sq.points(EVENTS, "at", name="s")
    windows = [
        events.where(one).group_by("k").tumbling_window(3 + i).select(m=sq.sum("n")) for i, one in enumerate(filters)
    ]
    written = number_sources(Results(tuple(window.plan for window in windows)))[0]
    program = compile_stages(written, Options(egresses=(Egress(),) * len(windows)))
    (relation,) = program.made_at(1)
    return [
        (feed.channel.number, path)
        for feed in program.feeds_of(relation)
        if (path := feed_in_arrow(program, feed, relation).inner)
    ]


PATHS = paths_of([condition for condition, _ in FILTERS.values()])


def test_a_path_says_which_value_alone_passes_its_filters() -> None:
    assert [path.only for _, path in PATHS] == [only for _, only in FILTERS.values()]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 1.0, None])
    )
)


@given(rows=ROWS)
def test_each_channel_gets_the_rows_of_its_path(rows: list[tuple[str | None, int, int, float | None]]) -> None:
    at = pa.array(range(len(rows)), pa.int64())
    columns = zip(
        ("k", "n", "b", "x"), (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 4, strict=True
    )
    payload = {name: pa.array(values, EVENTS.schema.field(name).type) for name, values in columns}
    deltas = pa.table({"__le": at, **payload})
    parts = [deltas.slice(0, 1), deltas.slice(1)]
    alone = {number: path.tables(deltas)[-1] for number, path in PATHS}
    assert dict(OutputPaths(PATHS).tables(parts)) == {
        number: table for number, table in alone.items() if table.num_rows
    }


def test_the_progress_of_all_kernels_goes_to_every_bucket() -> None:
    """A task may have that of several kernels, and of several buckets."""
    told = [Message("a", c=3, sender=0), Message("b", c=5, sender=0), Message("a", c=4, sender=1)]
    pack = stage_packer(Packer((), {}, buckets=2), {}, {})
    batches = pack(envelope_batches([(message.sender or 0, SPOKEN, encode_messages([message])) for message in told]))
    envelopes = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["__to"], row["__channel"]) for row in envelopes] == [(0, PROGRESS), (1, PROGRESS)]
    assert all(decode_messages(row["__body"]) == told for row in envelopes)


@dataclass(frozen=True)
class CountedPath(InnerPath):
    """A path that counts how often it is computed."""

    computed: list[int] = field(default_factory=list)

    def tables(self, deltas: pa.Table) -> list[pa.Table]:
        self.computed.append(deltas.num_rows)
        return super().tables(deltas)


def check_look_up() -> None:
    """Check that of many filters of a column against constants those are computed whose constant occurs, over its rows."""
    text = sq.col("k")
    paths = paths_of([text == str(number) for number in range(40)])
    counted = [(number, CountedPath(**vars(path))) for number, path in paths]
    deltas = pa.table({"__le": [1, 2, 3], "k": ["7", "9", "7"], "n": [0, 0, 0], "b": [0, 0, 0], "x": [0.0, 0.0, 0.0]})
    channels = [number for number, _ in OutputPaths(counted).tables([deltas])]
    assert sorted(path.computed for _, path in counted if path.computed) == [[1], [2]]
    assert sorted(channels) == sorted(counted[place][0] for place in (7, 9))


def test_many_filters_of_a_column_against_constants_are_one_look_up() -> None:
    check_look_up()
