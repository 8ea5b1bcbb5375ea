"""``sq.cedr``: a query from a text in the CEDR language."""

from __future__ import annotations

from typing import Any

from streamq.errors import PlanError, kind_of, sentence
from streamq.patterns.definitions import query_of
from streamq.patterns.parser import parse
from streamq.patterns.source_text import Refusal, source_text
from streamq.stream import Stream


def cedr(text: str | bytes, **streams: Any) -> Stream:
    """Return the matches of the last definition in a text; each keyword is an event type, and the stream of its events.

    Raises CedrError, with line and column, for a text that is wrong, or names what is not there.

    >>> import streamq as sq
    >>> a = sq.events([(1, {"m": 1}), (2, {"m": 2})])
    """
    for name, stream in streams.items():
        if not isinstance(stream, Stream):
            raise PlanError(sentence("cedr", f"{name} is not a stream", f"found {kind_of(stream)}"))
    program = parse(text)
    try:
        return query_of(program, streams)
    except Refusal as refusal:
        raise source_text(text).refused(refusal) from None


__all__ = ["cedr"]
