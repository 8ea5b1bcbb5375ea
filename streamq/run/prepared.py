"""A query made ready to run as a stream: session, compiled program, tables as streaming DataFrames, control folder."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamq.choices import OutputForm
from streamq.errors import CheckpointError, PlanError, sentence
from streamq.operators.tables import as_dataframe
from streamq.plan.node import Node
from streamq.policies import Consistency, consistency_of
from streamq.run.active import session_of
from streamq.run.checkpoint import CONTROL_DDL, WRITABLE, buckets_kept, identity_of
from streamq.run.failure import spark_errors
from streamq.run.foreign import prepare_for_streams, warn_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamq.compiler.program import Program


class Prepared:
    """A plan compiled and connected to its streaming tables, its control folder if it has one, and a session that can run it.

    buckets: None for those of the checkpoint, if it has any.
    """

    def __init__(
        self,
        verb: str,
        plan: Node,
        tables: Mapping[str, Any],
        output: str,
        ctis: bool,
        late_output: bool,
        control: str | None,
        buckets: int | None,
        consistency: str | Consistency,
        checkpoint: str | None = None,
    ):
        from streamq.compiler.egress import egress
        from streamq.compiler.program import Options
        from streamq.compiler.rewriter import rewrite
        from streamq.compiler.stages import compile_stages
        from streamq.compiler.streaming import check_streaming
        from streamq.operators import JoinTable, Source
        from streamq.plan.node import nodes, numbered

        if buckets is not None and (not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 1):
            raise PlanError(sentence(verb, "buckets is a whole number of at least 1", f"found {buckets!r}"))
        level = consistency_of(consistency, plan.schema.axis, verb)
        form = OutputForm.chosen(output, "output", verb)
        self.egress = egress(plan, form, ctis=ctis, verb=verb, level=level)
        self.spark = session_of(tables.values(), verb)
        prepare_for_streams(self.spark, verb)
        warn_of_tasks(self.spark, verb)
        self.control = control
        written = plan
        plan, names = numbered(plan)
        tables = {names[name]: table for name, table in tables.items() if name in names}
        buckets = buckets or (checkpoint and buckets_kept(self.spark, checkpoint)) or _buckets(self.spark)
        options = Options(form, late_output, buckets, level=level, ctis=ctis)
        self.program: Program = compile_stages(rewrite(plan).plan, options)
        self.identity = identity_of(written, self.program)
        self.tables: dict[str, DataFrame] = {}
        for source in (n for n in nodes(plan) if isinstance(n, Source)):
            table = tables[source.table]
            self.tables[source.table] = (
                _as_stream(self.spark, verb, control, source, table) if not hasattr(table, "isStreaming") else table
            )
            check_streaming(source, self.tables[source.table], verb)
        for static in (n for n in nodes(plan) if isinstance(n, JoinTable)):
            table = tables[static.table]
            held = table if hasattr(table, "isStreaming") else as_dataframe(self.spark, table)
            self.tables[static.table] = held

    @cached_property
    def results(self) -> DataFrame:
        """Result rows, late rows and totals, in the columns of ``compiler.streaming.chain``; a run may start them twice."""
        from streamq.compiler.streaming import chain
        from streamq.plan.lowering import in_utc

        control = None
        if self.control is not None:
            self.spark.createDataFrame([], CONTROL_DDL).write.mode("append").parquet(self.control)
            control = self.spark.readStream.schema(CONTROL_DDL).parquet(self.control)
        with in_utc(self.spark):
            return chain(self.program, self.tables, control, self.identity)


def _buckets(spark: SparkSession) -> int:
    """Enough to keep all tasks of a shuffle busy; each costs some milliseconds a micro-batch."""
    from streamq.compiler.program import BUCKETS

    return min(BUCKETS, 4 * int(spark.conf.get("spark.sql.shuffle.partitions") or BUCKETS))


def _as_stream(spark: SparkSession, verb: str, control: str | None, source: Any, table: Any) -> DataFrame:
    """A literal table as a streaming DataFrame: written once beside the control folder, read as a file stream.

    Raises CheckpointError where another run has read other rows there, PlanError where there is no such folder.
    """
    from pyspark.errors import AnalysisException

    if control is None:
        found = "a checkpoint reads them from a folder that must be there as long as it is"
        raise PlanError(
            sentence(verb, f"source {source.shown_name()} has literal rows", found, "Give control='a folder'.")
        )
    path = f"{control.rstrip('/')}-literal-{source.shown_name()}"
    df = as_dataframe(spark, table)
    with spark_errors(verb, f"Spark cannot read or write {path}", WRITABLE, CheckpointError):
        try:
            kept = spark.read.parquet(path).toArrow()
        except AnalysisException:
            # there is no file yet
            df.coalesce(1).write.mode("overwrite").parquet(path)
            kept = None
    if kept is not None and repr(kept.to_pylist()) != repr(df.toArrow().to_pylist()):
        found = f"the checkpoint's run has read {kept.num_rows} row(s), now there are {table.num_rows}"
        hint = "Use a new checkpoint, or a DataFrame where rows are added."
        raise CheckpointError(
            sentence(verb, f"the rows of {source.shown_name()} are not those of the checkpoint", found, hint)
        )
    return spark.readStream.schema(df.schema).parquet(path)


def temporary(prefix: str) -> str:
    """A folder that goes with this process."""
    path = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
