"""The arguments of ``run`` and ``run_all``, and what of them does not go together."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.choices import OutputForm
from streamq.errors import PlanError, sentence
from streamq.plan.verbs import Verbs
from streamq.policies import Consistency
from streamq.run.sinks import Sink, SinkArgument, sink_of
from streamq.run.sinks.sink import folder_name
from streamq.run.trigger import AVAILABLE_NOW
from streamq.time import Duration


@dataclass(frozen=True, kw_only=True)
class ResultRequest:
    """A query of which a user wants the result: as an ``output``, with its CTIs or without, in a sink."""

    query: Verbs
    output: str | OutputForm = OutputForm.FINAL
    ctis: bool = False
    sink: SinkArgument = None


def split_sink(argument: SinkArgument, verb: str) -> Sink:
    """Return a sink into which the rows of single micro-batches go; raise PlanError for what is no sink, or none of such."""
    sink = sink_of(argument, verb)
    if not sink.takes_micro_batches:
        wrong = "a late sink, and results of run_all, go with a folder, a function or 'noop' as the sink"
        hint = "Write the rows in a function of (DataFrame, batch id)."
        raise PlanError(sentence(verb, wrong, f"found {argument!r}", hint))
    return sink


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """How a user wants queries run by ``verb``, argument by argument as ``run`` documents them.

    ``together``: by ``run_all``, where each result has a sink of its own.
    """

    verb: str
    together: bool = False
    results: tuple[ResultRequest, ...]
    name: str | None = None
    checkpoint: str | None = None
    consistency: str | Consistency = "middle"
    trigger: Duration | None = None
    late_sink: str | None = None
    finish: bool = False
    buckets: int | None = None
    progress_log: bool = False
    early: bool = False

    def check(self) -> None:
        """Raise PlanError for a sink that is none, and for arguments that do not go together."""
        sinks = self.sinks
        self._check_folders()
        self._check_checkpoint()
        self._check_finish()
        for sink in sinks:
            sink.check(self.verb, name=self.name, finish=self.finish)

    @property
    def sinks(self) -> list[Sink]:
        """The sinks of its results, in their order."""
        make = split_sink if self.is_split else sink_of
        return [make(result.sink, self.verb) for result in self.results]

    @property
    def folders(self) -> list[str]:
        """The folders that the run writes rows into."""
        late = [] if self.late_sink is None else [self.late_sink]
        return [folder for sink in self.sinks for folder in sink.folders] + late

    @property
    def is_split(self) -> bool:
        """Whether the rows of a micro-batch go into more than one sink."""
        return self.late_sink is not None or self.together

    def _check_folders(self) -> None:
        paths = [*self.folders, *([] if self.checkpoint is None else [self.checkpoint])]
        names = [folder_name(path) for path in paths]
        shared = sorted({path for path, name in zip(paths, names, strict=True) if names.count(name) > 1})
        if shared:
            wrong = "sinks, late_sink and checkpoint are folders of their own"
            raise PlanError(sentence(self.verb, wrong, f"found {shared[0]!r} twice"))

    def _check_checkpoint(self) -> None:
        has_lasting_sink = any(sink.is_lasting for sink in self.sinks)
        if self.checkpoint is None and (has_lasting_sink or self.late_sink is not None):
            argument = "sink" if has_lasting_sink else "late_sink"
            reason = f"the {argument} lasts longer than this process"
            raise PlanError(sentence(self.verb, "no checkpoint", reason, "Give checkpoint='a folder'."))

    def _check_finish(self) -> None:
        if self.finish and self.trigger != AVAILABLE_NOW:
            wrong = "finish=True goes with trigger='available_now'"
            hint = "Else call run.finish() when the input has ended."
            raise PlanError(sentence(self.verb, wrong, f"found trigger={self.trigger!r}", hint))
