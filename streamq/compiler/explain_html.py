"""The parts of an explanation, and the lines of them all as one self-contained page."""

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
    """One part of an explanation: a heading, its lines, and the same as data; ``picture``: what a page shows for the lines."""

    mode: str
    heading: str
    lines: list[str]
    data: Any
    picture: str = ""


def page(parts: Sequence[Section]) -> str:
    """The parts, each under its heading; fits into a notebook's output or stands by itself."""
    bodies = [f"<h2>{escape(part.heading)}</h2>\n{part.picture or _lines(part)}" for part in parts]
    return "\n".join(['<div class="streamq">', f"<style>{STYLE}</style>", *bodies, "</div>"])


def _lines(part: Section) -> str:
    return f"<pre>{escape(chr(10).join(part.lines))}</pre>"
