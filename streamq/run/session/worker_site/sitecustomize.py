"""Silence the process that describes a stage's state to Spark; every Python that an embedded Spark starts imports this module.

PySpark prints five lines for each stage in that process, which no setting suppresses. Errors are sent to Spark or to standard
error, which are not touched. Afterwards the interpreter's own sitecustomize is imported, if there is one.
"""

import importlib
import os
import sys

if "pyspark.sql.streaming.transform_with_state_driver_worker" in sys.orig_argv:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)

sys.path.remove(os.path.dirname(__file__))
del sys.modules["sitecustomize"]
importlib.import_module("sitecustomize")
