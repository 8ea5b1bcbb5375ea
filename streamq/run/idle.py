"""CTIs for silent sources: after ``idle_after`` by the wall clock a source's progress follows that of the others.

What no source says needs a way into the checkpoint: such CTIs go through the control folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from streamq.run.control import OutsideCti
from streamq.run.progress_log import LOGGER
from streamq.run.source_status import SourceStatus
from streamq.time import INFINITY, MINUS_INFINITY

CHECKS = 4
"""How often a silence is looked at, in the time that a source may be silent."""


def ctis_for_silent(
    sources: Mapping[str, SourceStatus],
    allowed: Mapping[str, int],
    since: int,
    now: int,
    followers: Collection[str] = (),
) -> dict[str, int]:
    """Return the CTIs that silent sources get, by relation.

    ``allowed`` is how long each source may be silent, in microseconds; ``since`` is when the run began, before which nobody
    listened; ``since`` and ``now`` are in milliseconds since 1970. A silent source gets the least CTI of those that are not.
    Where all are silent nothing more is waited for: each gets the greatest start of all, or what a policy makes of that.
    ``followers`` have the progress of another source: they neither speak nor are silent.
    """
    leaders = {relation: source for relation, source in sources.items() if relation not in followers}
    silent = silent_sources(leaders, allowed, since, now)
    ctis = [source.cti for relation, source in leaders.items() if relation not in silent]
    starts = [s.progress.cti_at_rest(s.watermark) for s in leaders.values() if s.watermark != MINUS_INFINITY]
    cti = min(ctis) if ctis else max(starts, default=MINUS_INFINITY)
    if cti in (INFINITY, MINUS_INFINITY):
        return {}
    return {relation: cti for relation in sorted(silent) if cti > sources[relation].cti}


def silent_sources(sources: Mapping[str, SourceStatus], allowed: Mapping[str, int], since: int, now: int) -> set[str]:
    """Return those of some sources, by relation, that have been silent for as long as they may be, or longer."""
    return {
        relation
        for relation, silence in allowed.items()
        if relation in sources and (now - max(sources[relation].heard_at or since, since)) * 1_000 >= silence
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
