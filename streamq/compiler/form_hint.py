"""Checks the form that a user asks for, of a batch or a stream, and gives a stream's windows that form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamq.choices import Word, check_word, choose_word
from streamq.compiler.results import Results, as_results
from streamq.compiler.rewriter import clip_text
from streamq.errors import PlanError, sentence
from streamq.operators.batch_form import BatchForm
from streamq.operators.form_choice import Forms
from streamq.operators.operator import Operator
from streamq.operators.stream_form import StreamForm
from streamq.plan.expected import NO_RATES
from streamq.plan.folding import fold
from streamq.plan.node import Node, nodes


@dataclass(frozen=True, kw_only=True)
class FormHint:
    """The forms that a user asks explain for, of a batch and of a stream; None: no form. One word may name both."""

    batch: BatchForm | None = None
    stream: StreamForm | None = None

    def check(self, plan: Node, verb: str) -> None:
        """Raise PlanError, worded for ``verb``, if no operator of a rewritten plan can take the form that is asked for.

        The message has the forms of each operator that has several, and why it cannot take that one.
        """
        operators = [node for node in nodes(plan) if isinstance(node, Operator)]
        asked: list[tuple[Word, list[tuple[Node, Forms[Any]]]]] = []
        if self.batch is not None:
            asked.append(
                (self.batch, [(node, b) for node in operators if (b := node.batch_forms(NO_RATES)) is not None])
            )
        if self.stream is not None:
            asked.append(
                (self.stream, [(node, s) for node in operators if (s := node.stream_forms(NO_RATES)) is not None])
            )
        if not asked or any(hint in forms.possible for hint, windows in asked for _, forms in windows):
            return
        hint, windows = asked[0]
        reasons = [
            f"{clip_text(node.line)}: {forms.refused[hint]} (its forms: {', '.join(forms.possible)})"
            for node, forms in windows
        ]
        observed = "; ".join(dict.fromkeys(reasons)) or "there are no windows"
        raise PlanError(sentence(verb, f"nothing in the query can be computed in the form {hint}", observed))


NO_HINT = FormHint()
"""No form is asked for."""


def batch_form_of(form: object, verb: str) -> BatchForm | None:
    """Return the form of a batch that a user's argument ``form`` names; None for None. Raise PlanError for any other name."""
    return None if form is None else choose_word(BatchForm, form, "form", verb)


def stream_form_of(form: object, verb: str) -> StreamForm | None:
    """Return the form of a stream that a user's argument ``form`` names; None for None. Raise PlanError for any other name."""
    return None if form is None else choose_word(StreamForm, form, "form", verb)


def hint_of(form: object, verb: str) -> FormHint:
    """Return the forms that a user's argument ``form`` names, of a batch or a stream; raise PlanError for any other name."""
    if form is None:
        return NO_HINT
    check_word(form, list(dict.fromkeys([*BatchForm, *StreamForm])), "form", verb)
    batch = BatchForm(str(form)) if form in list(BatchForm) else None
    return FormHint(batch=batch, stream=StreamForm(str(form)) if form in list(StreamForm) else None)


def in_stream_form(plan: Results, form: StreamForm | None) -> Results:
    """Return plans, before they are rewritten, whose windows a stream computes in a form; None: each in its cheapest form.

    Windows that have no other form stay as they are, and so do the names of their states.
    """
    if form is not StreamForm.EVALUATED:
        return plan

    def visit(node: Node, inputs: list[Node]) -> Node:
        node = node.with_children(inputs)
        return node.keeping_members() if isinstance(node, Operator) else node

    return as_results(fold(plan, visit))


__all__ = ["NO_HINT", "FormHint", "batch_form_of", "hint_of", "in_stream_form", "stream_form_of"]
