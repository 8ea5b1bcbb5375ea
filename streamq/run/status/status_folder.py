"""What a run leaves in its checkpoint for other processes, and what they ask of it there; all of it without Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from streamq.choices import Request, RunState
from streamq.errors import PlanError
from streamq.run.storage.raw_files import RawFolder

STATUS, REQUEST, IDENTITY = "status.json", "request.json", "identity"
"""The files of a checkpoint's folder ``streamq``: how its run stands, what is asked of it, and its query's identity."""

BEAT = 10.0
"""The seconds after which a run says that it is there, if nothing else has changed."""

LOST_AFTER = 60.0
"""The seconds of silence after which a run that has not said that it is over counts as lost."""


def now_in_utc() -> str:
    """Return the time of day as ISO 8601, in UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_zombie(pid: int) -> bool:
    """Return True if a process has ended, and its parent has not asked how; False where no ``/proc`` says so."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """How a run stood ``at`` a time of day, as it wrote it itself: on which ``computer``, as which process ``pid``.

    ``reason`` is the error that it failed with, or why it is over. ``metrics`` are those of ``run.metrics``, ``why`` is what
    ``run.why().to_dict()`` returned, and ``text`` what it printed; empty until a run on a new checkpoint has looked.
    """

    name: str
    state: RunState
    reason: str = ""
    at: str = field(default_factory=now_in_utc)
    computer: str = ""
    pid: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    why: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @staticmethod
    def from_json(content: bytes) -> RunRecord:
        """Return the record in a file, by the clock of this computer: a run that has been silent for too long is lost."""
        fields = json.loads(content)
        record = RunRecord(**{**fields, "state": RunState(fields["state"])})
        silence = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(record.at)).total_seconds()
        if record.state is not RunState.RUNNING or silence < LOST_AFTER:
            return record
        reason = f"nothing has been heard of process {record.pid} on {record.computer} for {silence:,.0f} seconds"
        return replace(record, state=RunState.LOST, reason=reason)

    @property
    def is_of_another_process(self) -> bool:
        """True if another process of this computer runs it."""
        if self.state is not RunState.RUNNING or self.computer != socket.gethostname() or self.pid == os.getpid():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            # it is another user's
            return True
        return not is_zombie(self.pid)

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class StatusFolder:
    """The folder ``streamq`` of a checkpoint, as this program reaches it by itself; ``checkpoint`` is the user's path."""

    checkpoint: str
    folder: RawFolder

    @staticmethod
    def from_path(checkpoint: str, verb: str) -> StatusFolder:
        """Return the folder of a checkpoint; raise CheckpointError, in the name of ``verb``, if it cannot be reached."""
        return StatusFolder(checkpoint, RawFolder.from_path(checkpoint, verb) / "streamq")

    @property
    def is_there(self) -> bool:
        """True if this program sees the files of a checkpoint there."""
        return self.folder.has(IDENTITY)

    def record(self) -> RunRecord | None:
        """Return how the last run stands; None if none has said so."""
        return RunRecord.from_json(self.folder.read(STATUS)) if self.folder.has(STATUS) else None

    def write(self, record: RunRecord) -> None:
        """Write how the run stands, in the place of what it wrote before."""
        self.folder.replace(STATUS, record.to_json())

    def send(self, request: Request) -> None:
        """Ask something of the run; it looks for requests once a second. Raises PlanError unless there is one."""
        record = self.record()
        if record is None or record.state is not RunState.RUNNING:
            observed = "there has been none" if record is None else f"{record.state}: {record.reason}"
            raise PlanError(request, f"no run is on the checkpoint {self.checkpoint}", observed.removesuffix(": "))
        self.folder.replace(REQUEST, json.dumps(request).encode())

    def take_request(self) -> Request | None:
        """Return what has been asked of the run since the last call, and remove it; None if nothing has."""
        if not self.folder.has(REQUEST):
            return None
        request = Request(json.loads(self.folder.read(REQUEST)))
        self.folder.remove(REQUEST)
        return request


def checkpoints_below(path: str, verb: str) -> Iterator[StatusFolder]:
    """Yield the checkpoints in a folder, or in folders below it, without hidden ones and those of partitions.

    Raises CheckpointError if the folder cannot be reached.
    """
    waiting = [(path, RawFolder.from_path(path, verb))]
    while waiting:
        name, folder = waiting.pop(0)
        status = StatusFolder(name, folder / "streamq")
        if status.is_there:
            yield status
            continue
        below = [one for one in folder.folders() if one[0] not in "._" and "=" not in one]
        waiting += [(f"{name.rstrip('/')}/{one}", folder / one) for one in below]
