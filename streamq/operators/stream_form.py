"""Stream forms: the ways to compute windows on a grid in a stream, and their costs."""

from __future__ import annotations

from streamq.choices import Word
from streamq.operators.form_choice import FormChoice, Forms, shown_costs


class StreamForm(Word):
    """The ways to compute windows in a stream."""

    COMBINED = "combined"
    """Add up the events of a basic window before the shuffle; a window merges the partial results of its basic windows."""

    EVALUATED = "evaluated"
    """Send the events, and compute the windows that change from their members.

    Events are kept; where aggregates merge, one row stands for the settled ones that are in the same windows.
    """


StreamChoice = FormChoice[StreamForm]
StreamForms = Forms[StreamForm]


def stream_costs_an_event(n: int, per_event: float, *, counts: bool = False) -> dict[StreamForm, float]:
    """Return the cost of each form, an event; 1 is an event that is added to one of a few partial results.

    ``n``: the greatest number of windows that contain one point; ``per_event``: the partial results an event. COMBINED pays for
    each partial result, which is sent and held once and merged into ``n`` windows; EVALUATED for each event and window, as a
    group that rows touch, or with a window due, computes its open windows anew. The numbers are fitted to the processor time of
    both forms with 1 to 16 windows an event and 100, 10, 1 and 0.1 events a group and hop
    (``python -m benchmarks stream_forms``). ``counts``: partial results are values, with their numbers, that are sorted.
    """
    if counts:
        return {StreamForm.COMBINED: 4 + per_event * 25 * n, StreamForm.EVALUATED: 7 + per_event * 50 * n}
    return {
        StreamForm.COMBINED: 1 + per_event * (7 + 2 * n),
        StreamForm.EVALUATED: 2.5 + per_event * (10 + 20 * n),
    }


def stream_forms_on_a_grid(n: int, per_event: float | None, *, counts: bool = False) -> StreamForms:
    """Return the forms of windows on a grid; ``per_event``: the partial results an event, at most; None if that is not known.

    The costs have the same order for all numbers: the partial results of a basic window are never more than its events.
    ``counts``: partial results are values with their numbers.
    """
    costs = {} if per_event is None else stream_costs_an_event(n, per_event, counts=counts)
    reason = "partial results of basic windows, made before the shuffle"
    reason += shown_costs(per_event, "partial results", costs)
    return StreamForms(cheapest=StreamChoice(form=StreamForm.COMBINED, reason=reason), refused={})


def only_from_members(reason: str) -> StreamForms:
    """Return the forms of windows that a stream only computes from their members, for a reason."""
    return StreamForms(
        cheapest=StreamChoice(form=StreamForm.EVALUATED, reason=reason), refused={StreamForm.COMBINED: reason}
    )


__all__ = [
    "StreamChoice",
    "StreamForm",
    "StreamForms",
    "only_from_members",
    "stream_costs_an_event",
    "stream_forms_on_a_grid",
]
