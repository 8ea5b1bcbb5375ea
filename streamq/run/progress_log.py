"""A listener to Spark's reports that makes a run log a line for each micro-batch."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER = logging.getLogger("streamq")


class ProgressLog:
    """Calls ``look`` whenever Spark reports on any query of the session; ``look`` reads the reports and logs the lines.

    Lines go to the logger "streamq". If the application has not set up logging, that logger writes to standard error.
    """

    def __init__(self, spark: SparkSession, look: Callable[[], Any]):
        from pyspark.sql.streaming.listener import StreamingQueryListener

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:
                pass

            def onQueryProgress(self, event: Any) -> None:
                look()

            def onQueryTerminated(self, event: Any) -> None:
                pass

        if not LOGGER.hasHandlers():
            LOGGER.addHandler(logging.StreamHandler())
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)
        self._streams, self._listener = spark.streams, Listener()
        self._streams.addListener(self._listener)
        # Spark would still call it when Python is gone, at the end of a program that does not stop its run
        atexit.register(self.close)

    def close(self) -> None:
        """Stop calling ``look``."""
        atexit.unregister(self.close)
        self._streams.removeListener(self._listener)
