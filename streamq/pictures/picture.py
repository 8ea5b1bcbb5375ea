"""Pictures in Vega-Lite, which Altair shows and saves, with their words and tables, and their colours, in light and dark."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from streamq import html
from streamq.errors import PlanError, SessionError
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

    def key(self, number: int) -> tuple[str, str]:
        """Return the colours of the key with a number; after the last pair the first comes again."""
        return self.keys[number % len(self.keys)]

    @property
    def all(self) -> list[str]:
        """All colours in their order."""
        *names, keys = astuple(self)
        return [*names, *(colour for pair in keys for colour in pair)]


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

TO_INSTALL = "pip install 'streamq[charts]'"

_CONFIG = {
    "axis": {
        **{f"{part}Color": LIGHT.text for part in ("label", "title")},
        **{f"{part}Color": LIGHT.faint for part in ("domain", "tick")},
        "gridColor": LIGHT.line,
    },
    "legend": {"labelColor": LIGHT.text, "titleColor": LIGHT.text},
    "title": {"color": LIGHT.text, "subtitleColor": LIGHT.faint},
    "view": {"stroke": LIGHT.line},
}
"""The colours of a picture beside those of keys; only colours of the palette have others where dark is preferred."""


class Picture:
    """A Vega-Lite picture that a notebook shows as SVG, without the network, with its words and tables; printed it is words.

    ``spec`` is the picture as data, ``altair`` is it as an Altair chart, to be changed; ``svg`` and ``html`` are its texts, and
    :meth:`save` writes them. Equal data have equal pictures. These raise SessionError if Altair or vl-convert, of the extra
    ``charts``, is not installed; a notebook then shows the words and the tables, and what to install.
    """

    def __init__(self, title: str, description: Sequence[str], panels: Mapping[str, Any], tables: str):
        """Draw ``panels``, which are in Vega-Lite; ``description``: them in sentences, ``tables``: what they show as HTML."""
        self.title, self.description, self.tables = title, list(description), tables
        schema = "https://vega.github.io/schema/vega-lite/v5.json"
        self._words = " ".join(description)
        look = {"description": self._words, "background": LIGHT.ground, "config": _CONFIG}
        self.spec: dict[str, Any] = {"$schema": schema, **look, **panels}

    @property
    def altair(self) -> Any:
        """The picture as an Altair chart."""
        try:
            import altair
        except ImportError:
            raise SessionError("chart", "Altair is not installed", "", TO_INSTALL) from None
        return altair.Chart.from_dict(self.spec)

    @cached_property
    def svg(self) -> str:
        """The picture as an SVG element, with a name and a description; its colours follow the reader's scheme, light or dark.

        It is also a file of its own: it needs no other file, script or network. A pointer over a mark shows what it is.
        """
        drawn = _short(_vl_convert().vegalite_to_svg(_legal(self.spec)))
        scope = f"streamq-{hashlib.sha256(f'{self!r}{drawn}'.encode()).hexdigest()[:10]}"
        name, words = f"{scope}-title", f"{scope}-desc"
        opening = f'<svg id="{scope}" font-family="sans-serif" role="img" aria-labelledby="{name} {words}" '
        names = element("title", markup_text(self.title or self.description[0]), id=name)
        names += element("desc", markup_text(self._words), id=words)
        style = element("style", f"\n{_dark_rules(scope, drawn)}\n")
        return re.sub(r"\A<svg ([^>]*>)", lambda start: f"{opening}{start[1]}{names}{style}", drawn)

    @cached_property
    def html(self) -> str:
        """The picture as an element of a page: the SVG, and below it its words and tables of all that it shows, folded."""
        return html.fragment(self.svg, self._folded)

    @property
    def _folded(self) -> str:
        """The words and the tables as HTML, folded until a reader opens them."""
        words = "".join(element("p", markup_text(text)) for text in self.description)
        return element("details", element("summary", "In words and as a table"), words, self.tables)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file, SVG, PNG or an HTML page by the ending of its name, and return its path.

        Raises PlanError for any other ending.
        """
        file = Path(path)
        match file.suffix.lower():
            case ".svg":
                file.write_text(f"{self.svg}\n", encoding="utf-8")
            case ".html":
                file.write_text(html.whole_page(self.title, self.html), encoding="utf-8")
            case ".png":
                file.write_bytes(_vl_convert().vegalite_to_png(_legal(self.spec), scale=2))
            case _:
                raise PlanError("save", "a picture is saved as .svg, .png or .html", f"found {file.name!r}")
        return file

    def _repr_html_(self) -> str:
        try:
            return self.html
        except SessionError as error:
            return html.fragment(html.lines(repr(self)), element("p", markup_text(str(error))), self._folded)

    def __repr__(self) -> str:
        lines = [self.title, *(f"  {text}" for text in self.description)] if self.title else self.description
        return "\n".join(map(with_escapes, lines))


_MARK = re.compile(r'(<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="rect mark"[^>]*)/>')
"""Matches a bar, whose description becomes its tooltip."""

_UNSEEN = re.compile(r'<path[^>]* (?:display="none"|d="M0,0h0v0h0Z")[^>]*/>')
_UNUSED = re.compile(
    r' (?:(?:aria-\w+|role|class|pointer-events)="[^"]*"|(?:opacity|stroke-width)="1"|font-family="sans-serif")'
    r"|(?<=\.\d\d)\d+"
)
"""Matches, in a tag, attributes that an image without a script has no use for or inherits, and decimals beyond the second."""


def _short(drawn: str) -> str:
    """Return an SVG of Vega's without what an image has no use for; bars have tooltips."""
    titled = _MARK.sub(r"\1><title>\2</title></path>", _UNSEEN.sub("", drawn))
    return re.sub(r"<(?!svg)[a-z][^>]*>", lambda tag: _UNUSED.sub("", tag[0]), titled)


def _legal(spec: Any) -> Any:
    """Return a spec whose texts can all be drawn: a character that XML does not have ends the process that draws it."""
    match spec:
        case str():
            return html.legal_text(spec)
        case Mapping():
            return {name: _legal(value) for name, value in spec.items()}
        case list() | tuple():
            return [_legal(value) for value in spec]
        case _:
            return spec


def _vl_convert() -> Any:
    """Return the module that draws Vega-Lite charts; raise SessionError if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise SessionError("chart", "vl-convert is not installed", "", TO_INSTALL) from None
    return vl_convert


def _dark_rules(scope: str, drawn: str) -> str:
    """Return rules for what is ``drawn`` as element ``scope``: where dark is preferred, colours are of the dark palette."""
    rules = " ".join(
        f'#{scope} [{part}="{light}"] {{ {part}: {dark}; }}'
        for light, dark in zip(LIGHT.all, DARK.all, strict=True)
        for part in ("fill", "stroke")
        if f'="{light}"' in drawn
    )
    return f"@media (prefers-color-scheme: dark) {{ {rules} }}"


def check_title(title: Any, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, for a title that is neither a text that can be written nor None."""
    if not isinstance(title, str | None) or has_half_a_pair(title or ""):
        raise PlanError(verb, "title is a text", f"found {title!r}")
