"""How plans are to run as a stream: what the compiler is asked for beside the plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.errors import PlanError, sentence
from streamq.policies import MIDDLE, Level

BUCKETS = 32
"""Buckets of a stage, at most, where their number is not given."""


@dataclass(frozen=True)
class Options:
    """How plans are to run as one stream; ``egresses``: how the result of each is written, in their order.

    ``early``: whether a changelog or upserts tell of windows and rows before the watermark reaches them.
    """

    egresses: tuple[Egress, ...] = (Egress(),)
    late_output: bool = False
    buckets: int = BUCKETS
    streaming: bool = True
    level: Level = MIDDLE
    early: bool = False


def check_early(early: bool, egresses: Sequence[Egress], level: Level, verb: str) -> None:
    """Raise PlanError where rows are to go early and the outputs, or the level of consistency, say the opposite."""
    if not isinstance(early, bool):
        raise PlanError(sentence(verb, "early is True or False", f"found {early!r}"))
    if not early:
        return
    if all(egress.output == OutputForm.FINAL for egress in egresses):
        hint = "Say output='changelog' or 'upsert'."
        raise PlanError(
            sentence(verb, "early=True with final rows, which are never early", "found output='final'", hint)
        )
    if level.block != 0:
        reason = "this level of consistency holds rows back"
        hint = "Say consistency='middle' or sq.weak(...)."
        raise PlanError(sentence(verb, "early=True lets rows go at once", reason, hint))
