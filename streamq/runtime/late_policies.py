"""Late policies: the treatments of an item behind its source's CTI, one object each."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from streamq.errors import LateEvent
from streamq.plan.function import NamedObject
from streamq.runtime.values import Mask
from streamq.time import MINUS_INFINITY


class LatePolicy(NamedObject):
    """The treatment of an item that breaks its source's CTI; plans know it by its ``name``, the word that users write.

    An item that is late by the level of consistency alone has an effect from the CTI on, under any policy.
    """

    shows_items: ClassVar[bool] = False
    """True if a user sees late items as they came, so that they must be judged before steps change them."""

    adjusts: ClassVar[bool] = False
    """True if an item has an effect from the CTI on, however late it is."""

    def acts_from(self, promised: int) -> int:
        """Return the instant from which on a late item has an effect, though only from the CTI on.

        ``promised`` is the CTI that the source has sent; items before the returned instant are dropped.
        """
        return promised

    def meet(self, is_broken: Mask, error: Callable[[Mask], LateEvent]) -> None:
        """Raise if items that break a CTI fail the query; ``is_broken`` marks them, ``error`` makes the error for these."""


class _Drop(LatePolicy):
    """Drop the item, and count it."""

    name = "drop"


class _Adjust(LatePolicy):
    """Keep the part of its lifetime from the CTI on."""

    name = "adjust"
    adjusts = True

    def acts_from(self, promised: int) -> int:
        return MINUS_INFINITY


class _Fail(LatePolicy):
    """Fail with LateEvent."""

    name = "fail"
    shows_items = True

    def meet(self, is_broken: Mask, error: Callable[[Mask], LateEvent]) -> None:
        """Raise the error if any item breaks a CTI."""
        if is_broken.any():
            raise error(is_broken)


DROP, ADJUST, FAIL = _Drop(), _Adjust(), _Fail()

LATE_POLICIES = {policy.name: policy for policy in (DROP, ADJUST, FAIL)}
"""The policies that users choose from, by name."""


__all__ = ["ADJUST", "DROP", "FAIL", "LATE_POLICIES", "LatePolicy"]
