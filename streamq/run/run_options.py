"""What a user asks of a run: its results, its options and its trigger, with the checks of their combinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from streamq.choices import OutputForm, choose_word
from streamq.compiler.estimates import checked_expected
from streamq.compiler.options import Options, check_early
from streamq.compiler.results import Egress, Results, choose_egress
from streamq.errors import PlanError, TimeError, nearest
from streamq.plan.footprint import Expected
from streamq.plan.node import Node, Verbs
from streamq.policies import Consistency, consistency_of
from streamq.run.pacing import hops_of
from streamq.run.sink_arguments import SinkArgument, sink_of
from streamq.run.sinks import DividedFolder, Sink
from streamq.run.storage.checkpoint import Checkpoint, ControlFolder
from streamq.run.storage.raw_files import folder_name
from streamq.time import TIMESTAMP, Duration, ticks


@dataclass(frozen=True, kw_only=True)
class ResultRequest:
    """A result that a user requests: the query, the form of its output, with CTIs or stamps or without, and the sink.

    ``division``: its name, by which a folder of several results is divided. ``key``: that of latest rows; (): that of the groups.
    """

    query: Verbs
    output: str | OutputForm = OutputForm.FINAL
    ctis: bool = False
    stamped: bool = False
    sink: SinkArgument | Sink = None
    division: str | None = None
    key: str | Sequence[str] = ()

    def egress(self, verb: str) -> Egress:
        """Return the form of its rows; raise PlanError, worded for ``verb``, for an output that the query cannot have."""
        form = choose_word(OutputForm, self.output, "output", verb)
        return choose_egress(self.query.plan, form, ctis=self.ctis, stamped=self.stamped, key=self.key, verb=verb)

    def row_form(self, *, with_columns: bool) -> str:
        """Return a text that differs for rows that may not be in one folder: of another output or, if asked, other columns."""
        columns = ", ".join(f"{field.name} {field.type.simpleString()}" for field in self.query.plan.schema.fields)
        own = f" of {columns}" * with_columns
        return f"{'stamped ' * self.stamped}{self.output} rows{' with CTIs' * self.ctis}{own}"


def split_sink(argument: SinkArgument | Sink, verb: str) -> Sink:
    """Return a sink that can write single micro-batches; raise PlanError for any other argument."""
    sink = sink_of(argument, verb)
    if not sink.takes_micro_batches:
        wrong = (
            "a late sink, results of run_all and the trigger 'adaptive' need a folder of files, a function or 'noop' as the "
            "sink"
        )
        hint = "Write the rows in a function of (DataFrame, batch id), as into a table: df.write.format(...).save(...)."
        raise PlanError(verb, wrong, f"found {argument!r}", hint)
    return sink


Folders = tuple[tuple[str, str], ...]
"""Names of folders, each with the form of its rows."""

BY_MICRO_BATCH, IN_SPARKS_LOG = "a folder a micro-batch", "files in Spark's log"
"""The two ways in which rows are written into a folder."""


AVAILABLE_NOW = "available_now"
"""The trigger of a run that processes all available input and returns."""

ADAPTIVE = "adaptive"
"""The trigger of a run that has as many micro-batches in a hop of its windows as make results come soonest."""


Trigger = Mapping[str, Any]
"""A trigger in Spark's words; without any the next micro-batch begins at once."""

UNTIL_NO_INPUT_IS_LEFT: Trigger = {"availableNow": True}


def trigger_of(duration: Duration | None) -> Trigger:
    """Return the trigger for a user's argument; raise PlanError for an illegal one, such as a negative duration."""
    if duration is None or duration == ADAPTIVE:
        return {}
    if duration == AVAILABLE_NOW:
        return UNTIL_NO_INPUT_IS_LEFT
    try:
        every = ticks(duration, TIMESTAMP, "run")
    except TimeError as error:
        raise _no_trigger(duration) from error
    if every < 0:
        raise _no_trigger(duration)
    return {"processingTime": f"{every} microseconds"}


