"""Screens: places that show a view and update it, such as a notebook's cell, a terminal, or a stream of lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

from streamq.html import ipython_shell
from streamq.views import View, printable

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


__all__ = ["LineScreen", "NotebookScreen", "Screen", "TerminalScreen", "live_screen", "screen_for_lines"]
