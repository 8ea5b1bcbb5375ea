"""Shorter windows read the basic windows of longer ones: each result is that of a run in which its windows have their own."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.rules import window_aggregates
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import CheckpointError
from streamq.runtime.hosts.identity import read_identity
from streamq.runtime.kernels.windows_of_sizes import WindowsOfSizesKernel
from streamq.runtime.state.baskets import BinSizes
from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from tests.changed_query import ChangingRun
from tests.programs import with_sizes

ROWS, LATENESS = 60, 6


def points(seed: int, late: bool = True) -> pa.Table:
    """Points of three groups, the first half before time 0; some come up to LATENESS ticks late, with sums that cancel out."""
    rng = random.Random(seed)
    at = [i - ROWS // 2 - rng.randrange(LATENESS) * late for i in range(ROWS)]
    columns = {"k": [rng.choice("abc") for _ in at], "v": [rng.choice([None, 1, 2, 5]) for _ in at]}
    return pa.table({"at": at, **columns, "x": [rng.choice([0.1, 1e16, -1e16] if late else [0.1, 7.5]) for _ in at]})


def source(delay: int) -> sq.Stream:
    return sq.points(points(0).slice(0, 0), time="at", name="s", progress=sq.generate(delay))


S = source(2)
OTHER = S.group_by("k").session_window(4).select(n=sq.count())
"""Another reader of the source, whose lateness is then judged in a stage of its own."""

AGGREGATES = {"n": sq.count(), "sum": sq.sum("v"), "most": sq.max("v"), "total": sq.sum("x"), "spread": sq.stddev("v")}


def windows(size: int, hop: int, *names: str, stream: sq.Stream = S, **how: Any) -> sq.Stream:
    aggregates = {name: AGGREGATES[name] for name in names or ("sum",)}
    return stream.group_by("k").hopping_window(size, hop, **how).select(**aggregates)


def drawn(rng: random.Random, **how: Any) -> list[sq.Stream]:
    """Windows of 20 basic windows, and others that consist of them, also with gaps."""
    basic = rng.choice([1, 3])
    offset = rng.randrange(basic)
    queries = [windows(20 * basic, basic, *rng.sample(sorted(AGGREGATES), 2), offset=offset, **how)]
    for _ in range(3):
        size, hop, shift = (basic * rng.randint(*bounds) for bounds in ((1, 20), (1, 6), (-3, 3)))
        names = rng.sample(sorted(AGGREGATES), rng.randint(1, 2))
        queries.append(windows(size, hop, *names, offset=offset + shift, **how))
    return rng.sample(queries, 4)


def shown(program: StagedPlan) -> list[list[tuple[int, int]]]:
    """The sizes and hops of the windows of each kernel on a grid."""
    kernels = [h.kernel for stage in program.stages for h in stage.hosted if h.name.startswith("window")]
    of_each = [kernel.results if isinstance(kernel, WindowsOfSizesKernel) else (kernel,) for kernel in kernels]
    return [[(one.window.size, one.window.hop) for one in ones] for ones in of_each]


def check(seed: int, **how: Any) -> None:
    """Check each micro-batch of some windows, with late rows, against a run without sharing; without, against the oracle."""
    rng = random.Random(seed)
    # where the watermark is far ahead, blocks are merged that begin in a window which is due and end behind it
    stream = source(rng.choice([2, 14]))
    queries, cut = drawn(rng, stream=stream.extend(2).to_points() if seed % 2 else stream, **how), rng.choice([6, 25])
    together = with_blocks(ChangingRun(*queries))
    with patch.object(window_aggregates, "consists_of_basic", lambda window, longest: window == longest):
        apart = ChangingRun(*queries)
    assert (len(shown(together.run.program)), len(shown(apart.run.program))) == (1, 4)
    rows = points(seed)
    for at in range(0, ROWS, cut):
        batch = {"s": rows.slice(at, cut)}
        assert_same_parts(together.batch(batch), apart.batch(batch))
    assert_same_parts(together.finish(), apart.finish())
    rows, run = points(seed, late=False), with_blocks(ChangingRun(*queries))
    sent = [*(run.batch({"s": rows.slice(at, cut)}) for at in range(0, ROWS, cut)), run.finish()]
    for query, parts in zip(queries, zip(*sent, strict=True), strict=True):
        assert_same_history(net(list(parts)), oracle(query.plan, {"s": rows}))


def with_blocks(run: ChangingRun) -> ChangingRun:
    """The run with blocks above few rows."""
    program = with_sizes(run.run.program, BinSizes(blocks_above=4))
    run.run = replace(run.run.go_on(program), identity=run.identity)
    return run


def check_all(*seeds: int) -> None:
    for seed in seeds:
        check(seed)


def assert_same_parts(actual: list[pa.Table], expected: list[pa.Table]) -> None:
    for part, other in zip(actual, expected, strict=True):
        assert_same_history(net([part]), net([other]))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "stamp"), [(0, "align"), (1, "point_at_end"), (2, "align")])
def test_rows_are_those_of_windows_by_themselves(seed: int, stamp: str) -> None:
    """In the same micro-batch, late rows or not, however the input is cut; without late rows the oracle's."""
    check(seed, stamp=stamp)


