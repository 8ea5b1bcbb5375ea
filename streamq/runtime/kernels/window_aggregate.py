"""Windows on a grid, incrementally: partial results per range of windows, merged into a window when it is reported.

State: partial results binned by their last window, so that a bin goes as a whole; where input may be taken back, values with
weights instead of merged results (a minimum or a float sum cannot be taken back out). Cost: a micro-batch adds its own
partials; a reported window merges the partials it spans, or, over long ranges, log2 of them (dyadic nodes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.basket import Scope
from streamq.runtime.columnar import (
    codes,
    concat,
    group,
    ints,
    net,
    runs,
    sortable,
    unit_weights,
    unsortable,
    with_column,
)
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.kernel import Arrival, Clock, Output, Totals, refuse_late
from streamq.runtime.lifetimes import grid_lifetimes
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Hopping

INDEX, LO, HI, COUNT = "__i", "__lo", "__hi", "__n"

EXPLODE_ROWS = 2_000_000
"""Copies of partials beyond which ranges are cut into dyadic nodes instead of being copied into every window."""

REPORTED_BIN = 16
"""Windows a bin of reported rows spans."""


@dataclass(frozen=True)
class SlotSpec:
    """A partial result: see ``Slot`` in the compiler; ``type`` is the Arrow type of its value.

    arg: the column of raw events it is made from; several slots may share one.
    """

    name: str
    kind: str
    exact: bool
    type: pa.DataType
    arg: str

    @property
    def floating(self) -> bool:
        """Whether min and max need Spark's order of floats."""
        return self.kind in ("min", "max") and pa.types.is_floating(self.type)


