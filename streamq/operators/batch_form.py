"""Batch forms: the ways to compute an operator in batch."""

from __future__ import annotations

from streamq.choices import Word
from streamq.operators.form_choice import FormChoice, Forms


class BatchForm(Word):
    """The ways to compute windows in batch."""

    DIRECT = "direct"
    """Copy each event into its windows, and aggregate the copies by Spark's own aggregates."""

    EXPLODE = "explode"
    """Copy each partial result into every window of its range, and merge by window."""

    DIFFERENCE = "difference"
    """Add each partial result where its range starts and subtract it where the range ends: a running sum."""

    BLOCKS = "blocks"
    """Divide the basic windows into blocks; merge a suffix of one block and a prefix of the next into each window."""

    DYADIC = "dyadic"
    """Cut each range into nodes of 2^k windows; each window merges the nodes that contain it."""

    SWEEP = "sweep"
    """Add the events that start and subtract those that end, at each endpoint of a group: a running sum."""

    EVALUATED = "evaluated"
    """Run the evaluator that streams use over the whole histories, bucket by bucket."""


BatchChoice = FormChoice[BatchForm]
BatchForms = Forms[BatchForm]


def only_evaluated(reason: str) -> BatchForms:
    """Return the forms of an operator that only its evaluator computes, for a reason."""
    refused: dict[BatchForm, str] = {form: reason for form in BatchForm if form is not BatchForm.EVALUATED}
    return BatchForms(cheapest=BatchChoice(form=BatchForm.EVALUATED, reason=reason), refused=refused)


__all__ = ["BatchChoice", "BatchForm", "BatchForms", "only_evaluated"]
