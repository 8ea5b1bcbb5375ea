"""Tap one operator of a running query: the newest rows that go into it and come out of it."""

from __future__ import annotations

import base64
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa

from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import PlanError, nearest, sentence, warn
from streamq.run.status.history import is_of_a_micro_batch, observed_values
from streamq.run.storage.checkpoint import TapCommand
from streamq.runtime.arrow.columnar import decode_small
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.stage import OUT
from streamq.time import INFINITY, TIMESTAMP

if TYPE_CHECKING:
    import pandas as pd


MICRO_BATCHES = 1_000
"""The number of micro-batches after which a tap ends that nobody has ended."""

COLUMNS = ("micro_batch", "port", "weight", "start", "end", "payload")
"""The columns of a tap's rows."""


class Tap:
    """The newest rows into and out of one operator of a running query; also a context manager that ends the tap.

    ``rows()`` returns them; a notebook shows them as a table. A row is what the operator gets or sends: it has been filtered, and
    combined before the shuffle, where operators combine rows. So the rows into a window with aggregates are partial results, and
    their lifetimes are the columns ``__lo`` and ``__hi`` of the payload.
    """

    def __init__(
        self,
        operator: str,
        name: str,
        most: int,
        *,
        axis: str,
        send: Callable[[TapCommand], None],
        reports: Callable[[], Sequence[Any]],
    ):
        """Begin to tap an operator with a title, and a name of its state; ``reports`` returns Spark's reports on the run."""
        self.operator = operator
        self._command = TapCommand(uuid4().hex, name, most, MICRO_BATCHES)
        self._axis, self._send, self._reports = axis, send, reports
        self._seen = max([-1, *(report.batchId for report in reports())])
        self._rows: dict[int, deque[dict[str, Any]]] = defaultdict(lambda: deque(maxlen=most))
        self._is_on = True
        send(self._command)

    def rows(self) -> pd.DataFrame:
        """Return the newest rows, as a pandas frame: ``micro_batch``, ``port``, ``weight``, ``start``, ``end``, ``payload``.

        ``port`` is 0 for the first input, 1 for the second, and "out" for the output. ``weight`` counts the events that a row
        inserts, and is below 0 for a retraction. ``start`` and ``end`` are instants, None where there is no end or the row is a
        partial result. ``payload`` is a dictionary. Rows are in the order of their micro-batches, in each of which the inputs are
        first. Read it at least every hundred micro-batches, because Spark keeps so many reports; a warning counts those missed.
        """
        import pandas as pd

        self._read()
        rows = [row for port in sorted(self._rows, key=_place) for row in self._rows[port]]
        rows.sort(key=lambda row: row["micro_batch"])
        return pd.DataFrame([list(row.values()) for row in rows], columns=COLUMNS, dtype=object)

    def close(self) -> None:
        """End the tap; the rows so far stay."""
        if self._is_on:
            self._is_on = False
            self._send(TapCommand(self._command.tap, self._command.operator, 0, 0))
            self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        self._read()
        counts = {port: len(rows) for port, rows in self._rows.items()}
        sent = counts.pop(OUT, 0)
        return f"Tap({self.operator}: {sum(counts.values()):,} rows received, {sent:,} sent{'' if self._is_on else ', ended'})"

    def _repr_html_(self) -> str:
        return str(self.rows().to_html(max_rows=50))

    def _read(self) -> None:
        """Add the rows of the micro-batches that Spark has reported since the last call."""
        for report in self._reports():
            if report.batchId <= self._seen:
                continue
            fields = json.loads(report.json)
            if not is_of_a_micro_batch(fields):
                continue
            if missed := report.batchId - self._seen - 1 if self._seen >= 0 else 0:
                hint = "Call rows() more often: Spark keeps a hundred reports."
                warn(sentence("tap", f"the rows of {missed} micro-batches are not among those shown", "", hint))
            self._seen = report.batchId
            for tapped in map(json.loads, observed_values(fields).get("tapped", ())):
                for port, body in tapped["rows"] if tapped["tap"] == self._command.tap else ():
                    table = decode_small(base64.b64decode(body))
                    self._rows[port].extend(_shown(table, port, self._seen, self._axis))


def _place(port: int) -> tuple[bool, int]:
    """Return a key by which the output comes after the inputs."""
    return port == OUT, port


def _shown(table: pa.Table, port: int, number: int, axis: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one port in a micro-batch as users read them."""
    payload = python_rows(table.drop_columns([n for n in (LE, RE, WEIGHT) if n in table.column_names]))
    payload = payload or [{}] * len(table)
    times = {name: table.column(name).to_pylist() if name in table.column_names else None for name in (LE, RE, WEIGHT)}
    for place, values in enumerate(payload):
        start, end, weight = (None if column is None else column[place] for column in times.values())
        if end is None and start is not None:
            # a channel of points has no ends
            end = start + 1
        instants = [_instant(t, axis) for t in (start, end)]
        yield dict(zip(COLUMNS, [number, "out" if port == OUT else port, weight or 1, *instants, values], strict=True))


def _instant(t: int | None, axis: str) -> Any:
    """Return an instant as users read it: a datetime or ticks, None for one that is infinite or not there."""
    if t is None or t == INFINITY:
        return None
    return python_rows(pa.table({"t": pa.array([t], pa.timestamp("us", "UTC"))}))[0]["t"] if axis == TIMESTAMP else t


def tapped_operator(program: StagedPlan, operator: str) -> str:
    """Return the name of the state of the operator that a user names; raise PlanError, with those there are, if there is none."""
    titles = {hosted.name: program.titles[hosted.name][0] for stage in program.stages for hosted in stage.hosted}
    if operator in titles:
        return operator
    matches = [name for name, title in titles.items() if title == operator]
    matches = matches or [name for name, title in titles.items() if str(operator) and title.startswith(str(operator))]
    if len(matches) == 1:
        return matches[0]
    wrong = f"{len(matches)} operators {operator!r}" if matches else f"no operator with state {operator!r}"
    among: Iterable[str] = matches or titles
    shown = [f"{titles[name]} (state {name})" if matches else titles[name] for name in among]
    hint = "Give the name of its state." if matches else nearest(str(operator), titles.values())
    raise PlanError("tap", wrong, f"there are: {', '.join(shown)}" if shown else "the query has no state", hint)
