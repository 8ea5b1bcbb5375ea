"""Silent sources: after a while by the wall clock their progress follows the others', and then, if none speaks, the data.

DESIGN D3: what no source says needs a way in; it is said through the control stream, so that it is in the checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from streamq.run.control import OutsideCti
from streamq.run.monitoring import SourceReading
from streamq.run.progress_log import LOGGER
from streamq.time import INFINITY, MINUS_INFINITY

CHECKS = 4
"""How often a silence is looked at, in the time that a source may be silent."""


def spoken_for(
    readings: Mapping[str, SourceReading],
    allowed: Mapping[str, int],
    since: int,
    now: int,
    followers: Collection[str] = (),
) -> dict[str, int]:
    """The CTIs that silent sources are given, by relation.

    ``allowed``: microseconds of silence; ``since``: when the run began, before which nobody was listening; ``since`` and
    ``now`` in milliseconds since 1970. A silent source has the least CTI of those that are not. Where all are silent nothing
    more is waited for: each has the greatest start of all. ``followers`` have the progress of another: they neither speak
    nor are silent.
    """
    own = {name: r for name, r in readings.items() if name not in followers}
    silent = silent_ones(own, allowed, since, now)
    speaking = [r.c for name, r in own.items() if name not in silent]
    starts = [r.w for r in own.values() if r.w != MINUS_INFINITY]
    to = min(speaking) if speaking else max(starts, default=MINUS_INFINITY)
    if to in (INFINITY, MINUS_INFINITY):
        return {}
    return {name: to for name in sorted(silent) if to > readings[name].c}


def silent_ones(readings: Mapping[str, SourceReading], allowed: Mapping[str, int], since: int, now: int) -> set[str]:
    """The sources, of those that make progress of their own, that have been silent for as long as they may, or longer."""
    return {
        name
        for name, most in allowed.items()
        if name in readings and (now - max(readings[name].heard or since, since)) * 1_000 >= most
    }


class IdleWatch:
    """Looks at a run from time to time, in a thread of its own, and sends CTIs for its silent sources.

    ``look`` returns those CTIs by their sources' tables, and None once the run is over.
    """

    def __init__(
        self,
        allowed: Mapping[str, int],
        look: Callable[[], Mapping[str, int] | None],
        send: Callable[[OutsideCti], None],
    ):
        self._look, self._send = look, send
        self._sent: dict[str, int] = {}
        self._over = threading.Event()
        self._every = min(allowed.values()) / 1e6 / CHECKS
        self._thread = threading.Thread(target=self._run, name="streamq idle sources", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                ctis = self._look()
                if ctis is None:
                    return
                for table, cti in ctis.items():
                    if self._sent.get(table, MINUS_INFINITY) < cti:
                        self._send(OutsideCti(table, cti))
                        self._sent[table] = cti
            except Exception:
                # nobody waits for this thread; where the run itself has stopped meanwhile there is nothing to tell
                if not self._over.is_set():
                    LOGGER.exception("idle sources are no longer spoken for")
                return