@dataclass(frozen=True)
class WindowAggregateKernel:
    """Parameters only.

    points: declared points, no ``__re``; merges: input is insert-only, so partial results may be merged for good;
    ahead: combine on the map side; infinite: lifetimes may never end; reads_end: a slot's argument reads an end that may
    still move, so a window waits for its members to settle; final: report windows once they are final, else at the watermark.
    """

    keys: tuple[str, ...]
    window: Hopping
    slots: tuple[SlotSpec, ...]
    points: bool
    merges: bool
    ahead: bool
    infinite: bool = False
    reads_end: bool = False
    final: bool = False

    # map side

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Partial results of the events: one row a key and range of windows, if combining ahead is on."""
        partials = self._partials(table)
        return self._merge(partials, self._by(partials)) if self.ahead else partials

    def announce(self, port: int, table: pa.Table) -> Any:
        """The greatest finite endpoints, as window numbers: what bounds the windows reported at the end of the stream."""
        if not self.infinite or table.num_rows == 0:
            return None
        le, re = ints(table, LE), ints(table, RE)
        endless = re == INFINITY
        low = self._first_after(le)
        last = self._index(np.where(endless, le, re) - 1, self.window.offset)
        weight = ints(table, WEIGHT) if WEIGHT in table.column_names else np.ones(len(le), np.int64)
        rows = pa.table({"low": low, "last": last, "endless": endless.astype(np.int64), "w": weight})
        # the first window goes along, for the late are left out where c is known
        if self.merges:
            found = group(rows, ["low", "endless"], {"last": ("last", "max"), "w": ("w", "max")})
        else:
            found = group(rows, ["low", "endless", "last"], {"w": ("w", "sum")})
        return [[r["low"], r["last"], r["endless"], r["w"]] for r in found.to_pylist() if r["w"]]

    # one bucket, one micro-batch

    def advance(self, state: Scope, arrivals: Sequence[Arrival], clock: Clock) -> Output:
        """Take in partials, report the windows that the watermark (or, in final mode, the CTI) has reached."""
        totals = Totals()
        grid = self.window
        open_before, open_now = grid.first_ending_after(clock.c_before), grid.first_ending_after(clock.c)
        fresh = [p for a in arrivals if (p := self._judged(a, totals)).num_rows]
        new = self._merge(concat(fresh), self._by(fresh[0])) if fresh else None
        bound = self._bound(state, clock)

        if self.final:
            report_from, report_to = open_before, open_now - 1 if open_now != INFINITY else bound
        else:
            report_from = grid.first_ending_after(clock.m_before)
            report_to = grid.first_ending_after(clock.m) - 1 if clock.m != INFINITY else bound

        needed = report_to >= report_from or self.reads_end
        held = self._held(state) if needed else None
        closed = self._opened(held, clock.c_before, open_before) if self.reads_end and held is not None else {}
        dirty = None
        if new is not None and not self.final and report_from != MINUS_INFINITY:
            dirty = self._touched(new, min([open_before, *closed.values()]), report_from - 1)
        if dirty is not None and not needed:
            needed, held = True, self._held(state)
        all_of = [t for t in (held, new) if t is not None]
        everything = self._merge(concat(all_of), self._by(all_of[0])) if all_of and needed else None

        out: list[pa.Table] = []
        least = open_now
        if everything is not None and self.reads_end:
            opened = self._opened(everything, clock.c, open_now)
            least = min([open_now, *opened.values()])
            if self.final:
                out += self._final_rows(everything, opened, closed, open_before, open_now, report_to)
            else:
                out += self._rows(everything, report_from, report_to)
        elif everything is not None:
            out += self._rows(everything, report_from, report_to)
        if dirty is not None and everything is not None:
            out += self._corrected(state, everything, dirty)
        if not self.final and out and clock.c != INFINITY:
            self._remember(state, out, least)
        if new is not None and clock.c != INFINITY:
            self._store(state, new)
        self._forget(state, least)
        return Output(self._deltas(out), self._start(least), totals)

    # taking in

    def _index(self, x: np.ndarray[Any, Any], shift: int) -> np.ndarray[Any, Any]:
        whole, part = divmod(shift, self.window.hop)
        return x // self.window.hop - whole - (x % self.window.hop < part)

    def _first_after(self, le: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._index(le, self.window.offset + self.window.size) + 1

    def _partials(self, table: pa.Table) -> pa.Table:
        table = unit_weights(table)
        le = ints(table, LE)
        low = self._first_after(le)
        if self.points:
            high = self._index(le, self.window.offset)
        else:
            re = ints(table, RE)
            high = np.where(re == INFINITY, INFINITY, self._index(re - 1, self.window.offset))
        weight = ints(table, WEIGHT) if WEIGHT in table.column_names else None
        columns: dict[str, Any] = {name: table.column(name) for name in self.keys}
        columns |= {LO: pa.array(low), HI: pa.array(high)}
        if self.reads_end:
            columns |= {LE: table.column(LE), RE: table.column(RE)}
        columns[COUNT] = pa.array(np.ones(len(le), np.int64) if weight is None else weight)
        for slot in self.slots:
            columns |= self._slot_columns(slot, table.column(slot.arg), columns[COUNT])
        made = pa.table(columns)
        if self.window.hop > self.window.size:
            made = made.filter(pc.less_equal(made.column(LO), made.column(HI)))
        return made

    def _slot_columns(self, slot: SlotSpec, values: Any, weight: pa.Array) -> dict[str, Any]:
        present = pc.cast(values.is_valid(), pa.int64())
        if slot.kind == "count":
            return {slot.name: pc.multiply(present, weight)}
        if slot.kind == "sum" and slot.exact:
            values = values.cast(slot.type)
            weighted = values if self.merges else pc.if_else(pc.less(weight, 0), _negated(values), values)
            return {slot.name: weighted, f"{slot.name}__n": pc.multiply(present, weight)}
        if slot.floating:
            return {slot.name: sortable(values)}
        if not self.merges or slot.kind in ("min", "max"):
            return {slot.name: values}
        if slot.kind == "sum":
            return {slot.name: values, f"{slot.name}__n": present}
        zeros = pa.array(np.zeros(len(values)))
        return {f"{slot.name}__n": present, f"{slot.name}__mean": pc.fill_null(values, 0.0), f"{slot.name}__m2": zeros}

    def _judged(self, arrival: Arrival, totals: Totals) -> pa.Table:
        """The arrival's partials without (or, adjusted, with what is left of) those behind the source's CTI.

        The CTI counts as rounded down to a window's end, so that a partial result is late as a whole or not at all.
        """
        table, judge = arrival.table, arrival.judge
        if judge is None or arrival.c == MINUS_INFINITY:
            return table
        first = self.window.first_ending_after(arrival.c)
        late = pc.less(table.column(LO), first)
        n = pc.sum(pc.filter(table.column(COUNT), late)).as_py() or 0
        if not n:
            return table
        refuse_late(judge, n, self.window.floor_to_end(arrival.c))
        if judge.late == "drop":
            totals.add(judge.source, "dropped", n)
            return table.filter(pc.invert(late))
        moved = with_column(table, LO, pc.if_else(late, pa.scalar(first, pa.int64()), table.column(LO)))
        empty = pc.greater(moved.column(LO), moved.column(HI))
        gone = pc.sum(pc.filter(moved.column(COUNT), empty)).as_py() or 0
        totals.add(judge.source, "dropped", gone)
        totals.add(judge.source, "adjusted", n - gone)
        return moved.filter(pc.invert(empty))

    # partial results

    def _by(self, table: pa.Table) -> list[str]:
        found = [*self.keys, LO, HI]
        if self.reads_end:
            found += [LE, RE]
        return found

    def _inexact(self) -> list[SlotSpec]:
        return [s for s in self.slots if not s.exact]

    def _merge(self, table: pa.Table, by: list[str]) -> pa.Table:
        """Rows of equal ``by`` as one; where input may be taken back, also of equal values, and none where nothing is left."""
        if self.merges:
            return self._aggregate(table, by)
        merged = group(table, [*by, *(s.name for s in self._inexact())], self._exact_sums())
        left = pc.not_equal(merged.column(COUNT), 0)
        for name in self._exact_sums():
            values = merged.column(name)
            left = pc.or_(left, pc.fill_null(pc.not_equal(values, pa.scalar(0).cast(values.type)), False))
        return merged.filter(left)

    def _exact_sums(self) -> dict[str, tuple[str, str]]:
        made = {COUNT: (COUNT, "sum")}
        for slot in self.slots:
            if slot.exact:
                made[slot.name] = (slot.name, "sum")
                if slot.kind == "sum":
                    made[f"{slot.name}__n"] = (f"{slot.name}__n", "sum")
        return made

    def _aggregate(self, table: pa.Table, by: list[str]) -> pa.Table:
        """Merged partial results, the same columns."""
        made = self._exact_sums()
        moments = []
        for slot in self._inexact():
            if slot.kind == "moments":
                moments.append(slot)
            else:
                made[slot.name] = (slot.name, slot.kind)
                if slot.kind == "sum":
                    made[f"{slot.name}__n"] = (f"{slot.name}__n", "sum")
        if not moments:
            return group(table, by, made)
        number, first = codes(table, by)
        merged = group(with_column(table, "__g", number), ["__g"], made)
        at = ints(merged, "__g")
        columns: dict[str, Any] = {name: table.column(name).take(pa.array(first[at])) for name in by}
        columns |= {name: merged.column(name) for name in made}
        for slot in moments:
            columns |= self._merged_moments(slot, table, number, at)
        return pa.table(columns)

    def _merged_moments(
        self, slot: SlotSpec, table: pa.Table, number: np.ndarray[Any, Any], at: np.ndarray[Any, Any]
    ) -> dict[str, Any]:
        # pairwise (Chan): deviations from the common mean are added, nothing is subtracted from a sum of squares
        n = ints(table, f"{slot.name}__n").astype(np.float64)
        mean, m2 = (table.column(f"{slot.name}__{part}").to_numpy() for part in ("mean", "m2"))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            total = np.bincount(number, n)
            common = np.where(total > 0, np.bincount(number, n * mean) / np.maximum(total, 1), 0.0)
            spread = np.bincount(number, m2 + np.where(n > 0, n * (mean - common[number]) ** 2, 0.0))
        return {
            f"{slot.name}__n": total[at].astype(np.int64),
            f"{slot.name}__mean": common[at],
            f"{slot.name}__m2": spread[at],
        }

    def _weighted(self, table: pa.Table) -> pa.Table:
        """Values with weights as partial results that merge."""
        weight = table.column(COUNT)
        alive = pc.greater(weight, 0)
        for slot in self._inexact():
            values = pc.if_else(alive, table.column(slot.name), pa.scalar(None, table.schema.field(slot.name).type))
            present = pc.if_else(pc.is_valid(values), weight, 0)
            if slot.kind == "sum":
                table = with_column(table, slot.name, pc.multiply(values, weight.cast(pa.float64())))
                table = with_column(table, f"{slot.name}__n", present)
            elif slot.kind == "moments":
                table = table.drop_columns([slot.name])
                table = with_column(table, f"{slot.name}__n", present)
                table = with_column(table, f"{slot.name}__mean", pc.fill_null(values.cast(pa.float64()), 0.0))
                table = with_column(table, f"{slot.name}__m2", pa.array(np.zeros(table.num_rows)))
            else:
                table = with_column(table, slot.name, values)
        return table

    # windows

    def _windows(self, partials: pa.Table, first: int, last: int) -> pa.Table | None:
        """Results of the windows ``first..last`` that have members: keys, ``__i``, ``__n``, slots."""
        low, high = np.maximum(ints(partials, LO), first), np.minimum(ints(partials, HI), last)
        inside = low <= high
        if not inside.any():
            return None
        rest = partials.drop_columns([n for n in (LO, HI, LE, RE) if n in partials.column_names]).filter(
            pa.array(inside)
        )
        if not self.merges:
            rest = self._weighted(rest)
        low, high = low[inside], high[inside]
        if (high == INFINITY).any():
            raise RuntimeError("window: a lifetime without an end reached the end of the stream without a bound")
        by = [*self.keys, INDEX]
        if float(np.sum((high - low + 1).astype(np.float64))) <= max(EXPLODE_ROWS, 4 * len(low)):
            which, index = runs(low, high)
            merged = self._aggregate(with_column(rest.take(pa.array(which)), INDEX, index), by)
        else:
            merged = self._dyadic(rest, low, high, by)
        return self._finished(merged.filter(pc.greater(merged.column(COUNT), 0)))

    def _dyadic(self, rest: pa.Table, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], by: list[str]) -> pa.Table:
        """Ranges cut into nodes of 2^level windows, merged node by node from the top down to single windows."""
        base = int(low.min())
        a, b = low - base, high - base + 1
        levels: list[list[pa.Table]] = []
        rows = np.arange(len(a))
        while len(rows):
            at: list[pa.Table] = []
            odd = (a & 1 == 1) & (a < b)
            at.append(with_column(rest.take(pa.array(rows[odd])), INDEX, a[odd]))
            a = a + odd
            odd = (b & 1 == 1) & (a < b)
            b = b - odd
            at.append(with_column(rest.take(pa.array(rows[odd])), INDEX, b[odd]))
            levels.append(at)
            a, b = a >> 1, b >> 1
            going = a < b
            a, b, rows = a[going], b[going], rows[going]
        merged: pa.Table | None = None
        for at in reversed(levels):
            if merged is not None:
                twice = merged.take(pa.array(np.repeat(np.arange(merged.num_rows), 2)))
                index = np.repeat(ints(merged, INDEX) * 2, 2) + np.tile([0, 1], merged.num_rows)
                at = [*at, with_column(twice, INDEX, index).select(at[0].column_names)]
            merged = self._aggregate(concat(at), by)
        assert merged is not None
        return with_column(merged, INDEX, ints(merged, INDEX) + base)

    def _finished(self, merged: pa.Table) -> pa.Table:
        for slot in self.slots:
            if slot.kind == "sum":
                none = pc.equal(merged.column(f"{slot.name}__n"), 0)
                merged = with_column(
                    merged,
                    slot.name,
                    pc.if_else(none, pa.scalar(None, slot.type), merged.column(slot.name).cast(slot.type)),
                )
            elif slot.floating:
                merged = with_column(merged, slot.name, unsortable(merged.column(slot.name), slot.type))
        return merged.select([*self.keys, INDEX, COUNT, *(n for s in self.slots for n in result_columns(s))])

    def _rows(self, partials: pa.Table, first: int, last: int) -> list[pa.Table]:
        found = self._windows(partials, first, last) if first <= last else None
        return [] if found is None else [with_column(found, WEIGHT, np.ones(found.num_rows, np.int64))]

    def _touched(self, new: pa.Table, first: int, last: int) -> pa.Table | None:
        """The already reported, not yet final windows that new partials change: keys and ``__i``."""
        low, high = np.maximum(ints(new, LO), first), np.minimum(ints(new, HI), last)
        inside = low <= high
        if not inside.any():
            return None
        which, index = runs(low[inside], high[inside])
        keys = (
            new.select(list(self.keys)).filter(pa.array(inside)).take(pa.array(which))
            if self.keys
            else pa.table({INDEX: index})
        )
        return with_column(keys, INDEX, index).group_by([*self.keys, INDEX], use_threads=False).aggregate([])

    def _corrected(self, state: Scope, everything: pa.Table, dirty: pa.Table) -> list[pa.Table]:
        """Rows taken back and rows put in their place, for the windows in ``dirty``; unchanged ones cancel out."""
        index = ints(dirty, INDEX)
        first, last = int(index.min()), int(index.max())
        touched = everything.filter(pa.array(matching(everything, dirty, list(self.keys)))) if self.keys else everything
        fresh = self._rows(touched, first, last)
        bins = [b for b in state.bins("reported") if first // REPORTED_BIN <= int(b) <= last // REPORTED_BIN]
        old = [t for b in bins if (t := state.read("reported", b, net)) is not None]
        old = [with_column(t, WEIGHT, pc.negate(t.column(WEIGHT))) for t in old]
        if not (fresh or old):
            return []
        both = concat([t.select(self._reported_columns()) for t in [*old, *fresh]])
        both = both.filter(pa.array(matching(both, dirty, [*self.keys, INDEX])))
        return [made] if (made := net(both)).num_rows else []

    def _reported_columns(self) -> list[str]:
        return [*self.keys, INDEX, COUNT, *(n for s in self.slots for n in result_columns(s)), WEIGHT]

    # windows whose members' ends are read wait for those members

    def _opened(self, partials: pa.Table, c: int, open_now: int) -> dict[Any, int]:
        """Per key with an unsettled member: the first window that is not final because of it."""
        if c == INFINITY:
            return {}
        unsettled = partials.filter(
            pc.and_(pc.greater_equal(partials.column(RE), c), pc.greater(partials.column(COUNT), 0))
        )
        if not unsettled.num_rows:
            return {}
        least = (
            group(unsettled, list(self.keys), {LO: (LO, "min")})
            if self.keys
            else pa.table({LO: [pc.min(unsettled.column(LO)).as_py()]})
        )
        return {tuple(r[k] for k in self.keys): min(open_now, r[LO]) for r in least.to_pylist()}

    def _final_rows(
        self,
        partials: pa.Table,
        opened: dict[Any, int],
        before: dict[Any, int],
        open_before: int,
        open_now: int,
        report_to: int,
    ) -> list[pa.Table]:
        first = min([open_before, *before.values()])
        rows = self._rows(partials, first, report_to)
        if not rows:
            return []
        table = rows[0]
        keys = (
            list(zip(*(table.column(k).to_pylist() for k in self.keys), strict=True))
            if self.keys
            else [()] * table.num_rows
        )
        start = np.array([before.get(k, open_before) for k in keys], dtype=np.int64)
        stop = np.array([opened.get(k, INFINITY) for k in keys], dtype=np.int64)
        index = ints(table, INDEX)
        kept = table.filter(pa.array((index >= start) & (index < stop)))
        return [kept] if kept.num_rows else []

    # keeping and forgetting

    def _store(self, state: Scope, new: pa.Table) -> None:
        low, high = ints(new, LO), ints(new, HI)
        endless = high == INFINITY
        if endless.any():
            state.append("partials", "inf", self._packed(new.filter(pa.array(endless))))
            new, low, high = new.filter(pa.array(~endless)), low[~endless], high[~endless]
        if not len(high):
            return
        # bins about half as wide as the ranges in them: few to read, and little kept for longer than it is needed
        size = np.maximum(np.floor(np.log2((high - low + 1).astype(np.float64))).astype(np.int64) - 1, 0)
        bins, number = np.unique(np.stack([size, high >> size], axis=1), axis=0, return_inverse=True)
        for n, (cls, bin) in enumerate(bins):
            rows = new.filter(pa.array(number.reshape(-1) == n))
            state.append("partials", f"{cls}.{bin}", self._packed(rows))

    def _packed(self, table: pa.Table) -> pa.Table:
        """As it is stored: in order, so that it compresses; without the first window where the last one tells it."""
        table = table.sort_by([(HI, "ascending"), *((k, "ascending") for k in self.keys)])
        return table.drop_columns([LO]) if self._low_is_known else table

    @property
    def _low_is_known(self) -> bool:
        return self.points and self.window.divides

    def _unpacked(self, table: pa.Table) -> pa.Table:
        return with_column(table, LO, ints(table, HI) - (self.window.n - 1)) if self._low_is_known else table

    def _held(self, state: Scope) -> pa.Table | None:
        held = state.read_all("partials", self._compacted)
        if held is None:
            return None
        held = self._unpacked(held)
        # chunks may hold a member and its retraction side by side: what is asked of single rows needs them summed up
        return self._merge(held, self._by(held)) if self.reads_end else held

    def _compacted(self, table: pa.Table) -> pa.Table:
        table = self._unpacked(table)
        return self._packed(self._merge(table, self._by(table)))

    def _remember(self, state: Scope, out: list[pa.Table], least: int) -> None:
        rows = concat([t.select(self._reported_columns()) for t in out])
        index = ints(rows, INDEX)
        rows, index = rows.filter(pa.array(index >= least)), index[index >= least]
        for bin in np.unique(index // REPORTED_BIN):
            state.append("reported", str(bin), rows.filter(pa.array(index // REPORTED_BIN == bin)))

    def _forget(self, state: Scope, least: int) -> None:
        for bin in state.bins("partials"):
            if bin == "inf":
                if least == INFINITY:
                    state.drop("partials", bin)
                continue
            cls, _, number = bin.partition(".")
            if ((int(number) + 1) << int(cls)) - 1 < least:
                state.drop("partials", bin)
        for bin in state.bins("reported"):
            if (int(bin) + 1) * REPORTED_BIN - 1 < least:
                state.drop("reported", bin)

    def _bound(self, state: Scope, clock: Clock) -> int:
        """The last window to report once the input is finished: the greatest finite endpoint's, if a lifetime never ends."""
        given = INFINITY if clock.until is None else self.window.last_starting_before(clock.until)
        if not self.infinite:
            return given
        ends: dict[str, int] = state.values.setdefault("ends", {})
        for judge, c, note in clock.notes:
            first = self.window.first_ending_after(c) if judge is not None else MINUS_INFINITY
            for low, last, endless, weight in note or ():
                if low < first:
                    if judge.late == "drop" or (not endless and last < first):
                        continue
                    last = max(last, self.window.last_starting_before(self.window.floor_to_end(c)))
                key = f"{last},{endless}"
                ends[key] = max(ends.get(key, 0), 1) if self.merges else ends.get(key, 0) + weight
        for key in [k for k, w in ends.items() if not w]:
            del ends[key]
        settled = self.window.last_starting_before(clock.c) if clock.c != INFINITY else MINUS_INFINITY
        for endless in (0, 1):
            old = sorted(
                int(k.split(",")[0])
                for k, w in ends.items()
                if w > 0 and k.endswith(f",{endless}") and int(k.split(",")[0]) < settled
            )
            if self.merges or not endless:
                for last in old[:-1]:
                    del ends[f"{last},{endless}"]
        if clock.until is not None or not any(k.endswith(",1") and w > 0 for k, w in ends.items()):
            return given
        return max(int(k.split(",")[0]) for k, w in ends.items() if w > 0)

    # results

    def _start(self, index: int) -> int:
        return index if index in (INFINITY, MINUS_INFINITY) else self.window.start(index)

    def _deltas(self, out: list[pa.Table]) -> pa.Table | None:
        if not out:
            return None
        table = concat([t.select(self._reported_columns()) for t in out])
        start, end = grid_lifetimes(self.window, ints(table, INDEX))
        table = with_column(with_column(table, LE, start), RE, end)
        return table.drop_columns([INDEX])


def result_columns(slot: SlotSpec) -> list[str]:
    """The columns a slot has in results."""
    if slot.kind == "sum":
        return [slot.name, f"{slot.name}__n"]
    if slot.kind == "moments":
        return [f"{slot.name}__{part}" for part in ("n", "mean", "m2")]
    return [slot.name]


def _negated(values: Any) -> Any:
    return pc.negate(values) if pa.types.is_decimal(values.type) else pc.negate_checked(values)


def matching(table: pa.Table, wanted: pa.Table, by: list[str]) -> np.ndarray[Any, Any]:
    """Which rows agree with some row of ``wanted`` in the columns ``by``; NULL agrees with NULL."""
    both = concat([table.select(by), wanted.select(by).cast(table.select(by).schema)])
    number, _ = codes(both, by)
    return np.isin(number[: table.num_rows], number[table.num_rows :])
