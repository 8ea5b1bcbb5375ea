"""The sections of an explanation, and the self-contained HTML page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

STYLE = """
  .streamq { font: 14px/1.5 system-ui, sans-serif; color-scheme: light dark; }
  .streamq h2 { font-size: 1em; margin: 1.2em 0 .3em; }
  .streamq pre { font: 13px/1.45 ui-monospace, monospace; margin: 0; padding: .7em 1em; overflow-x: auto;
    border-left: 3px solid #4a8; background: color-mix(in srgb, currentColor 6%, transparent); }
"""


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
    bodies = [f"<h2>{escape(part.heading)}</h2>\n{part.picture or _lines(part)}" for part in parts]
    return "\n".join(['<div class="streamq">', f"<style>{STYLE}</style>", *bodies, "</div>"])


def _lines(part: Section) -> str:
    """Return the lines of a section as HTML."""
    return f"<pre>{escape(chr(10).join(part.lines))}</pre>"
