"""The footprints of kernels that the compiler adds beside those of operators."""

from __future__ import annotations

from streamq.plan.footprint import Footprint


def settle_footprint(*, at_once: bool) -> Footprint:
    """Return the footprint of the kernel ``settle``, which sends rows at once, or once they are settled."""
    cti = "the least start of a row not settled, at most c"
    if at_once:
        return Footprint(
            cti=cti,
            keeps="lifetimes not settled",
            opens="parts, the lifetimes that settle",
            cost="a pass over what is new and what settles",
        )
    return Footprint(
        cti=cti,
        final="every row passed on",
        keeps="rows not settled",
        opens="parts, the rows that settle",
        cost="a group by of the rows that settle",
    )


HOLDING = Footprint(
    final="every row that is let through",
    keeps="rows that the level holds back",
    opens="parts, the rows that are due, and those of their events",
    cost="a group by of what is new and what is read",
)
"""The footprint of the rows that a level of consistency holds back."""


def ctis_footprint(*, in_order: bool, reads_ends: bool) -> Footprint:
    """Return the footprint of the kernel ``ctis``, which may send rows in order, and wait for ends that are read."""
    keeps = ["rows that the CTI has not passed"] * in_order + ["rows whose open ends are read"] * reads_ends
    opens = ["parts, the rows that are due"] * in_order + ["parts, the rows that settle"] * reads_ends
    return Footprint(
        cti="c" + "; at most the least start of a row whose end is read and may still move" * reads_ends,
        final="as of the result",
        keeps="; ".join(keeps) or "none",
        opens="; ".join(opens) or "nothing",
        cost="a pass over what is new and what is read",
    )


__all__ = ["HOLDING", "ctis_footprint", "settle_footprint"]
