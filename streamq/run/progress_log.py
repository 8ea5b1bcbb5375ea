"""A listener of Spark's that makes a run look for new micro-batches, of which the run then logs a line each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER = logging.getLogger("streamq")


class ProgressLog:
    """Calls ``look`` whenever Spark reports on any query of the session; ``look`` reads the reports and logs the lines.

    Lines go to the logger "streamq". Where the application has not set up logging, that logger writes to the standard error.
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

    def close(self) -> None:
        """Call ``look`` no more."""
        self._streams.removeListener(self._listener)
