"""The sections of an explanation, and the self-contained HTML page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamq import html


@dataclass(frozen=True)
class Section:
    """One section of an explanation: a heading, its lines, and the same as data.

    ``picture``: HTML that a page shows instead of the lines.
    """

    mode: str
    heading: str
    lines: list[str]
    data: Any
    picture: str = ""


def page(parts: Sequence[Section]) -> str:
    """Return the sections as HTML, each under its heading, for a notebook's output or as a page of its own."""
    bodies = [html.heading(part.heading) + (part.picture or html.lines("\n".join(part.lines))) for part in parts]
    return html.fragment(*bodies)
