"""Forms of an operator: the ways to compute it, for operators with more than one; explain shows the choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from streamq.choices import Word

F = TypeVar("F", bound=Word)


@dataclass(frozen=True, kw_only=True)
class FormChoice(Generic[F]):
    """The form chosen for an operator, and the reason that explain shows."""

    form: F
    reason: str

    def __str__(self) -> str:
        return f"{self.form} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class Forms(Generic[F]):
    """The forms of an operator: the one of the least cost, and those that it cannot take, each with the reason."""

    cheapest: FormChoice[F]
    refused: Mapping[F, str]

    @property
    def possible(self) -> list[F]:
        """The forms that the operator can take."""
        return [form for form in type(self.cheapest.form) if form not in self.refused]

    def choose(self, hint: F | None) -> FormChoice[F]:
        """Return the form that a user asks for by ``hint`` if the operator can take it; else the cheapest form."""
        cheapest = self.cheapest
        if hint is None:
            return cheapest
        if hint in self.refused:
            return FormChoice(
                form=cheapest.form, reason=f"{cheapest.reason}; not {hint}, as asked: {self.refused[hint]}"
            )
        reason = f"as asked; {cheapest.reason}" if hint is cheapest.form else f"as asked, instead of {cheapest}"
        return FormChoice(form=hint, reason=reason)


def shown_costs(per_event: float | None, what: str, costs: Mapping[F, float]) -> str:
    """Return the costs of forms by which one is chosen, after the number of ``what`` an event; "" if that is not known."""
    if per_event is None:
        return ""
    each = ", ".join(f"{form} {cost:.3g}" if cost < 1_000 else f"{form} {cost:,.0f}" for form, cost in costs.items())
    return f"; {per_event:.3g} {what} an event, so it costs: {each}"


__all__ = ["FormChoice", "Forms", "shown_costs"]
