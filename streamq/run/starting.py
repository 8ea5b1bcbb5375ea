"""Start queries as a run: prepare them, claim their checkpoint, and refuse a second run on it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import weakref
from dataclasses import replace

from streamq.errors import CheckpointError, PlanError, sentence, warn
from streamq.run.failure import spark_errors
from streamq.run.pacing import Pacer, hops_of
from streamq.run.prepared_stream import Launch, prepare
from streamq.run.run_options import BY_MICRO_BATCH, RunOptions, Trigger, trigger_of
from streamq.run.running import Run
from streamq.run.session.findings import master_of
from streamq.run.session.spark_session import check_sink_functions
from streamq.run.storage.checkpoint import END_OF_INPUT, Checkpoint, Claim
from streamq.run.storage.files import folder_name
from streamq.runtime.hosts.identity import MIGRATE, Identity


def temporary_folder(prefix: str) -> str:
    """Create a folder that is removed when this process ends, and return its path."""
    path = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


_RUNNING: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
"""The last run of this process on each checkpoint."""


@spark_errors("run", "Spark does not start the query", "Look at the sink, its options, and the checkpoint.")
def start_run(options: RunOptions) -> Run:
    """Start queries as a stream; with the trigger "available_now", return when all available input has been processed.

    A run without a checkpoint gets a temporary one. One whose input had ended before it was interrupted only writes the rest.
    With ``finish`` the end of the input comes together with it if the first micro-batch reads all of it. This process remembers
    the run by its checkpoint, and refuses a second one there while it is active. Raises PlanError, SessionError, CheckpointError,
    and the error of a query that is run to its end.
    """
    options.check()
    trigger = trigger_of(options.trigger)
    path = options.checkpoint or temporary_folder("streamq-checkpoint-")
    refuse_second_run(path)
    launch, claim = _claimed(replace(options, checkpoint=path), trigger)
    run = Run(launch, claim)
    _RUNNING[folder_name(path)] = run
    if launch.trigger.available_now:
        run._drain(claim)
    return run


def _claimed(options: RunOptions, trigger: Trigger) -> tuple[Launch, Claim]:
    """Prepare queries and claim the checkpoint for them; return what starts them, and the claim."""
    assert options.checkpoint is not None
    prepared = prepare(options)
    if trigger.adaptive and master_of(prepared.spark).startswith("sc://"):
        wrong, reason = "trigger='adaptive' does not go through Spark Connect", "the server runs the micro-batches"
        raise PlanError(options.verb, wrong, reason, "Give a duration, as '10 seconds', or leave the trigger out.")
    if options.calls_python:
        check_sink_functions(prepared.spark, options.verb)
    # results that cannot share a folder are refused before the checkpoint is claimed
    _ = prepared.outputs
    checkpoint = Checkpoint(prepared.spark, options.checkpoint)
    stored = prepared.stored
    forms = options.folder_forms(stored.folders if isinstance(stored, Identity) else (), checkpoint)
    claim = checkpoint.claim(replace(prepared.identity, folders=forms), stored)
    _warn_of_new_results(claim)
    if claim.is_ending:
        if not (claim.has_begun or prepared.reads_all_at_once):
            wrong, observed = (
                "the checkpoint's input was to end in the first micro-batch",
                "the sources may have several",
            )
            raise CheckpointError("run", wrong, observed, "Use a new checkpoint: nothing has been read here.")
        # at most one micro-batch remains, with the rows that the end of the input makes final
        trigger = Trigger(available_now=True)
    elif claim.is_new and options.finish and prepared.program.stages and prepared.reads_all_at_once:
        checkpoint.control.send(prepared.spark, END_OF_INPUT)
        claim = replace(claim, is_ending=True)
    launch = Launch(
        prepared=prepared,
        checkpoint=checkpoint,
        trigger=trigger,
        is_split=options.is_split or any(form.endswith(BY_MICRO_BATCH) for _, form in forms),
        pacer=Pacer(hops_of(options.plans, options.verb), prepared.program) if trigger.adaptive else None,
    )
    return launch, claim


def _warn_of_new_results(claim: Claim) -> None:
    """Warn of results that begin where the checkpoint stands: their operators with state have not seen the rows before."""
    for number in claim.new_results:
        wrong = f"result {number + 1} begins where the checkpoint stands"
        warn(sentence("run", f"{wrong}: earlier rows are not in it", "", f"{MIGRATE}."))


def refuse_second_run(checkpoint: str) -> None:
    """Raise PlanError if another run of this process uses the checkpoint; Spark would stop that run silently."""
    other = _RUNNING.get(folder_name(checkpoint))
    if other is not None and other.query.isActive:
        hint = "Call stop() on that run first."
        raise PlanError("run", "another run is on this checkpoint", f"found {checkpoint}", hint)
