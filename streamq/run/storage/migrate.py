"""Begin a changed query anew from its sources, on a new checkpoint, up to the point where an old checkpoint stands."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streamq.errors import CheckpointError, PlanError, check_keywords
from streamq.plan.footprint import Expected
from streamq.plan.node import Verbs, not_a_stream, tables_behind
from streamq.policies import Consistency
from streamq.run.failure import spark_errors
from streamq.run.prepared_stream import PreparedStream, prepare
from streamq.run.run_options import BY_MICRO_BATCH, ResultRequest, RunOptions
from streamq.run.running import refuse_second_run
from streamq.run.session.findings import session_of
from streamq.run.storage.checkpoint import MIGRATION, Checkpoint
from streamq.run.storage.files import Offsets, path_exists, spark_sources
from streamq.run.storage.raw_files import RawFolder, folder_name, in_url
from streamq.runtime.hosts.identity import Identity, ends_final_rows

VERB = "migrate"
"""The verb in errors."""


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A migration that is done: the checkpoint ``to`` stands where ``checkpoint`` stood after micro-batch ``upto``.

    ``begins``: the sources of which nothing has been read yet, because the old query did not read them.
    """

    checkpoint: str
    to: str
    upto: int
    begins: tuple[str, ...] = ()

    def __str__(self) -> str:
        read = f"{self.to} stands where {self.checkpoint} stood after micro-batch {self.upto}"
        return f"{read}; {', '.join(self.begins)} will be read from the start" if self.begins else read


@check_keywords
def migrate(
    query: Verbs | Sequence[ResultRequest],
    checkpoint: str,
    *,
    to: str,
    consistency: str | Consistency = "middle",
    output: str = "final",
    ctis: bool = False,
    key: str | Sequence[str] = (),
    late_sink: str | None = None,
    buckets: int | None = None,
    early: bool = False,
    expected: Expected | None = None,
) -> Migration:
    """Compute the state of a changed query anew from its sources, up to where a checkpoint stands; return the :class:`Migration`.

    For a query that does not fit the state of ``checkpoint``, such as one with another number of ``buckets``. ``to`` is a new
    folder: the checkpoint on which ``run`` (or :func:`run_all`, if ``query`` is a list of its results) then goes on, with the
    arguments given here. All rows that ``checkpoint`` has read are read again, in one micro-batch, so no row is late; nothing is
    written. So the sources must still have these rows, and the micro-batch must fit into memory. CTIs sent by ``advance`` count
    as they did.

    The sink is handed over as well: the old sinks hold the rows up to that point, and the run on ``to`` writes those after it,
    into new sinks, a folder a micro-batch. Stop the old run before, and do not go on with it. A migration that was interrupted,
    even killed, is begun again by the same call; until it is done, no run starts on ``to``. Once it is done, the call returns
    what it returned. A micro-batch that the old run has planned and not committed is left to the new one, unless all its sinks
    have its rows. Raises CheckpointError if ``checkpoint`` is not that of a run, or has ended, if ``to`` is in use, if final
    rows would become others, or ``early`` changes, and if files cannot be reached from this program; PlanError as ``run`` does,
    and for more than one source without a name.

    ::

        print(sq.migrate(changed, "checkpoint", to="checkpoint2"))
        changed.run(checkpoint="checkpoint2", sink="out2")
    """
    results = _results(query, output, ctis, key)
    for path in (checkpoint, to):
        refuse_second_run(path)
    options = replace(RunOptions.from_call(VERB, locals(), results), checkpoint=to)
    spark = session_of(tables_behind([r.query for r in results], VERB).values(), VERB)
    with spark_errors(VERB, "the migration has failed"):
        return _Migrator(spark, options, checkpoint, to).migrate()


