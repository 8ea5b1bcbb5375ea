"""What a checkpoint says of the query that made it, and whether a run may go on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamq.errors import CheckpointError, sentence
from streamq.plan.schema import MICRO_BATCH
from streamq.run.failure import spark_errors
from streamq.run.sinks import one_name
from streamq.runtime.identity import changes, parts_of, refuse_other
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, Row, SparkSession

    from streamq.compiler.program import Program
    from streamq.plan.node import Node

STATE_VERSION = 8
"""Changes when the layout of the state, of the identity beside it or of the folders of a sink does."""

CONTROL_DDL = "source string, cti bigint, until bigint"
"""CTIs from outside, in the control folder; a NULL source is every source."""

WRITABLE = "A checkpoint is a folder that all of Spark can write into."
"""What to do about one that is not."""


@dataclass(frozen=True)
class Claim:
    """A checkpoint that a run may go on from. ending: its stream has been told to end, and a run was cut off before it had."""

    new: bool
    ending: bool = False


def identity_of(plan: Node, program: Program) -> dict[str, Any]:
    """The identity of a query (``streamq.runtime.identity``); ``plan`` is the query as it was written."""
    from streamq.compiler.explain import explained

    (part,) = explained(plan, ("logical",))
    return {"version": STATE_VERSION, "fingerprint": program.fingerprint(), "plan": part.lines}


def claim(
    spark: SparkSession, checkpoint: str, control: str, identity: Mapping[str, Any], sinks: Sequence[str] = ()
) -> Claim:
    """Mark a checkpoint on which no query has begun as this query's; one that is in use must be its own, and not have ended.

    ``sinks`` are the folders the query writes into, which must not be another checkpoint's. Raises CheckpointError, and
    leaves the checkpoint as it is.
    """
    path = _identity(checkpoint)
    mine = {**identity, "folders": [one_name(sink) for sink in sinks]}
    marked = _text(spark, path)
    if marked is None:
        if _exists(spark, f"{checkpoint}/metadata"):
            hint = "Use a new checkpoint, or to_stream() and a writeStream."
            wrong = "the checkpoint is that of a writeStream"
            raise CheckpointError(sentence("run", wrong, f"found {checkpoint}", hint))
        # what was cut off while it was marked has done nothing yet
        _refuse_sinks(spark, sinks)
        _write(spark, path, json.dumps(mine))
        return Claim(new=True)
    before = json.loads(marked)
    if changes(before, mine) and not _exists(spark, f"{checkpoint}/offsets/*") and not _told_to_end(spark, control):
        # a start that failed has read nothing: its query, or its sink, was mended
        _refuse_sinks(spark, sinks)
        _write(spark, path, json.dumps(mine))
        return Claim(new=True)
    refuse_other(before, mine, "run")
    ending = _told_to_end(spark, control)
    if ending and _text(spark, _ended(checkpoint)) is not None:
        hint = "Use a new checkpoint, and a new sink."
        raise CheckpointError(sentence("run", "the checkpoint's stream has ended", "finish was called on it", hint))
    return Claim(new=False, ending=ending)


def buckets_kept(spark: SparkSession, checkpoint: str) -> int | None:
    """How many buckets each stage of a checkpoint's state has; None where it is new, or of another version."""
    marked = _text(spark, _identity(checkpoint))
    identity = {} if marked is None else json.loads(marked)
    return int(parts_of(identity)["buckets"]) if identity.get("version") == STATE_VERSION else None


def _told_to_end(spark: SparkSession, control: str) -> bool:
    """Whether the control folder has the CTI that ends the stream."""
    ends = spark.read.schema(CONTROL_DDL).parquet(control).where(f"cti = {INFINITY}")
    return bool(ends.limit(1).collect())


def mark_ended(spark: SparkSession, checkpoint: str) -> None:
    """The stream has ended, and all its rows are out."""
    _write(spark, _ended(checkpoint), "ended")


