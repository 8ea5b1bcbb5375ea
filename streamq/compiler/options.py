"""Options of a streaming run, which the compiler reads beside the plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamq.choices import OutputForm
from streamq.compiler.results import Egress
from streamq.errors import PlanError
from streamq.plan.footprint import Expected
from streamq.policies import MIDDLE, Level

BUCKETS = 32
"""The default number of buckets of a stage."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The places of a checkpoint's operators: an operator stays in the stage that has its state.

    ``by_name``: the stages' numbers by the names of operators. ``stages``: the number of stages. ``sources``: the tables of the
    sources, in the order in which Spark knows them. ``partials``: the names of the partial results in
    the state of each operator, by its name.
    """

    by_name: Mapping[str, int]
    stages: int
    sources: tuple[str, ...]
    partials: Mapping[str, frozenset[str]] = field(default_factory=dict)


NOWHERE = Placement(by_name={}, stages=0, sources=())
"""The placement of a query that begins."""


@dataclass(frozen=True)
class Options:
    """The options of running some plans as one stream.

    ``egresses``: the forms in which the plans' results are written, in their order. ``late_output``: the run has a late output.
    ``buckets``: the most buckets of a stage. ``streaming``: False to treat invalid rows as a batch does. ``level``: the level of
    consistency. ``early``: a changelog or upserts report windows and rows before the
    watermark reaches them. ``ansi``: Spark computes by its ANSI rules; False if the session has turned them off. ``placement``:
    the places of operators in the checkpoint that the run goes on from. ``expected``: the input that is expected.
    """

    egresses: tuple[Egress, ...] = (Egress(),)
    late_output: bool = False
    buckets: int = BUCKETS
    streaming: bool = True
    level: Level = MIDDLE
    early: bool = False
    ansi: bool = True
    placement: Placement = NOWHERE
    expected: Expected | None = None

    @property
    def only_final(self) -> bool:
        """True if all results have final rows."""
        return all(egress.output == OutputForm.FINAL for egress in self.egresses)

    @property
    def counted_level(self) -> Level:
        """The level of consistency as it counts: final rows wait for the CTI anyway, so they alone need none that blocks."""
        return Level(0, self.level.remember) if self.only_final else self.level


def check_early(early: bool, options: Options, verb: str) -> None:
    """Raise PlanError if ``early`` is no bool, or is True though all outputs are final, or the level of another one blocks."""
    if not isinstance(early, bool):
        raise PlanError(verb, "early is True or False", f"found {early!r}")
    if not early:
        return
    if options.only_final:
        hint = "Say output='changelog' or 'upsert'."
        raise PlanError(verb, "early=True with final rows, which are never early", "found output='final'", hint)
    if options.level.block != 0:
        reason = "this level of consistency holds rows back"
        hint = "Say consistency='middle' or sq.weak(...)."
        raise PlanError(verb, "early=True lets rows go at once", reason, hint)
