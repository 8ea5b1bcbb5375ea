"""Views, sections of text and tables, and the screens that show and update them: a cell, a terminal, lines; progress bars."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from numbers import Real
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from streamq import html
from streamq.html import element, ipython_shell, markup_text

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from rich.console import Console, RenderableType
    from rich.live import Live


STYLES = {"title": "bold", "text": "", "warning": "yellow", "error": "bold red"}
"""The kinds of texts, each with its style on a terminal."""

SHORT = 40
"""The greatest number of characters of a cell that stays on one line in a notebook."""


@dataclass(frozen=True)
class TextSection:
    """A text of a kind in STYLES."""

    content: str
    kind: str = "text"

    def html(self) -> str:
        if self.kind == "title":
            return html.heading(self.content)
        label = f"<strong>{self.kind.title()}</strong>" if self.kind != "text" else ""
        return label + html.lines(self.content)

    def rich(self) -> RenderableType:
        from rich.text import Text

        return Text(printable(self.content), style=STYLES[self.kind])

    def text(self) -> str:
        return printable(self.content)


@dataclass(frozen=True)
class TableSection:
    """A table, whose first heading says what its rows are; numbers have separators and stand at the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def html(self) -> str:
        head = element("tr", *(element("th", markup_text(name), scope="col") for name in self.headings))
        body = (element("tr", *(self._cell(value) for value in row)) for row in self.rows)
        return element("table", element("thead", head), element("tbody", "", *body), class_="view")

    def _cell(self, value: Any) -> str:
        text = cell_text(value)
        width = "short" if len(text) <= SHORT else "long"
        return element("td", markup_text(text), class_="number" if is_number(value) else width)

    def rich(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for place, name in enumerate(self.headings):
            aligned = any(is_number(row[place]) for row in self.rows)
            table.add_column(Text(printable(name)), justify="right" if aligned else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(printable(cell_text(value))) for value in row))
        return table

    def text(self) -> str:
        cells = [[printable(cell_text(value)) for value in row] for row in (self.headings, *self.rows)]
        return "\n".join(line.rstrip() for line in html.aligned_lines(cells, left=len(self.headings)))


ViewSection = TextSection | TableSection
"""A part of a view; it renders itself as HTML, as what rich prints, and as plain text."""


@dataclass(frozen=True)
class View:
    """The sections that a screen shows together, and one line that stands for them where nothing can be updated in place."""

    sections: Sequence[ViewSection]
    line: str

    def html(self) -> str:
        """Return the view as one element in streamq's style."""
        return html.fragment(*(section.html() for section in self.sections))

    def rich(self) -> RenderableType:
        """Return the view as what rich prints."""
        from rich.console import Group

        spaced = [part for section in self.sections for part in ("", section.rich())]
        return Group(*spaced[1:])

    def text(self) -> str:
        """Return the view as plain text."""
        return "\n\n".join(section.text() for section in self.sections)


def is_number(value: Any) -> bool:
    """True for a number that is no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def cell_text(value: Any) -> str:
    """Return a value as a cell's text: a number with separators, at most one decimal; None is empty; a long text is cut."""
    if value is None:
        return ""
    if is_number(value):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    text = str(value)
    return text if len(text) <= html.LONGEST else f"{text[: html.LONGEST]}... ({len(text):,} characters)"


def printable(text: str) -> str:
    """Return a text whose characters do not control a terminal; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


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
