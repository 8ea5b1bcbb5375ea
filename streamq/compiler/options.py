"""How a plan is to run as a stream: what the compiler is asked for beside the plan."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.choices import OutputForm
from streamq.policies import MIDDLE, Level

BUCKETS = 32
"""Buckets of a stage, at most, where their number is not given."""


@dataclass(frozen=True)
class Options:
    """How a plan is to run as a stream; ``ctis``: with the result's CTIs among its rows."""

    output: OutputForm = OutputForm.FINAL
    late_output: bool = False
    buckets: int = BUCKETS
    streaming: bool = True
    level: Level = MIDDLE
    ctis: bool = False
