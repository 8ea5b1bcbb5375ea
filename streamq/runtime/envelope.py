"""Envelopes: what travels between stages, ``(bucket, channel, body)``.

On a channel of deltas the body is an Arrow IPC stream. Progress, late rows, totals and readings travel under numbers below 0,
and a kernel's whole output under numbers below all of these.
"""

from __future__ import annotations

Envelope = tuple[int, int, bytes]

PROGRESS, LATE, TOTALS, SPOKEN, READINGS = -1, -2, -3, -4, -5
"""Channels of envelopes that hold no deltas; SPOKEN is a stage's progress before it is sent to every bucket, READINGS what
those who watch the query read."""

OUTPUTS = -100
"""From this number down envelopes hold what a kernel hands on, before it goes along the paths to its readers."""


def output_number(number: int) -> int:
    """The channel number under which the output of the kernel of this number travels to where it is opened."""
    return OUTPUTS - number


def relation_of(number: int) -> int | None:
    """The kernel number behind an envelope of output, None for other envelopes."""
    return OUTPUTS - number if number <= OUTPUTS else None
