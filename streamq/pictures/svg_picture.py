"""Pictures of our own in SVG, without a browser, a script or the network, and their colours, in light and dark."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from streamq import html
from streamq.errors import PlanError
from streamq.html import element, has_half_a_pair, markup_text, with_escapes


@dataclass(frozen=True)
class Palette:
    """The colours of one scheme, as ``#rrggbb``; ``keys`` are pairs of a bar's surface and its border."""

    ground: str
    band: str
    text: str
    faint: str
    line: str
    cti: str
    keys: tuple[tuple[str, str], ...]


LIGHT = Palette(
    ground="#ffffff",
    band="#f0f3f6",
    text="#1b1f24",
    faint="#57606a",
    line="#d5dbe1",
    cti="#b3261e",
    keys=(
        ("#cfe1f7", "#1f5fa8"),
        ("#fbdcbc", "#a35200"),
        ("#cdeccf", "#23742f"),
        ("#e4d4f4", "#6b3fa0"),
        ("#c5ebe8", "#0c6b66"),
        ("#f8d0d2", "#ab2530"),
        ("#f3e6a8", "#7a6200"),
        ("#f5d0e6", "#9a2a74"),
    ),
)

DARK = Palette(
    ground="#14181d",
    band="#1d232a",
    text="#f0f3f6",
    faint="#a6b0bb",
    line="#3a434d",
    cti="#ff8a80",
    keys=(
        ("#1d3f66", "#7fb4f0"),
        ("#5c3512", "#f0a562"),
        ("#1d4d26", "#79cf86"),
        ("#432a66", "#bd97ec"),
        ("#0f4a47", "#5cccc4"),
        ("#5e1f27", "#f0868f"),
        ("#4d4208", "#d9c14e"),
        ("#591c46", "#ec8cc6"),
    ),
)

KEY_COLOURS = len(LIGHT.keys)


def colour_class(number: int) -> str:
    """Return the class of elements in the colour of the key with a number; after eight keys the colours begin again."""
    return f"k{number % KEY_COLOURS}"


def style_sheet(scope: str) -> str:
    """Return the rules of a picture with the id ``scope``, which apply to nothing else; the dark ones where dark is preferred.

    They are plain rules, as many programs that show SVG files know no variables.
    """
    dark = " ".join(_rules(scope, DARK))
    return "\n".join([*_shapes(scope), *_rules(scope, LIGHT), f"@media (prefers-color-scheme: dark) {{ {dark} }}"])


def dark_rules(scope: str) -> str:
    """Return rules for a picture with the id ``scope`` whose elements have the light colours as attributes.

    Where dark is preferred, each colour is replaced by that of the dark palette.
    """
    names = ("ground", "text", "faint", "line")
    pairs = [(getattr(LIGHT, name), getattr(DARK, name)) for name in names]
    pairs += [(light, dark) for (_, light), (_, dark) in zip(LIGHT.keys, DARK.keys, strict=True)]
    rules = " ".join(
        f'#{scope} [{part}="{light}"] {{ {part}: {dark}; }}' for light, dark in pairs for part in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark) {{ {rules} }}"


def _shapes(scope: str) -> list[str]:
    """Return the rules that are the same in both schemes."""
    return [
        f"#{scope} text {{ font: 11px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }}",
        f"#{scope} .title {{ font-size: 13px; font-weight: 600; }}",
        f"#{scope} .legend {{ font-size: 12px; font-weight: 400; }}",
        f"#{scope} .struck {{ text-decoration: line-through; }}",
        f"#{scope} .key {{ font-size: 12px; }}",
        f"#{scope} .gone {{ fill: none; stroke-dasharray: 4 3; }}",
        f"#{scope} .link {{ fill: none; stroke-width: 1.2; }}",
        f"#{scope} .bin {{ stroke-width: .4; }}",
        f"#{scope} .cti {{ stroke-width: 1.5; stroke-dasharray: 2 3; }}",
    ]


def _rules(scope: str, palette: Palette) -> list[str]:
    """Return the rules that set colours."""
    colours = [
        f"#{scope} .ground {{ fill: {palette.ground}; }}",
        f"#{scope} .band {{ fill: {palette.band}; }}",
        f"#{scope} text {{ fill: {palette.text}; }}",
        f"#{scope} .faint {{ fill: {palette.faint}; }}",
        f"#{scope} .line {{ stroke: {palette.line}; }}",
        f"#{scope} .link {{ stroke: {palette.faint}; }}",
        f"#{scope} .head {{ fill: {palette.faint}; }}",
        f"#{scope} .cti {{ stroke: {palette.cti}; }}",
        f"#{scope} .promise {{ fill: {palette.cti}; }}",
        f"#{scope} .window {{ fill: {palette.band}; stroke: {palette.faint}; }}",
    ]
    for number, (surface, border) in enumerate(palette.keys):
        name = colour_class(number)
        colours.append(f"#{scope} .{name} {{ fill: {surface}; stroke: {border}; }}")
        colours.append(f"#{scope} .gone.{name} {{ fill: none; }}")
        colours.append(f"#{scope} .point.{name}, #{scope} .arrow.{name} {{ fill: {border}; }}")
    return colours


WIDTH = 960.0


def check_title(title: Any, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, for a title that is neither a text that can be written nor None."""
    if not isinstance(title, str | None) or has_half_a_pair(title or ""):
        raise PlanError(verb, "title is a text", f"found {title!r}")


def label_ids(scope: str) -> str:
    """Return the ids of the elements that name and describe the picture with the id ``scope``."""
    return f"{scope}-title {scope}-desc"


def named_elements(scope: str, title: str, words: str) -> str:
    """Return the elements of a picture that name and describe it for those who do not see it."""
    name, description = label_ids(scope).split()
    return element("title", markup_text(title), id=name) + element("desc", markup_text(words), id=description)


def folded(sentences: Sequence[str], tables: str) -> str:
    """Return the words and the tables of a picture as HTML, folded until a reader opens them."""
    words = "".join(element("p", markup_text(text)) for text in sentences)
    return element("details", element("summary", "In words and as a table"), words, tables)


class SvgPicture(ABC):
    """A picture that a notebook shows; ``svg`` and ``html`` are its texts, :meth:`save` writes them, and printed it is words."""

    def __init__(self, title: str, description: Sequence[str]):
        """Draw under a title; ``description``: the picture in words, in sentences."""
        self.title = title
        self.description = list(description)

    @property
    @abstractmethod
    def svg(self) -> str:
        """The picture as an SVG element, which is also a file of its own: it needs no other file, script or network."""

    @abstractmethod
    def _tables(self) -> str:
        """Return tables of all that the picture shows, as HTML."""

    @cached_property
    def html(self) -> str:
        """The picture as an element of a page: the SVG, and below it tables of all that it shows, folded."""
        return html.fragment(self.svg, folded(self.description, self._tables()))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file, SVG or an HTML page by the ending of its name, and return its path.

        Raises PlanError for any other ending.
        """
        file = Path(path)
        match file.suffix.lower():
            case ".svg":
                text = f"{self.svg}\n"
            case ".html":
                text = html.whole_page(self.title, self.html)
            case _:
                hint = "Save .svg, and convert it with any program for images."
                raise PlanError("save", "a picture is saved as .svg or .html", f"found {file.name!r}", hint)
        file.write_text(text, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        lines = [self.title, *(f"  {text}" for text in self.description)] if self.title else self.description
        return "\n".join(map(with_escapes, lines))
