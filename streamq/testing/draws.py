"""Random draws that depend on the seed alone.

Hypothesis mixes into its draws the literals it finds in the source of whatever modules are loaded, so that one seed tries
other cases in another process, and keeps what it found in the working directory.
"""

from __future__ import annotations

from typing import Any

from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.choice import choice_constraints_key, choice_permitted

BACKEND = "streamq"
"""The name under which ``hypothesis.settings`` knows it."""

providers.AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.Draws"

permitted: dict[Any, tuple[Any, ...]] = {}
"""Of the constants that often break programs, those that may be drawn, by what is drawn."""


class Draws(providers.HypothesisProvider):
    """Hypothesis' own draws, but for the literals of loaded modules."""

    def _maybe_draw_constant(self, choice_type: Any, constraints: Any, *, p: float = 0.05) -> Any:
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
