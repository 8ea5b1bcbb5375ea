"""Pictures of our own: SVG without a browser, a script or the network, as a file, as HTML with a table, and in words."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from streamq import html
from streamq.cell_texts import has_half_a_pair, with_escapes
from streamq.errors import PlanError, sentence
from streamq.markup import element, markup_text
from streamq.pictures.palette import style_sheet

WIDTH = 960.0


def check_title(title: Any, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, for a title that is neither a text that can be written nor None."""
    if not isinstance(title, str | None) or has_half_a_pair(title or ""):
        raise PlanError(sentence(verb, "title is a text", f"found {title!r}"))


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

    @abstractmethod
    def _body(self) -> tuple[str, float]:
        """Return the elements of the picture, from back to front, and its height."""

    @abstractmethod
    def _tables(self) -> str:
        """Return tables of all that the picture shows, as HTML."""

    @cached_property
    def svg(self) -> str:
        """The picture as an SVG element, which is also a file of its own: it needs no other file, script or network."""
        body, height = self._body()
        words = " ".join(self.description)
        scope = f"streamq-{hashlib.sha256(f'{self.title}{words}{body}'.encode()).hexdigest()[:10]}"
        return element(
            "svg",
            named_elements(scope, self.title, words),
            element("style", f"\n{style_sheet(scope)}\n"),
            body,
            xmlns="http://www.w3.org/2000/svg",
            id=scope,
            role="img",
            aria_labelledby=label_ids(scope),
            viewBox=f"0 0 {WIDTH:g} {height:g}",
            width="100%",
            style=f"max-width:{WIDTH:g}px",
        )

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
                raise PlanError(sentence("save", "a picture is saved as .svg or .html", f"found {file.name!r}", hint))
        file.write_text(text, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return "\n".join([with_escapes(self.title), *(f"  {with_escapes(text)}" for text in self.description)])


__all__ = ["WIDTH", "SvgPicture", "check_title", "folded", "label_ids", "named_elements"]
