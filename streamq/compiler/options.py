"""How plans are to run as a stream: what the compiler is asked for beside the plans."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.compiler.egress import Egress
from streamq.policies import MIDDLE, Level

BUCKETS = 32
"""Buckets of a stage, at most, where their number is not given."""


@dataclass(frozen=True)
class Options:
    """How plans are to run as one stream; ``egresses``: how the result of each is written, in their order."""

    egresses: tuple[Egress, ...] = (Egress(),)
    late_output: bool = False
    buckets: int = BUCKETS
    streaming: bool = True
    level: Level = MIDDLE
    ctis: bool = False
