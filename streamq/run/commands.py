"""The commands of ``python -m streamq``: run a query, list runs, show how one stands, and end it; by its checkpoint.

The commands other than ``run`` and ``doctor`` read and write files of the checkpoint, and start no Spark.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from streamq.choices import Request, RunState
from streamq.errors import CedrError, CheckpointError, PlanError, SessionError, StreamqError, kind_of, nearest
from streamq.run.status.status_folder import RunRecord, StatusFolder, checkpoints_below

if TYPE_CHECKING:
    from streamq.run.run_options import ResultRequest
    from streamq.run.run_verbs import RunVerbs

FINE, FAILED, WRONG = 0, 1, 2
"""The codes with which a command ends: all is well, a query or a check has failed, the arguments are wrong."""


REFUSED = (PlanError, CedrError, CheckpointError, SessionError)
"""The errors with which a query is refused before it starts; others end it."""


def main(arguments: Sequence[str]) -> int:
    """Run a command, and return the code with which the program ends: 0, 1 if a query has failed, 2 for wrong arguments."""
    parsed = _parser().parse_args(arguments)
    try:
        code = int(parsed.command(parsed))
        sys.stdout.flush()
        return code
    except StreamqError as error:
        print(error, file=sys.stderr)
        return WRONG if isinstance(error, REFUSED) else FAILED
    except BrokenPipeError:
        # who reads has seen enough, as head does; Python would write what is left when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m streamq", description="Run queries, and look at their runs.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=help, description=help)
        one.set_defaults(command=run)
        return one

    run = command("run", run_query, "Run a query until it ends, or is told to: by stop, finish, Ctrl-C or SIGTERM.")
    run.add_argument(
        "query", help="app.py:query or package.module:query: a stream, results, or a function that returns them"
    )
    option = partial(run.add_argument, default=argparse.SUPPRESS)
    option("--checkpoint", required=True, help="the folder of the run's state")
    option("--sink", help="a folder for the rows, or console; without it they are computed alone")
    option("--folder", help="of results: a folder for those without a sink of their own")
    option("--output", help="final (default), changelog, upsert or latest")
    option("--key", action="append", help="a column of the key of latest rows; once for each")
    option("--ctis", action="store_true", help="a changelog has CTIs, too")
    option("--stamped", action="store_true", help="a changelog says when its rows were sent")
    option("--early", action="store_true", help="a changelog has windows as soon as they have a member")
    option("--trigger", help="a duration such as '10 seconds', adaptive or available_now")
    option("--consistency", help="middle (default) or strong")
    option("--late-sink", help="a folder for late and invalid rows")
    option("--buckets", type=int, help="the number of parts of the state, for the life of the checkpoint")
    option("--name", help="the name of the run; that of the query by default")
    option("--finish", action="store_true", help="with available_now: end the input, and write the last windows")
    run.add_argument("--kafka", action="store_true", help="bring Spark's connector for Kafka")
    listing = command("ps", list_runs, "List the checkpoints below a folder, and how their runs stand.")
    listing.add_argument("folder", nargs="?", default=".", help="a folder, by default this one")
    why = command("why", show_why, "Say why a run has no output, as run.why() does.")
    metrics = command("metrics", show_metrics, "Print the metrics of a run, as run.metrics has them.")
    metrics.add_argument(
        "--format", choices=["json", "openmetrics"], default="json", help="openmetrics: of all runs below"
    )
    for one in (why, metrics):
        one.add_argument("checkpoint")
    why.add_argument("--format", choices=["text", "json"], default="text")
    for request, what in (
        (Request.STOP, "Stop a run, which another one can continue."),
        (Request.FINISH, "End the input of a run, and let it write its last windows."),
    ):
        one = command(request, partial(end_run, request), what)
        one.add_argument("checkpoint")
        one.add_argument("--timeout", type=float, default=600.0, help="the seconds to wait until the run is over")
    command("doctor", check_machine, "Check Java, Spark and the packages that streamq needs.")
    return parser


def load_query(target: str) -> RunVerbs | Sequence[ResultRequest]:
    """Return the stream or the results at ``app.py:query`` or ``package.module:query``, of a function what it returns.

    Raises PlanError if there is no such file, module or name, for a function with arguments, and if it is neither a stream nor
    a result nor a list of results; what the module raises passes through.
    """
    from streamq.run.run_options import ResultRequest
    from streamq.run.run_verbs import RunVerbs

    place, _, name = target.rpartition(":")
    if not place or not name:
        raise PlanError("run", "not the place of a query", f"found {target!r}", "Write app.py:query.")
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_by_name(place)
    if not hasattr(module, name):
        names = [one for one in vars(module) if not one.startswith("_")]
        raise PlanError("run", f"{place} has no {name}", "", nearest(name, names))
    query = getattr(module, name)
    if callable(query) and not isinstance(query, RunVerbs | ResultRequest):
        try:
            inspect.signature(query).bind()
        except TypeError as error:
            raise PlanError("run", f"{target} takes arguments", str(error), "Give a function without.") from error
        query = query()
    match query:
        case RunVerbs():
            return query
        case ResultRequest():
            return [query]
        case [*results] if results and all(isinstance(one, ResultRequest) for one in results):
            return results
    hint = "Give a stream, or what sq.result returns, or a list of that."
    raise PlanError("run", f"{target} is no query", f"found {kind_of(query)}", hint)


def _module_of_file(path: Path) -> ModuleType:
    """Load a file as a module of its own name, beside which it finds those that it imports."""
    if not path.is_file():
        raise PlanError("run", f"there is no file {path}")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _module_by_name(name: str) -> ModuleType:
    """Import a module, also one of this folder."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise PlanError("run", f"there is no module {name}", str(error)) from error


