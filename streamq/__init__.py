"""streamq: temporal queries over late, corrected and lasting events, on Spark."""

from streamq import functions
from streamq.aggregates import (
    avg,
    collect,
    corr,
    count,
    count_distinct,
    covar,
    covar_pop,
    first,
    last,
    max,
    median,
    min,
    percentile,
    stddev,
    stddev_pop,
    sum,
    time_weighted_avg,
    var,
    var_pop,
)
from streamq.errors import StreamqError
from streamq.literal import cti, insert, retract
from streamq.plan.expr import col, duration, end, lit, start, when, window_end, window_start
from streamq.policies import explicit, follow, generate, level, weak
from streamq.reading import read_stream
from streamq.run.session import doctor, session
from streamq.sources import changes, edges, events, intervals, physical, points, signal
from streamq.stream import Stream
from streamq.written import from_json

__version__ = "0.1.0"

__all__ = [
    "Stream",
    "StreamqError",
    "avg",
    "changes",
    "col",
    "collect",
    "corr",
    "count",
    "count_distinct",
    "covar",
    "covar_pop",
    "cti",
    "doctor",
    "duration",
    "edges",
    "end",
    "events",
    "explicit",
    "first",
    "follow",
    "from_json",
    "functions",
    "generate",
    "insert",
    "intervals",
    "last",
    "level",
    "lit",
    "max",
    "median",
    "min",
    "percentile",
    "physical",
    "points",
    "read_stream",
    "retract",
    "session",
    "signal",
    "start",
    "stddev",
    "stddev_pop",
    "sum",
    "time_weighted_avg",
    "var",
    "var_pop",
    "weak",
    "when",
    "window_end",
    "window_start",
]
