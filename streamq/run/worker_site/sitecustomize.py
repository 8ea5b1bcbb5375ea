"""Read by each Python that an embedded Spark starts: the process that asks a stage what state it has prints nothing.

PySpark has that process print five lines a stage, of no use to anybody, and no setting for them. What goes wrong in it is sent
to Spark, or stands on its standard error, which stay as they are. Then the sitecustomize of this Python has its turn, if any.
"""

import importlib
import os
import sys

if "pyspark.sql.streaming.transform_with_state_driver_worker" in sys.orig_argv:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)

sys.path.remove(os.path.dirname(__file__))
del sys.modules["sitecustomize"]
importlib.import_module("sitecustomize")
