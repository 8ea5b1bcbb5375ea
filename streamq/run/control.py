"""The control folder of a run, which holds CTIs and commands from outside the sources, and the clock, which ticks beside it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from streamq.errors import PlanError, TimeError, sentence
from streamq.run.files import path_exists
from streamq.time import INFINITY, MINUS_INFINITY, instant_ticks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamq.compiler.staged_plan import StagedPlan


ClockRows = Callable[["SparkSession"], "DataFrame"]
"""A clock: of a session, a streaming DataFrame of rows ``now bigint``, in microseconds since 1970."""

TICK = 1_000_000
"""The length of time between two ticks, in microseconds: Spark's ``rate`` source counts whole seconds."""


def ticking_clock(spark: SparkSession) -> DataFrame:
    """Return a streaming DataFrame of rows ``now bigint``, in microseconds since 1970: one for each second that has passed.

    The first comes a second after the first start on a checkpoint; after a stop those of all the time since come at once. The
    seconds are in the offsets that Spark keeps of each micro-batch, so one that is repeated sees the same time of day.
    """
    from pyspark.sql import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    # a row has the instant at which its second began, and is there once that is over
    return rows.select((F.unix_micros("timestamp") + TICK).alias("now"))


CONTROL_DDL = "source string, cti bigint, until bigint, idle_before bigint, tap string"
"""The columns of the folder's rows; a NULL source stands for every source. A row with a ``tap``, as JSON, says nothing else."""


@dataclass(frozen=True)
class OutsideCti:
    """A CTI from outside the sources, for the source with the table ``table`` (None: for every source).

    ``until`` bounds the windows that are reported for lifetimes without an end, where the CTI ends the input. Parts of the source
    that were last heard of before the round ``idle_before`` are idle.
    """

    table: str | None
    cti: int = MINUS_INFINITY
    until: int | None = None
    idle_before: int = 0

    @property
    def row(self) -> tuple[object, ...]:
        """The values of its row, in the order of CONTROL_DDL."""
        return self.table, self.cti, self.until, self.idle_before, None


END_OF_INPUT = OutsideCti(None, INFINITY)
"""The CTI that ends the input of all sources."""


@dataclass(frozen=True)
class TapCommand:
    """A command to every bucket: report the rows of an operator in the next ``micro_batches`` of them; 0 ends the tap.

    ``tap`` identifies the tap, ``operator`` is the name of the kernel's state. At most ``rows`` rows are reported of each input,
    and of the output, by each bucket in each micro-batch.
    """

    tap: str
    operator: str
    rows: int
    micro_batches: int

    @property
    def row(self) -> tuple[object, ...]:
        """The values of its row, in the order of CONTROL_DDL."""
        return None, None, None, None, json.dumps(asdict(self))


@dataclass(frozen=True)
class ControlFolder:
    """The folder into which messages from outside are written, and from which a query reads them as a stream."""

    path: str

    def create(self, spark: SparkSession) -> None:
        """Create the folder, so that a stream can read it, unless a CTI has been sent there before."""
        if not path_exists(spark, self.path):
            _rows(spark, OutsideCti(None)).limit(0).write.parquet(self.path)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the folder's rows as a streaming DataFrame."""
        return spark.readStream.schema(CONTROL_DDL).parquet(self.path)

    def send(self, spark: SparkSession, message: OutsideCti | TapCommand) -> None:
        """Write a message; the query reads it in its next micro-batch."""
        _rows(spark, message).write.mode("append").parquet(self.path)

    def has_end(self, spark: SparkSession) -> bool:
        """Return True if the CTI that ends the input has been sent."""
        ends = spark.read.schema(CONTROL_DDL).parquet(self.path).where(f"cti = {INFINITY}")
        return bool(ends.limit(1).collect())


def _rows(spark: SparkSession, message: OutsideCti | TapCommand) -> DataFrame:
    """Return a message as the only row of the folder's columns, made by Spark, because rows of Python take a job more."""
    from pyspark.sql import functions as F

    columns = [column.split() for column in CONTROL_DDL.split(", ")]
    return spark.range(0, 1, 1, 1).select(
        *(F.lit(value).cast(kind).alias(name) for value, (name, kind) in zip(message.row, columns, strict=True))
    )


def outside_cti(program: StagedPlan, to: int | dt.datetime, source: str | None) -> OutsideCti:
    """Return the CTI that a user sends by ``advance``; ``source`` None: for every source.

    Raises PlanError for a source that does not exist or follows another, TimeError for a wrong instant.
    """
    cti = instant_ticks(to, program.axis, "advance")
    if cti is None:
        hint = "To end the input, call run.finish()."
        raise TimeError(sentence("advance", "no instant", "found None", hint))
    if source is None:
        return OutsideCti(None, cti)
    sources = {r.source.shown_name(): r.source for r in program.sources if r.source}
    if source not in sources:
        raise PlanError(sentence("advance", f"no source {source!r}", f"there are: {', '.join(sources)}"))
    if sources[source].policy.progress.leader is not None:
        wrong = f"source {source!r} has the progress of another source"
        raise PlanError(sentence("advance", wrong, "", "Name the source that it follows."))
    return OutsideCti(sources[source].table, cti)
