"""Options of a streaming run, which the compiler reads beside the plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamq.choices import OutputForm
from streamq.compiler.egress import Egress
from streamq.errors import PlanError, sentence
from streamq.policies import MIDDLE, Level
from streamq.runtime.identity import ResultState, StoredPartials

BUCKETS = 32
"""The default number of buckets of a stage."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The places of a checkpoint's operators: an operator stays in the stage that has its state.

    ``by_name``: the stages' numbers by the names of operators. ``stages``: the number of stages. ``sources``: the tables of the
    sources, in the order in which Spark knows them. ``windows``: the partial results of its grids. ``results``: the results, with
    their tracks; ``origins``: the tracks that others began with, by these.
    """

    by_name: Mapping[str, int]
    stages: int
    sources: tuple[str, ...]
    windows: tuple[StoredPartials, ...] = ()
    results: tuple[ResultState, ...] = ()
    origins: Mapping[int, int] = field(default_factory=dict)

    def stored_track(self, track: int) -> int:
        """Return the track of the checkpoint with whose state a track goes on, or begins."""
        is_there = any(result.track == track for result in self.results)
        return track if is_there else self.origins.get(track, track)


NOWHERE = Placement(by_name={}, stages=0, sources=())
"""The placement of a query that begins."""


@dataclass(frozen=True)
class Options:
    """The options of running some plans as one stream.

    ``egresses``: the forms in which the plans' results are written, in their order. ``late_output``: the run has a late output.
    ``buckets``: the most buckets of a stage. ``streaming``: False to treat invalid rows as a batch does. ``level``: the level of
    consistency of results without one of their own, which are in ``levels``, by result number. ``sinks``: the names of the
    folders that results are written into, by result number. ``early``: a changelog or upserts report windows and rows before the
    watermark reaches them. ``ansi``: Spark computes by its ANSI rules; False if the session has turned them off. ``placement``:
    the places of operators in the checkpoint that the run goes on from.
    """

    egresses: tuple[Egress, ...] = (Egress(),)
    late_output: bool = False
    buckets: int = BUCKETS
    streaming: bool = True
    level: Level = MIDDLE
    levels: Mapping[int, Level] = field(default_factory=dict)
    sinks: Mapping[int, str] = field(default_factory=dict)
    early: bool = False
    ansi: bool = True
    placement: Placement = NOWHERE

    def level_of(self, result: int) -> Level:
        """Return the level of consistency of a result."""
        return self.levels.get(result, self.level)


def check_early(early: bool, options: Options, verb: str) -> None:
    """Raise PlanError if ``early`` is no bool, or is True though all outputs are final, or the level of another one blocks."""
    if not isinstance(early, bool):
        raise PlanError(sentence(verb, "early is True or False", f"found {early!r}"))
    if not early:
        return
    others = [number for number, egress in enumerate(options.egresses) if egress.output != OutputForm.FINAL]
    if not others:
        hint = "Say output='changelog' or 'upsert'."
        raise PlanError(
            sentence(verb, "early=True with final rows, which are never early", "found output='final'", hint)
        )
    blocked = [number for number in others if options.level_of(number).block != 0]
    if blocked:
        reason = "this level of consistency holds rows back"
        if any(number in options.levels for number in blocked):
            reason = f"the level of consistency of result {blocked[0] + 1} holds rows back"
        hint = "Say consistency='middle' or sq.weak(...)."
        raise PlanError(sentence(verb, "early=True lets rows go at once", reason, hint))
