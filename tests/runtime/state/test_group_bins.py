"""Bins by group: any sequence of micro-batches finds the rows and what is due that a plain dictionary has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamq.runtime.arrow.columnar import decode_rows, decode_small, encode_small, ints
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.groups import HASH
from streamq.runtime.state.baskets import Baskets, BinSizes, DictStore, KernelBaskets
from streamq.runtime.state.group_bins import GroupBins, agenda_of
from streamq.time import INFINITY

EVENTS = "events"
INSTANTS = ("c", "m", "due", "held", "since")


def rows(groups: Any, at: Any) -> pa.Table:
    """An event of each group at an instant, the same for all or one each."""
    n = len(groups)
    columns = {HASH: pa.array(groups, pa.uint32()), LE: np.full(n, at), RE: np.full(n, at + 50)}
    return pa.table({**columns, WEIGHT: np.ones(n, np.int64)})


def reopened(state: KernelBaskets) -> KernelBaskets:
    """The state as the next micro-batch reads it."""
    state.baskets.flush()
    return Baskets(state.baskets.store).scoped("kernel")


@pytest.mark.parametrize("whole_upto", [0, 40])
def test_the_groups_that_are_due_and_their_rows_are_those_of_a_dictionary(whole_upto: int) -> None:
    random = np.random.default_rng(3)
    hashes = random.choice(1 << 32, 150, replace=False).astype(np.uint32)
    sizes = BinSizes(split_above=30, whole_upto=whole_upto)
    state = Baskets(DictStore()).scoped("kernel")
    agendas: dict[int, dict[str, Any]] = {}
    events: dict[int, list[int]] = {}
    for c in range(30):
        touched = np.unique(random.choice(hashes, random.integers(0, 12)))
        bins = GroupBins(state, sizes)
        bins.open(touched, c, c - 2)
        due = {h for h, waits in agendas.items() if waits["c"] <= c or waits["m"] <= c - 2}
        active = set(bins.active.tolist())
        assert active >= due | set(touched.tolist())
        assert whole_upto or len(active) <= 2 * len(due | set(touched.tolist())) + 60, "a bin is cleaned now and then"
        read = bins.read(EVENTS)
        found = (
            Counter()
            if read is None
            else Counter(zip(read.column(HASH).to_pylist(), ints(read, LE).tolist(), strict=True))
        )
        assert found == Counter((h, at) for h in active for at in events.get(h, ()))
        bins.append(EVENTS, rows(touched, c))
        for h in touched.tolist():
            events.setdefault(h, []).append(c)
        for h in active:
            agendas[h] = {
                **{name: int(c + random.integers(1, 40)) if random.random() < 0.6 else INFINITY for name in INSTANTS},
                **{name: bool(random.random() < 0.3) for name in ("waits", "reaches")},
            }
        columns = {n: np.array([agendas[h][n] for h in sorted(active)]) for n in (*INSTANTS, "waits", "reaches")}
        bins.write_agenda(agenda_of(np.array(sorted(active), np.uint32), **columns), [EVENTS])
        bins.close([EVENTS], c)
        for name in INSTANTS:
            assert bins.least(name) == min((a[name] for a in agendas.values()), default=INFINITY), name
        assert (bins.due is not None) == any(a["waits"] for a in agendas.values())
        state = reopened(state)


def test_of_a_large_bin_only_the_rows_of_active_groups_are_decoded_and_no_agenda_is_read() -> None:
    state = Baskets(DictStore()).scoped("kernel")
    hashes = np.random.default_rng(5).choice(1 << 32, 6_000, replace=False).astype(np.uint32)
    every = np.sort(hashes)
    bins = GroupBins(state, BinSizes())
    bins.open(every, 0)
    bins.append(EVENTS, rows(hashes, np.random.default_rng(5).integers(0, 1 << 60, len(hashes))))
    bins.write_agenda(agenda_of(every, c=np.full(len(every), 1_000)), [EVENTS])
    bins.close([EVENTS], 0)
    for c in range(1, 6):
        state = reopened(state)
        bins = GroupBins(state, BinSizes())
        touched = every[[10 * c, 4_000 + c]]
        bins.open(touched, c)
        read = bins.read(EVENTS)
        assert read is not None and read.column(HASH).to_pylist() == [h for h in hashes.tolist() if h in touched]
        bins.append(EVENTS, rows(touched[:0], c))
        bins.write_agenda(agenda_of(touched, c=np.full(2, 2_000 + c)), [EVENTS])
        bins.close([EVENTS], c)
        assert (state.baskets.work.bins, state.baskets.work.rows) == (1, 2)
        assert bins.least("c") == 1_000


def test_a_bin_that_is_only_appended_to_is_cleaned_once_half_of_it_may_be_settled() -> None:
    """It is not read for that: enough events have come since it was known how many are needed."""
    state = Baskets(DictStore()).scoped("kernel")
    hashes = np.random.default_rng(5).choice(1 << 32, 4_000, replace=False).astype(np.uint32)
    bins = GroupBins(state, BinSizes(split_above=1 << 20))
    bins.open(np.sort(hashes), 0)
    lasting = rows(hashes, np.random.default_rng(5).integers(0, 1 << 60, len(hashes)))
    nothing = agenda_of(np.zeros(0, np.uint32))
    bins.append(EVENTS, ending(lasting, INFINITY))
    bins.write_agenda(nothing, [EVENTS])
    bins.close([EVENTS], 0)
    planned = []
    for c in range(1, 7):
        state = reopened(state)
        bins = GroupBins(state, BinSizes(split_above=1 << 20))
        touched = np.sort(hashes[:1_000])
        bins.open(touched, c)
        bins.append(EVENTS, rows(touched, 100 * c))
        bins.write_agenda(nothing, [EVENTS])
        bins.close([EVENTS], c)
        planned.append(bins.leaves[0].clean)
        assert not state.baskets.work.rows
    # the half is beyond 2,000 events, and each of the new ones is half a one more
    assert planned == [INFINITY] * 4 + [551, 551]


def ending(events: pa.Table, end: int) -> pa.Table:
    return events.set_column(2, RE, pa.array(np.full(events.num_rows, end)))


@pytest.mark.parametrize("n", [0, 1, 1_000])
def test_some_rows_are_decoded_as_all_are(n: int) -> None:
    random = np.random.default_rng(n)
    table = pa.table(
        {
            HASH: pa.array(random.integers(0, 9, n), pa.uint32()),
            "i": random.integers(-(2**62), 2**62, n),
            "x": random.random(n),
            "missing": pa.array([None if i % 3 else i for i in range(n)], pa.int64()),
            "text": pa.array([f"{i}" * (i % 5) for i in range(n)], pa.string()),
            "small": pa.array(random.integers(0, 9, n), pa.int16()),
            "flag": pa.array(random.random(n) < 0.5, pa.bool_()),
            "at": pa.array(random.integers(0, 2**40, n), pa.timestamp("us", "UTC")),
        }
    )
    body = encode_small(table)
    assert decode_small(body).equals(table)
    for wanted in (0, 4, 99):
        mask = table.column(HASH).to_numpy() == wanted
        chosen = decode_rows(body, HASH, lambda hashes, wanted=wanted: hashes.to_numpy() == wanted)
        assert chosen.equals(table.filter(pa.array(mask)))
