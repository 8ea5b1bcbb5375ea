"""The Spark host: one generic stateful processor for every stage, and the map sides before and after it.

Everything here runs on executors. Rows between stages are envelopes: ``__to int, __channel int, __body binary``.
The runtime is pickled by value: no function of it may import streamq when called, because executors need not have streamq.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.columnar import concat, decode, with_column
from streamq.runtime.deltas import KEEP, NOW
from streamq.runtime.envelope import BESIDE_RESULTS, LATE, OUTPUTS, PROGRESS, REPORTS, SPOKEN, TAP, Envelope
from streamq.runtime.hosts.hosted_kernel import InnerPath, ItemPaths, OutputPaths
from streamq.runtime.hosts.identity import Identity, check_state
from streamq.runtime.hosts.packer import Packer
from streamq.runtime.hosts.result_rows import RESULT, packed_rows
from streamq.runtime.hosts.shipping import packed, packed_together
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.runtime.time.progress import Message, clock_messages, decode_messages, encode_messages, merge_messages
from streamq.runtime.time.progress_policy import ProgressPolicy

if TYPE_CHECKING:
    import pandas as pd

ENVELOPE_DDL = "__to int, __channel int, __body binary"
ENVELOPE = pa.schema([("__to", pa.int32()), ("__channel", pa.int32()), ("__body", pa.binary())])

FLUSH_ROWS = 1 << 18
"""The number of source rows that a map-side task combines at a time: it bounds memory, and hardly adds rows to send."""

FLUSH_BYTES = 32 << 20
"""The bytes of such rows that it combines at a time even if they are fewer, as rows may be long."""

STATE = "baskets"


class MapStateStore:
    """Chunks in Spark's MapState, so that checkpoints, exactly-once and recovery are Spark's."""

    def __init__(self, state: Any):
        self.state = state

    def __contains__(self, key: str) -> bool:
        return bool(self.state.containsKey((key,)))

    def get(self, key: str) -> bytes | None:
        """Return the chunk, or None."""
        value = self.state.getValue((key,))
        return None if value is None else bytes(value[0])

    def put(self, key: str, value: bytes) -> None:
        """Write a chunk."""
        self.state.updateValue((key,), (value,))

    def remove(self, key: str) -> None:
        """Forget a chunk."""
        self.state.removeKey((key,))

    def clear(self) -> None:
        """Forget all chunks."""
        self.state.clear()


DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""The main module of the process in which PySpark, as a query starts, asks a stage for its state."""


def hush_driver_worker() -> None:
    """Silence PySpark's process that asks a stage for its state; PySpark has no setting for that.

    Errors there are not printed: Spark gets them, or they are on the standard error.
    """
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", "") == DRIVER_WORKER:
        vars(main)["print"] = lambda *_, **__: None