def _results(
    query: Verbs | Sequence[ResultRequest], output: str, ctis: bool, key: str | Sequence[str]
) -> tuple[ResultRequest, ...]:
    """Return the results of a query, or of ``run_all``; raise PlanError for anything else."""
    if isinstance(query, Verbs):
        return (ResultRequest(query=query, output=output, ctis=ctis, key=key),)
    if not isinstance(query, list | tuple) or not all(isinstance(one, ResultRequest) for one in query) or not query:
        not_a_stream(VERB, query)
    return tuple(query)


@dataclass(frozen=True)
class _Migrator:
    """A migration of the queries of ``options`` from the checkpoint ``old`` to the folder ``new``."""

    spark: SparkSession
    options: RunOptions
    old: str
    new: str

    def migrate(self) -> Migration:
        """Do what is left of the migration."""
        source, target = RawFolder.from_path(self.old, VERB), RawFolder.from_path(self.new, VERB)
        stored, upto = self._point()
        plan = {"from": folder_name(self.old), "upto": upto}
        if not self._begin(target, plan):
            return self._done(stored, upto)
        (target / "streamq").write(MIGRATION, json.dumps(plan).encode())
        for name in ("control", *_source_folders(source)):
            (source / "streamq" / name).copy_to(target / "streamq" / name, _without_idle_parts)
        prepared = prepare(self.options)
        identity = prepared.identity
        _check_names(identity)
        _check_forms(stored, identity)
        sources, before = spark_sources(identity), spark_sources(stored)
        for place, name in enumerate(sources):
            if name in before:
                log = source / "sources" / str(before.index(name))
                log.copy_to(target / "sources" / str(place), self._moved)
        offsets = Offsets.read((source / "offsets").read(str(upto)), before, VERB)
        partitions = str(self.spark.conf.get("spark.sql.shuffle.partitions"))
        target.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        (target / "offsets").write("0", offsets.to_bytes(sources, partitions))
        self._replay(prepared)
        Checkpoint(self.spark, self.new).mark(identity)
        return self._done(stored, upto)

    def _point(self) -> tuple[Identity, int]:
        """Return the identity of the old checkpoint, and the number of the last micro-batch that counts as done.

        Raises CheckpointError if there is none, and for a checkpoint of a writeStream, of another version or of an ended stream.
        """
        checkpoint = Checkpoint(self.spark, self.old)
        stored = checkpoint.stored()
        if not isinstance(stored, Identity):
            other = "there is none" if stored is None else f"its state has another layout (version {stored.version})"
            raise CheckpointError(VERB, "not a checkpoint of run", f"found {self.old}: {other}")
        if checkpoint.control.has_end(self.spark):
            raise CheckpointError(VERB, "the checkpoint's stream has ended", "finish was called on it")
        upto, planned = checkpoint.last_commit(), checkpoint.last_planned()
        if planned > upto and self._is_written(stored, planned):
            upto = planned
        if upto < 0:
            hint = "Run the query on a new checkpoint."
            raise CheckpointError(VERB, "the checkpoint has no micro-batch yet", f"found {self.old}", hint)
        return stored, upto

    def _is_written(self, stored: Identity, number: int) -> bool:
        """Return True if the folders have all rows of a micro-batch; raise CheckpointError if only some have.

        Folders of micro-batches have none of a micro-batch that has no rows for them, but for the last one.
        """
        has_rows = {name: self._has_rows(name, form, number) for name, form in stored.folders}
        in_order = [name for name, form in stored.folders if form.endswith(BY_MICRO_BATCH)]
        if has_rows and all(has for name, has in has_rows.items() if name not in in_order[:-1]):
            return True
        if some := [name for name, has in has_rows.items() if has]:
            wrong = f"micro-batch {number} was interrupted, and only some sinks have its rows"
            hint = f"Delete it there, streamq_batch={number}: the new run will write these rows."
            raise CheckpointError(VERB, wrong, f"found it in {', '.join(some)}", hint)
        return False

    def _has_rows(self, folder: str, form: str, number: int) -> bool:
        """Return True if a folder has the rows of a micro-batch, complete."""
        if form.endswith(BY_MICRO_BATCH):
            return path_exists(self.spark, f"{folder}/streamq_batch={number}/_SUCCESS")
        log = f"{folder}/_spark_metadata/{number}"
        return path_exists(self.spark, log) or path_exists(self.spark, f"{log}.compact")

    def _begin(self, target: RawFolder, plan: dict[str, object]) -> bool:
        """Return False if the migration is done; else empty the folder, which holds at most a part of it.

        Raises CheckpointError if anything else is there.
        """
        files = target.files()
        is_mine = f"streamq/{MIGRATION}" in files
        if files and not (is_mine and json.loads((target / "streamq").read(MIGRATION)) == plan):
            wrong = "the new checkpoint is no empty folder"
            raise CheckpointError(VERB, wrong, f"found {self.new}", "Give a new folder.")
        if Checkpoint(self.spark, self.new).stored() is not None:
            return False
        target.delete()
        return True

    def _moved(self, content: bytes) -> bytes:
        """Return a log of a source in which files of the old checkpoint are those of the new one."""
        old, new = (in_url(folder_name(path)).encode() + b"/streamq/" for path in (self.old, self.new))
        return content.replace(old, new)

    def _replay(self, prepared: PreparedStream) -> None:
        """Process all rows up to the point, in one micro-batch, and write nothing."""
        writer = prepared.rows.writeStream.format("noop").outputMode("append").trigger(once=True)
        run = writer.option("checkpointLocation", self.new).start()
        run.awaitTermination()
        checkpoint = Checkpoint(self.spark, self.new)
        if (checkpoint.last_commit(), checkpoint.last_planned()) != (0, 0):
            raise CheckpointError(VERB, "Spark has not processed the rows in one micro-batch", "")

    def _done(self, stored: Identity, upto: int) -> Migration:
        """Return the migration that is done."""
        now = Checkpoint(self.spark, self.new).stored()
        assert isinstance(now, Identity)
        begins = tuple(name for name in now.sources if name not in stored.sources)
        return Migration(checkpoint=self.old, to=self.new, upto=upto, begins=begins)


