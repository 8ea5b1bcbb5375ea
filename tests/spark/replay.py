"""Micro-batches for Spark tests: a folder of Parquet files, one a micro-batch, read in order."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.operators import Source
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.node import Node, nodes
from streamq.plan.tree import fold
from streamq.progress.explicit import ExplicitCtis
from streamq.progress.generate import GeneratedCtis
from streamq.run.running import Run
from streamq.sources.physical import Physical
from streamq.testing.deltas import from_changelog, net
from streamq.time import INFINITY


def land(folder: Path, tables: Sequence[pa.Table], first: int = 0) -> None:
    """Write each table as a file; later ones are younger, which is the order in which the file source takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, table in enumerate(tables, start=first):
        path = folder / f"{i:06d}.parquet"
        hidden = folder / f".{i:06d}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + i, 1_700_000_000 + i))
        hidden.rename(path)


def stream(spark: SparkSession, folder: Path, schema: pa.Schema) -> DataFrame:
    """The folder as a stream, a file a micro-batch."""
    return spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def replayed(spark: SparkSession, queries: Iterable[sq.Stream], folder: Path, files: int = 2) -> list[sq.Stream]:
    """Queries over literal streams as queries over folders in which those arrive; equal sources are one.

    Rows keep their order, in at most so many files. What promises nothing itself makes progress as its rows do, with a delay
    that makes none late.
    """
    landed: list[tuple[pa.Table, Source, DataFrame]] = []

    def arriving(source: Source, table: pa.Table) -> tuple[Source, DataFrame]:
        policy = source.policy
        if isinstance(policy.progress, ExplicitCtis) and not isinstance(source, Physical):
            policy = SourcePolicy(progress=GeneratedCtis(disorder(table)))
        for known, made, frame in landed:
            if known.equals(table) and made.policy == policy:
                return made, frame
        name = f"s{len(landed)}"
        size = -(-table.num_rows // files)
        land(folder / name, [table.slice(at, size) for at in range(0, table.num_rows, size)])
        landed.append((table, replace(source, table=name, policy=policy), stream(spark, folder / name, table.schema)))
        return landed[-1][1:]

    def moved(query: sq.Stream) -> sq.Stream:
        found = {n.table: arriving(n, query.tables[n.table]) for n in nodes(query.plan) if isinstance(n, Source)}

        def visit(node: Node, inputs: list[Node]) -> Node:
            return found[node.table][0] if isinstance(node, Source) else node.with_children(inputs)

        return sq.Stream(fold(query.plan, visit), {source.table: frame for source, frame in found.values()})

    return [moved(query) for query in queries]


def check_on_every_host(
    spark: SparkSession, folder: Path, table: pa.Table, query: Callable[[sq.Stream], sq.Stream], cut: int
) -> None:
    """Hold a query over points at ``t`` in batch, and as a stream in two micro-batches, against the in-process answer."""
    land(folder / "in", [table.slice(0, cut), table.slice(cut)])
    answer = bag(query(sq.points(table, time="t")).to_arrow())
    assert answer
    assert rows(query(sq.points(spark.read.parquet(str(folder / "in")), time="t")).to_df()) == answer
    streaming = query(sq.points(stream(spark, folder / "in", table.schema), time="t"))
    places = {"checkpoint": str(folder / "checkpoint"), "sink": str(folder / "out")}
    ended(streaming, **places)
    assert rows(spark.read.parquet(str(folder / "out"))) == answer


def ended(query: sq.Stream, **how: Any) -> Run:
    """The query run to the end of its input, in one start: an instalment with ``finish=True`` starts it twice."""
    with query.run(**how) as run:
        run.finish()
    return run


def disorder(table: pa.Table) -> int:
    """How far a start of a literal table lies behind the greatest before it."""
    starts = table.column("start").to_pylist()
    return max(a - b for a, b in zip(itertools.accumulate(starts, max), starts, strict=True))


def rows(df: DataFrame, *leave_out: str) -> list[tuple[Any, ...]]:
    """The rows as a sorted list; floats to nine significant digits."""
    names = [n for n in sorted(df.columns) if n not in leave_out]
    return bag(df.select(*names).toArrow())


def bag(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of an Arrow table as a sorted list, columns in alphabetical order."""

    def plain(value: Any) -> Any:
        return float(f"{value:.9g}") if isinstance(value, float) else value

    names = sorted(table.column_names)
    return sorted((tuple(plain(row[n]) for n in names) for row in table.select(names).to_pylist()), key=repr)


def folded(df: DataFrame) -> list[tuple[Any, ...]]:
    """A changelog's rows folded into its history, an end of infinity as NULL."""
    table = net([from_changelog(df.toArrow())])
    end = pc.if_else(pc.equal(table["end"], INFINITY), None, table["end"])
    return bag(table.set_column(table.column_names.index("end"), "end", end))
