"""The pages of streamq as a reader sees them in a browser: graphs and tables are there, clicks work, payloads do no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamq as sq
from streamq import html
from streamq import testing as t
from streamq.errors import PlanError, StreamqWarning
from streamq.run.rehearsal import Rehearsal
from streamq.stream import Stream
from tests.browser.chromium import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "</pre></svg><script>document.title = 'run'; alert(1)</script><img src=x onerror=alert(2)>"
LONG = "x" * 10_000
VALUES = [HOSTILE, "日本 \U0001f600 é\u202e", LONG, "", "nan"]

Open = Callable[..., AbstractContextManager["Page"]]


@pytest.fixture
def show(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Open:
    """Open the text of a page, and name its screenshot after the test."""

    def show(text: str, **options: object) -> AbstractContextManager[Page]:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        scheme = "dark" if options.get("dark") else "light"
        name = request.node.originalname.removeprefix("test_")
        return opened(browser, file, f"{name}-{options.get('width', 1000)}-{scheme}", **options)

    return show


def tolls() -> Stream:
    rows = [(i * 3, None if i == 4 else i * 3 + 7, {"booth": f"<b>{i % 2}", "toll": float(i)}) for i in range(12)]
    return sq.events(rows, name="cars & vans", progress=sq.generate(5))


def per_booth() -> Stream:
    """Two aggregates that share partial results, one that does not, and a join: a plan of three stages."""
    cars = tolls()
    windows = cars.where(sq.col("toll") > 1).group_by("booth").hopping_window(20, 10)
    spread = cars.group_by("booth").hopping_window(20, 10).select(middle=sq.median("toll"))
    with pytest.warns(StreamqWarning, match="each meets those of several neighbouring windows"):
        return windows.select(n=sq.count(), total=sq.sum("toll")).join(spread, on="booth", suffixes=("", "_m"))


def contrast(page: Page, selector: str) -> float:
    """The contrast of a text to the page's ground by WCAG's formula, 1 to 21; from 4.5 on it is easy to read."""
    return page.evaluate(
        """selector => {
            const channels = colour => {
                const canvas = document.createElement("canvas").getContext("2d");
                canvas.fillStyle = matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff";
                canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
            };
            const light = colour => channels(colour)
                .map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            const style = getComputedStyle(document.querySelector(selector));
            const text = light(document.querySelector(selector).closest("svg") ? style.fill : style.color);
            const [low, high] = [text, light("transparent")].sort((a, b) => a - b);
            return (high + 0.05) / (low + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_explain(show: Open, dark: bool) -> None:
    with show(per_booth().explanation(format="html"), dark=dark) as page:
        assert page.title().startswith("streamq explain: ")
        graphs = page.get_by_role("img")
        assert graphs.count() == 3 and all(graphs.nth(i).is_visible() for i in range(3))
        plans = [page.locator("svg.plan").nth(i).bounding_box() for i in range(2)]
        details = page.locator(".about")
        assert not any(details.nth(i).is_visible() for i in range(details.count()))
        page.locator("svg.plan a").filter(has_text="hopping").first.click()
        (about,) = [details.nth(i) for i in range(details.count()) if details.nth(i).is_visible()]
        assert "rows: " in about.inner_text() and "booth" in about.inner_text()
        page.get_by_text("as text").first.click()
        assert "intervals cars & vans" in page.locator("details pre:visible").inner_text()
        assert contrast(page, ".plan .title") > 7 and contrast(page, ".plan .mark") > 4.5
        assert all(box is not None and box["width"] > 100 for box in plans)


def test_explain_twice_in_a_notebook(show: Open) -> None:
    cells = [per_booth().explanation("logical", "fragment") for _ in range(2)]
    with show(html.whole_page("notebook", *(f'<div class="cell">{cell}</div>' for cell in cells))) as page:
        first, second = (page.locator(".cell").nth(i) for i in range(2))
        second.locator("svg.plan a").first.click()
        assert second.locator(".about:visible").count() == 1 and first.locator(".about:visible").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_plot(show: Open, tmp_path: Path, dark: bool) -> None:
    file = tolls().plot(key="booth", title="Cars <b> & vans").save(tmp_path / "plot.html")
    with show(file.read_text(encoding="utf-8"), dark=dark) as page:
        picture = page.get_by_role("img", name="Cars <b> & vans")
        assert picture.is_visible() and page.title() == "Cars <b> & vans"
        assert not page.get_by_role("table").first.is_visible()
        page.get_by_text("In words and as a table").click()
        table = page.get_by_role("table").first
        assert table.is_visible() and table.get_by_role("row").count() == 13
        assert page.locator("p", has_text="1 without an end").is_visible()
        assert contrast(page, "svg text") > 7


def test_levels(show: Open, tmp_path: Path) -> None:
    stream = tolls().tumbling_window(10).select(n=sq.count())
    compared = sq.compare_levels(stream, levels=["strong", "middle"])
    with show(compared.plot().save(tmp_path / "levels.html").read_text(encoding="utf-8")) as page:
        picture = page.get_by_role("img", name="Levels of consistency")
        bars = picture.locator('path[fill="#1f5fa8"]')
        assert picture.is_visible() and bars.count() > 4
        page.get_by_text("In words and as a table").click()
        assert page.get_by_role("row").count() == 3


def test_trace(show: Open) -> None:
    """The slider goes by keys; a row that is clicked, or chosen by Enter, marks its causes, and says what is missing for it."""
    stops = sq.events([(1, 2, {"machine": "a"}), (2, 3, {"machine": HOSTILE})], name="stops")
    starts = sq.events([(4, 5, {"machine": HOSTILE}), (9, 10, {"machine": "a"})], name="starts")
    text = "EVENT Down WHEN UNLESS(STOP AS s, START AS t, 5) WHERE CorrelationKey(machine, EQUAL) OUTPUT s.machine AS m"
    trace = sq.cedr(text, STOP=stops, START=starts).trace()
    with show(trace.to_html()) as page:
        rows, says = page.locator("tr[data-op]:visible"), page.locator(".says")
        slider = page.get_by_role("slider")
        slider.focus()
        page.keyboard.press("Home")
        assert rows.count() == 0 and page.locator("output").inner_text() == "before anything arrives"
        page.keyboard.press("ArrowRight")
        assert rows.count() == 1 and slider.get_attribute("aria-valuetext") == "micro-batch 1 of 4"
        page.keyboard.press("End")
        assert rows.count() == 5
        page.locator("section[aria-label=starts] tr[data-op]").first.click()
        assert "Without it there would be: pattern [2, 7) m=" in says.inner_text() and "alert(1)" in says.inner_text()
        alarm = page.locator("section[aria-label=pattern] tr[data-op]")
        alarm.focus()
        page.keyboard.press("Enter")
        assert alarm.get_attribute("aria-selected") == "true" and "1 cause." in says.inner_text()
        assert page.locator("tr.cause").all_inner_texts()[0].split("\t") == ["cause", "1", "insert", "[1, 2)", "a"]
        assert page.locator("svg a.cause").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("tr.cause, tr.chosen").count() == 0
        page.get_by_text("Every operator in every micro-batch").click()
        assert page.get_by_role("row").filter(has_text="pattern").count() == 5
        alarm.click()


def values_of_a_notebook() -> Iterator[tuple[str, str]]:
    """Texts that notebooks show, with hostile and odd payloads in each."""
    rows = [
        (i, None if i % 2 else i + 3, {"k": value, "v": v})
        for i, (value, v) in enumerate(zip(VALUES, FLOATS, strict=True))
    ]
    stream = sq.events(rows, name=HOSTILE, progress=sq.generate(), schema={"k": "string", "v": "double"})
    yield "a stream", stream.where(sq.col("k") != HOSTILE)._repr_html_()
    yield "a plot", stream.plot(key="k", title=HOSTILE).html
    run = Rehearsal(stream)
    run.arrive()
    yield "metrics", html.Readout(run.metrics)._repr_html_()
    yield "why", run.why()._repr_html_()
    try:
        stream.where(sq.col(f"{HOSTILE}{LONG}") > 1)
    except PlanError as error:
        yield "an error", error._repr_html_()
    answer = stream.to_arrow()
    difference = t.same_history(answer, answer.slice(1))
    assert difference is not None
    yield "a difference", difference._repr_html_()
    yield "an explanation", stream.where(sq.col("k") != LONG).explanation(format="fragment")


FLOATS = [float("nan"), float("inf"), -0.0, float("-inf"), 1e300]


@pytest.mark.parametrize("width", [1000, 420])
def test_values(show: Open, width: int) -> None:
    parts = [html.heading(name) + text for name, text in values_of_a_notebook()]
    with show(html.whole_page("values", *parts), width=width) as page:
        for summary in page.locator("summary").all():
            summary.click()
        assert page.title() == "values", "no script has run"
        assert page.locator("script, img").count() == 0
        text = page.locator("body").inner_text()
        shown = ("日本 \U0001f600", "alert(1)", "nan", "inf", "-inf", "NULL")
        assert [each for each in shown if each not in text] == []