def run_query(parsed: argparse.Namespace) -> int:
    """Run a stream, or results as one, until it ends; the options are those of ``run`` and ``run_all``.

    It runs in the active session or one that ``sq.session`` starts; a line a micro-batch is logged. Raises PlanError for an
    option that the other of the two has.
    """
    from streamq.run.run_verbs import RunVerbs, run_all
    from streamq.run.session.findings import active_session
    from streamq.run.session.spark_session import session
    from streamq.run.status.watching import noted_interrupt

    queries = load_query(parsed.query)
    start, what = (queries.run, "a stream") if isinstance(queries, RunVerbs) else (partial(run_all, queries), "results")
    options = {name: value for name, value in vars(parsed).items() if name not in ("query", "kafka", "command")}
    parameters = inspect.signature(start).parameters
    for name in options:
        if name not in parameters:
            hint = "Give --sink." if name == "folder" else f"Write sq.result(query, {name}=...) there."
            raise PlanError("run", f"--{name} is not for {what}", f"found {what} at {parsed.query}", hint)
    if parsed.kafka or active_session() is None:
        session(kafka=parsed.kafka)
    run = start(**{"name": parsed.query.rpartition(":")[2], **options}, progress_log=True)
    with noted_interrupt(signal.SIGINT, signal.SIGTERM) as interrupt:
        while not run.await_termination(1):
            if interrupt.came:
                run.stop()
    print(f"{run.name}: {run.metrics['state']}")
    return FINE


def list_runs(parsed: argparse.Namespace) -> int:
    """Print a line for each checkpoint below a folder: its run's name, state, micro-batches, rows, and its sources' CTIs."""
    from streamq.screens import TableSection

    rows = [_line_of_run(status) for status in checkpoints_below(parsed.folder, "ps")]
    headings = ("checkpoint", "name", "state", "micro-batches", "rows", "results", "progress")
    print(TableSection(headings, rows).text() if rows else f"There is no checkpoint in {parsed.folder}.")
    return FINE


def _line_of_run(status: StatusFolder) -> Sequence[Any]:
    record = status.record()
    if record is None or not record.metrics:
        return status.checkpoint, record.name if record else "", record.state if record else "unknown", "", "", "", ""
    query, sources = record.metrics["query"], record.metrics["sources"]
    ends = {n: "its end" if source["ended"] else source["cti_at"] or source["cti"] for n, source in sources.items()}
    progress = ", ".join(f"{name} at {cti}" for name, cti in ends.items() if cti is not None)
    counts = query["batches"], query["rows"], query["inserted"]
    return status.checkpoint, record.name, record.state, *counts, progress


def _record_of(checkpoint: str, verb: str) -> RunRecord:
    """Return how the run on a checkpoint stands; raise PlanError if there is none, or it has not said anything."""
    status = StatusFolder.from_path(checkpoint, verb)
    if not status.is_there:
        raise PlanError(verb, f"{checkpoint} is no checkpoint of a run", "", "List those that there are: ps FOLDER.")
    record = status.record()
    if record is None:
        reason = "it may run through Spark Connect, on files that its program cannot see"
        raise PlanError(verb, f"the run on {checkpoint} has not said how it stands", reason)
    return record


def show_why(parsed: argparse.Namespace) -> int:
    """Print what ``run.why()`` returned when the run last looked, after a line with its state if it does not run."""
    record = _record_of(parsed.checkpoint, "why")
    if parsed.format == "json":
        print(json.dumps({**record.why, "state": record.state, "at": record.at}))
        return FINE
    if record.state is RunState.LOST or not record.text:
        print(f"{record.name}: {record.state}{record.reason and f', {record.reason}'}")
    print(record.text or "No micro-batch is done yet.")
    return FINE


def show_metrics(parsed: argparse.Namespace) -> int:
    """Print ``run.metrics`` as it was when the run last looked, with its state now.

    As OpenMetrics it prints those of all runs on checkpoints below a folder.
    """
    if parsed.format == "openmetrics":
        from streamq.run.status.open_metrics import open_metrics

        stands = ((one.checkpoint, one.record()) for one in checkpoints_below(parsed.checkpoint, "metrics"))
        runs = [
            ({"query": record.name, "checkpoint": path}, {**record.metrics, "state": record.state})
            for path, record in stands
            if record is not None and record.metrics
        ]
        print(open_metrics(runs), end="")
        return FINE
    record = _record_of(parsed.checkpoint, "metrics")
    print(json.dumps({**record.metrics, "state": record.state, "at": record.at}, indent=2))
    return FINE


def end_run(request: Request, parsed: argparse.Namespace) -> int:
    """Ask a run to stop or to finish, and wait until it is over; return FAILED if its query has failed, or time is up."""
    _record_of(parsed.checkpoint, request)
    status = StatusFolder.from_path(parsed.checkpoint, request)
    status.send(request)
    until = time.monotonic() + parsed.timeout
    while time.monotonic() < until:
        record = status.record()
        if record is not None and record.state is not RunState.RUNNING:
            print(f"{record.name}: {record.state}{record.reason and f', {record.reason}'}")
            return FAILED if record.state in (RunState.FAILED, RunState.LOST) else FINE
        time.sleep(0.2)
    print(f"{request}: the run still goes on after {parsed.timeout:g} seconds", file=sys.stderr)
    return FAILED


def check_machine(parsed: argparse.Namespace) -> int:
    """Print the report of ``sq.doctor()``."""
    from streamq.run.session.findings import doctor

    report = doctor()
    print(report)
    return FINE if report.ok else FAILED
