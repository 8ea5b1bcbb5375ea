"""A worker reads a file that is larger than its memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, TIMES = 20_000, 24
"""The rows of a block, with a text of 1 KB each, and the blocks of a file: half a gigabyte."""


def block() -> pa.Table:
    at = np.arange(ROWS) * 1000 + 1_700_000_000_000_000
    return pa.table(
        {
            "at": pa.array(at, pa.timestamp("us")),
            "zone": np.repeat(["a", "b"], ROWS // 2),
            "fare": np.ones(ROWS),
            "note": [f"{n:06} and more text" * 50 for n in range(ROWS)],
        }
    )


def lines(kind: str) -> bytes:
    rows = zip(*(column.to_pylist() for column in block().columns), strict=True)
    if kind == "csv":
        return "".join(f"{at.isoformat()},{zone},{fare},{note}\n" for at, zone, fare, note in rows).encode()
    return "".join(
        f'{{"at": "{at.isoformat()}", "zone": "{zone}", "fare": {fare}, "note": "{note}"}}\n'
        for at, zone, fare, note in rows
    ).encode()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is told by Linux")
@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json", "csv.gz"])
def test_a_worker_holds_a_part_of_a_file(tmp_path: Path, kind: str) -> None:
    """Of half a gigabyte of rows, read and combined by one task, a worker holds a part at its peak."""
    path, name = tmp_path / f"1.{kind}", kind.partition(".")[0]
    if kind == "parquet":
        with pq.ParquetWriter(path, block().schema, compression="none", use_dictionary=False) as parquet:
            for _ in range(TIMES):
                parquet.write_table(block())
    elif kind == "arrow":
        with pa.ipc.new_file(str(path), block().schema) as batches:
            for _ in range(TIMES):
                batches.write_table(block())
    else:
        data = gzip.compress(lines(name), 1) if kind.endswith(".gz") else lines(name)
        with path.open("wb") as file:
            for _ in range(TIMES):
                file.write(data)
    worker = [sys.executable, "-m", "tests.connectors.peak_memory", str(path), name]
    done = subprocess.run(worker, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak, rows = map(int, done.stdout.split())
    assert rows == ROWS * TIMES
    assert peak < 300, f"{peak} MB at the peak"
