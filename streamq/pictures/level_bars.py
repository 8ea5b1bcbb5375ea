"""The costs of levels of consistency as bars: what each makes rows wait, writes, keeps in state, and gets right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.html import element, markup_text, shortened_to_width, text_width
from streamq.pictures.svg_picture import WIDTH, SvgPicture

if TYPE_CHECKING:
    from streamq.levels.compare_levels import LevelCosts

GAP, MARGIN = 28.0, 12.0
"""The room between two panels, and around the picture."""
GUTTER = (120.0, 260.0)
"""The least and the most room for the levels' names."""
TOP, LINE, BAR = 62.0, 34.0, 14.0
"""The height of the panels' titles, of a level, and of a bar."""

Costs = Sequence["LevelCosts"]


@dataclass(frozen=True)
class CostBars:
    """A quantity of each level: ``parts`` are drawn one behind the other, ``most`` as a whisker; ``shown`` is it as text."""

    title: str
    legend: str
    parts: Callable[[LevelCosts], Sequence[float]]
    most: Callable[[LevelCosts], float]
    shown: Callable[[LevelCosts], str]

    def greatest(self, costs: Costs) -> float:
        """Return the greatest value to draw, 1 if all are 0."""
        return max([max(sum(self.parts(cost)), self.most(cost)) for cost in costs]) or 1.0


class LevelBars(SvgPicture):
    """A picture of the costs of levels of consistency: a line for each level, a panel for each kind of costs."""

    def __init__(
        self, title: str, costs: Costs, table: str, show_wait: Callable[[float], str], notes: Sequence[str] = ()
    ):
        """Draw ``costs``; ``table``: the same as HTML; ``show_wait``: writes the wait of a row; ``notes``: more sentences."""
        self._costs, self._table, self._show_wait = costs, table, show_wait
        self._panels = _panels(show_wait)
        super().__init__(title, [*(self._sentence(cost) for cost in costs), *notes])

    def _sentence(self, cost: LevelCosts) -> str:
        mean, most = self._show_wait(cost.wait_mean), self._show_wait(cost.wait_most)
        return (
            f"{cost.level}: a row waits {mean} on average, {most} at most; inserts: {cost.inserts:,}; retractions: "
            f"{cost.retractions:,}; rows of state: {cost.state_mean:,.0f} on average, {cost.state_most:,} at most; "
            f"right: {cost.right:.1%}."
        )

    def _tables(self) -> str:
        return self._table

    def _body(self) -> tuple[str, float]:
        height = TOP + LINE * len(self._costs) + MARGIN
        widest = max(text_width(cost.level, 12) for cost in self._costs)
        gutter = min(GUTTER[1], max(GUTTER[0], widest + MARGIN + 16))
        width = (WIDTH - gutter - MARGIN - GAP * (len(self._panels) - 1)) / len(self._panels)
        parts = [element("rect", width=WIDTH, height=height, class_="ground")]
        for number, cost in enumerate(self._costs):
            name = markup_text(shortened_to_width(cost.level, 12, gutter - MARGIN - 8))
            y = TOP + LINE * number + BAR + 11
            parts.append(element("text", name, x=MARGIN, y=y, class_="key"))
        for number, panel in enumerate(self._panels):
            parts += _drawn(panel, self._costs, gutter + number * (width + GAP), width)
        return "\n".join(parts), height


def _panels(show_wait: Callable[[float], str]) -> list[CostBars]:
    """Return the panels, from left to right."""
    return [
        CostBars(
            "A row waits",
            "mean; line to the most",
            lambda cost: [cost.wait_mean],
            lambda cost: cost.wait_most,
            lambda cost: f"{show_wait(cost.wait_mean)}; most {show_wait(cost.wait_most)}",
        ),
        CostBars(
            "Rows written",
            "inserts, then retractions",
            lambda cost: [cost.inserts, cost.retractions],
            lambda cost: 0,
            lambda cost: f"{cost.inserts:,} + {cost.retractions:,}",
        ),
        CostBars(
            "Rows of state",
            "mean; line to the most",
            lambda cost: [cost.state_mean],
            lambda cost: cost.state_most,
            lambda cost: f"{cost.state_mean:,.0f}; most {cost.state_most:,}",
        ),
        CostBars(
            "Right",
            "part of the answer; line to all",
            lambda cost: [cost.right],
            lambda cost: 1.0,
            lambda cost: f"{cost.right:.1%}",
        ),
    ]


def _drawn(panel: CostBars, costs: Costs, left: float, width: float) -> Iterator[str]:
    """Yield the elements of a panel: its title, and for each level its text, and its bar below."""
    yield element("text", panel.title, x=left, y=24, class_="title")
    yield element("text", panel.legend, x=left, y=42, class_="faint")
    scale = width / panel.greatest(costs)
    for number, cost in enumerate(costs):
        y = TOP + LINE * number
        yield element("text", markup_text(panel.shown(cost)), x=left, y=y + 9)
        x = left
        for colour, part in enumerate(panel.parts(cost)):
            if part:
                size = {"width": part * scale, "height": BAR}
                yield element("rect", x=x, y=y + 13, class_="k5" if colour else "k0", **size)
            x += part * scale
        most = left + panel.most(cost) * scale
        if most > x:
            middle = y + 13 + BAR / 2
            yield element("line", x1=x, x2=most, y1=middle, y2=middle, class_="link")
            yield element("line", x1=most, x2=most, y1=y + 15, y2=y + 11 + BAR, class_="link")
