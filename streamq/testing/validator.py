"""The property validator: check that a recorded physical stream is legal, of the declared shape and in the declared order."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from streamq.errors import PlanError, SourceError, StreamqError, check_keywords, counted
from streamq.runtime.deltas import CTI, RETRACT
from streamq.testing.folding import Change, Event, fold_items, history_of, in_order, unmatched
from streamq.testing.history import Axis, interval, shown
from streamq.testing.recorded import Names, RecordedRow, RecordedStream, read_stream
from streamq.time import INFINITY, MINUS_INFINITY

RULES = {
    "item": "every row is an insert, a retraction or a CTI, with a start, an end after it and no new end before it",
    "match": "every retraction matches an event",
    "cti": "no item changes anything before an earlier CTI, and no CTI goes back",
    "order": "items come in the declared order",
    "shape": "events have the declared shape",
}
"""The rules by name; a row that breaks the rule "item" is not judged by the others."""

BESIDE = 3
"""The greatest number of rows that are drawn beside a retraction that matches nothing."""


@dataclass(frozen=True)
class BreachDisplay:
    """The message on a row that breaks a rule, and the lifetimes (start, end, label) and instants (time, label) to draw."""

    says: str
    lifetimes: tuple[tuple[int, int, str], ...] = ()
    instants: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Finding:
    """A row that breaks a rule, and the function that describes it."""

    rule: str
    row: RecordedRow
    show: Callable[[], BreachDisplay]


def breaches_in(
    stream: RecordedStream, shape: str | None, order: str | None, ctis: bool, keyed: bool, verb: str
) -> list[Finding]:
    """Return the breaches of all rules, in the order of the stream.

    Raises SourceError if rows without an order must be judged by order or by CTIs in them. ``shape``, ``order`` and ``ctis`` are
    the arguments of ``find_breaches``; ``keyed``: the stream has a key. ``verb`` is the function that errors name.
    """
    if not stream.ordered:
        what = "order" if order else "CTIs" if ctis and any(row.kind == CTI for row in stream.rows) else ""
        if what:
            hint = f"Give batch=..., a column whose numbers or times order them{'' if order else ', or ctis=False'}."
            raise SourceError(verb, f"rows without an order cannot be judged for {what}", "", hint)
    judge = _Judge(stream, ctis)
    searches: list[Iterator[Finding]] = [judge.items(), judge.matched(order is not None)]
    searches += [judge.late(), judge.going_back()] * ctis
    searches += [judge.in_order()] * (order == "full")
    match shape:
        case "point":
            searches.append(judge.points())
        case "edge":
            searches.append(judge.edges())
            searches += [judge.one_at_a_time()] * keyed
        case "signal":
            searches.append(judge.signals())
    return sorted((finding for search in searches for finding in search), key=lambda finding: in_order(finding.row))


class _Judge:
    """The rows of a stream, prepared for the search: ``rows`` are its inserts and retractions, ``ctis`` its CTIs.

    ``progress`` holds, for each micro-batch, the greatest CTI up to its end, and the row of that CTI, None if there is none.
    """

    def __init__(self, stream: RecordedStream, ctis: bool):
        """Prepare the rows that are items; without ``ctis``, CTIs are ignored."""
        self.stream = stream
        good = [row for row in stream.rows if not row.fault]
        self.rows = [row for row in good if row.kind != CTI]
        self.ctis = [row for row in good if row.kind == CTI] if ctis else []
        self.progress: list[tuple[int, RecordedRow | None]] = []
        c, last = MINUS_INFINITY, iter([*self.ctis, None])
        by, cti = None, next(last)
        for batch in range(1 + max((row.batch for row in stream.rows), default=-1)):
            while cti is not None and cti.batch == batch:
                if _start(cti) >= c:
                    c, by = _start(cti), cti
                cti = next(last)
            self.progress.append((c, by))

    def _cti_before(self, batch: int) -> tuple[int, RecordedRow | None]:
        """Return the CTI that held when a micro-batch began, and its row."""
        return self.progress[batch - 1] if batch else (MINUS_INFINITY, None)

    @cached_property
    def changes(self) -> list[Change]:
        """The changes that a consumer sees at the end of each micro-batch."""
        return fold_items(self.rows)

    @cached_property
    def history(self) -> list[list[Event]]:
        """The events of the history, a list for each key, ordered by start and end; with ids, the inserts have the keys."""
        events: dict[object, list[Event]] = {}
        for event in history_of(self.rows):
            events.setdefault(event.insert.key, []).append(event)
        return [sorted(of_key, key=lambda event: (event.start, event.end)) for of_key in events.values()]

    def items(self) -> Iterator[Finding]:
        """Search rows that are no items."""
        for row in self.stream.rows:
            if row.fault:
                yield Finding("item", row, partial(BreachDisplay, row.fault))

    # every retraction matches

    def matched(self, causal: bool) -> Iterator[Finding]:
        """Search retractions that match no event and, if ``causal``, those that come before their event.

        An event may come late, as long as no CTI of an earlier micro-batch is past its start.
        """
        greatest = [c for c, _ in self.progress]

        def deadline(start: int) -> float:
            batch = bisect_right(greatest, start)
            return batch if batch < len(greatest) else math.inf

        whose = "id" if self.stream.names.id else "payload"
        unmatched_rows, early_rows = unmatched(self.rows, deadline)
        for row in unmatched_rows:
            yield Finding("match", row, partial(self._near_items, row, f"no event {{}} of this {whose} is there"))
        for row in early_rows if causal else ():
            yield Finding("order", row, partial(self._near_items, row, "comes before the event {} that it takes back"))

    def _near_items(self, row: RecordedRow, says: str) -> BreachDisplay:
        """Describe a retraction with at most BESIDE items of its id or payload: those of its start, then the nearest.

        ``says`` is the message, with ``{}`` for its lifetime.
        """
        place = self.rows.index(row)
        others = [(n, other) for n, other in enumerate(self.rows) if other.whose == row.whose and n != place]
        others.sort(key=lambda numbered: (numbered[1].start != row.start, abs(numbered[0] - place)))
        lines = [(_start(row), row.end, "taken back")]
        for _, other in sorted(others[:BESIDE], key=lambda numbered: numbered[0]):
            moved = f" to {self._time(other.new_end)}" if other.kind == RETRACT else ""
            lines.append((_start(other), other.end, f"{other.kind}{moved}, row {other.at}"))
        return BreachDisplay(says.format(interval(_start(row), row.end, self.stream.axis)), tuple(lines))

    # CTIs and order

    def late(self) -> Iterator[Finding]:
        """Search changes before the CTI that held when their micro-batch began."""
        for change in self.changes:
            if change.sync < self._cti_before(change.row.batch)[0]:
                yield Finding("cti", change.row, partial(self._show_late, change))

    def _show_late(self, change: Change) -> BreachDisplay:
        """Describe a late change, with the CTI before it."""
        c, by = self._cti_before(change.row.batch)
        says = f"{self._together(change)}changes the history at {self._time(change.sync)}, after cti {self._time(c)}"
        return BreachDisplay(says, self._change(change), ((c, _cti_label(by)),))

    def going_back(self) -> Iterator[Finding]:
        """Search CTIs that go back."""
        for row in self.ctis:
            c, by = self._cti_before(row.batch)
            if _start(row) < c:
                instants = ((_start(row), "this"), (c, _cti_label(by)))
                yield Finding("cti", row, partial(BreachDisplay, f"goes back from {self._time(c)}", (), instants))

    def in_order(self) -> Iterator[Finding]:
        """Search changes with a sync time before one of an earlier micro-batch."""
        first: Change | None = None
        for _, batch in groupby(self.changes, key=lambda change: change.row.batch):
            changes = list(batch)
            for change in changes:
                if first is not None and change.sync < first.sync:
                    yield Finding("order", change.row, partial(self._show_disorder, change, first))
            greatest = max(changes, key=lambda change: change.sync)
            first = greatest if first is None or greatest.sync > first.sync else first

    def _show_disorder(self, change: Change, first: Change) -> BreachDisplay:
        """Describe a change that comes too late, with the first change of the greatest sync time before it."""
        bound, row = first.sync, first.row.at
        says = f"has sync time {self._time(change.sync)}, before {self._time(bound)} of row {row}"
        return BreachDisplay(self._together(change) + says, self._change(change), ((bound, f"sync time of row {row}"),))

    # shapes

    def points(self) -> Iterator[Finding]:
        """Search inserts longer than a tick, and retractions that do not delete."""
        for change in self.changes:
            if change.new_end is None and change.end != change.start + 1:
                yield self._shape(change, "lasts longer than a tick")
            elif change.new_end is not None and change.new_end != change.start:
                yield self._shape(change, "moves a point's end")

    def edges(self) -> Iterator[Finding]:
        """Search inserts with an end, and retractions other than the one that gives an open event its end.

        Yields nothing for rows of a history and for rows without an order; inserts are searched only if there are no batches.
        """
        # rows of a history, and rows without an order, may be events that have ended
        if self.stream.names.kind is None or not self.stream.ordered:
            return
        for change in self.changes:
            if change.new_end is None:
                if change.end != INFINITY and self.stream.names.batch is None:
                    yield self._shape(change, "an edge event is inserted without an end")
            elif change.end != INFINITY:
                yield self._shape(change, "the event has got its end before")
            elif change.new_end == change.start:
                yield self._shape(change, "an edge event ends after its start")
            elif change.new_end == INFINITY:
                yield self._shape(change, "takes back an open event and leaves it open")

    def one_at_a_time(self) -> Iterator[Finding]:
        """Search events of the history that start while another of their key is alive."""
        for events in self.history:
            holder = events[0]
            for event in events[1:]:
                if event.start < holder.end:
                    alive = (holder.start, holder.end, f"alive, row {holder.row.at}")
                    says = "starts while another event of its key is alive"
                    yield Finding("shape", event.row, partial(BreachDisplay, says, (alive, _this(event))))
                holder = max(holder, event, key=lambda one: one.end)

    def signals(self) -> Iterator[Finding]:
        """Search events of the history that do not end where the next one of their key starts.

        The last one of a key must be endless, or end where no CTI has passed, as the sample that ends it may still come.
        """
        c = self.progress[-1][0] if self.progress else MINUS_INFINITY
        for events in self.history:
            following: Event | None = None
            for _, samples in groupby(reversed(events), key=lambda event: event.start):
                for event in (of_instant := list(samples)):
                    is_right = event.end == (INFINITY if following is None else following.start)
                    if not is_right and (following is not None or event.end < c):
                        yield Finding("shape", event.row, partial(self._show_sample, event, following))
                following = of_instant[-1]

    def _show_sample(self, event: Event, following: Event | None) -> BreachDisplay:
        """Describe a sample that ends wrongly, with its key's next one, if there is one."""
        if following is None:
            return BreachDisplay(f"ends at {self._time(event.end)}, where no sample of its key starts", (_this(event),))
        other = (following.start, following.end, f"the next sample, row {following.row.at}")
        return BreachDisplay(f"its key's next sample starts at {self._time(following.start)}", (_this(event), other))

    # messages

    def _shape(self, change: Change, says: str) -> Finding:
        """Return a change as a breach of the rule "shape"."""
        return Finding("shape", change.row, lambda: BreachDisplay(self._together(change) + says, self._change(change)))

    def _together(self, change: Change) -> str:
        """Return the part of a message that names the other row of a retraction made of a delete and an insert; else ""."""
        if change.other is None or change.other is change.row or change.new_end is None:
            return ""
        return f"with row {change.other.at} a retraction to {self._time(change.new_end)}; "

    def _change(self, change: Change) -> tuple[tuple[int, int, str], ...]:
        """Return the lifetimes to draw for a change: the one inserted, or the one taken back and what is left of it."""
        if change.new_end is None:
            return ((change.start, change.end, "inserted"),)
        left = ((change.start, change.new_end, "left"),) if change.new_end > change.start else ()
        return ((change.start, change.end, "taken back"), *left)

    def _time(self, t: int) -> str:
        return shown(t, self.stream.axis)


def _start(row: RecordedRow) -> int:
    assert row.start is not None
    return row.start


def _cti_label(row: RecordedRow | None) -> str:
    return "" if row is None else f"cti, row {row.at}"


def _this(event: Event) -> tuple[int, int, str]:
    return event.start, event.end, "this"


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
