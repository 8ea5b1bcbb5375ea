"""A run's checkpoint: the identity of its query, the check that a run may continue from it, and the counts of earlier runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamq.errors import CheckpointError, sentence
from streamq.plan.node import Node
from streamq.plan.schema import MICRO_BATCH
from streamq.run.control import ControlFolder
from streamq.run.files import path_exists, read_line, write_line
from streamq.run.sinks.sink import folder_name
from streamq.runtime.identity import Identity, identity_differences, read_identity, refuse_other
from streamq.runtime.readings import LATEST, NO_READINGS, Reading, Readings, combine_readings
from streamq.user_code.repository import called_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamq.compiler.results import Results
    from streamq.compiler.staged_plan import StagedPlan


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The permission to run on a checkpoint.

    ``is_new``: no run has read any input there. ``is_ending``: the input has ended, but a run was interrupted before it had
    written all rows.
    """

    is_new: bool
    is_ending: bool = False


@dataclass(frozen=True, kw_only=True)
class EarlierRuns:
    """The counts of earlier runs on a checkpoint: totals by ``source|reason``, and the readings of the last micro-batch."""

    late: Mapping[str, int] = field(default_factory=dict)
    readings: Readings = NO_READINGS


def identity_of(plan: Results, program: StagedPlan) -> Identity:
    """Return the identity of queries; ``plan`` holds them as they were written, ``program`` as they were compiled."""
    from streamq.compiler.explain import explain_sections

    (part,) = explain_sections(plan, ("logical",))
    options = program.options
    return Identity(
        query=program.plan.digest,
        outputs=tuple(str(egress.output) for egress in options.egresses),
        buckets=options.buckets,
        late_sink=options.late_output,
        ctis=tuple(egress.ctis for egress in options.egresses),
        early=options.early,
        plan=(*part.lines, *_module_lines(plan)),
        clock=bool(program.clock_policies),
    )


def _module_lines(plan: Node) -> list[str]:
    """Return a line for each user module in a plan, with its name and the fingerprint of its code."""
    return [f"module {module.name}: code {module.fingerprint}" for module in called_modules(plan)]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder: Spark's own files, and in ``streamq/`` the identity of its query and its control folder."""

    spark: SparkSession
    path: str

    @property
    def control(self) -> ControlFolder:
        """The folder for CTIs from outside."""
        return ControlFolder(f"{self.path}/streamq/control")

    def buckets(self) -> int | None:
        """Return the number of buckets of the stored state; None if the checkpoint is new or of another version."""
        line = read_line(self.spark, self._identity)
        identity = None if line is None else read_identity(line)
        return identity.buckets if isinstance(identity, Identity) else None

    def claim(self, own: Identity, sinks: Sequence[str] = ()) -> Claim:
        """Mark the checkpoint as this query's if it is unused; raise CheckpointError if it is another query's, or has ended.

        A checkpoint counts as unused if its runs have read no input, and as another query's if it is a writeStream's. Return
        that the checkpoint is new, or that its input has ended and the rest is still to be written. ``sinks`` are the folders
        into which the query writes; they must not belong to another checkpoint. In case of an error the checkpoint does not
        change.
        """
        own = replace(own, folders=tuple(folder_name(sink) for sink in sinks))
        line = read_line(self.spark, self._identity)
        if line is None:
            if path_exists(self.spark, f"{self.path}/metadata"):
                hint = "Use a new checkpoint, or to_stream() and a writeStream."
                wrong = "the checkpoint is that of a writeStream"
                raise CheckpointError(sentence("run", wrong, f"found {self.path}", hint))
            # a run that was interrupted while it marked the checkpoint has done nothing yet
            return self._claim_new(own, sinks)
        stored = read_identity(line)
        if identity_differences(stored, own) and not self._has_begun() and not self.control.has_end(self.spark):
            # an earlier start failed before it read any input, and its query or sink has been changed since
            return self._claim_new(own, sinks)
        refuse_other(stored, own, "run")
        is_ending = self.control.has_end(self.spark)
        if is_ending and read_line(self.spark, self._ended) is not None:
            hint = "Use a new checkpoint, and a new sink."
            raise CheckpointError(sentence("run", "the checkpoint's stream has ended", "finish was called on it", hint))
        return Claim(is_new=False, is_ending=is_ending)

    def mark_ended(self) -> None:
        """Record that the input has ended and all rows are written."""
        write_line(self.spark, self._ended, "ended")

    def earlier_runs(self, program: StagedPlan) -> EarlierRuns:
        """Return the counts and readings in the state of the last micro-batch, read by Spark's state reader.

        They are empty if no micro-batch has been committed.
        """
        from pyspark.sql import functions as F

        from streamq.runtime.basket import Baskets
        from streamq.runtime.processor import STATE

        if not path_exists(self.spark, f"{self.path}/commits/*"):
            return EarlierRuns()
        late: dict[str, int] = {}
        columns: list[dict[str, Reading]] = []
        reader = self.spark.read.format("statestore").option("stateVarName", STATE)
        for stage in program.stages:
            state = reader.option("operatorId", stage.number).load(self.path)
            manifests = state.where(F.col("user_map_key.key") == Baskets.MANIFEST).select("user_map_value.chunk")
            for (manifest,) in manifests.collect():
                # Spark may number operators in another order, so look at the names in every state
                for name, values in json.loads(bytes(manifest))["values"].items():
                    if name.startswith(LATEST):
                        columns.append(values)
                    for reason, count in values.items() if name.startswith("totals") else ():
                        late[reason] = late.get(reason, 0) + count
        return EarlierRuns(late=late, readings=combine_readings(columns))

    @property
    def _identity(self) -> str:
        return f"{self.path}/streamq/identity"

    @property
    def _ended(self) -> str:
        return f"{self.path}/streamq/ended"

    def _has_begun(self) -> bool:
        """Return True if a run has read any input."""
        return path_exists(self.spark, f"{self.path}/offsets/*")

    def _claim_new(self, own: Identity, sinks: Sequence[str]) -> Claim:
        """Mark the checkpoint as this query's; raise CheckpointError, before that, for a sink that is not empty."""
        for sink in sinks:
            _refuse_used_sink(self.spark, sink)
        write_line(self.spark, self._identity, own.to_json())
        return Claim(is_new=True)


def _refuse_used_sink(spark: SparkSession, sink: str) -> None:
    """Raise CheckpointError for a folder with micro-batches, or with files whose names begin with neither dot nor underscore.

    If it holds micro-batches of another checkpoint, Spark would skip micro-batches with the same numbers, and folders
    ``streamq_batch=N`` would be overwritten. Other files, such as the input's, would be hidden, as Spark reads only files in the
    sink's log.
    """
    for trace in ("_spark_metadata", f"{MICRO_BATCH}=*"):
        path = f"{sink}/{trace}"
        if path_exists(spark, path):
            wrong, hint = "the sink has micro-batches of another checkpoint", "the checkpoint that it belongs to"
            raise CheckpointError(sentence("run", wrong, f"found {path}", f"Use a new sink, or {hint}."))
    if path_exists(spark, f"{sink}/[^._]*"):
        wrong, hint = "the sink has files of others", "Use a new folder: Spark would no longer see them."
        raise CheckpointError(sentence("run", wrong, f"found some in {sink}", hint))
