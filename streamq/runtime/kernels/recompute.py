"""Kernel that runs any evaluator: it recomputes the rows that may still change, and sends the difference to those sent before.

State: the events that the evaluator still needs, with weights, and the sent rows that may still change, in bins by group. A
micro-batch appends its changes to both.

Cost: a micro-batch evaluates the events of the groups that its rows touch, and of those in which something is due: a row goes, or
another instant holds back the CTI. It reads the bins of these groups. Once most events of a bin are settled, all its groups are
evaluated, to forget the events that they no longer need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask
from streamq.runtime.deltas import DIGEST, LE, RE, WEIGHT, cancelling_deltas, history_of, net_deltas, weighted
from streamq.runtime.evaluator import Evaluator
from streamq.runtime.grid_ranges import LAST_END, waits_for_members
from streamq.runtime.groups import GROUP_NUMBER, HASH, distinct_hashes, least_by_group, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, UncombinedKernel
from streamq.runtime.state.baskets import BinSizes, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins, agenda_of
from streamq.runtime.time.endpoints import Bound, Endpoint, announced_endpoints, bound_at_end
from streamq.runtime.time.lateness import weighted_events
from streamq.runtime.time.progress_rule import ProgressRule, Release, saturating
from streamq.time import INFINITY, MINUS_INFINITY


def input_basket(port: int) -> str:
    return f"in{port}"


@dataclass(frozen=True, eq=False)
class InputEvents:
    """The events of an input in the active groups, with group numbers.

    ``history``: all of them; ``fresh``: the deltas of this micro-batch, which the history contains. ``ends_in_fresh``: the
    history ends with these deltas, because no rows were added up.
    """

    history: pa.Table
    fresh: pa.Table
    ends_in_fresh: bool

    def changes(self, is_outdated: Mask, replacement: pa.Table | None) -> pa.Table:
        """Return the deltas of this micro-batch, those that take out outdated events of the history, and those that replace them.

        Outdated events that came in this micro-batch need no deltas at all, if they can be told apart.
        """
        history, came = self.history, self.fresh
        if self.ends_in_fresh:
            held = history.num_rows - came.num_rows
            came = came.filter(pa.array(~is_outdated[held:]))
            history, is_outdated = history.slice(0, held), is_outdated[:held]
        events = [weighted(history.filter(pa.array(is_outdated)), -1)]
        events += [] if replacement is None else [weighted(replacement, 1)]
        changes = [table.select(self.fresh.column_names) for table in events]
        if self.ends_in_fresh:
            return concat([came, net_deltas(concat(changes))])
        return net_deltas(concat([came, *changes]))


def read_events(
    bins: GroupBins, fresh: Sequence[pa.Table], group_columns: Sequence[Sequence[str]]
) -> list[InputEvents]:
    """Return the events of the active groups by input: those in state, and the deltas ``fresh`` of now."""
    deltas = []
    for port, new in enumerate(fresh):
        held = bins.read(input_basket(port))
        deltas.append(new if held is None else concat([held, new]))
    ends_in_fresh = [bool((ints(table, WEIGHT) == 1).all()) for table in deltas]
    histories = number_groups(list(map(history_of, deltas)), group_columns)
    return [InputEvents(*parts) for parts in zip(histories, fresh, ends_in_fresh, strict=True)]


@dataclass(frozen=True, eq=False)
class ActiveGroups:
    """The groups that a micro-batch evaluates, with the events of each input.

    ``bins`` hold their state. ``upto`` bounds the windows to evaluate. ``totals`` count rows that are late or set aside.
    ``beside``: the numbers of rows that are evaluated beside the histories.
    """

    bins: GroupBins
    inputs: Sequence[InputEvents]
    clock: Clock
    upto: int
    totals: Totals
    beside: list[int] = field(default_factory=list)

    @property
    def histories(self) -> list[pa.Table]:
        return [events.history for events in self.inputs]

    @property
    def open_since(self) -> int:
        """An instant such that rows that could change in a micro-batch end after it; an infinite CTI before it as it is."""
        before = self.clock.c_before
        return before if before in (INFINITY, MINUS_INFINITY) else min(before, self.bins.since) - 1

    def hashes(self) -> Any:
        greatest = max(int(ints(table, GROUP_NUMBER).max(initial=-1)) for table in self.histories)
        hash_of = np.zeros(1 + greatest, np.uint32)
        for table in self.histories:
            hash_of[ints(table, GROUP_NUMBER)] = table.column(HASH).to_numpy()
        return hash_of


E = TypeVar("E", bound=Evaluator)

REPORTED = "reported"
"""The basket of the rows sent that may still change."""


@dataclass(frozen=True, eq=False)
class Waits:
    """The progress that groups wait for, as arrays of the same length: the group's number, and the instant."""

    c: tuple[Ints, Ints]
    """The CTI at which a row goes."""

    m: tuple[Ints, Ints]
    """The watermark at which a row goes early."""

    due: tuple[Ints, Ints]
    """The one of the two that sends the row, as users are shown it."""


