"""A panel of a picture: a title, what is drawn of its events, and CTIs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamq.markup import element, markup_text, shortened_to_width, text_width
from streamq.pictures.bars import LABEL_SIZE
from streamq.pictures.palette import colour_class
from streamq.pictures.panel_history import PanelHistory
from streamq.pictures.time_axis import TimeAxis

TITLE_HEIGHT = 24.0
CTI_HEIGHT = 14.0
KEY_GAP = 4.0
MARGIN = 28.0
"""The room at the right of the axis, for arrows and labels."""
MOST_CTIS = 40
"""The most CTIs of a panel that are drawn; of more the last ones."""


@dataclass(frozen=True)
class KeyColours:
    """The number of each key's colour, by the key's text; equal keys of several panels share one."""

    numbers: Mapping[str, int]

    def class_of(self, key: str) -> str:
        """Return the class of the elements of a key."""
        return colour_class(self.numbers[key])


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """A panel of events on an axis; ``keys`` are the keys as text. Kinds of panels differ in what is drawn of the events."""

    history: PanelHistory
    axis: TimeAxis
    keys: list[str]

    @property
    @abstractmethod
    def events_height(self) -> float:
        """The height of what is drawn of the events."""

    @abstractmethod
    def draw_events(self, colours: KeyColours) -> Iterator[str]:
        """Yield the elements of the events and of the CTIs, from back to front."""

    @abstractmethod
    def sentences(self, noun: str) -> Iterator[str]:
        """Yield what there is to say of how the events are drawn; ``noun`` is what they are called."""

    @abstractmethod
    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table of all that is drawn."""

    @property
    def top(self) -> float:
        """The distance of the first lane from the top of the panel."""
        return TITLE_HEIGHT + (CTI_HEIGHT if self.history.ctis else 0.0)

    @property
    def height(self) -> float:
        """The height of the panel."""
        return self.top + self.events_height

    def draw(self, colours: KeyColours) -> str:
        """Return the panel as markup, from its own top on."""
        title = shortened_to_width(self.history.title, 13, self.axis.right / 2)
        legend = element("tspan", markup_text(self.history.legend), dx=8, class_="faint legend")
        parts = [element("text", markup_text(title), legend if self.history.count else "", x=8, y=16, class_="title")]
        parts += self.draw_events(colours)
        if not self.history.count:
            nothing = "no windows" if self.history.is_windows else "no events"
            parts.append(element("text", markup_text(nothing), x=self.axis.left + 4, y=self.top + 14, class_="faint"))
        return "".join(parts)

    def draw_ctis(self) -> Iterator[str]:
        """Yield the lines of the last CTIs, each with its instant above where there is room."""
        room = 0.0
        for cti in self.history.ctis[-MOST_CTIS:]:
            if not self.axis.low <= cti <= self.axis.high:
                continue
            x, label = self.axis.place(cti), f"CTI {self.history.instant(cti)}"
            line = {"x1": x, "x2": x, "y1": self.top - 3, "y2": self.height}
            yield element("line", element("title", markup_text(label)), class_="cti", **line)
            wide = text_width(label, LABEL_SIZE) / 2
            middle = min(x, self.axis.right + MARGIN - 4 - wide)
            if middle - wide > room:
                yield element(
                    "text", markup_text(label), x=middle, y=self.top - 5, class_="promise", text_anchor="middle"
                )
                room = middle + wide + 6


def key_label(key: str, axis: TimeAxis, y: float) -> str:
    """Return a key's text at the left of its lanes; "" for no key."""
    shown = shortened_to_width(key, 12, axis.left - 20)
    tip = element("title", markup_text(key))
    return (
        element("text", markup_text(shown), tip, x=axis.left - 8, y=y, class_="key", text_anchor="end") if key else ""
    )


__all__ = ["KEY_GAP", "MARGIN", "MOST_CTIS", "KeyColours", "Panel", "key_label"]
