"""A line a micro-batch in the log of Python, as Spark's listener hears of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER = logging.getLogger("streamq")


class ProgressLog:
    """Has ``look`` called whenever Spark reports on some query, and logs what it is told to.

    The logger "streamq" is what the application makes of it; where nobody has set up logging, lines go to the standard error.
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

    def say(self, line: str) -> None:
        """Log a line."""
        LOGGER.info(line)

    def remove(self) -> None:
        """Hear of nothing any more."""
        self._streams.removeListener(self._listener)
