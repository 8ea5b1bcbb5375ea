"""The kinds of sinks, a room each: the places where the rows of a run go."""

from __future__ import annotations

from streamq.errors import PlanError, sentence
from streamq.run.sinks.data_source import DataSourceSink
from streamq.run.sinks.sink import Sink, SinkArgument
from streamq.run.sinks.without_files import ConsoleSink, FunctionSink, MemorySink, NoopSink

KINDS: tuple[type[Sink], ...] = (NoopSink, ConsoleSink, MemorySink, DataSourceSink, FunctionSink)
"""All kinds, in the order in which they are tried for an argument; a string that is no other kind's name is a path."""


def sink_of(argument: SinkArgument, verb: str) -> Sink:
    """Return the sink that an argument asks for; raise PlanError, worded for ``verb``, if there is none."""
    for kind in KINDS:
        sink = kind.from_argument(argument)
        if sink is not None:
            return sink
    hint = "Give a path, {'format': ...}, 'memory', 'console', 'noop' or a function of (DataFrame, batch id)."
    raise PlanError(sentence(verb, "not a sink", f"found {argument!r}", hint))


__all__ = ["KINDS", "Sink", "SinkArgument", "sink_of"]
