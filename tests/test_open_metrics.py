"""The text of OpenMetrics, of rehearsed runs, as Prometheus' own parser reads it, and the dashboard that reads its names."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import streamq as sq
from streamq.choices import RunState
from streamq.errors import PlanError
from streamq.run.commands import main
from streamq.run.rehearsal import Rehearsal
from streamq.run.status.open_metrics import FAMILIES, open_metrics
from streamq.run.status.status_folder import RunRecord, StatusFolder

ROOT = Path(__file__).parents[1]
NOON = dt.datetime(2024, 5, 1, 12)
LATER = dt.datetime(2024, 5, 1, 13, tzinfo=dt.UTC)


@sq.uda("long", on_error="quarantine")
def careful(values: Any) -> int:
    raise ValueError("never")


def over_time() -> Rehearsal:
    """A run over a timestamp axis, with a module that sets calls aside, one late row, and two operators of one title."""
    starts = [NOON + dt.timedelta(minutes=m) for m in (0, 7, 20, 1)]
    rows = [(at, at + dt.timedelta(minutes=1), {"zone": 'a "b"', "v": 1}) for at in starts]
    trips = sq.events(rows, name="trips", progress=sq.generate("5 minutes"))
    odd = trips.group_by("zone").tumbling_window("10 minutes").select(n=sq.count(), v=careful(sq.col("v")))
    run = Rehearsal(odd, clock=lambda: LATER, late_output=True)
    run.arrive(trips=3)
    run.arrive()
    return run


def on_integers() -> Rehearsal:
    cars = sq.events([(1, 4, {"v": 1}), (12, 15, {"v": 2})], name="cars", progress=sq.generate(2))
    run = Rehearsal(cars.tumbling_window(10).select(n=sq.count()), "changelog")
    run.arrive()
    return run


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of each name, by the values of labels other than those of the run, in the order of their names."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(v for name, v in sorted(sample.labels.items()) if name not in ("query", "checkpoint"))
            assert labels not in values.setdefault(sample.name, {}), "a sample is there once"
            values[sample.name][labels] = sample.value
    return values


def test_the_text_has_what_the_metrics_have() -> None:
    run = over_time()
    metrics = {**run.metrics, "query": {**run.metrics["query"], "duration_ms": 250}}
    metrics["stages"] = [{**stage, "time_ms": 1500} for stage in metrics["stages"]]
    values = samples(open_metrics([({"query": "fares"}, metrics)]))
    assert values["streamq_run_state"][("running",)] == 1 and sum(values["streamq_run_state"].values()) == 1
    assert (values["streamq_batches_total"], values["streamq_source_rows_total"]) == ({(): 2}, {("trips",): 4})
    assert values["streamq_batch_duration_seconds"] == {(): 0.25} and values["streamq_stage_batch_seconds"] == {
        ("0",): 1.5,
        ("1",): 1.5,
    }
    assert values["streamq_source_odd_rows_total"] == {
        ("dropped", "trips"): 1, ("adjusted", "trips"): 0, ("invalid", "trips"): 0, ("duplicates", "trips"): 0
    }  # fmt: skip
    assert values["streamq_source_behind_seconds"] == {("trips",): 45 * 60}
    assert values["streamq_source_cti_timestamp_seconds"] == {("trips",): NOON.replace(tzinfo=dt.UTC).timestamp() + 900}
    assert values["streamq_source_lag_seconds"] == {("trips",): 300}
    assert values["streamq_module_failed_calls_total"] == {("careful",): metrics["quarantined"]["careful"]}
    assert metrics["quarantined"]["careful"] > 0
    operators = [
        ((op["operator"], str(stage["stage"])), op) for stage in metrics["stages"] for op in stage["operators"]
    ]
    assert len(operators) == 2
    for name, field, scale in (
        ("state_rows", "state_rows", 1),
        ("state_bytes", "state_bytes", 1),
        ("batch_cpu_seconds", "cpu_ms", 1e-3),
    ):
        assert values[f"streamq_operator_{name}"] == pytest.approx({key: op[field] * scale for key, op in operators})


def test_integers_are_ticks_and_what_is_not_there_is_left_out() -> None:
    values = samples(open_metrics([({}, on_integers().metrics)]))
    assert values["streamq_source_cti_ticks"] == {("cars",): 10} and values["streamq_source_lag_ticks"] == {
        ("cars",): 2
    }
    assert not any("seconds" in name for name in values if name.startswith("streamq_source"))
    before = Rehearsal(sq.events([(1, 4, {"v": 1})], name="cars").tumbling_window(10).select(n=sq.count()))
    assert "streamq_source_cti_ticks" not in samples(open_metrics([({}, before.metrics)]))


def test_operators_of_one_title_are_apart() -> None:
    metrics = on_integers().metrics
    stage = metrics["stages"][0]
    twice = {**metrics, "stages": [{**stage, "operators": stage["operators"] * 2}]}
    title = stage["operators"][0]["operator"]
    labels = {(title, "0"), (f"{title} (2)", "0")}
    assert set(samples(open_metrics([({}, twice)]))["streamq_operator_state_rows"]) == labels


def test_the_command_has_all_runs_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "silent"):
        (tmp_path / name / "streamq" / "identity").mkdir(parents=True)
    for name, run in (("a", over_time()), ("b", on_integers())):
        record = RunRecord(name=name, state=RunState.STOPPED, metrics=run.metrics)
        StatusFolder.from_path(str(tmp_path / name), "test").write(record)
    assert main(["metrics", str(tmp_path), "--format", "openmetrics"]) == 0
    families = {family.name: family for family in text_string_to_metric_families(capsys.readouterr().out)}
    batches = {s.labels["query"]: (s.labels["checkpoint"], s.value) for s in families["streamq_batches"].samples}
    assert batches == {"a": (str(tmp_path / "a"), 2), "b": (str(tmp_path / "b"), 1)}
    assert {s.labels["state"] for s in families["streamq_run_state"].samples if s.value} == {"stopped"}


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PlanError) as raised:
        open_metrics([])
    expected = 'metrics: OpenMetrics needs prometheus-client. Install it: pip install "streamq[metrics]".'
    assert str(raised.value) == expected


def names_and_labels() -> dict[str, set[str]]:
    """The names of all samples, with their labels, as runs of both axes have them; Spark's times are those of a run on it."""
    metrics = over_time().metrics
    metrics["query"]["duration_ms"] = metrics["stages"][0]["time_ms"] = 1
    runs = {"a": metrics, "b": on_integers().metrics}
    text = open_metrics([({"query": "q", "checkpoint": folder}, each) for folder, each in runs.items()])
    return {s.name: set(s.labels) for family in text_string_to_metric_families(text) for s in family.samples}


def test_every_family_has_samples_and_stands_on_the_page() -> None:
    names = names_and_labels()
    assert set(names) == {family.sample for family in FAMILIES}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_dashboard_reads_names_and_labels_that_there_are() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
    names = names_and_labels()
    expressions = [target for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) >= len(board["panels"]) >= 9
    for target in expressions:
        read = re.findall(r"\bstreamq_\w+", target["expr"])
        assert len(read) == 1 and read[0] in names, target
        labels = re.findall(r"by \(([^)]*)\)", target["expr"])[0].split(", ") + re.findall(
            r"[{ ](\w+)=~", target["expr"]
        )
        shown = re.findall(r"{{(\w+)}}", target["legendFormat"])
        assert set(shown) <= set(labels) <= names[read[0]], target
    assert board["templating"]["list"][1]["query"] == "label_values(streamq_run_state, query)"
