"""A provider of random draws for Hypothesis that depends on the seed alone.

Hypothesis' own provider also draws literals that it finds in the source of loaded modules and stores in the working directory,
so that one seed gives different cases in different processes.
"""

from __future__ import annotations

from typing import Any

from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.choice import choice_constraints_key, choice_permitted

BACKEND = "streamq"
"""The provider's name in ``hypothesis.settings``."""

providers.AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Draws"

permitted: dict[Any, tuple[Any, ...]] = {}
"""Hypothesis' constants that often break programs, by type and constraints of the draw that permits them."""


class Draws(providers.HypothesisProvider):
    """Hypothesis' own provider without the literals of loaded modules."""

    def _maybe_draw_constant(self, choice_type: Any, constraints: Any, *, p: float = 0.05) -> Any:
        """Return, with probability ``p``, one of Hypothesis' constants that the constraints permit; else None."""
        random = self._random
        assert random is not None
        if random.random() > p:
            return None
        key = (choice_type, choice_constraints_key(choice_type, constraints))
        if key not in permitted:
            constants = providers.GLOBAL_CONSTANTS.set_for_type(choice_type)
            permitted[key] = tuple(value for value in constants if choice_permitted(value, constraints))
        return random.choice(permitted[key]) if permitted[key] else None


__all__ = ["BACKEND", "Draws"]
