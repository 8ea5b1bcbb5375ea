"""Start Spark's Python workers from a process that has imported what every one of them needs, so that a fork has it at once.

Spark's own daemon imports nothing, and each worker the same libraries: most of the start of a stage. It waits with the imports
because threads do not outlive a fork; here NumPy starts none.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark import daemon

NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "pyspark.sql.connect.conversion",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
)

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in NEEDED:
        importlib.import_module(name)
    # a search for garbage in a worker would copy all of it
    gc.freeze()
    daemon.manager()
