"""A progress bar for work that takes more than two seconds: in a notebook or on a terminal; elsewhere nothing is shown.

It is drawn by rich, as ``run.watch()`` is; in a notebook it is HTML, which needs no widgets.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from streamq.screens import Screen, live_screen
from streamq.views import BarSection, View

AFTER = 2.0
"""The seconds before a bar is drawn for the first time."""

GONE = OSError, ValueError
"""The errors of writing to a terminal that is gone, and to a stream that is closed."""

EVERY = 0.1
"""The least number of seconds between two drawings."""

_OPEN = threading.Lock()
"""Held by the bar that is open; another one that is opened meanwhile, by work that is part of the first one's, stays silent."""


def error_screen() -> Screen | None:
    """Return the notebook's cell, or the terminal of standard error; None if there is neither."""
    return live_screen(sys.stderr)


class ProgressBar:
    """A bar with a label, the share of the work that is done, and a note; a context manager, which closes it.

    Work that ends without an error is shown as done. ``screen`` returns the place where it is drawn; it is called when the bar is
    opened. ``clock`` is in seconds.
    """

    def __init__(
        self,
        label: str,
        screen: Callable[[], Screen | None] = error_screen,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._choose_screen, self._clock = label, screen, clock
        self._screen: Screen | None = None
        self._begun_at, self._drawn_at = 0.0, 0.0
        self._drawn: BarSection | None = None
        self._last: BarSection | None = None

    @property
    def is_live(self) -> bool:
        """True if the bar is drawn once the work takes long enough."""
        return self._screen is not None

    def update(self, done: float, total: float | None, note: str = "") -> None:
        """Show that ``done`` of ``total`` is done (None: nobody knows of how much), with a note behind the bar."""
        if self._screen is None:
            return
        now = self._clock()
        seconds = now - self._begun_at
        share = done if total is None else min(done, total)
        self._last = BarSection(self._label, share, total, "  ".join(filter(None, (note, f"{seconds:.0f} s"))))
        if seconds >= AFTER and now - self._drawn_at >= EVERY:
            self._drawn_at = now
            self._draw(self._last)

    def _draw(self, bar: BarSection) -> None:
        assert self._screen is not None
        self._drawn = bar
        view = View([bar], bar.text())
        try:
            self._screen.show(view)
        except GONE:
            # the work goes on without a bar
            self._close()

    def _close(self) -> None:
        assert self._screen is not None
        try:
            # a terminal that is gone is closed, too: rich has put itself in the place of sys.stdout
            with contextlib.suppress(*GONE):
                self._screen.close()
        finally:
            self._screen = None
            _OPEN.release()

    def __enter__(self) -> Self:
        if _OPEN.acquire(blocking=False):
            try:
                self._begun_at = self._clock()
                self._screen = self._choose_screen()
            finally:
                if self._screen is None:
                    _OPEN.release()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen is None:
            return
        try:
            if self._drawn is not None and self._last is not None:
                # work that ends without an error is done, whatever the last look at it was
                total = None if error is not None else self._last.total
                last = self._last if total is None else replace(self._last, done=total)
                if last != self._drawn:
                    self._draw(last)
        finally:
            if self._screen is not None:
                self._close()


__all__ = ["ProgressBar"]
