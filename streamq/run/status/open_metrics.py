"""The metrics of runs as OpenMetrics, the text that Prometheus reads: families, named with their units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamq.choices import CountReason, RunState
from streamq.errors import PlanError

Labels = Mapping[str, str]
"""The values of labels, by name."""

Fields = Mapping[str, Any]
"""What ``run.metrics`` has of a query, a source, a stage or an operator."""

Part = Callable[[Fields], Iterator[tuple[Labels, Fields]]]
"""A function of ``run.metrics`` that yields the things of one kind in it, with their labels."""


def query_part(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield the query itself."""
    yield {}, metrics["query"]


def state_parts(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield each state that a run can have, and whether this one has it."""
    for state in RunState:
        yield {"state": state}, {"is_state": int(state == metrics["state"])}


def source_parts(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield each source; its instants and spans in seconds where it has time, else in ticks."""
    for name, source in metrics["sources"].items():
        ticks, lag = source["cti"], source["lag"]
        has_time = source["cti_at"] is not None
        units = {"cti_s": ticks / 1e6, "lag_s": None if lag is None else lag / 1e6} if has_time else {}
        yield {"source": name}, {**source, **(units or {"cti_ticks": ticks, "lag_ticks": lag})}


def odd_row_parts(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield the reasons for which rows of each source were not used as they came."""
    for name, source in metrics["sources"].items():
        for reason in CountReason:
            if reason in source:
                yield {"source": name, "reason": reason}, {"rows": source[reason]}


def module_parts(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield each module that sets failed calls aside."""
    for name, calls in metrics["quarantined"].items():
        yield {"module": name}, {"calls": calls}


def stage_parts(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield each stage."""
    for stage in metrics["stages"]:
        yield {"stage": str(stage["stage"])}, stage


def operator_parts(metrics: Fields) -> Iterator[tuple[Labels, Fields]]:
    """Yield each operator with state; of equal ones in a stage the second is "... (2)"."""
    for labels, stage in stage_parts(metrics):
        seen: Counter[str] = Counter()
        for operator in stage["operators"]:
            title = operator["operator"]
            seen[title] += 1
            yield {**labels, "operator": f"{title} ({seen[title]})" if seen[title] > 1 else title}, operator


@dataclass(frozen=True)
class Family:
    """A family of metrics: its name without the unit, what it counts, of which things, and their field, in units of ``scale``.

    ``is_total``: it only grows, over the runs on a checkpoint or, where ``help`` says so, in a run.
    """

    name: str
    help: str
    part: Part
    field: str
    unit: str = ""
    is_total: bool = False
    scale: float = 1

    @property
    def sample(self) -> str:
        """The name of its samples, with the unit."""
        return "_".join(filter(None, ["streamq", self.name, self.unit, "total" * self.is_total]))


FAMILIES = (
    Family("run_state", "1 for the state of the run, 0 for others", state_parts, "is_state"),
    Family("batches", "Micro-batches so far", query_part, "batches", is_total=True),
    Family("batch_duration", "Duration of the last micro-batch", query_part, "duration_ms", "seconds", scale=1e-3),
    Family("inserted_rows", "Rows inserted into the results, in this run", query_part, "inserted", is_total=True),
    Family("retracted_rows", "Rows taken back from the results, in this run", query_part, "retracted", is_total=True),
    Family(
        "unseen_batches",
        "Micro-batches missing from the counts of this run",
        query_part,
        "batches_unseen",
        is_total=True,
    ),
    Family("source_rows", "Rows read", source_parts, "rows", is_total=True),
    Family("source_odd_rows", "Rows not used as they came", odd_row_parts, "rows", is_total=True),
    Family("source_behind", "Time of day less the CTI", source_parts, "behind_seconds", "seconds"),
    Family("source_cti_timestamp", "The CTI, since 1970", source_parts, "cti_s", "seconds"),
    Family("source_lag", "From the CTI to the greatest start", source_parts, "lag_s", "seconds"),
    Family("source_cti", "The CTI, without a unit of time", source_parts, "cti_ticks", "ticks"),
    Family(
        "source_lag", "From the CTI to the greatest start, without a unit of time", source_parts, "lag_ticks", "ticks"
    ),
    Family("module_failed_calls", "Calls of a module that were set aside", module_parts, "calls", is_total=True),
    Family(
        "stage_batch",
        "Time of the tasks of a stage in the last micro-batch",
        stage_parts,
        "time_ms",
        "seconds",
        scale=1e-3,
    ),
    Family("operator_inserted_rows", "Rows inserted by an operator", operator_parts, "inserted", is_total=True),
    Family("operator_retracted_rows", "Rows taken back by an operator", operator_parts, "retracted", is_total=True),
    Family(
        "operator_batch_cpu", "Processor time in the last micro-batch", operator_parts, "cpu_ms", "seconds", scale=1e-3
    ),
    Family("operator_held_rows", "Rows held for the level of consistency alone", operator_parts, "held_rows"),
    Family("operator_state_rows", "Rows of its state", operator_parts, "state_rows"),
    Family("operator_state", "Bytes of its state", operator_parts, "state_bytes", "bytes"),
)
"""All families, in the order of the text; their names begin with "streamq_"."""


def open_metrics(runs: Iterable[tuple[Labels, Fields]], verb: str = "metrics") -> str:
    """Return the metrics of runs as the text of OpenMetrics; each run has labels of its own, and ``run.metrics``.

    A value that is not there yet, as a CTI before the first row, is left out. Raises PlanError without prometheus-client.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.openmetrics.exposition import generate_latest
    except ImportError as error:
        hint = 'Install it: pip install "streamq[metrics]".'
        raise PlanError(verb, "OpenMetrics needs prometheus-client", "", hint) from error

    runs = list(runs)

    class Runs(CollectorRegistry):
        def collect(self) -> Iterator[Any]:
            for family in FAMILIES:
                kind = CounterMetricFamily if family.is_total else GaugeMetricFamily
                one = kind(f"streamq_{family.name}", family.help, labels=(), unit=family.unit)
                for of_run, metrics in runs:
                    for labels, fields in family.part(metrics):
                        value = fields.get(family.field)
                        if value is not None:
                            one.add_sample(family.sample, {**of_run, **labels}, value * family.scale)
                if one.samples:
                    yield one

    return str(generate_latest(Runs()).decode())
