"""Envelopes, the rows that travel between stages: ``(bucket, channel, body)``.

On a channel of deltas the body is an Arrow IPC stream. Progress, late rows, reports and commands travel under numbers below 0,
and a kernel's whole output under numbers below all of these.
"""

from __future__ import annotations

Envelope = tuple[int, int, bytes]

PROGRESS, LATE, TOTALS, SPOKEN, READINGS = -1, -2, -3, -4, -5
"""Channels without deltas; SPOKEN is a stage's progress before it goes to every bucket, READINGS are for those who watch the
query."""

TAP, TAPPED = -6, -7
"""Channels of taps: a command to every bucket, and the rows of an operator that a bucket reports while a tap is on."""

PACKED = -8
"""The channel of packed rows of a result; it is no kernel's, as no further path reads them."""

REPORTS = (TOTALS, READINGS, TAPPED)
"""The channels of reports, whose bodies are texts."""

BESIDE_RESULTS = (LATE, *REPORTS)
"""The channels whose rows leave the last stage beside those of results."""

OUTPUTS = -100
"""From this number down, channels hold the whole output of a kernel, before it follows the paths to its readers."""


def output_number(number: int) -> int:
    """Return the channel number for the output of a kernel, until it is opened."""
    return OUTPUTS - number


def relation_of(number: int) -> int | None:
    """Return the number of the kernel whose output the envelope holds; None for other envelopes."""
    return OUTPUTS - number if number <= OUTPUTS else None
