"""Screens that show a view and update it: a notebook's cell, a terminal, or a stream of lines; and progress bars on them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from streamq.html import ipython_shell
from streamq.views import BarSection, View, printable

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from rich.console import Console
    from rich.live import Live


NO_RICH = "The lines below follow each other; for a view in place: pip install 'streamq[terminal]'"
"""The line before views on a terminal without rich."""


class Screen(ABC):
    """A place that shows one view after another, each in the place of the last one if possible."""

    @abstractmethod
    def show(self, view: View) -> None:
        """Show a view instead of the last one."""

    @abstractmethod
    def close(self) -> None:
        """Leave the last view where it is."""


class NotebookScreen(Screen):
    """The output of a notebook's cell, in which a view is updated in place."""

    def __init__(self) -> None:
        self._handle: DisplayHandle | None = None

    def show(self, view: View) -> None:
        from IPython.display import display

        data = {"text/plain": view.text(), "text/html": view.html()}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def close(self) -> None:
        """Do nothing: a cell keeps its output."""


class TerminalScreen(Screen):
    """A terminal, whose last lines rich draws again for each view."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def show(self, view: View) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(view.rich(), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            # the last view is drawn as a whole, even if it is higher than the terminal
            self._live.stop()


class LineScreen(Screen):
    """A stream of text, which gets the line of each view that differs from the one before; ``first`` stands before them."""

    def __init__(self, stream: TextIO | None, first: str = "") -> None:
        self._stream = stream
        self._last = ""
        if first:
            print(first, file=stream, flush=True)

    def show(self, view: View) -> None:
        if view.line != self._last:
            print(printable(view.line), file=self._stream, flush=True)
            self._last = view.line

    def close(self) -> None:
        """Do nothing: lines stay where they are."""


def is_terminal(stream: TextIO | None) -> bool:
    """Return True for a terminal that is open; ``stream`` is None in a program without a console."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def live_screen(stream: TextIO | None) -> Screen | None:
    """Return the notebook's cell or the terminal in which this program can update a view; None if there is neither."""
    # only the shell of a kernel displays HTML; that of a terminal does not
    if getattr(ipython_shell(), "kernel", None) is not None:
        return NotebookScreen()
    if not (is_terminal(stream) and find_spec("rich")):
        return None
    from rich.console import Console

    return TerminalScreen(Console(file=stream))


def screen_for_lines(stream: TextIO | None) -> Screen:
    """Return a screen for a view that the user has asked for: a live one if there is one, else a stream of lines."""
    return live_screen(stream) or LineScreen(stream, NO_RICH if is_terminal(stream) else "")


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
