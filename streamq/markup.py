"""Write elements of SVG and HTML as text that an XML parser accepts, whatever characters the values hold."""

from __future__ import annotations

import re
from html import escape
from unicodedata import east_asian_width

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML does not allow, not even escaped: control characters, halves of surrogate pairs."""


def markup_text(text: str) -> str:
    """Return a text as the content of an element or an attribute; a character that XML does not have becomes U+FFFD."""
    return escape(_ILLEGAL.sub("\ufffd", text))


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


__all__ = ["element", "markup_text", "shortened_to_width", "text_width"]
