"""Where the rows of a run go: its sink, its late sink, and how often it looks for input."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, TimeError, sentence
from streamq.plan.schema import MICRO_BATCH, Schema
from streamq.time import TIMESTAMP, Duration, ticks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.compiler.egress import Egress

NAMED = ("memory", "console", "noop")
"""Sinks by name; other texts are paths."""

FILES = ("parquet", "json", "csv", "orc", "text", "avro")
"""Formats of folders that Spark keeps a log of micro-batches in."""

Sink = str | Mapping[str, Any] | Callable[["DataFrame", int], None] | None
"""A path, a format with options, a name of Spark's, a function; None: rows are thrown away."""


def spark_trigger(given: Duration | None) -> dict[str, Any]:
    """What Spark's ``trigger`` takes; raises PlanError for what is none."""
    if given is None:
        return {}
    if given == "available_now":
        return {"availableNow": True}
    try:
        every = ticks(given, TIMESTAMP, "run")
    except TimeError:
        every = -1
    if every < 0:
        hint = "Write 'available_now', or a duration as '10 seconds' or '500 ms'."
        raise PlanError(sentence("run", "not a trigger", f"found {given!r}", hint))
    return {"processingTime": f"{every} microseconds"}


def one_name(path: str) -> str:
    """A folder's name, however it is written; what has a scheme has one."""
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def folders(sink: Sink, late_sink: str | None) -> list[str]:
    """The folders that a run writes files into."""
    found: list[str] = []
    if isinstance(sink, str) and sink not in NAMED:
        found.append(sink)
    elif isinstance(sink, Mapping) and sink.get("format", "parquet") in FILES and "path" in sink:
        found.append(sink["path"])
    return [*found, *([] if late_sink is None else [late_sink])]


def check_arguments(
    sink: Sink,
    late_sink: str | None,
    checkpoint: str | None,
    trigger: Duration | None,
    finish: bool,
    name: str | None,
) -> None:
    """Raise PlanError for what ``run`` does not take together."""
    if not (sink is None or isinstance(sink, str | Mapping) or callable(sink)):
        raise PlanError(
            sentence(
                "run",
                "not a sink",
                f"found {sink!r}",
                "A path, {'format': ...}, 'memory', 'console', 'noop' or a function of (DataFrame, batch id).",
            )
        )
    if late_sink is not None and (sink in ("memory", "console") or (isinstance(sink, Mapping) and "path" not in sink)):
        raise PlanError(
            sentence(
                "run",
                "a late sink goes with a folder, a function or 'noop' as the sink",
                f"found {sink!r}",
                "Write the rows in a function of (DataFrame, batch id).",
            )
        )
    taken = [*folders(sink, late_sink), *([] if checkpoint is None else [checkpoint])]
    names = [one_name(path) for path in taken]
    same = sorted({path for path, name in zip(taken, names, strict=True) if names.count(name) > 1})
    if same:
        raise PlanError(
            sentence("run", "sink, late_sink and checkpoint are folders of their own", f"found {same[0]!r} twice")
        )
    lasting = sink is not None and sink not in NAMED and not callable(sink)
    if (lasting or late_sink is not None) and checkpoint is None:
        which = "sink" if lasting else "late_sink"
        raise PlanError(
            sentence(
                "run", "no checkpoint", f"the {which} lasts longer than this process", "Give checkpoint='a folder'."
            )
        )
    if finish and trigger != "available_now":
        raise PlanError(
            sentence(
                "run",
                "finish=True goes with trigger='available_now'",
                f"found trigger={trigger!r}",
                "Else call run.finish() when the input has ended.",
            )
        )
    if finish and sink == "memory":
        raise PlanError(
            sentence(
                "run",
                "finish=True with the memory sink",
                "Spark cannot start a query on that sink twice, which flushing the last windows takes",
                "Use a path, or leave the trigger out and call run.finish().",
            )
        )
    if sink == "memory" and not name:
        raise PlanError(
            sentence("run", "the memory sink needs a name", "", "Give name='...': the table is called that.")
        )


def written_to(writer: Any, sink: Sink) -> Any:
    """A ``writeStream`` with its sink."""
    match sink:
        case None | "noop":
            return writer.format("noop")
        case "memory" | "console":
            return writer.format(sink)
        case str():
            return writer.format("parquet").option("path", sink)
        case Mapping():
            options = {k: v for k, v in sink.items() if k != "format"}
            return writer.format(sink.get("format", "parquet")).options(**options)
    return writer.foreachBatch(_once(_read(sink)))


def _once(write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """With rows that are computed once, however often they are read."""

    def kept(rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            write(rows, number)
        finally:
            rows.unpersist()

    return kept


def _read(sink: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """With all rows read before: state is only committed by a job over them, and a function need not read any."""

    def write(rows: DataFrame, number: int) -> None:
        _thrown_away(rows)
        sink(rows, number)

    return write


def _thrown_away(rows: DataFrame) -> None:
    rows.write.mode("append").format("noop").save()


def split(schema: Schema, out: Egress, sink: Sink, late_sink: str) -> Callable[[DataFrame, int], None]:
    """Results and late rows of a micro-batch into their sinks; a batch that is done again overwrites its own folders."""
    from streamq.compiler.egress import late_rows, user_rows

    def write(batch: DataFrame, number: int) -> None:
        rows = user_rows(batch, schema, out)
        if callable(sink):
            _read(sink)(rows, number)
        elif isinstance(sink, str) and sink not in NAMED:
            rows.write.mode("overwrite").parquet(f"{sink}/{MICRO_BATCH}={number}")
        elif isinstance(sink, Mapping):
            options = {k: v for k, v in sink.items() if k not in ("format", "path")}
            rows.write.mode("overwrite").format(sink.get("format", "parquet")).options(**options).save(
                f"{sink['path']}/{MICRO_BATCH}={number}"
            )
        else:
            _thrown_away(rows)
        late_rows(batch).write.mode("overwrite").parquet(f"{late_sink}/{MICRO_BATCH}={number}")

    return _once(write)
