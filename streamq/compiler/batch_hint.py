"""Checks the batch form that a user asks for."""

from __future__ import annotations

from streamq.choices import choose_word
from streamq.compiler.rewriter import clip_text
from streamq.errors import PlanError, sentence
from streamq.operators.batch_form import BatchForm
from streamq.operators.operator import Operator
from streamq.plan.expected import NO_RATES
from streamq.plan.node import Node, nodes


def batch_form_of(form: object, verb: str) -> BatchForm | None:
    """Return the form of a user's argument ``form``; None for None. Raise PlanError for a name that does not exist."""
    return None if form is None else choose_word(BatchForm, form, "form", verb)


def check_hint(hint: BatchForm | None, plan: Node, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, if no operator of a rewritten plan can take the form that is asked for.

    The message has the forms of each operator that has several, and why it cannot take that one.
    """
    if hint is None:
        return
    choices = [(node, node.batch_forms(NO_RATES)) for node in nodes(plan) if isinstance(node, Operator)]
    windows = [(node, forms) for node, forms in choices if forms is not None]
    if any(hint in forms.possible for _, forms in windows):
        return
    reasons = [
        f"{clip_text(node.line)}: {forms.refused[hint]} (its forms: {', '.join(forms.possible)})"
        for node, forms in windows
    ]
    observed = "; ".join(dict.fromkeys(reasons)) or "there are no windows"
    raise PlanError(sentence(verb, f"nothing in the query can be computed in the form {hint}", observed))


__all__ = ["batch_form_of", "check_hint"]
