"""Screens that show a view and update it: a notebook's cell, a terminal, or a stream of lines; and progress bars."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

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


def is_notebook() -> bool:
    """Return True in a notebook: only the shell of a kernel displays HTML, that of a terminal does not."""
    return getattr(ipython_shell(), "kernel", None) is not None


def live_screen(stream: TextIO | None) -> Screen | None:
    """Return the notebook's cell or the terminal in which this program can update a view; None if there is neither."""
    if is_notebook():
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

BAR, COUNT = "{desc}: {percentage:.0f}%|{bar:20}|{postfix}  {elapsed}", "{desc}{postfix}  {elapsed}"
"""The forms of a bar, and of work of which nobody knows how much there is."""


class ProgressBar:
    """A bar on standard error, drawn by tqdm: the share of the work that is done, and a note; a context manager.

    It is drawn in a notebook or a terminal, if the work takes long enough. Work that ends without an error is shown as done.
    """

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        from tqdm import tqdm

        file = stream or sys.stderr
        self.is_live = is_notebook() or is_terminal(file)
        is_off = not self.is_live
        self._bar = tqdm(desc=label, file=file, delay=AFTER, miniters=0, disable=is_off, bar_format=COUNT)

    def update(self, done: float, total: float | None, note: str = "") -> None:
        """Show that ``done`` of ``total`` is done (None: nobody knows of how much), with a note behind the bar."""
        if self.is_live:
            self._bar.total, self._bar.bar_format = total, COUNT if total is None else BAR
            self._bar.set_postfix_str(printable(note), refresh=False)
            self._bar.update((done if total is None else min(done, total)) - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._bar.total is not None:
            # a loop shows the work before each step
            self._bar.n = self._bar.total
        self._bar.close()