def _no_trigger(argument: object) -> PlanError:
    """Return the error for an argument that is no trigger."""
    hint = "Write 'available_now', 'adaptive', or a duration as '10 seconds' or '500 ms'."
    if isinstance(argument, str):
        hint = nearest("available_now" if argument == "once" else argument, [AVAILABLE_NOW, ADAPTIVE]) or hint
    return PlanError("run", "not a trigger", f"found {argument!r}", hint)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """All that a user asks of a run, a ``writeStream``, a migration or an explanation, as ``run`` documents it.

    ``verb`` is the one that the user called. ``together``: each result has its own sink, as in ``run_all``. ``control``: a folder
    for CTIs from outside; a run has one in its checkpoint. ``buckets``: None for those of the checkpoint or a default.
    ``folder``: that of all results without a sink of their own.
    """

    verb: str
    results: tuple[ResultRequest, ...]
    together: bool = False
    name: str | None = None
    checkpoint: str | None = None
    control: str | None = None
    consistency: str | Consistency = "middle"
    trigger: Duration | None = None
    late_sink: str | None = None
    finish: bool = False
    buckets: int | None = None
    progress_log: bool = False
    early: bool = False
    folder: str | None = None
    expected: Expected | None = None

    @classmethod
    def from_call(cls, verb: str, arguments: Mapping[str, Any], results: Sequence[ResultRequest] = ()) -> Self:
        """Return the options of a user's call of ``verb``, whose ``locals()`` are the ``arguments``.

        ``results``: those of several queries; else the only result is that of the query ``self``, as the arguments describe it.
        """
        own, one = (
            {field.name: arguments[field.name] for field in fields(kind) if field.name in arguments}
            for kind in (cls, ResultRequest)
        )
        requests = tuple(results) or (ResultRequest(query=arguments["self"], **one),)
        return cls(**{**own, "verb": verb, "results": requests})

    def check(self) -> None:
        """Raise PlanError for an illegal sink or trigger, and for arguments that cannot be combined."""
        sinks = self.sinks
        trigger_of(self.trigger)
        self._check_names()
        self._check_folders()
        self._check_checkpoint()
        self._check_finish()
        if self.trigger == ADAPTIVE:
            hops_of(self.plans, self.verb)
        for sink in sinks:
            sink.check(self.verb, name=self.name, finish=self.finish)

    def compiled_with(self) -> tuple[Results, Options]:
        """Return the plans of the results as they were written, and the options of the compiler, with the default of buckets.

        Raises PlanError for an output or a level that the queries cannot have, for an illegal number of buckets, and for what is
        expected of sources and columns that do not exist.
        """
        buckets = self.buckets
        if buckets is not None and (not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 1):
            raise PlanError(self.verb, "buckets is a whole number of at least 1", f"found {buckets!r}")
        written = Results.from_plans(self.plans, self.verb)
        level = consistency_of(self.consistency, written.schema.axis, self.verb)
        egresses = tuple(result.egress(self.verb) for result in self.results)
        options = Options(
            egresses=egresses,
            level=level,
            early=self.early,
            late_output=self.late_sink is not None,
            expected=checked_expected(self.expected, written, self.verb),
        )
        check_early(self.early, options, self.verb)
        return written, options

    @property
    def control_folder(self) -> ControlFolder | None:
        """The folder for CTIs from outside; None if there is none."""
        if self.checkpoint is not None:
            return ControlFolder(f"{self.checkpoint}/streamq/control")
        return None if self.control is None else ControlFolder(self.control)

    @property
    def sinks(self) -> list[Sink]:
        """The sinks of the results, in order."""
        make = split_sink if self.is_split else sink_of
        return [
            DividedFolder(self.folder) if self.folder is not None and one.sink is None else make(one.sink, self.verb)
            for one in self.results
        ]

    @property
    def folders(self) -> list[str]:
        """The folders into which the run writes rows."""
        late = [] if self.late_sink is None else [self.late_sink]
        own = [folder for sink in self.sinks if not isinstance(sink, DividedFolder) for folder in sink.folders]
        return [*own, *([] if self.folder is None else [self.folder]), *late]

    def folder_forms(self, before: Folders, checkpoint: Checkpoint) -> Folders:
        """Return the names of the folders that rows are written into, each with the form of its rows.

        That names their columns, except in a folder of several results, which has the columns of all that it has ever had.
        ``before``: those of the checkpoint so far. Spark's log of a folder begins with the first micro-batch, so a folder that is
        new on a checkpoint with micro-batches is written in a folder a micro-batch.
        """
        own = [
            (result, folder_name(f))
            for result, sink in zip(self.results, self.sinks, strict=True)
            for f in sink.folders
        ]
        forms = dict(before)
        is_split = self.is_split or any(forms.get(name, "").endswith(BY_MICRO_BATCH) for _, name in own)
        if not is_split and any(name not in forms for _, name in own):
            is_split = checkpoint.has_begun()
        how = BY_MICRO_BATCH if is_split else IN_SPARKS_LOG
        late = [] if self.late_sink is None else [(folder_name(self.late_sink), f"late rows, {BY_MICRO_BATCH}")]
        shared = None if self.folder is None else folder_name(self.folder)
        written = [(name, f"{request.row_form(with_columns=name != shared)}, {how}") for request, name in own]
        # in the order in which they are written; the results in one folder, which is the last, have one form
        return (*sorted(dict.fromkeys(written), key=lambda of: of[0] == shared), *late)

    @property
    def is_split(self) -> bool:
        """True if streamq writes micro-batches: their rows may go into more than one sink, or it pauses after them."""
        return self.late_sink is not None or self.together or self.trigger == ADAPTIVE

    @property
    def calls_python(self) -> bool:
        """True if a function of Python's writes the micro-batches: the user's, or streamq's own."""
        return self.is_split or any(sink.calls_python for sink in self.sinks)

    @property
    def plans(self) -> list[Node]:
        """The plans of the results, in order."""
        return [result.query.plan for result in self.results]

    def _check_names(self) -> None:
        """Raise PlanError if two results have one name, and if those of one folder do not all have one."""
        own_names = [one.division for one in self.results if one.division is not None]
        if twice := next((name for place, name in enumerate(own_names) if name in own_names[:place]), None):
            hint = "Write sq.result(query, name='...'), each with another name."
            raise PlanError(self.verb, "two results have one name", f"found {twice!r} twice", hint)
        if self.folder is None:
            return
        if not isinstance(self.folder, str):
            raise PlanError(self.verb, "folder is a path", f"found {self.folder!r}")
        names = [
            one.division for one, sink in zip(self.results, self.sinks, strict=True) if isinstance(sink, DividedFolder)
        ]
        hint = "Write sq.result(query, name='...'), each with another name."
        if not names:
            raise PlanError(
                self.verb, "a folder without results", "each result has a sink of its own", "Leave folder out."
            )
        for place, name in enumerate(names):
            if not isinstance(name, str) or not name or name in names[:place]:
                wrong = "each result in a folder of several has a name of its own"
                raise PlanError(self.verb, wrong, f"found {name!r}{' twice' * (name in names[:place])}", hint)

    def _check_folders(self) -> None:
        """Raise PlanError if one folder is used twice, as a sink, the late sink or the checkpoint."""
        paths = [*self.folders, *([] if self.checkpoint is None else [self.checkpoint])]
        names = [folder_name(path) for path in paths]
        shared = sorted({path for path, name in zip(paths, names, strict=True) if names.count(name) > 1})
        if shared:
            wrong = "sinks, late_sink and checkpoint must be different folders"
            raise PlanError(self.verb, wrong, f"found {shared[0]!r} twice")

    def _check_checkpoint(self) -> None:
        """Raise PlanError if there is no checkpoint although rows outlast this process."""
        has_lasting_sink = any(sink.is_lasting for sink in self.sinks)
        if self.checkpoint is None and (has_lasting_sink or self.late_sink is not None):
            argument = "sink" if has_lasting_sink else "late_sink"
            reason = f"the {argument} lasts longer than this process"
            raise PlanError(self.verb, "no checkpoint", reason, "Give checkpoint='a folder'.")

    def _check_finish(self) -> None:
        """Raise PlanError for ``finish=True`` without the trigger "available_now"."""
        if self.finish and self.trigger != AVAILABLE_NOW:
            wrong = "finish=True needs trigger='available_now'"
            hint = "With other triggers call run.finish() when the input has ended."
            raise PlanError(self.verb, wrong, f"found trigger={self.trigger!r}", hint)