def make_processor(stage: Stage, identity: Identity, buckets_by_key: Mapping[int, int]) -> Any:
    """Return a StatefulProcessor that hosts a stage of the query with that identity; Spark groups each bucket under a key.

    The class is defined inside a function, because it must not be imported before a session is set up. It holds the stage packed:
    as a query starts, Spark makes a processor in a new Python process only to ask for its state, and unpacking would import all
    that stages need.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    class StageProcessor(StatefulProcessor):
        def __init__(self, run: Callable[[int, Iterable[pd.DataFrame], Any], Iterator[pd.DataFrame]]):
            self.run = run

        def __setstate__(self, fields: dict[str, Any]) -> None:
            hush_driver_worker()
            vars(self).update(fields)

        def init(self, handle: StatefulProcessorHandle) -> None:
            key = StructType([StructField("key", StringType())])
            self.state = handle.getMapState(STATE, key, StructType([StructField("chunk", BinaryType())]))

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            yield from self.run(buckets_by_key[key[0]], rows, self.state)

        def close(self) -> None:
            pass

    return StageProcessor(packed(hosting(stage, identity)))


def hosting(stage: Stage, identity: Identity) -> Callable[[int, Iterable[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """Return the function that runs a stage in Spark on one bucket's envelopes; raises CheckpointError for unfit state."""

    def run(bucket: int, rows: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        """Run the stage on a bucket's envelopes; yield those that it sends on as one frame, or nothing.

        The time of the micro-batch is the worker's: in a column it would be a constant that is new in each micro-batch, for
        which Spark would compile code anew.
        """
        import pandas as pd

        envelopes: Iterable[Envelope] = (
            (bucket, int(channel), bytes(body))
            for frame in rows
            # by position: some versions of PySpark rename columns that begin with an underscore
            for channel, body in zip(frame.iloc[:, -2], frame.iloc[:, -1], strict=True)
        )
        baskets = Baskets(MapStateStore(state))
        check_state(baskets, identity)
        out = stage.run(bucket, baskets, envelopes, time.time_ns() // 1_000_000)
        if out:
            buckets, channels, bodies = zip(*out, strict=True)
            yield pd.DataFrame(
                {
                    "__to": pd.Series(buckets, dtype="int32"),
                    "__channel": pd.Series(channels, dtype="int32"),
                    "__body": pd.Series(bodies, dtype=object),
                }
            )

    return run


MapSide = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function of workers on the rows of a task."""


def bucket_runners(stages: Sequence[tuple[Stage, MapSide | None]]) -> list[MapSide]:
    """Return functions that run a stage once in each bucket of a task, on all its envelopes, and the map side behind it."""
    return packed_together([_bucket_runner(stage, behind) for stage, behind in stages])


def _bucket_runner(stage: Stage, behind: MapSide | None) -> MapSide:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the envelopes that each bucket sends on; its state is dropped."""
        yield from sent(batches) if behind is None else behind(sent(batches))

    def sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        of_buckets: dict[int, list[Envelope]] = {}
        for batch in batches:
            for envelope in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                of_buckets.setdefault(envelope[0], []).append(envelope)
        for bucket in sorted(of_buckets):
            yield from envelope_batches(stage.run(bucket, Baskets(DictStore({})), of_buckets.pop(bucket), 0))

    return run


def envelope_batches(envelopes: list[Envelope]) -> Iterator[pa.RecordBatch]:
    """Yield envelopes as record batches of a few rows, because bodies may be large."""
    for at in range(0, len(envelopes), 64):
        part = envelopes[at : at + 64]
        yield pa.record_batch(
            [pa.array([e[i] for e in part], ENVELOPE.field(i).type) for i in range(3)], schema=ENVELOPE
        )


WideRowLayout = Mapping[int, tuple[str | None, tuple[str, ...]]]
"""The layout of wide rows, which hold several channels' columns, under their own names or inside a struct: by channel number,
the struct's name (None: no struct) and the columns that the channel takes."""


def rows_of_channels(layout: WideRowLayout, batch: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the wide rows that passed the filters (without ``__keep``, all rows), by channel; nothing for one without any."""
    for number, (struct, columns) in layout.items():
        rows = batch
        if struct is not None:
            column = batch.column(struct).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
            rows = pa.Table.from_struct_array(column)
        if KEEP in rows.column_names and pc.min(rows.column(KEEP)).as_py() is not True:
            rows = rows.filter(rows.column(KEEP))
        if rows.num_rows:
            # rebuilt, because tables of several sources are concatenated and must have fields of equal nullability
            yield number, pa.table({name: rows.column(name) for name in columns})


def source_packer(packer: Packer, layout: WideRowLayout) -> MapSide:
    """Return the map side over a source's rows, for ``mapInArrow``; ``layout`` finds the columns of each channel in a row."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the envelopes of the rows, with the progress that they make."""
        items = (pa.Table.from_batches([batch]) for batch in batches)
        yield from _source_envelopes(packer, items, lambda table: rows_of_channels(layout, table))

    return packed(run)


def split_packer(
    packer: Packer,
    read: Callable[[pa.RecordBatch], Iterator[pa.Table]],
    items_of: Callable[[pa.Table, bool], pa.Table],
    paths: ItemPaths,
) -> MapSide:
    """Return the map side over a source's splits, for ``mapInArrow``: it reads their rows, which become items.

    Beside the splits there is, if progress reads it, the time of the micro-batch.
    """
    info = packer.source
    assert info is not None

    def items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the items of the splits, part by part."""
        for batch in (batch for batch in batches if batch.num_rows):
            for rows in read(batch):
                table = items_of(rows, True)
                now = batch.column(NOW)[0].as_py() if NOW in batch.schema.names else None
                yield table if now is None else with_column(table, NOW, np.full(table.num_rows, now))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the envelopes of the splits' rows, with the progress that they make."""
        yield from _source_envelopes(packer, items(batches), lambda table: paths.tables(info.items.deltas_of(table)))

    return packed(run)


def _source_envelopes(
    packer: Packer, items: Iterable[pa.Table], channels_of: Callable[[pa.Table], Iterable[tuple[int, pa.Table]]]
) -> Iterator[pa.RecordBatch]:
    """Yield the envelopes of FLUSH_ROWS items or FLUSH_BYTES at a time, with the progress that these make, and of the rest.

    ``channels_of`` returns the rows of a table that come to each channel, by its number.
    """
    combined: dict[int, list[pa.Table]] = {}
    progress: Message | None = None
    pending: list[pa.Table] = []
    envelopes: list[Envelope] = []

    def flush() -> None:
        """Read the pending items: add events to ``combined``, the refused ones to ``envelopes``, and merge the progress."""
        nonlocal progress
        good, message, refused = packer.read_source([concat(pending)] if pending else [])
        pending.clear()
        envelopes.extend(refused)
        if message is not None:
            progress = message if progress is None else merge_messages(progress, message)
        for table in good:
            for number, rows in channels_of(table):
                combined.setdefault(number, []).append(rows)

    rows = size = 0
    for table in items:
        pending.append(table)
        rows += table.num_rows
        size += table.nbytes
        if rows >= FLUSH_ROWS or size >= FLUSH_BYTES:
            flush()
            rows = size = 0
            yield from envelope_batches(packer.pack(combined, [], progress))
            combined.clear()
            yield from envelope_batches(envelopes)
            envelopes.clear()
            progress = None
    flush()
    yield from envelope_batches(packer.pack(combined, [], progress))
    yield from envelope_batches(envelopes)


def control_packer(sources: dict[str, str], buckets: int) -> MapSide:
    """Return the function that turns control rows into progress, and commands to tap, for every bucket.

    Its rows are ``source string (NULL: all), cti bigint, until bigint, idle_before bigint, tap string``, where a row with a
    ``tap`` is a command and nothing else; ``sources`` maps a source's name to its relation.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the progress and commands in control rows, for every bucket; nothing if no row has any."""
        messages = []
        for batch in batches:
            for row in batch.to_pylist():
                if row["tap"] is not None:
                    yield from _broadcast(TAP, row["tap"].encode(), buckets)
                    continue
                messages += [
                    Message(r, c=row["cti"], until=row["until"], idle_before=row["idle_before"] or 0)
                    for name, r in sources.items()
                    if row["source"] in (None, name)
                ]
        if messages:
            yield from _broadcast(PROGRESS, encode_messages(messages), buckets)

    return packed(run)


def clock_packer(policies: Mapping[str, ProgressPolicy], buckets: int) -> MapSide:
    """Return the function that turns clock rows into progress for every bucket.

    Its rows are ``now bigint``, in microseconds since 1970; the greatest is the time of day. ``policies`` are those of the
    sources that follow the clock, by relation.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the progress that the greatest time of day makes, for every bucket; nothing without rows."""
        latest = [pc.max(batch.column("now")).as_py() for batch in batches if batch.num_rows]
        messages = clock_messages(policies, max(latest)) if latest else []
        if messages:
            yield from _broadcast(PROGRESS, encode_messages(messages), buckets)

    return packed(run)


def _broadcast(channel: int, body: bytes, buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield the envelopes that bring every bucket the same body."""
    yield from envelope_batches([(bucket, channel, body) for bucket in range(buckets)])


def opener(relations: dict[int, tuple[str | None, pa.Schema]], schema: pa.Schema) -> MapSide:
    """Return the function that opens a stage's raw outputs into columns; other envelopes pass.

    ``relations``: by channel, the struct (None if there is only one relation) and the columns of its output. ``schema`` is the
    wide row: an envelope's columns, then the relations'.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield other envelopes as wide rows with NULLs in the relations' columns, and outputs as rows of their relations."""
        for batch in batches:
            numbers = batch.column("__channel").to_pylist()
            passed = [i for i, n in enumerate(numbers) if n not in relations]
            if passed:
                rows = batch.take(pa.array(passed))
                yield _row(schema, len(passed), {name: rows.column(name) for name in ENVELOPE.names})
            for i, n in enumerate(numbers):
                if n in relations:
                    yield _wide(decode(batch.column("__body")[i].as_py()), n, relations[n], schema)

    return packed(run)


def _wide(table: pa.Table, channel: int, relation: tuple[str | None, pa.Schema], schema: pa.Schema) -> pa.RecordBatch:
    """Return a relation's rows as rows of the wide schema: in its struct, or in columns of their own if ``relation`` names none.

    They have ``channel`` in ``__channel``; all other columns are NULL.
    """
    struct, wanted = relation
    cast = [table.column(f.name).combine_chunks().cast(f.type) for f in wanted]
    columns = dict(zip(wanted.names, cast, strict=True))
    if struct is not None:
        columns = {struct: pa.StructArray.from_arrays(cast, fields=list(wanted))}
    return _row(schema, table.num_rows, {"__channel": pa.array([channel] * table.num_rows, pa.int32()), **columns})


def stage_packer(packer: Packer, layout: WideRowLayout, paths: Mapping[int, OutputPaths]) -> MapSide:
    """Return the map side between two stages: it packs rows of outputs, and passes other envelopes.

    The progress of kernels goes to every bucket. ``paths``: by channel, those of outputs that have stayed in their envelopes;
    ``layout`` finds the columns of each channel in a row of the others, which are opened.
    """

    in_envelopes = pa.array([*paths], pa.int32())

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield other envelopes batch by batch; at the end those of all rows, and of the kernels' progress."""
        tables: dict[int, list[pa.Table]] = {}
        outputs: dict[int, list[pa.Table]] = {}
        stage_messages: list[Message] = []
        for batch in batches:
            table = pa.Table.from_batches([batch])
            is_output = pc.less_equal(table.column("__channel"), OUTPUTS)
            opened = pc.and_(is_output, pc.invert(pc.is_in(table.column("__channel"), in_envelopes)))
            rest = table.select(["__to", "__channel", "__body"]).filter(pc.invert(opened))
            passed: list[Envelope] = []
            for row in rest.to_pylist():
                if row["__channel"] == SPOKEN:
                    stage_messages += decode_messages(row["__body"])
                elif row["__channel"] in paths:
                    outputs.setdefault(row["__channel"], []).append(decode(row["__body"]))
                else:
                    passed.append((row["__to"], row["__channel"], row["__body"]))
            yield from envelope_batches(passed)
            if pc.any(opened).as_py():
                for number, rows in rows_of_channels(layout, table.filter(opened)):
                    tables.setdefault(number, []).append(rows)
        for channel, parts in outputs.items():
            for number, rows in paths[channel].tables(parts):
                tables.setdefault(number, []).append(rows)
        yield from envelope_batches(packer.pack(tables, stage_messages, None))

    return run


def result_opener(
    relations: Mapping[int, tuple[str | None, pa.Schema]],
    packed_paths: Mapping[int, Sequence[tuple[int, InnerPath | None]]],
    schema: pa.Schema,
) -> MapSide:
    """Return the function that opens the last stage's envelopes: results, late rows and reports; others are dropped.

    ``relations``: by channel, the struct (None: no struct) and the columns in which the rows of an envelope stand.
    ``packed_paths``: by channel, the results that read its rows, each with the path to it; their rows stay packed, and so does
    the body of the envelope if there is no path. ``schema`` is the wide row: ``__channel``, ``__late`` (struct), ``__report`` (a
    report of a bucket, as JSON), the columns of packed rows, if there are any, then the relations' columns.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a batch of wide rows for each envelope with a relation's rows or late rows, and one for all others together."""
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for channel, body in zip(batch.column("__channel").to_pylist(), batch.column("__body"), strict=True):
                if channel in relations:
                    yield _wide(decode(body.as_py()), channel, relations[channel], schema)
                if channel in packed_paths:
                    deltas = decode(body.as_py())
                    for number, path in packed_paths[channel]:
                        table = deltas if path is None else path.tables(deltas)[-1]
                        rows += packed_rows(number, table, body.as_py() if path is None else None)
                elif channel == LATE:
                    late = decode(body.as_py()).combine_chunks()
                    struct = pa.StructArray.from_arrays(
                        [late.column(f.name).combine_chunks() for f in schema.field("__late").type],
                        fields=list(schema.field("__late").type),
                    )
                    channels = pa.array([LATE] * late.num_rows, pa.int32())
                    yield _row(schema, late.num_rows, {"__channel": channels, "__late": struct})
                elif channel in REPORTS:
                    rows.append({"__channel": channel, "__report": body.as_py().decode()})
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return packed(run)


def result_packer(structs: Mapping[str, int], schema: pa.Schema) -> MapSide:
    """Return the function that packs the rows of results that Spark has computed; the other rows of ``schema`` pass.

    ``structs``: by the column that holds a result's rows, the number of the result.
    """

    beside = pa.array(BESIDE_RESULTS, pa.int32())

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield, for each batch, the rows that pass, and one for each result that has rows in it."""
        for batch in batches:
            others = pc.or_(pc.is_valid(batch.column(RESULT)), pc.is_in(batch.column("__channel"), beside))
            yield batch.select(schema.names).filter(others)
            rows: list[dict[str, Any]] = []
            for name, number in structs.items():
                rows += packed_rows(number, pa.Table.from_struct_array(batch.column(name).drop_null()))
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return packed(run)


def _row(schema: pa.Schema, rows: int, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return a batch of the wide schema with these columns, and NULLs in all others."""
    return pa.record_batch(
        [columns[f.name] if f.name in columns else pa.nulls(rows, f.type) for f in schema], schema=schema
    )
