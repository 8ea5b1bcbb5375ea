"""``python -m benchmarks [NAME]``: run every benchmark, or one by its name in ``MODULES``; ``make bench`` runs all."""

from __future__ import annotations

import subprocess
import sys
import time

MODULES = {
    "batch": "benchmarks.batch_hopping",
    "batch_forms": "benchmarks.batch_forms",
    "datacell": "benchmarks.datacell",
    "datacell_on_spark": "benchmarks.datacell_on_spark",
    "chunks": "benchmarks.chunks",
    "mixed_aggregates": "benchmarks.mixed_aggregates",
    "numbered_windows": "benchmarks.numbered_windows",
    "window_sizes": "benchmarks.window_sizes",
    "other_engines": "benchmarks.other_engines",
    "streaming": "benchmarks.streaming_hopping",
    "intervals": "benchmarks.intervals",
    "nexmark": "benchmarks.nexmark",
    "nexmark_stream": "benchmarks.nexmark_stream",
    "modules": "benchmarks.modules",
    "first_events": "benchmarks.first_events",
    "join_order": "benchmarks.join_order",
    "patterns": "benchmarks.patterns",
    "streaming_patterns": "benchmarks.streaming_patterns",
    "arrival": "benchmarks.arrival",
    "fixed_costs": "benchmarks.fixed_costs",
    "session_ids": "benchmarks.session_ids",
    "many_results": "benchmarks.many_results",
    "partitions": "benchmarks.partitions",
    "scaling": "benchmarks.scaling",
    "levels": "benchmarks.levels",
    "plots": "benchmarks.plots",
    "cost_by_change": "benchmarks.cost_by_change",
    "kafka_topic": "benchmarks.kafka_topic",
    "file_streams": "benchmarks.file_streams",
    "importing": "benchmarks.importing",
}

if __name__ == "__main__":
    chosen = sys.argv[1:2] if sys.argv[1:2] and sys.argv[1] in MODULES else list(MODULES)
    rest = sys.argv[2:] if len(chosen) == 1 else sys.argv[1:]
    codes, minutes = [], {}
    for name in chosen:
        began = time.monotonic()
        # a process each, so that none starts with the memory and warm-up of another's session
        codes.append(subprocess.run([sys.executable, "-m", MODULES[name], *rest], check=False).returncode)
        minutes[name] = (time.monotonic() - began) / 60
    if len(chosen) > 1:
        print("minutes:", ", ".join(f"{name} {spent:.1f}" for name, spent in minutes.items()))
        print(f"all together: {sum(minutes.values()):.0f} minutes")
    sys.exit(max(codes))
