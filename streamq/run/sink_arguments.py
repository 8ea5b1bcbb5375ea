"""The argument by which a user chooses a sink, and the sink that each asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamq.connectors.file_formats import ArrowFiles
from streamq.connectors.kafka import KafkaTopic
from streamq.connectors.stored_files import Files
from streamq.connectors.written_tables import ICEBERG, MergedTable, PostgresTable, SqlTable
from streamq.errors import PlanError
from streamq.run.delta_sink import delta_sink
from streamq.run.iceberg_sink import iceberg_sink
from streamq.run.kafka_sink import kafka_sink
from streamq.run.postgres_sink import postgres_sink
from streamq.run.sinks import ConsoleSink, DataSourceSink, FunctionSink, MemorySink, NoopSink, Sink, Write
from streamq.run.sql_sink import sql_sink
from streamq.runtime.hosts.shipping import ship_module_of

SinkArgument = str | Files | KafkaTopic | MergedTable | PostgresTable | SqlTable | Mapping[str, Any] | Write | None
"""The argument by which a user chooses a sink: a path, a connector, a format with options, a name, a function; None: no sink."""


IN_TEXT = frozenset({"csv", "json", "xml"})
"""The formats whose files have instants as text."""

WRITTEN_TIMES: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""The options by which Spark writes instants as they are; by default it cuts them to milliseconds."""


def sink_of(argument: Any, verb: str) -> Sink:
    """Return the sink that an argument asks for; raise PlanError, worded for ``verb``, if there is none.

    A string that is the name of no other kind is a path of Parquet files, and so is a mapping without a format.
    """
    match argument:
        case Sink():
            return argument
        case None | "noop":
            return NoopSink()
        case "console":
            return ConsoleSink()
        case "memory":
            return MemorySink()
        case str():
            return DataSourceSink("parquet", {"path": argument})
        case Files() if argument.is_pattern:
            raise PlanError(verb, "a pattern is no sink", f"found {argument.path}", "Name a folder.")
        case Files() if argument.format == ArrowFiles.name:
            raise PlanError(verb, "Spark writes no arrow files", f"found {argument.path}", 'Say format="parquet".')
        case Files():
            return _data_source(argument.format, {**dict(argument.options), "path": argument.path})
        case KafkaTopic():
            return kafka_sink(argument, verb)
        case MergedTable(format=format) if format == ICEBERG:
            return iceberg_sink(argument, verb)
        case MergedTable():
            return delta_sink(argument, verb)
        case PostgresTable():
            return postgres_sink(argument, verb)
        case SqlTable():
            return sql_sink(argument, verb)
        case Mapping():
            options = {name: value for name, value in argument.items() if name != "format"}
            return _data_source(argument.get("format", "parquet"), options)
        case _ if callable(argument):
            # Spark Connect calls it on the server
            ship_module_of(argument, "")
            return FunctionSink(argument)
    connectors = "sq.files(...), sq.kafka(...), sq.merge_into(...), sq.postgres(...), sq.sql_table(...)"
    kinds = f"a path, {connectors}, {{'format': ...}}, 'memory', 'console', 'noop'"
    hint = f"Give {kinds} or a function of (DataFrame, batch id)."
    raise PlanError(verb, "not a sink", f"found {argument!r}", hint)


def _data_source(format: str, options: Mapping[str, Any]) -> DataSourceSink:
    """Return a sink of a format of Spark's, which writes times as they are unless an option says otherwise."""
    times = WRITTEN_TIMES if str(format).lower() in IN_TEXT else {}
    return DataSourceSink(format, {**times, **options})
