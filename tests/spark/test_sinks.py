"""Every sink that lasts, beside the others in one run: what is read back is the answer, though a micro-batch is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.errors import QueryFailed
from streamq.testing.case import Case
from streamq.testing.history import assert_same_history
from streamq.testing.verify import NOT_SIMPLEST
from tests.laws.test_connectors import over
from tests.laws.test_sinks import OF_SINKS, assert_reads, columns_of, on_time
from tests.places import PLACES
from tests.targets import TARGETS, Target, servers_of

pytestmark = pytest.mark.usefixtures("plain")


@st.composite
def cases(draw: Any) -> Case:
    """Aggregates by groups, which all outputs have, over two micro-batches; the most varied of several."""
    kinds = [kind for kind in OF_SINKS if not any(kind in target.lacks for target in TARGETS.values())]
    some = []
    for _ in range(5):
        types = [draw(st.sampled_from(kinds)) for _ in "kv"]
        columns = ", ".join(f"{name} {kind}" for name, kind in zip("kv", types, strict=True))
        stream: Any = t.stream(columns=columns, axis="timestamp").group_by("k")
        query = draw(st.sampled_from([stream.hopping_window(t.ANY, t.ANY), stream.snapshot_window()]))
        payload = {name: OF_SINKS[kind] for name, kind in zip("kv", types, strict=True)}
        query = query.select(n=sq.count(), least=sq.min("v"), some=sq.count_distinct("v"))
        some.append(draw(on_time(query, payload)))
    return max(some, key=Case.variety).coarser(2)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the process had ended before Spark noted that its last micro-batch is done: the next run repeats it."""
    _, last = max((int(file.name), file) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def check(case: Case, folder: Path, servers: Any) -> None:
    try:
        expected = case.answer()
    except QueryFailed:
        assume(False)
    assume(expected.num_rows > 5 and len(case.cut) == 2)
    targets: list[tuple[Target, OutputForm]] = [
        (kind(folder, servers), output) for kind in TARGETS.values() for output in kind.outputs
    ]
    places = {name: PLACES["parquet"](folder / name, source) for name, source in case.sources.items()}
    checkpoint, store, published = folder / "checkpoint", str(folder / "store"), folder / "published"

    def query() -> sq.Stream:
        return over(case, {name: place.stream for name, place in places.items()})

    def run(**more: Any) -> Any:
        one = query()
        results = [sq.result(one, output=output, sink=target.sink()) for target, output in targets]
        return sq.run_all(results, checkpoint=str(checkpoint), early=True, buckets=2, **more)

    def publish(**more: Any) -> Any:
        return sq.publish(query(), "rows", store=store, checkpoint=str(published), buckets=2, **more)

    for number, batch in enumerate(case.batches):
        for name, place in places.items():
            place.folder.mkdir(exist_ok=True)
            place.put(batch[name])
        for again, where in ((run, checkpoint), (publish, published)):
            again(trigger="available_now")
            if number == 0:
                forget_last_commit(where)
    for last in (run, publish):
        with last() as one:
            one.finish()
    for target, output in targets:
        try:
            assert_reads(target, case.query, output, columns_of(case.query, output).key, expected)
        except AssertionError as error:
            error.add_note(f"{type(target).__name__}, {output}")
            raise
    assert_same_history(sq.subscribe("rows", store=store).to_arrow(), expected)


def test_what_is_written_is_the_answer(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    @settings(max_examples=1, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(NOT_SIMPLEST.flatmap(lambda _: cases()))
    def law(case: Case) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        check(case, folder, servers_of(request))

    law()
