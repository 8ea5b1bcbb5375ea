"""Plan transformations that give a query's input retractions or duplicates, by adding operators above it.

Test framework, section 5.2: instead of writing retractions by hand, put existing operators above the input that produce them, so
that the query above these reads a stream rich in corrections.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp
from streamq.errors import PlanError, sentence
from streamq.keywords import check_keywords
from streamq.operators import Select, TopK, Union
from streamq.operators.top_k import RANK
from streamq.plan.expr import Col, Lit
from streamq.plan.node import Node
from streamq.stream import Stream
from streamq.windows import Snapshot


@check_keywords
def make_speculative(stream: Stream) -> Stream:
    """Return a stream of the greatest events alive at each instant, whose rows are taken back when input arrives out of order.

    It groups by the first column that is neither nested nor a decimal, and keeps, over snapshots, the events with the greatest
    value in the last column that is not nested: all of them if they are equal in it, or if there is no such column.
    Events that arrive late split snapshots and change which event is the greatest, so that earlier rows are retracted. The result
    has the input's columns, but other lifetimes and fewer events. Raises PlanError for an object that is not a stream.

    >>> import streamq as sq
    >>> from streamq import testing as t
    >>> t.make_speculative(sq.events([(1, 9, {"k": "a", "v": 1}), (4, 6, {"k": "a", "v": 2})])).show()
    k  v  start  end
    a  1      1    4
    a  2      4    6
    a  1      6    9
    """
    events = _stream(stream, "make_speculative", "speculation")
    return events._derive(speculative(events.plan))


def speculative(stream: Node) -> Node:
    """Apply :func:`make_speculative` to a plan; columns are renamed meanwhile if one is called like the rank."""
    fields = stream.schema.fields
    if RANK in stream.schema.names:
        hidden = Select(stream, tuple((f"_{i}", Col(f.name)) for i, f in enumerate(fields)))
        return Select(speculative(hidden), tuple((f.name, Col(f"_{i}")) for i, f in enumerate(fields)))
    nested = (t.ArrayType, t.MapType, t.StructType)
    ordered = [f.name for f in fields if not isinstance(f.type, nested)]
    keys = [f.name for f in fields if not isinstance(f.type, (*nested, t.DecimalType))][:1]
    by = Col(ordered[-1]) if ordered else Lit(0)
    top = TopK(
        stream, tuple(keys), Snapshot(), k=1, by=by, desc=True, ties="keep", clip=ClipInput.FULL, stamp=Stamp.ALIGN
    )
    return Select(top, tuple((f.name, Col(f.name)) for f in fields))


@check_keywords
def inject_duplicates(stream: Stream) -> Stream:
    """Return the union of a stream with itself: every event and every retraction twice.

    Raises PlanError for an object that is not a stream.

    >>> import streamq as sq
    >>> from streamq import testing as t
    >>> t.inject_duplicates(sq.events([(1, 4, {"v": 3})])).show()
    v  start  end
    3      1    4
    3      1    4
    """
    events = _stream(stream, "inject_duplicates", "duplicates")
    return events._derive(double_events(events.plan))


def double_events(stream: Node) -> Node:
    """Apply :func:`inject_duplicates` to a plan."""
    return Union((stream, stream))


def _stream(argument: Any, verb: str, part: str) -> Stream:
    """Return a verb's argument if it is a stream; else raise PlanError, for a scenario with the intent's ``part`` as a hint."""
    if isinstance(argument, Stream):
        return argument
    # a scenario has an argument of its intent for this
    hint = (
        f"Write t.stream({part}=True)."
        if type(argument).__name__ == "Scenario"
        else "Make one, such as by sq.events(...)."
    )
    raise PlanError(sentence(verb, "takes a stream", f"found {type(argument).__name__}", hint))
