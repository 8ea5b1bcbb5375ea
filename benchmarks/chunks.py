"""DataCell's figure 8 (Liarou et al., section 4.1), in-process: the response time of a hop by the number of chunks it comes in.

    python -m benchmarks.chunks [--scale 1] [--json FILE]

Q1 of ``benchmarks.datacell`` over windows of 10.24 M tuples and 8 hops. A hop's tuples come in m micro-batches of equal size. The
last one completes the hop and brings its result: its processor time is the response time. ``ChunkSearch`` chooses m for the next
hop by the response times so far. Every m that it tries is shown with its median response time in milliseconds, the time of all
micro-batches of a hop, and the response time of one chunk over its own; then the m that it keeps.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks.datacell import Tuples, Window, live, milliseconds, q1
from streamq.compiler.local import LocalRun
from streamq.run.pacing import ChunkSearch, SearchPhase, Slide

SELECTED = 0.2
"""The part of the tuples that Q1 selects."""


def hop_times(run: LocalRun, tuples: Tuples, hop: int, chunks: int) -> list[float]:
    """Return the processor time of each micro-batch of a hop, in milliseconds."""
    ends = [hop * number // chunks for number in range(chunks + 1)]
    times = []
    for begin, end in pairwise(ends):
        new = tuples.take(end - begin)
        time, _ = milliseconds(partial(run.batch, {"s": new}, [(None, tuples.now)]))
        times.append(time)
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path, default=Path("chunks.json"))
    options = parser.parse_args(arguments)
    window = Window(8, int(1_280_000 * options.scale))
    run, tuples = live(q1(SELECTED, lambda groups: groups.hopping_window(window.tuples, window.basic))), Tuples()
    for _ in range(window.n):
        hop_times(run, tuples, window.basic, 1)
    search, hops = ChunkSearch(), 0
    whole_hops: dict[int, list[float]] = defaultdict(list)
    while search.phase is not SearchPhase.SETTLED:
        times = hop_times(run, tuples, window.basic, search.chunks)
        whole_hops[search.chunks].append(sum(times))
        search, hops = search.with_slide(Slide(times[-1], window.basic)), hops + 1
    cells = [
        {"chunks": chunks, "response_ms": response, "hop_ms": statistics.median(whole_hops[chunks])}
        for chunks, response in sorted(search.responses.items())
    ]
    print(f"{'m':>6} {'response':>9} {'all of it':>9} {'m=1 / m':>8}")
    for cell in cells:
        ratio = search.responses[1] / cell["response_ms"]
        print(f"{cell['chunks']:>6} {cell['response_ms']:>9.1f} {cell['hop_ms']:>9.1f} {ratio:>8.1f}")
    print(f"keeps m = {search.best} after {hops} hops")
    options.json.write_text(json.dumps({"scale": options.scale, "best": search.best, "cells": cells}, indent=2))


if __name__ == "__main__":
    main()