def _identity(checkpoint: str) -> str:
    return f"{checkpoint}/streamq/identity"


def _ended(checkpoint: str) -> str:
    return f"{checkpoint}/streamq/ended"


def _refuse_sinks(spark: SparkSession, sinks: Sequence[str]) -> None:
    """Raise CheckpointError for a folder that is not empty.

    Micro-batches of another checkpoint are numbered: Spark leaves out those that are there, and a folder ``streamq_batch=N``
    would be written over. Files of others, the input's perhaps, would be hidden: Spark reads what the sink's log has.
    """
    for sink in sinks:
        for path in (f"{sink}/{trace}" for trace in ("_spark_metadata", f"{MICRO_BATCH}=*")):
            if _exists(spark, path):
                wrong, hint = "the sink has micro-batches of another checkpoint", "the checkpoint that it belongs to"
                raise CheckpointError(sentence("run", wrong, f"found {path}", f"Use a new sink, or {hint}."))
        if _exists(spark, f"{sink}/[^._]*"):
            wrong, hint = "the sink has files of others", "Use a new folder: Spark would no longer see them."
            raise CheckpointError(sentence("run", wrong, f"found some in {sink}", hint))


def _exists(spark: SparkSession, path: str) -> bool:
    """Whether there is such a folder; of one whose name begins with an underscore Spark reads no rows."""
    with spark_errors("run", f"Spark cannot read {path}", "Use a sink that all of Spark can write into."):
        return _first_row(spark.read.format("binaryFile"), path, "path") is not None


def _text(spark: SparkSession, path: str) -> str | None:
    """The line that a checkpoint's file consists of; None where there is no such file."""
    with spark_errors("run", f"Spark cannot read {path}", WRITABLE, CheckpointError):
        rows = _first_row(spark.read.format("text"), path, "value")
    return str(rows[0][0]) if rows else None


def _first_row(reader: DataFrameReader, path: str, column: str) -> list[Row] | None:
    """The first row of what is there: no row where that is empty, None where there is no such path.

    The path is given twice: of a single one that is not there Spark first looks for a sink's log, and logs a warning with
    a trace of Java's.
    """
    from pyspark.errors import AnalysisException

    try:
        return reader.load([path, path]).select(column).limit(1).collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _write(spark: SparkSession, path: str, text: str) -> None:
    with spark_errors("run", f"Spark cannot write {path}", WRITABLE, CheckpointError):
        spark.createDataFrame([(text,)], "value string").coalesce(1).write.mode("overwrite").text(path)


@dataclass(frozen=True)
class Kept:
    """What earlier runs have left: totals by ``source|reason``, and the readings of the last micro-batch."""

    totals: dict[str, int]
    told: dict[str, int]


def kept(spark: SparkSession, checkpoint: str, program: Program) -> Kept:
    """What stands in the state of the checkpoint's last micro-batch, by Spark's reader of state."""
    from pyspark.sql import functions as F

    from streamq.runtime.basket import Baskets
    from streamq.runtime.processor import STATE
    from streamq.runtime.readings import together

    totals: dict[str, int] = {}
    told: list[dict[str, int]] = []
    if not _exists(spark, f"{checkpoint}/commits/*"):
        return Kept({}, {})
    reader = spark.read.format("statestore").option("stateVarName", STATE)
    for stage in program.stages:
        state = reader.option("operatorId", stage.level).load(checkpoint)
        manifests = state.where(F.col("user_map_key.key") == Baskets.MANIFEST).select("user_map_value.chunk")
        for (manifest,) in manifests.collect():
            # Spark numbers operators in an order of its own
            for name, values in json.loads(bytes(manifest))["values"].items():
                if name.startswith("told"):
                    told.append(values)
                for key, n in values.items() if name.startswith("totals") else ():
                    totals[key] = totals.get(key, 0) + n
    return Kept(totals, together(told))
