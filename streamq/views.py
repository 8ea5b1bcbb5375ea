"""Views that a screen updates in place: sections of text and tables, as HTML, for rich, and as plain text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from streamq import html
from streamq.html import element, markup_text

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {"title": "bold", "text": "", "warning": "yellow", "error": "bold red"}
"""The kinds of texts, each with its style on a terminal."""

SHORT = 40
"""The greatest number of characters of a cell that stays on one line in a notebook."""


class ViewSection(ABC):
    """A part of a view; it renders itself for each kind of screen."""

    @abstractmethod
    def html(self) -> str:
        """Return the section as HTML, with all its texts escaped."""

    @abstractmethod
    def rich(self) -> RenderableType:
        """Return the section as what rich prints."""

    @abstractmethod
    def text(self) -> str:
        """Return the section as plain text of one or more lines."""


@dataclass(frozen=True)
class TextSection(ViewSection):
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
class TableSection(ViewSection):
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
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rows = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
        return "\n".join(row.rstrip() for row in rows)


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