def _source_folders(source: RawFolder) -> list[str]:
    """Return the names of the folders beside a checkpoint's control folder: of literal rows, and of positions of sources."""
    names = {name.partition("/")[0] for name in (source / "streamq").files()}
    return sorted(name for name in names if name.startswith("control-"))


def _without_idle_parts(content: bytes) -> bytes:
    """Return a file of the control folder that calls no part of a source idle: they are counted by old micro-batches."""
    if not content.startswith(b"PAR1"):
        return content
    table = pq.read_table(io.BytesIO(content))
    if "idle_before" not in table.column_names or not any(table.column("idle_before").to_pylist()):
        return content
    place = table.column_names.index("idle_before")
    copy = io.BytesIO()
    pq.write_table(table.set_column(place, table.schema.field(place), [[0] * table.num_rows]), copy)
    return copy.getvalue()


def _check_names(identity: Identity) -> None:
    """Raise PlanError if several sources have no name: they would be told apart by their order alone."""
    unnamed = [table for table in identity.sources if table.startswith("#")]
    if len(unnamed) > 1:
        wrong = f"{len(unnamed)} sources have no name"
        reason = "which of them the checkpoint has read how far is known by their names"
        raise PlanError(VERB, wrong, reason, "Give each source its own name=.")


def _check_forms(stored: Identity, identity: Identity) -> None:
    """Raise CheckpointError if the old run has not sent rows that the new one counts as sent, or the reverse.

    What is computed anew is written nowhere, so rows that only the new form sends before they are final would be in no sink.
    """
    was_final = ends_final_rows(stored, identity)
    all_final = all(result.is_final for result in identity.results)
    if was_final or (stored.early != identity.early and not all_final):
        form = 'output="final"' if was_final else f"early={stored.early}"
        wrong = "the output cannot change with the query"
        reason = f"the checkpoint's run has {form}, and has not sent the same rows so far"
        hint = f"Migrate with {form}, then run with the other output: it goes on, or says why not."
        raise CheckpointError(VERB, wrong, reason, hint)
