"""HTML in notebooks and pages: elements, texts of cells, tables, lines and headings of one style; all texts are escaped."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from numbers import Number
from typing import Any
from unicodedata import east_asian_width

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML does not allow, not even escaped: control characters, halves of surrogate pairs."""


def markup_text(text: str) -> str:
    """Return a text as the content of an element or an attribute; a character that XML does not have becomes U+FFFD."""
    return escape(legal_text(text))


def legal_text(text: str) -> str:
    """Return a text with U+FFFD in the place of characters that XML does not have."""
    return _ILLEGAL.sub("\ufffd", text)


def element(name: str, *content: str, **attributes: str | float) -> str:
    """Return an element; ``content`` is markup already, attributes are values, numbers rounded to two decimals.

    An underscore in an attribute's name stands for a hyphen, one at its end is left out.

    >>> element("text", markup_text("a < b"), x=2.5, class_="key")
    '<text x="2.5" class="key">a &lt; b</text>'
    """
    shown = "".join(f' {_attribute(name)}="{_value(value)}"' for name, value in attributes.items())
    return f"<{name}{shown}>{''.join(content)}</{name}>" if content else f"<{name}{shown}/>"


def _attribute(name: str) -> str:
    return name.removesuffix("_").replace("_", "-")


def _value(value: str | float) -> str:
    """Return an attribute's value; a number without zeros at its end."""
    return markup_text(value) if isinstance(value, str) else f"{round(value, 2):.2f}".rstrip("0").rstrip(".")


def text_width(text: str, size: float) -> float:
    """Return an upper estimate of a text's width in pixels, in a font of ``size`` pixels; wide characters count twice."""
    cells = sum(2 if east_asian_width(c) in "WF" else 1 for c in text)
    return cells * size * 0.58


def shortened_to_width(text: str, size: float, width: float) -> str:
    """Return the text, cut with an ellipsis if it is wider than ``width`` pixels; "" if not even three characters fit."""
    text = " ".join(text[:500].split())
    if text_width(text, size) <= width:
        return text
    shown = text
    while shown and text_width(shown + "…", size) > width:
        shown = shown[:-1]
    return f"{shown}…" if len(shown) > 1 else ""


WIDEST = 500
"""The characters of a value that a table as text shows."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Matches what moves the cursor, ends a line or turns it round, or controls a terminal, and halves of surrogate pairs."""

_HALVES = re.compile("[\ud800-\udfff]")