LONG, SHORT = windows(12, 1, "n"), windows(4, 2, "sum")


IN_ORDER = points(1, late=False)


def after(query: sq.Stream, begun: int, since: int) -> pa.Table:
    """The rows that a query, begun after ``begun`` rows, sends after ``since`` of them."""
    run = ChangingRun(query, OTHER)
    run.batch({"s": IN_ORDER.slice(begun, since - begun)})
    return net([run.batch({"s": IN_ORDER.slice(since)})[0], run.finish()[0]])


def test_the_longest_windows_go_on_alone_and_shorter_ones_only_with_them() -> None:
    """They read the state of the longest windows, which has what these and the others need."""
    run = ChangingRun(OTHER, LONG, SHORT)
    run.batch({"s": IN_ORDER.slice(0, 20)})
    with pytest.raises(CheckpointError, match="size=4, hop=2 by k: .* has no state there"):
        run.changed(SHORT, OTHER)
    run.changed(OTHER, LONG)
    run.run.identity = read_identity(run.identity.to_json())
    assert shown(run.run.program) == [[(12, 1)]]
    _, long = zip(run.batch({"s": IN_ORDER.slice(20)}), run.finish(), strict=True)
    assert_same_history(net(list(long)), after(LONG, 0, 20))


def test_windows_with_their_own_state_keep_it() -> None:
    run = ChangingRun(OTHER, SHORT)
    run.batch({"s": IN_ORDER.slice(0, 40)})
    run.changed(OTHER, SHORT, LONG)
    assert shown(run.run.program) == [[(4, 2)], [(12, 1)]]
    _, part, _ = zip(run.batch({"s": IN_ORDER.slice(40)}), run.finish(), strict=True)
    assert_same_history(net(list(part)), after(SHORT, 0, 40))


def test_a_changelog_has_no_shorter_windows_of_final_rows() -> None:
    run = ChangingRun(OTHER, LONG, SHORT)
    with pytest.raises(CheckpointError, match="size=4, hop=2 by k: .* has no state there"):
        run.changed(OTHER, LONG, SHORT, output="changelog")
    assert shown(run.changed(OTHER, LONG, output="changelog").run.program) == [[(12, 1)]]


def test_the_next_row_comes_when_it_is_said_to() -> None:
    """The CTI that ``why()`` says the next windows wait for brings their rows, and no tick before does."""
    run = ChangingRun(LONG, SHORT, windows(2, 5, "n"))
    run.batch({"s": points(2, late=False).slice(0, 30)})
    for _ in range(3):
        (due,) = [k.due for k in run.run.readings.of_kernels.values() if k.due is not None]
        assert not any(part.num_rows for part in run.batch({}, ctis=[(None, due - 1)]))
        assert any(part.num_rows for part in run.batch({}, ctis=[(None, due)]))


def test_explain_says_what_is_shared_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    sq.explain_all([sq.result(LONG), sq.result(SHORT)])
    text = capsys.readouterr().out
    assert "share_sizes: merge(long), merge(short) =>" in text
    assert "hopping size=12, hop=1; size=4, hop=2 by k: count(*), sum(v)" in text
    assert "late rows are judged here: windows of several sizes read the source" in text
