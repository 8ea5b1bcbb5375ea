"""Executions: the ways to run a case, in-process and on Spark.

``in_process.py`` and ``on_spark.py`` run them, ``drawn_executions.py`` draws them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from streamq.choices import OutputForm
from streamq.compiler.rules import RULES, Rule
from streamq.policies import Level
from streamq.time import INTEGER, show_duration

LITERAL: Final = "literal"
STREAM: Final = "stream"
BATCH: Final = "batch"
SPARK: Final = "spark stream"
Backend = Literal["literal", "stream", "batch", "spark stream"]
"""All at once in-process as ``show()`` does; micro-batches in-process; a Spark DataFrame; a Structured Streaming query."""


RUN: Final = "run"
WRITTEN: Final = "writeStream"
CONTROLLED: Final = "writeStream with control"
Started = Literal["run", "writeStream", "writeStream with control"]
"""How a query is started on Spark: by ``run``; by a writeStream of ``to_stream``, which nobody can end; or by one that has a
control folder, into which its end is written."""

STARTS: tuple[Started, ...] = (RUN, WRITTEN, CONTROLLED)


@dataclass(frozen=True)
class Execution:
    """One way to run a case.

    ``rules`` are names of rewrite rules (None: all); ``restart``: from the state, after every micro-batch; ``slack``: how
    far the promises that sources make after each micro-batch stay behind what is true of the future, cyclically (None
    within it: none; empty: only what the sources' own policies say); ``watch``: whether kernels are watched; ``ctis``: whether
    a changelog comes with its CTIs, which are then held against what follows; ``early``: whether a changelog tells of rows before
    the watermark reaches them; ``blocks``: how long a changelog's input is
    blocked, in ticks (None: until it is final), another from restart to restart; ``remember``: for how long history is
    remembered, in ticks (None: for ever), likewise; ``late_output``: whether it has one, whose rows are compared too.

    On Spark: ``started`` is one of STARTS; ``zone`` is the time zone of a session with Spark's own settings ("": a session as
    streamq makes it); ``silent``: a source that has no more rows brings no more files either.
    """

    backend: Backend = STREAM
    output: OutputForm = OutputForm.FINAL
    rules: tuple[str, ...] | None = None
    buckets: int = 1
    restart: bool = False
    slack: tuple[int | None, ...] = ()
    watch: bool = False
    blocks: tuple[int | None, ...] = (0,)
    remember: tuple[int | None, ...] = (None,)
    started: Started = RUN
    zone: str = ""
    silent: bool = False
    ctis: bool = False
    early: bool = False
    late_output: bool = False

    def in_units(self, unit: int) -> Execution:
        """The same with durations in units of so many ticks, but for those of one tick, which stay."""

        def scaled(parts: tuple[int | None, ...]) -> tuple[int | None, ...]:
            return tuple(n if n is None or n <= 1 else n * unit for n in parts)

        return replace(self, slack=scaled(self.slack), blocks=scaled(self.blocks), remember=scaled(self.remember))

    @property
    def whole(self) -> bool:
        """Whether all rows come at once, so that nothing is late."""
        return self.backend in (LITERAL, BATCH)

    @property
    def levels(self) -> list[Level]:
        """The levels of consistency, from restart to restart."""
        pairs = zip(itertools.cycle(self.blocks), itertools.cycle(self.remember), strict=False)
        many = math.lcm(len(self.blocks), len(self.remember))
        return [Level(_block(block, most), most) for block, most in itertools.islice(pairs, many)]

    @property
    def chosen(self) -> tuple[Rule, ...]:
        """Its rewrite rules."""
        return RULES if self.rules is None else tuple(r for r in RULES if r.name in self.rules)

    def __str__(self) -> str:
        return self.shown(INTEGER)

    def shown(self, axis: str) -> str:
        """What tells it from others, with durations of the axis."""
        parts: list[str] = [self.backend] if self.whole else [self.backend, f"{self.output} output"]
        if self.rules is not None:
            parts.append(f"rules {', '.join(self.rules) or 'none'}")
        parts += [f"{self.buckets} buckets"] * (self.buckets > 1) + ["restarted after each micro-batch"] * self.restart
        parts += [f"promises {_durations(self.slack, axis, 'none')} behind"] * bool(self.slack)
        parts += ["watched"] * self.watch
        parts += [f"input blocked {_durations(self.blocks, axis, 'until it is final')}"] * (self.blocks != (0,))
        parts += [f"history remembered {_durations(self.remember, axis, 'for ever')}"] * (self.remember != (None,))
        parts += ["with its CTIs"] * self.ctis + ["early"] * self.early + ["with a late output"] * self.late_output
        parts += [f"started by {self.started}"] * (self.started != RUN) + ["silent at the end"] * self.silent
        parts += [f"a session of Spark's own in {self.zone}"] * bool(self.zone)
        return ", ".join(parts)


def _durations(ticks: Sequence[int | None], axis: str, none: str) -> str:
    """``3, then 5`` on an integer axis, with units on one of timestamps; ``none`` stands for None."""
    return ", then ".join(none if n is None else show_duration(n, axis) for n in ticks)


def _block(block: int | None, remember: int | None) -> int | None:
    """Nothing is blocked for longer than history is remembered."""
    if remember is None:
        return block
    return remember if block is None else min(block, remember)


__all__ = ["BATCH", "CONTROLLED", "LITERAL", "RUN", "SPARK", "STARTS", "STREAM", "WRITTEN", "Execution"]