def with_escapes(text: str) -> str:
    r"""Return a text with the escapes of Python's literals in the place of control characters and line ends.

    >>> print(with_escapes("a\tb\x1b[31m"))
    a\tb\x1b[31m
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def has_half_a_pair(text: str) -> bool:
    r"""Return True for a text with half a surrogate pair, which cannot be encoded.

    >>> has_half_a_pair("\ud83d"), has_half_a_pair("\U0001f600")
    (True, False)
    """
    return _HALVES.search(text) is not None


def shortened_value(text: str, quote: Callable[[str], str] = with_escapes) -> str:
    """Return the text of a value as ``quote`` shows it; of one longer than WIDEST the beginning, with its length behind."""
    if len(text) <= WIDEST:
        return quote(text)
    return f"{quote(text[:WIDEST])}… ({len(text):,} characters)"


STYLE = """
  .streamq { font: 14px/1.5 system-ui, sans-serif; color-scheme: light dark; overflow-x: auto; }
  .streamq h2, .streamq p, .streamq caption { overflow-wrap: anywhere; }
  .streamq.streamq td, .streamq.streamq th { max-width: 40em; overflow-wrap: break-word; }
  .streamq h2 { font-size: 1em; font-weight: 600; margin: 1.2em 0 .3em; }
  .streamq pre { font: 13px/1.45 ui-monospace, monospace; margin: 0; padding: .7em 1em; overflow-x: auto;
    border-left: 3px solid #4a8; background: color-mix(in srgb, currentColor 6%, transparent); }
  .streamq.streamq pre { word-break: normal; overflow-wrap: anywhere; }
  .streamq table { border-collapse: collapse; margin: .3em 0; }
  .streamq caption { text-align: left; font-weight: 600; padding: .2em .7em .2em 0; }
  .streamq.streamq th, .streamq.streamq td { text-align: left; vertical-align: top; padding: .15em .7em;
    border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
  .streamq .view th, .streamq .view td.short { white-space: nowrap; }
  .streamq.streamq td.number { text-align: right; font-variant-numeric: tabular-nums; }
"""

LONGEST = 300
"""The greatest length of a text in a cell; a longer one is cut, with its length behind."""

MOST_ROWS = 100
"""The greatest number of rows of a table; the others are counted below."""


def fragment(*parts: str) -> str:
    """Return parts that are HTML as one element in streamq's style, for a notebook's output or a page."""
    return "\n".join(['<div class="streamq">', f"<style>{STYLE}</style>", *parts, "</div>"])


def whole_page(title: str, *parts: str) -> str:
    """Return parts that are HTML as a whole page, the text of a file that needs no other file and no network."""
    head = element(
        "head",
        '<meta charset="utf-8"/>',
        element("title", markup_text(title)),
        '<meta name="viewport" content="width=device-width"/>',
        '<meta name="color-scheme" content="light dark"/>',
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{element("body", *parts)}</html>\n'


def heading(text: str) -> str:
    """Return a text as a heading."""
    return f"<h2>{markup_text(text)}</h2>"


def lines(text: str) -> str:
    """Return a text of several lines, which keeps its spaces."""
    return f"<pre>{markup_text(text)}</pre>"


def tabulated(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    *,
    named: bool = False,
    most: int = MOST_ROWS,
) -> str:
    """Return a table with a heading for each column; numbers are aligned to the right.

    ``named``: the first cell of each row is its name. Rows after the first ``most`` are counted, not shown.
    """
    rows = list(rows)
    shown = "".join(f"<tr>{_cells(row, named)}</tr>" for row in rows[:most])
    head = "".join(f'<th scope="col">{markup_text(name)}</th>' for name in headings)
    above = f"<caption>{markup_text(caption)}</caption>" if caption else ""
    top = f"<thead><tr>{head}</tr></thead>" if headings else ""
    more = f"<div>... {len(rows) - most} more rows</div>" if len(rows) > most else ""
    return f"<table>{above}{top}<tbody>{shown}</tbody></table>{more}"


def values(value: Any) -> str:
    """Return plain values as HTML: a mapping is a table of its names and values, a list of mappings has a row for each."""
    if isinstance(value, Mapping):
        rows = "".join(
            f'<tr><th scope="row">{markup_text(str(key))}</th>{_value_cell(one)}</tr>' for key, one in value.items()
        )
        return f"<table><tbody>{rows}</tbody></table>" if rows else "none"
    if isinstance(value, list | tuple):
        return "".join(values(one) for one in value) or "none"
    return _text(value)


def _value_cell(value: Any) -> str:
    return f"<td>{values(value)}</td>" if isinstance(value, Mapping | list | tuple) else _cell(value)


def _cells(row: Sequence[Any], named: bool) -> str:
    first = f'<th scope="row">{_text(row[0])}</th>' if named else ""
    return first + "".join(_cell(value) for value in row[named:])


def _cell(value: Any) -> str:
    is_number = isinstance(value, Number) and not isinstance(value, bool)
    opening = '<td class="number">' if is_number else "<td>"
    return f"{opening}{_text(value)}</td>"


def _text(value: Any) -> str:
    """Return a value as text, cut if it is very long; None is NULL."""
    text = "NULL" if value is None else str(value)
    return markup_text(text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)")


def aligned_lines(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Return rows of texts as lines of columns; the first ``left`` columns are aligned to the left, the others to the right.

    >>> aligned_lines([("k", "n"), ("ab", "10")], left=1)
    ['k    n', 'ab  10']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligns = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    return ["  ".join(align(cell, n) for align, cell, n in zip(aligns, row, widths, strict=True)) for row in rows]


class Readout(dict[str, Any]):
    """Plain values by name, which a notebook shows as tables."""

    def _repr_html_(self) -> str:
        return fragment(values(self))


def ipython_shell() -> Any:
    """Return the IPython that runs this program, in a notebook or a terminal; None if there is none."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def print_or_display(text: str, html: Callable[[], str], *, rich: bool = True) -> None:
    """Print a text or, in a notebook and if ``rich``, display its HTML; a terminal of IPython prints the text, too."""
    if ipython_shell() is None or not rich:
        print(text)
        return
    from IPython.display import display

    display({"text/plain": text, "text/html": html()}, raw=True)
