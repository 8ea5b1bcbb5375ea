"""The property validator: check that a recorded physical stream is legal, of the declared shape and in the declared order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamq.errors import PlanError, StreamqError, counted
from streamq.keywords import check_keywords
from streamq.runtime.event import CTI, RETRACT
from streamq.testing.history import Axis, interval, shown
from streamq.testing.properties import RULES, BreachDisplay, Finding, breaches_in
from streamq.testing.recorded import Names, RecordedRow, RecordedStream, read_stream

SHAPES = ("point", "interval", "edge", "signal")
ORDERS = ("chain", "full")


@dataclass(frozen=True)
class Breach:
    """A row that breaks a rule: its position in the input (from 0), the fault in words, and the fault drawn as a timeline."""

    rule: str
    position: int
    row: Mapping[str, Any] = field(compare=False)
    says: str
    timeline: str = field(default="", compare=False)

    def __str__(self) -> str:
        return "\n  ".join([f"row {self.position}: {self.says}", *self.timeline.splitlines()])


@dataclass(frozen=True)
class StreamCheck:
    """The result of a check: the number of rows, the number of breaches of each broken rule, and the first breaches.

    ``no_kind``: the name of the column of kinds, if it does not exist, so that all rows were read as inserts.
    """

    rows: int
    counts: Mapping[str, int] = field(default_factory=dict)
    breaches: tuple[Breach, ...] = ()
    no_kind: str | None = None

    @property
    def ok(self) -> bool:
        """True if no rule is broken."""
        return not self.counts

    def __str__(self) -> str:
        """Return the number of rows and of breaches and, for each broken rule, its words, its count and its first breaches."""
        rows = counted(self.rows, "row")
        if self.no_kind is not None:
            rows += f", all read as inserts (no column {self.no_kind!r})"
        if self.ok:
            return f"{rows}, no breach"
        lines = [f"{_breaches(sum(self.counts.values()))} in {rows}"]
        for rule, count in self.counts.items():
            first = [breach for breach in self.breaches if breach.rule == rule]
            lines.append(f"{_breaches(count)} of {rule!r}: {RULES[rule]}")
            lines += [f"  {line}" for breach in first for line in str(breach).splitlines()]
            if len(first) < count:
                lines.append(f"  ... and {count - len(first):,} more")
        return "\n".join(lines)


def _breaches(count: int) -> str:
    return f"{count:,} breach{'' if count == 1 else 'es'}"


class StreamViolation(StreamqError, AssertionError):
    """Raised for a physical stream that breaks a rule; ``checked`` is the result of the check."""

    def __init__(self, checked: StreamCheck):
        super().__init__(f"check_stream: {checked}")
        self.checked = checked

    def __reduce__(self) -> tuple[type[StreamViolation], tuple[StreamCheck]]:
        return type(self), (self.checked,)


@check_keywords
def check_stream(rows: Any, **arguments: Any) -> StreamCheck:
    """Raise StreamViolation, an AssertionError, if :func:`find_breaches` with the same arguments finds a breach.

    Else return its result.

    >>> import streamq as sq
    >>> items = [sq.insert(1, None, v=3), sq.retract(1, None, 10, v=3), sq.cti(20)]
    >>> print(check_stream(items, shape="edge", order="full"))
    3 rows, no breach

    >>> check_stream([sq.insert(1, 9, v=3), sq.cti(4), sq.retract(1, 9, 2, v=3)])
    Traceback (most recent call last):
    ...
    streamq.testing.validator.StreamViolation: check_stream: 1 breach in 3 rows
    1 breach of 'cti': no item changes anything before an earlier CTI, and no CTI goes back
      row 2: retract [1, 9) to 2, v=3: changes the history at 2, after cti 4
        |-------)  [1, 9)  taken back
        |)         [1, 2)  left
           !       4       cti, row 1
    """
    checked = find_breaches(rows, **arguments)
    if not checked.ok:
        raise StreamViolation(checked)
    return checked


@check_keywords
def find_breaches(
    rows: Any,
    *,
    shape: str | None = None,
    order: str | None = None,
    ctis: bool = True,
    id: str | None = None,
    kind: str | None = "kind",
    start: str = "start",
    end: str = "end",
    new_end: str = "new_end",
    batch: str | None = None,
    key: str | Sequence[str] | None = None,
    most: int = 10,
) -> StreamCheck:
    """Check a recorded physical stream, and return which rows break which rule.

    ``rows``: a pandas or Arrow table, dicts, the items of ``sq.events``, a Spark DataFrame, or the folder of a Parquet sink.
    Columns are those of a changelog: ``kind`` ("insert", "retract", "cti"), ``start``, ``end`` (NULL: infinite), ``new_end``,
    and a payload. Rows without a kind, such as those of ``output="final"``, are read as inserts, as the report notes;
    ``kind=None`` states it, in case the payload has a column of that name. Times are timestamps (naive ones are UTC), dates or
    integers.

    Two rules always apply: rows are items, and every retraction matches an event of the same start, end and payload (NULL, NaN
    and zeros equal themselves), or of the same start, end and ``id``. A retraction may come before its event until a CTI is
    past the start. A retraction that matches nothing is counted once; retractions that follow it are judged as if it had
    matched. Besides:

    ======================= ==================================================================================================
    ``ctis=True``           no item changes anything before an earlier CTI, and no CTI goes back; with False, CTIs are ignored
    ``order="chain"``       no retraction comes before its event
    ``order="full"``        as "chain", and no item has a sync time before that of an earlier item
    ``shape="point"``       inserts last one tick; they are retracted only as a whole
    ``shape="interval"``    any lifetimes
    ``shape="edge"``        inserts are ``[t, inf)``, each retracted at most once, to its end; with ``key``, one event of a key
                            at a time
    ``shape="signal"``      a sample's end is the next strictly later start of its ``key`` (``()``: all rows are one signal).
                            The sample that ends a key's last one may still come, until a CTI is past that end
    ======================= ==================================================================================================

    The order is that of the rows, each a micro-batch of its own, or that of the numbers or times in column ``batch``. Rows with
    equal ones are a micro-batch: a bag in which inserts count before retractions, and a delete with an insert of the same start
    and payload is a retraction. (An edge event that opens and closes in one micro-batch is then a single insert.) Spark tables
    have no order: without ``batch`` their rows are one bag, and order and CTIs cannot be checked. Folders that ``run`` wrote
    contain the micro-batches, unless Spark has compacted their log.

    The result holds the first ``most`` breaches of each rule, and counts all. Raises SourceError for an object that cannot be
    read as a physical stream, PlanError for illegal arguments. (docs/concepts.md, "Physical streams and retractions";
    StreamInsight's test framework, 6.3.)

    >>> import streamq as sq
    >>> checked = find_breaches([sq.insert(1, 9, k="a"), sq.insert(1, 7, k="b"), sq.retract(1, 8, 3, k="a")])
    >>> checked.counts
    {'match': 1}
    >>> print(checked.breaches[0])
    row 2: retract [1, 8) to 3, k='a': no event [1, 8) of this payload is there
      |------)   [1, 8)  taken back
      |-------)  [1, 9)  insert, row 0
    """
    verb = "check_stream"
    for name, word, words in (("shape", shape, SHAPES), ("order", order, ORDERS)):
        if word is not None and word not in words:
            listed = ", ".join(map(repr, words))
            raise PlanError(verb, f"no such {name}", f"found {word!r}; there are: {listed}")
    if shape == "signal" and key is None:
        raise PlanError(verb, "a signal without a key", "", "Give key=...; () makes all rows one signal.")
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    names = Names(kind=kind, start=start, end=end, new_end=new_end, id=id, batch=batch, key=keys)
    stream = read_stream(rows, names, verb)
    no_kind = kind if stream.rows and stream.names.kind is None else None
    return _report(stream, breaches_in(stream, shape, order, ctis, key is not None, verb), most, no_kind)


def _report(stream: RecordedStream, findings: Sequence[Finding], most: int, no_kind: str | None) -> StreamCheck:
    """Count the breaches of each rule, and describe the first ``most`` of each."""
    by_rule: dict[str, list[Finding]] = {rule: [] for rule in RULES}
    for finding in findings:
        by_rule[finding.rule].append(finding)
    counts = {rule: len(of_rule) for rule, of_rule in by_rule.items() if of_rule}
    breaches = tuple(_breach(stream, finding) for rule in counts for finding in by_rule[rule][:most])
    return StreamCheck(len(stream.rows), counts, breaches, no_kind)


def _breach(stream: RecordedStream, finding: Finding) -> Breach:
    display = finding.show()
    says = f"{_row_text(stream, finding.row)}: {display.says}"
    return Breach(finding.rule, finding.row.at, stream.row(finding.row), says, _timeline(display, stream.axis))


def _row_text(stream: RecordedStream, row: RecordedRow) -> str:
    """Return a row as text: ``retract [1, 5) to 8, v=3``; a row that is not an item as a dict.

    The number of its micro-batch follows, if the stream has a column of them.
    """
    values = stream.row(row)
    micro_batch = f" of micro-batch {values[stream.names.batch]}" if stream.names.batch else ""
    if row.fault or row.start is None:
        return f"{values}{micro_batch}"
    if row.kind == CTI:
        return f"cti {shown(row.start, stream.axis)}{micro_batch}"
    moved = f" to {shown(row.new_end, stream.axis)}" if row.kind == RETRACT else ""
    payload = "".join(f", {name}={values[name]!r}" for name in stream.payload)
    return f"{row.kind} {interval(row.start, row.end, stream.axis)}{moved}{payload}{micro_batch}"


def _timeline(display: BreachDisplay, axis: str) -> str:
    """Return a line for each lifetime and each instant: the drawing, the times, and the label."""
    if not display.lifetimes and not display.instants:
        return ""
    drawn = Axis([*display.lifetimes, *((t, t) for t, _ in display.instants)], axis)
    lines = [f"{drawn.draw(a, b)} {drawn.label(a, b)}  {what}" for a, b, what in display.lifetimes]
    lines += [f"{drawn.mark(t)} {shown(t, axis).ljust(drawn.wide)}  {what}" for t, what in display.instants]
    return "\n".join(lines)
