"""Tests that take turns: a whole run tries every second, third or n-th of their cases, and the next commit's run others.

The turn is the number of commits, so that a run of a commit is repeated exactly, and every case runs once in a few commits. A run
that names a file or a test tries all of its cases; so does a soak, and any run with ``STREAMQ_TURN=all``. With the number that
the header of a run shows, ``STREAMQ_TURN=n`` tries what that run tried.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parent

EVERY: Mapping[str, int] = {
    # laws over tables of queries, each case a query
    "compiler/test_consumers.py": 3,
    "compiler/test_results.py": 3,
    "compiler/test_rewriter.py": 2,
    "compiler/test_shared_windows.py::test_windows_share_what_they_have_in_common": 2,
    "connectors/test_memory.py": 5,
    "laws/test_changed_outputs.py": 3,
    "laws/test_connectors.py::test_rows_of_a_connector_are_the_rows": 5,
    "laws/test_cost.py": 6,
    "laws/test_cost_of_corrections.py": 4,
    "laws/test_cost_of_sources.py": 3,
    "laws/test_float_sums.py": 3,
    "laws/test_growth.py": 3,
    "laws/test_items_of_one_instant.py": 2,
    "laws/test_latest_rows.py::test_a_table_of_latest_rows_is_what_holds": 6,
    "laws/test_late_items.py::test_late_items_break_no_cti_and_no_cut_tells": 2,
    "laws/test_liveliness.py": 8,
    "laws/test_messages.py": 4,
    "laws/test_operators.py::test_composition": 2,
    "laws/test_operators.py::test_operator": 4,
    "laws/test_other_levels.py": 4,
    "laws/test_patterns.py": 4,
    "laws/test_scale.py": 2,
    "laws/test_shortest_cases.py": 3,
    "laws/test_sinks.py": 5,
    "laws/test_what_fails.py": 4,
    "laws/test_window_modules.py": 4,
    "operators/test_calendar_window.py": 3,
    "operators/test_group_apply.py": 3,
    "patterns/test_answers.py::test_answer": 3,
    "patterns/test_ids.py::test_ids_and_contributors_are_those_of_the_rules": 3,
    "pictures/test_drawing.py::test_what_stands_is_the_history_and_what_replaces_is_like_what_it_replaced": 4,
    "runtime/kernels/test_condensing.py::test_settled_events_are_one_row_a_value_where_values_are_read": 3,
    "runtime/kernels/test_condensing.py::test_settled_events_of_a_window_are_one_row_of_state": 4,
    "runtime/kernels/test_histories.py": 2,
    "runtime/kernels/test_physical.py::test_the_events_that_are_left": 3,
    "runtime/kernels/test_rows_windows.py::test_a_step_is_a_row_of_states_one_for_each_value_or_its_best_events": 3,
    "runtime/kernels/test_windows.py": 3,
    "runtime/state/test_bins.py::test_bins_have_the_events_of_a_plain_list": 6,
    "runtime/state/test_window_bins.py": 3,
    "runtime/test_consistency.py": 2,
    "runtime/test_endpoints.py": 3,
    "runtime/test_equal_values.py": 3,
    "test_changed_query.py": 3,
    "test_host_cases.py::test_a_stream": 3,
    "test_host_cases.py::test_all_rows_at_once": 3,
    "test_releases.py": 3,
    "testing/test_generate.py": 2,
    "testing/test_modules.py": 2,
    "testing/test_scenario.py": 2,
    # laws of one case, of ten seconds or more
    "compiler/test_estimates.py::test_rows_and_state_are_at_most_those_that_are_estimated": 2,
    "compiler/test_estimates.py::test_state_is_at_most_what_is_expected_of_it": 2,
    "compiler/rules/test_rules.py::test_filters_over_an_operator_give_the_same_with_and_without_the_laws": 2,
    "laws/test_names.py::test_every_name": 2,
    "laws/test_names.py::test_every_query": 3,
    "laws/test_types.py::test_every_type_in_every_verb": 3,
    "mutation/test_faults.py": 6,
    "testing/test_plugin.py::test_a_failing_case_is_saved_and_can_be_run_again": 2,
    "testing/test_oracle.py::test_an_answer_that_does_not_fit_into_memory_is_no_answer": 4,
    "testing/test_side_by_side.py": 3,
    # on Spark, what in-process tests hold, too; each file keeps a share in every run
    "spark/test_algebra.py::test_a_form_of_its_own": 6,
    # the host is the same for all operators, and in-process all are tried
    "spark/test_algebra.py::test_the_host": 12,
    "spark/test_batch.py": 2,
    "spark/test_changed_query.py": 3,
    "spark/test_changed_results.py": 2,
    "spark/test_clock.py": 4,
    "spark/test_cluster.py": 3,
    "spark/test_coming_from.py": 2,
    "spark/test_connectors.py": 5,
    "spark/test_egress.py": 4,
    "spark/test_elsewhere.py": 3,
    "spark/test_finish.py": 2,
    "spark/test_full_disk.py": 3,
    "spark/test_hosts.py": 3,
    "spark/test_kafka.py": 3,
    "spark/test_kafka_rights.py": 2,
    "spark/test_killed_composition.py": 3,
    "spark/test_late_rows.py": 3,
    "spark/test_merging.py": 4,
    "spark/test_monitoring.py": 2,
    "spark/test_notebooks.py": 6,
    "spark/test_partition_progress.py": 2,
    "spark/test_patterns.py": 3,
    "spark/test_plans.py": 12,
    "spark/test_quarantine.py": 2,
    "spark/test_stored_files.py": 2,
    "spark/test_run_all.py": 3,
    "spark/test_session.py": 2,
    "spark/test_sinks.py": 4,
    "spark/test_sources.py": 2,
    "spark/test_starts.py": 3,
    "spark/test_stamped.py": 2,
    "spark/test_streaming.py": 4,
    "spark/test_tables.py": 2,
    "spark/test_tap.py": 2,
    "spark/test_verify.py": 3,
    "spark/test_window_modules.py": 2,
}
"""The number of turns that the cases of a file, or of a test, take: of those that take longest in a run."""


def turn_of(environ: Mapping[str, str], arguments: Sequence[str]) -> int | None:
    """Return the turn of a run with these arguments; None if it tries all cases."""
    chosen = environ.get("STREAMQ_TURN", "all" if environ.get("STREAMQ_SOAK") else "")
    if chosen == "all" or any(argument.partition("::")[0].endswith(".py") for argument in arguments):
        return None
    return int(chosen) if chosen else _commits()


def _commits() -> int:
    """Return the number of commits; of a clone without its history a number that is another for each commit, 0 without Git."""
    try:
        if _asked("rev-parse", "--is-shallow-repository") == "true":
            return int(_asked("rev-parse", "HEAD")[:8], 16)
        return int(_asked("rev-list", "--count", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return 0


def _asked(*question: str) -> str:
    """Return the answer of Git to a question."""
    done = subprocess.run(["git", *question], cwd=ROOT, capture_output=True, check=True, text=True)
    return done.stdout.strip()


def in_turn(items: Iterable[pytest.Item], turn: int, every: Mapping[str, int] = EVERY) -> list[pytest.Item]:
    """Return the tests whose turn it is: every n-th of a group's, and a group's only test in every n-th turn."""
    places: dict[str, int] = defaultdict(int)
    chosen = []
    for item in items:
        file = item.path.relative_to(ROOT).as_posix()
        test = f"{file}::{item.name.partition('[')[0]}"
        group = test if test in every else file
        turns = every.get(group, 1)
        if (crc32(group.encode()) + places[group] + turn) % turns == 0:
            chosen.append(item)
        places[group] += 1
    return chosen
