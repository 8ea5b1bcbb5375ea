"""Every connector on Spark: a batch and a stream have the answer of the same rows in a table, and the rows are read again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import streamq as sq
from streamq.choices import OutputForm
from streamq.connectors.messages import row_schema
from streamq.connectors.outside_table import OutsideTable
from streamq.errors import QueryFailed, SessionError
from streamq.testing.case import Case
from streamq.testing.execution import SPARK, Execution
from streamq.testing.history import assert_same_history, from_changelog, history, net
from streamq.testing.trial import Answers
from streamq.testing.verify import NOT_SIMPLEST
from tests.laws.test_connectors import cases, over, streamed
from tests.places import PLACES, Place, TopicPlace
from tests.spark.replay import bag

pytestmark = pytest.mark.usefixtures("plain")


def rich(kind: type[Place]) -> st.SearchStrategy[Case]:
    """A case of two micro-batches, the most varied of several."""
    drawn = st.lists(cases(kind), min_size=5, max_size=5).map(lambda some: max(some, key=Case.variety))
    return NOT_SIMPLEST.flatmap(lambda _: drawn).map(lambda case: case.coarser(2))


def check(spark: SparkSession, case: Case, output: OutputForm, kind: type[Place], folder: Path, broker: Any) -> None:
    """A batch; a stream that is sampled and migrated after its first micro-batch, and goes on to its end."""
    how = Execution(SPARK, output, buckets=2, restart=True)
    try:
        expected, whole = Answers(case).answer(how), case.answer()
        literal, counts = streamed(case.plan, case, how, case.batches)
    except QueryFailed:
        assume(False)
    assume(expected.num_rows and len(case.cut) == 2)
    assert_same_history(literal, expected)
    places = {name: kind(folder / name, source, broker) for name, source in case.sources.items()}
    for name, place in places.items():
        place.folder.mkdir()
        place.put(case.batches[0][name])
    sinks, checkpoints = [str(folder / f"out {n}") for n in "ab"], [str(folder / f"checkpoint {n}") for n in "ab"]

    def query() -> sq.Stream:
        return over(case, {name: place.stream for name, place in places.items()})

    def run(n: int, **more: Any) -> sq.Run:
        return query().run(sink=sinks[n], checkpoint=checkpoints[n], output=output, **more)

    is_stream = kind.kind is not OutsideTable
    if is_stream:
        first = run(0, trigger="available_now", buckets=2)
        check_sample(first, case, places)
        done = sq.migrate(query(), checkpoints[0], to=checkpoints[1], output=output, buckets=3)
        assert done.begins == ()
    else:
        with pytest.raises(SessionError, match="Spark has no format 'delta'"):
            run(0)
    for name, place in places.items():
        place.put(case.batches[1][name])
    assert_same_history(query().to_df(case.instant).toArrow(), whole)
    if is_stream:
        with run(1, buckets=3) as last:
            last.finish(case.instant)
        assert_same_history(written(spark, sinks, output, case), expected)
        assert +(Counter(first.late) + Counter(last.late)) == counts


def check_sample(run: sq.Run, case: Case, places: dict[str, Place]) -> None:
    """The newest rows of a run are those that were put there."""
    (sample,) = run.sample(last=1_000, seconds=60) or [{}]
    for name, place in places.items():
        schema = row_schema(place.source.columns)
        put, found = case.batches[0][name], sample.get(name)
        assert bag(put.cast(schema)) == (bag(found.select(schema.names).cast(schema)) if found is not None else [])


def written(spark: SparkSession, sinks: list[str], output: OutputForm, case: Case) -> pa.Table:
    """The history that both runs have written."""
    out = pa.concat_tables(
        spark.read.parquet(sink).drop("streamq_batch").toArrow() for sink in sinks if Path(sink).exists()
    )
    return history(out) if output == OutputForm.FINAL else net([from_changelog(out)], case.axis)


@pytest.mark.parametrize("name", PLACES)
def test_rows_of_a_connector_are_the_rows(
    spark: SparkSession, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    kind = PLACES[name]
    broker = request.getfixturevalue("kafka") if issubclass(kind, TopicPlace) else None
    outputs = st.sampled_from([OutputForm.FINAL, OutputForm.CHANGELOG])

    @settings(max_examples=1, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(rich(kind), outputs)
    def law(case: Case, output: OutputForm) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        check(spark, case, output, kind, folder, broker)

    law()