@dataclass(frozen=True)
class RecomputeKernel(UncombinedKernel, Generic[E]):
    """A kernel of one evaluator; ``inputs`` are the payload columns of each port, ``result`` those of the rows that it sends."""

    evaluator: E
    inputs: tuple[pa.Schema, ...]
    result: tuple[str, ...]

    final: bool = False
    """True if a row is sent only once it is final; else it is sent when the watermark reaches it (``early_release``)."""

    early: bool = False
    """True if a row that is not final is sent at once, before the watermark reaches it."""

    bound: Bound = Bound.NONE
    """The bound on windows (or pieces) of endless lifetimes once the input has ended."""

    pointwise: tuple[int, ...] = ()
    """The ports whose events the evaluator sees as points at their starts."""

    sizes: BinSizes = field(default_factory=BinSizes)
    """The sizes at which the bins of state are treated otherwise."""

    final_release: Release | None = field(init=False)
    """The CTI that makes a row final, relative to its lifetime; None: the CTI never sends a row."""

    early_release: Release | None = field(init=False)
    """The watermark that sends a row before it is final, relative to its lifetime; None: it sends no row."""

    def __post_init__(self) -> None:
        # executors need no other parts of the rule
        object.__setattr__(self, "final_release", self.progress_rule.final)
        object.__setattr__(self, "early_release", self.progress_rule.early)

    @property
    def _sends_at_once(self) -> bool:
        """True if rows are sent before the watermark reaches them."""
        return self.early_release is Release.AT_ONCE

    @property
    def progress_rule(self) -> ProgressRule:
        """The evaluator's rule.

        If the kernel sends only final rows, no row goes early; if it sends rows early, every row goes at once.
        """
        return self.evaluator.progress_rule.released(final=self.final, early=self.early)

    def announce(self, port: int, table: pa.Table) -> list[Endpoint] | None:
        """Return the endpoints of these deltas; None if there are no deltas, or no windows need a bound at the end."""
        return None if self.bound is Bound.NONE else announced_endpoints(table)

    def advance(self, state: KernelBaskets, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Add deltas to the state and evaluate it.

        The output inserts the rows that are new, and retracts those sent before that are no longer in the result. Its CTI never
        falls. Only groups with new deltas, or with something due, are evaluated. Late events are counted; at the end of the
        stream the state is emptied.
        """
        totals = Totals()
        fresh = self._fresh(arrivals, totals)
        upto = self._windows_bound(state, clock)
        is_further = self._sends_at_once and state.values.get("upto") != upto
        if self._sends_at_once:
            state.values["upto"] = upto
        fresh = self._completed(fresh, state, clock, upto)
        if clock.form_changed and self.final:
            # rows that were sent before they were final are sent again once they are
            state.drop_basket(REPORTED)
        bins = GroupBins(state, self.sizes, self._baskets_beside_events)
        rule = f"{self.final_release}, {self.early_release}, {self._looks_at_final_rows}"
        bins.open(distinct_hashes(fresh), clock.c, clock.m, is_further=is_further, rule=rule)
        change, evaluated = None, 0
        if len(bins.active):
            inputs = read_events(bins, fresh, self.evaluator.group_columns)
            groups = ActiveGroups(bins, inputs, clock, upto, totals)
            change = self._advance_groups(groups)
            evaluated = sum(table.num_rows for table in groups.histories) + sum(groups.beside)
        progress = clock.by_port or (clock.c,) * len(self.inputs)
        cti = self.evaluator.cti(progress, bins.least("held")) if clock.c != MINUS_INFINITY else MINUS_INFINITY
        cti = state.values["cti"] = max(cti, int(state.values.get("cti", MINUS_INFINITY)))
        if clock.c == INFINITY:
            bins.drop(state.names())
        elif bins.opened:
            bins.close(self._input_baskets, clock.c)
        due = None if clock.c == INFINITY else bins.due
        return Output(change, cti, totals, due, evaluated=evaluated)

    @property
    def _input_baskets(self) -> list[str]:
        return [input_basket(port) for port in range(len(self.inputs))]

    @property
    def _baskets_beside_events(self) -> tuple[str, ...]:
        """The baskets that grow with the groups though their events are forgotten; kernels with such override it."""
        return ()

    def _fresh(self, arrivals: Sequence[Arrival], totals: Totals) -> list[pa.Table]:
        """Return the deltas that have come for each port, with the hashes of their groups; late ones are counted."""
        return new_deltas(arrivals, self.inputs, self.evaluator.group_columns, totals, self.pointwise)

    def _completed(self, fresh: list[pa.Table], state: KernelBaskets, clock: Clock, upto: int) -> list[pa.Table]:
        """Return the deltas of a micro-batch with those that were set apart until now; kernels that do so override it."""
        return fresh

    def _advance_groups(self, groups: ActiveGroups) -> pa.Table | None:
        """Evaluate the active groups, write what they keep and wait for, and return the change of the rows sent; None: none."""
        bins, clock = groups.bins, groups.clock
        rows = self._evaluated(groups)
        hash_of = groups.hashes()
        rows = with_column(rows, HASH, hash_of[ints(rows, GROUP_NUMBER)])
        beside = [name for name in (LAST_END, DIGEST) if name in rows.column_names]
        reported = [*self.result, LE, RE, *beside, HASH]
        sent = rows.select(reported).filter(pa.array(self._is_sent(rows, clock)))
        before = bins.read(REPORTED)
        change = self._difference(before, sent, clock.c_before)
        if clock.c != INFINITY:
            is_open = self._is_open(sent, clock.c)
            still = weighted(sent.filter(pa.array(is_open)), 1)
            bins.append(REPORTED, still if before is None else net_deltas(concat([still, cancelling_deltas(before)])))
            self._keep(groups, rows)
            bins.write_agenda(self._agenda(groups, rows, hash_of), self._input_baskets)
        delta = change.drop_columns([HASH, *beside])
        delta = net_deltas(delta) if beside else delta
        return delta if delta.num_rows else None

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        return self.evaluator.rows(groups.histories, groups.open_since, groups.upto)

    # what groups wait for

    def _agenda(self, groups: ActiveGroups, rows: pa.Table, hash_of: Any) -> pa.Table:
        """Return what the active groups wait for, a row for each hash; ``hash_of`` has that of each group."""
        histories, clock = groups.histories, groups.clock
        waits = self._waits(rows, histories, clock)
        holds = self.evaluator.holds(histories, rows, clock.c)
        hashes, place = np.unique(hash_of, return_inverse=True)

        def least(*parts: tuple[Ints, Ints]) -> Ints:
            return least_by_group(len(hashes), *((place[of], at) for of, at in parts), otherwise=INFINITY)

        of_row = ints(rows, GROUP_NUMBER)
        reaches, to_start = np.zeros(len(hashes), bool), []
        due, is_waiting = least(waits.due), np.zeros(len(hashes), bool)
        is_waiting[place[waits.due[0]]] = True
        if self._leaves_out_rows_to_come:
            to_come = self.evaluator.to_come(histories, groups.upto)
            reaches[place[to_come.group]] = True
            to_start = [] if self._sends_at_once else [(to_come.group, to_come.start)]
            release = self.early_release or self.final_release
            if to_come.first is not None and release is not None and not self._sends_at_once:
                # the next row goes after those that wait already
                of = ints(to_come.first, GROUP_NUMBER)
                due = np.where(is_waiting, due, least((of, release.dues(to_come.first))))
                is_waiting[place[of]] = True
        may_change = self._is_open(rows, clock.c) if LAST_END in rows.column_names else np.zeros(rows.num_rows, bool)
        return agenda_of(
            hashes,
            c=least(waits.c, (holds.group, holds.until)),
            m=least(waits.m, *to_start),
            due=due,
            held=least((holds.group, holds.at)),
            since=least((of_row[may_change], ints(rows, RE)[may_change])),
            waits=is_waiting,
            reaches=reaches,
        )

    def _waits(self, rows: pa.Table, histories: Sequence[pa.Table], clock: Clock) -> Waits:
        """Return what lets go the rows of the active groups that wait, early or because they are final."""
        final, early, of = self.final_release, self.early_release, ints(rows, GROUP_NUMBER)
        nothing = of[:0], of[:0]
        by_c, by_m = nothing, nothing
        if final is not None and (early is None or self._looks_at_final_rows):
            not_final = ~self._is_final(rows, clock.c)
            by_c = of[not_final], self._final_dues(rows.filter(pa.array(not_final)))
        waits = ~self._is_reached(rows, clock)
        waiting = rows.filter(pa.array(waits))
        if early is not None:
            by_m = of[waits], early.dues(waiting)
            return Waits(by_c, by_m, by_m)
        return Waits(by_c, by_m, nothing if final is None else (of[waits], self._final_dues(waiting)))

    @property
    def _looks_at_final_rows(self) -> bool:
        """True if something happens when a row becomes final that has already been sent."""
        return False

    def _final_dues(self, rows: pa.Table) -> Ints:
        assert self.final_release is not None
        dues = self.final_release.dues(rows)
        return np.maximum(dues, saturating(ints(rows, LAST_END), 1)) if LAST_END in rows.column_names else dues

    @property
    def _leaves_out_rows_to_come(self) -> bool:
        """True if rows that start after the progress so far are not evaluated yet."""
        return self.bound is not Bound.NONE or self.evaluator.leaves_out_rows_to_come

    def _is_sent(self, rows: pa.Table, clock: Clock) -> Mask:
        """Mark the rows that are sent after this micro-batch and could change in it."""
        return self._is_open(rows, clock.c_before) & self._is_reached(rows, clock)

    def _is_reached(self, rows: pa.Table, clock: Clock) -> Mask:
        return self._is_final(rows, clock.c) | _lets_go(self.early_release, rows, clock.m)

    def _is_final(self, rows: pa.Table, c: int) -> Mask:
        return _lets_go(self.final_release, rows, c) & ~waits_for_members(rows, c)

    def _is_open(self, rows: pa.Table, c: int) -> Mask:
        return ((ints(rows, RE) >= c) | waits_for_members(rows, c)) & ~self._is_final(rows, c)

    # reading

    def _windows_bound(self, state: KernelBaskets, clock: Clock) -> int:
        """Return the instant before which windows (or pieces) of endless lifetimes must start to be included in this micro-batch.

        That is one tick past the progress so far (``clock.m``). Once the input has ended, and always if rows are sent at once,
        it is the bound of all windows (``runtime.endpoints``). INFINITY: the operator needs no bound. Announced endpoints are
        added to the state.
        """
        at_end = INFINITY if self.bound is Bound.NONE else bound_at_end(state, clock, self.bound)
        if clock.c != INFINITY and not self._sends_at_once and self._leaves_out_rows_to_come:
            return clock.m + 1 if clock.m > MINUS_INFINITY else clock.m
        return at_end

    # keeping and forgetting

    def _difference(self, before: pa.Table | None, sent: pa.Table, c_before: int) -> pa.Table:
        """Return the deltas from the rows sent ``before`` to those of now; if there were none, all of these as inserts.

        Of the rows sent before, those that could no longer change at ``c_before`` are left out, as ``sent`` may lack them.
        """
        new = weighted(sent, 1)
        if before is None:
            return new
        old = before.filter(pa.array(self._is_open(before, c_before)))
        return net_deltas(concat([new, cancelling_deltas(old)]))

    def _keep(self, groups: ActiveGroups, rows: pa.Table) -> None:
        """Add the deltas to the events in state, and take out the events of active groups that no longer matter.

        An event that comes and is outdated in the same micro-batch is not written.
        """
        outdated: Sequence[tuple[Mask, pa.Table | None] | None] = [None] * len(groups.inputs)
        if any((ints(table, LE) < groups.clock.c).any() for table in groups.histories):
            outdated = self._outdated(groups, rows)
        for port, (events, out) in enumerate(zip(groups.inputs, outdated, strict=True)):
            changes = events.fresh if out is None or not out[0].any() else events.changes(*out)
            groups.bins.append(input_basket(port), changes)

    def _outdated(self, groups: ActiveGroups, rows: pa.Table) -> list[tuple[Mask, pa.Table | None]]:
        """Return, per input, which events state no longer needs at the CTI, and the events that replace them; None: none do."""
        return [(~is_needed, None) for is_needed in self.evaluator.needed(groups.histories, rows, groups.clock.c)]


def new_deltas(
    arrivals: Sequence[Arrival],
    inputs: Sequence[pa.Schema],
    group_columns: Sequence[Sequence[str]],
    totals: Totals,
    pointwise: Sequence[int] = (),
) -> list[pa.Table]:
    """Return the deltas that have come for each port, with the hashes of their groups; late ones are counted.

    ``inputs`` and ``group_columns`` are those of each port; events of the ports ``pointwise`` become points.
    """
    fresh: list[list[pa.Table]] = [[] for _ in inputs]
    for arrival in arrivals:
        table = weighted_events(arrival, totals)
        if arrival.port in pointwise:
            table = with_column(table, RE, ints(table, LE) + 1)
        fresh[arrival.port].append(table.select([*inputs[arrival.port].names, LE, RE, WEIGHT]))
    empty = [pa.schema([*schema, (LE, pa.int64()), (RE, pa.int64()), (WEIGHT, pa.int64())]) for schema in inputs]
    return [
        with_hashes(concat(tables) if tables else schema.empty_table(), columns)
        for tables, schema, columns in zip(fresh, empty, group_columns, strict=True)
    ]


def _lets_go(release: Release | None, rows: pa.Table, progress: int) -> Mask:
    """Mark the rows that a release lets go at this progress; none if there is no release."""
    return np.zeros(rows.num_rows, bool) if release is None else release.lets_go(rows, progress)
