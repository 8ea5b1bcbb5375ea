"""streamq: temporal queries over late, corrected and lasting events, on Spark."""

from streamq import functions
from streamq.aggregates import avg, count, max, min, stddev, stddev_pop, sum, var, var_pop
from streamq.errors import StreamqError
from streamq.expr import col, duration, end, lit, start, when, window_end, window_start
from streamq.literal import cti, insert, retract
from streamq.policies import explicit, generate
from streamq.session import doctor, session
from streamq.sources import edges, events, intervals, physical, points
from streamq.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "Stream",
    "StreamqError",
    "avg",
    "col",
    "count",
    "cti",
    "doctor",
    "duration",
    "edges",
    "end",
    "events",
    "explicit",
    "functions",
    "generate",
    "insert",
    "intervals",
    "lit",
    "max",
    "min",
    "physical",
    "points",
    "retract",
    "session",
    "start",
    "stddev",
    "stddev_pop",
    "sum",
    "var",
    "var_pop",
    "when",
    "window_end",
    "window_start",
]
