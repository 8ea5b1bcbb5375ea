"""A worker that combines the rows of a file by itself: ``python -m tests.connectors.peak_memory path format``.

It prints how many more megabytes it held at its peak than before, and the rows that it read.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

import streamq as sq
from streamq.compiler.options import Options
from streamq.compiler.ports import item_paths
from streamq.compiler.results import Results
from streamq.compiler.stages import compile_stages
from streamq.connectors.stored_files import Files
from streamq.plan.node import number_sources
from streamq.runtime.hosts.hosted_kernel import ItemPaths
from streamq.runtime.hosts.processor import split_packer
from streamq.runtime.time.progress import decode_messages

SCHEMA = "at timestamp_ntz, zone string, fare double, note string"


def combine(files: Files) -> int:
    """Combine the rows of a file as the map side of a stream does, and return their number."""
    trips = sq.points(files, time="at", progress=sq.generate("1 minute"))
    query = trips.group_by("zone").tumbling_window("1 minute").select(n=sq.count(), longest=sq.max("note"))
    plan, _ = number_sources(Results.from_plans([query.plan], "run"))
    program = compile_stages(plan, Options(buckets=1))
    (relation,) = program.sources
    paths, source = item_paths(program, relation), relation.source
    assert isinstance(paths, ItemPaths) and source is not None
    reader = files._reader([field.name for field in source.columns])
    combined = split_packer(program.packer([relation]), reader, source.rows_in_arrow, paths)
    rows = 0
    for batch in combined([pa.record_batch({"split": [f"0 1 {files.path}"]})]):
        for channel, body in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
            if channel == -1:
                rows += sum(message.starts.rows for message in decode_messages(body) if message.starts is not None)
    return rows


def peak() -> int:
    """The megabytes that this process has held at most since it was last reset."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


if __name__ == "__main__":
    path, kind = sys.argv[1:]
    files = sq.files(path, format=kind, schema=SCHEMA)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    rows = combine(files)
    print(peak() - before, rows)
