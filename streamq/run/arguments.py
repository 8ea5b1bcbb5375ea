"""The arguments of ``run``, and what of them does not go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamq.choices import OutputForm
from streamq.errors import PlanError, sentence
from streamq.policies import Consistency
from streamq.run.sinks import Sink, folder_name, is_lasting, sink_folders
from streamq.run.trigger import AVAILABLE_NOW
from streamq.time import Duration


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """How a user wants a query run, argument by argument as ``run`` documents them."""

    name: str | None = None
    checkpoint: str | None = None
    consistency: str | Consistency = "middle"
    output: str | OutputForm = OutputForm.FINAL
    ctis: bool = False
    sink: Sink = None
    trigger: Duration | None = None
    late_sink: str | None = None
    finish: bool = False
    buckets: int | None = None
    progress_log: bool = False

    def check(self) -> None:
        """Raise PlanError for a sink that is none, and for arguments that do not go together."""
        self._check_sink()
        self._check_late_sink()
        self._check_folders()
        self._check_checkpoint()
        self._check_finish()
        if self.sink == "memory" and not self.name:
            hint = "Give name='...': the table is called that."
            raise PlanError(sentence("run", "the memory sink needs a name", "", hint))

    @property
    def folders(self) -> list[str]:
        """The folders that the run writes rows into."""
        return [*sink_folders(self.sink), *([] if self.late_sink is None else [self.late_sink])]

    def _check_sink(self) -> None:
        sink: object = self.sink
        if not (sink is None or isinstance(sink, str | Mapping) or callable(sink)):
            hint = "A path, {'format': ...}, 'memory', 'console', 'noop' or a function of (DataFrame, batch id)."
            raise PlanError(sentence("run", "not a sink", f"found {self.sink!r}", hint))

    def _check_late_sink(self) -> None:
        is_pathless = isinstance(self.sink, Mapping) and "path" not in self.sink
        if self.late_sink is not None and (self.sink in ("memory", "console") or is_pathless):
            wrong = "a late sink goes with a folder, a function or 'noop' as the sink"
            hint = "Write the rows in a function of (DataFrame, batch id)."
            raise PlanError(sentence("run", wrong, f"found {self.sink!r}", hint))

    def _check_folders(self) -> None:
        paths = [*self.folders, *([] if self.checkpoint is None else [self.checkpoint])]
        names = [folder_name(path) for path in paths]
        shared = sorted({path for path, name in zip(paths, names, strict=True) if names.count(name) > 1})
        if shared:
            wrong = "sink, late_sink and checkpoint are folders of their own"
            raise PlanError(sentence("run", wrong, f"found {shared[0]!r} twice"))

    def _check_checkpoint(self) -> None:
        if self.checkpoint is None and (is_lasting(self.sink) or self.late_sink is not None):
            argument = "sink" if is_lasting(self.sink) else "late_sink"
            reason = f"the {argument} lasts longer than this process"
            raise PlanError(sentence("run", "no checkpoint", reason, "Give checkpoint='a folder'."))

    def _check_finish(self) -> None:
        if self.finish and self.trigger != AVAILABLE_NOW:
            wrong = "finish=True goes with trigger='available_now'"
            hint = "Else call run.finish() when the input has ended."
            raise PlanError(sentence("run", wrong, f"found trigger={self.trigger!r}", hint))
        if self.finish and self.sink == "memory":
            reason = "Spark cannot start a query on that sink twice, which flushing the last windows takes"
            hint = "Use a path, or leave the trigger out and call run.finish()."
            raise PlanError(sentence("run", "finish=True with the memory sink", reason, hint))
