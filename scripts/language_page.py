"""Write docs/language.md from the docstrings: every source, verb, window and aggregate, with its example and its facts.

python scripts/language_page.py [--check]: with --check nothing is written, and a page that is not up to date is an error.
"""

from __future__ import annotations

import argparse
import datetime as dt
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import streamq as sq
from streamq import operators, policies
from streamq.compiler.rewriter import rewrite
from streamq.compiler.stages import HOLDING, ctis_footprint, settle_footprint
from streamq.operators import MergePartials, Source, WindowAggregate
from streamq.operators.grouped_stream import GroupedStream, GroupVerbs, WindowVerbs
from streamq.operators.operator import Operator
from streamq.operators.windowed_stream import WindowedStream
from streamq.patterns.pattern import Pattern
from streamq.patterns.pattern_tree import AliasVerbs, Contributor
from streamq.plan.footprint import Footprint, OpenedPart
from streamq.plan.node import nodes, number_sources
from streamq.run import run_verbs
from streamq.run.run_reports import RunReports
from streamq.run.run_results import RunResults
from streamq.run.run_verbs import RunVerbs
from streamq.run.running import Run
from streamq.run.storage import migrate
from streamq.stream import Stream
from streamq.tracing.trace import Trace
from streamq.user_code.repository import Repository
from streamq.windows import AllWindowVerbs

PAGE = Path(__file__).parents[1] / "docs" / "language.md"

HEAD = """# The language

Made from the docstrings by `make docs`; do not edit. Durations are `"10 minutes"` or a `timedelta` on a timestamp axis, integer
ticks on an integer axis. What an operator means is defined over histories: see [concepts](concepts.md).
"""


class Entry(NamedTuple):
    """A function of the page: the name it is called by, its other names, and its parameters as shown (None: its signature)."""

    name: str
    function: Callable[..., Any]
    also: tuple[str, ...] = ()
    given: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/language.md is not what the docstrings say: make docs")
        return
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """The whole page."""
    found = sections()
    contents = [f"- {title}: " + ", ".join(f"[{e.name}](#{anchor(e.name)})" for e in es) for title, es in found.items()]
    contents.append(f"- [{FACTS}](#{anchor(FACTS)})")
    parts = [HEAD, "\n".join(contents) + "\n"]
    for title, entries in found.items():
        parts += section(title, entries)
    return "\n".join([*parts, facts()])


def sections() -> dict[str, list[Entry]]:
    """What the page lists, by heading."""
    rooms = [c for c in Stream.__mro__[1:] if c.__name__.endswith("Verbs") and c.__module__.startswith(OPERATORS)]
    return {
        "Sources": [
            *(Entry(f"sq.{n}", f) for n, f in functions_of(sq) if f.__module__.startswith(SOURCES)),
            *(Entry(f"sq.{n}", f) for n, f in functions_of(sq) if f.__module__.startswith(CONNECTORS)),
        ],
        "Progress and consistency": [
            *(Entry(f"sq.{n}", f) for n, f in functions_of(sq) if f.__module__.startswith(PROGRESS)),
            *(Entry(f"sq.{n}", f) for n, f in public(policies) if hasattr(sq, n)),
            Entry("sq.compare_levels", sq.compare_levels),
            Entry("sq.Expected", sq.Expected, given="(*, rows, every, distinct={})"),
        ],
        "Verbs": [e for room in rooms if room not in (WindowVerbs, GroupVerbs) for e in verbs_of(room)],
        "Windows": of_groups([e for room in (*AllWindowVerbs.__mro__, WindowVerbs) for e in methods("stream", room)]),
        "Groups": [Entry("stream.group_by", GroupVerbs.group_by), Entry("group.apply", GroupedStream.apply)],
        "What a window makes of its members": methods("window", WindowedStream),
        "Aggregates": [Entry(f"sq.{n}", f) for n, f in functions_of(sq) if f.__module__.startswith(AGGREGATES)],
        "Code of your own": [
            Entry("sq.udf", sq.udf),
            Entry("sq.uda", sq.uda),
            Entry("sq.udo", sq.udo),
            Entry("sq.udso", sq.udso),
            Entry("sq.filters_on", sq.filters_on),
            Entry("sq.modules", Repository, (), ""),
            Entry("sq.modules.get", Repository.get),
        ],
        "Patterns": [
            *(Entry(f"sq.{n}", f) for n, f in functions_of(sq) if f.__module__.startswith(PATTERNS)),
            *methods("stream", AliasVerbs),
            *methods("contributor", Contributor),
            *(e for room in Pattern.__bases__ if room is not Stream for e in methods("pattern", room)),
            *(e for e in methods("pattern", Pattern) if e.name != "pattern.alias"),
            *values("pattern", Pattern),
        ],
        "Seeing and running": [
            Entry("sq.session", sq.session),
            Entry("sq.doctor", sq.doctor),
            *methods("stream", Stream),
            *values("stream", Stream),
            Entry("sq.from_json", sq.from_json),
            *methods("stream", RunVerbs),
            *(Entry(f"sq.{name}", function) for room in (run_verbs, migrate) for name, function in public(room)),
        ],
        "A running query": [e for read in (methods, values) for room in RUN for e in read("run", room)],
        "A trace": [*methods("trace", Trace), *values("trace", Trace)],
    }


RUN = (Run, RunResults, RunReports)
OPERATORS, AGGREGATES = "streamq.operators.", "streamq.aggregates."
PATTERNS, PROGRESS, SOURCES = "streamq.patterns.", "streamq.progress_policies", "streamq.sources."
CONNECTORS = "streamq.connectors."


def public(module: Any) -> list[tuple[str, Callable[..., Any]]]:
    """The functions a module defines, in the order of its text."""
    found = [(n, f) for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
    return [(n, f) for n, f in sorted(found, key=lambda p: inspect.getsourcelines(p[1])[1]) if not n.startswith("_")]


def functions_of(module: Any) -> list[tuple[str, Callable[..., Any]]]:
    """The functions that a module offers, by name, wherever they are defined."""
    return [(n, f) for n in dir(module) if inspect.isfunction(f := getattr(module, n))]


def methods(owner: str, cls: type) -> list[Entry]:
    """The public methods that a class itself defines."""
    found = {n: f for n, f in vars(cls).items() if inspect.isfunction(f) and not n.startswith("_")}
    also = {f: tuple(n for n, g in found.items() if g is f and n != f.__name__) for f in found.values()}
    return [Entry(f"{owner}.{n}", f, also[f]) for n, f in found.items() if f.__name__ == n]


def verbs_of(room: type) -> list[Entry]:
    """The verbs of a room, those that groups have as well called so."""
    return of_groups(methods("stream", room)) if issubclass(GroupedStream, room) else methods("stream", room)


def of_groups(entries: list[Entry]) -> list[Entry]:
    """The same, with their names as verbs of groups beside those of streams."""
    return [e._replace(also=(*e.also, e.name.replace("stream.", "group."))) for e in entries]


def values(owner: str, cls: type) -> list[Entry]:
    """The public properties that a class itself defines."""
    found = {n: p for n, p in vars(cls).items() if isinstance(p, property) and not n.startswith("_")}
    return [Entry(f"{owner}.{n}", p.fget, (), "") for n, p in found.items() if p.fget]


def anchor(heading: str) -> str:
    """What a link to a heading is called."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def section(title: str, entries: list[Entry]) -> Iterator[str]:
    """A heading and its entries."""
    yield f"## {title}\n"
    for name, function, also, given in entries:
        aliases = "".join(f"; also `{n}`" for n in also)
        doc = rendered(inspect.getdoc(function) or "")
        shown = signature(function) if given is None else given
        yield f"### {name}\n\n`{name}{shown}`{aliases}\n\n{doc}\n"


def signature(function: Callable[..., Any]) -> str:
    """The parameters with their defaults, without types."""
    found = []
    star = False
    for p in list(inspect.signature(function).parameters.values()):
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            star = True
            found.append("*")
        star = star or p.kind is p.VAR_POSITIONAL
        name = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        default = "..." if p.default is ... else f'"{p.default}"' if isinstance(p.default, str) else repr(p.default)
        found.append(name if p.default is p.empty else f"{name}={default}")
    return f"({', '.join(found)})"


def rendered(doc: str) -> str:
    """A docstring as Markdown: roles as code, timelines and examples as blocks."""
    lines: list[str] = []
    inside = ""
    for line in [*doc.replace("``", "`").splitlines(), ""]:
        starts = line.startswith(">>> ") and inside != "python"
        if inside == "python" and not line.strip():
            lines += ["```", ""]
            inside = ""
            continue
        if inside == "text" and line.strip() and not line.startswith("    "):
            lines += ["```", ""]
            inside = ""
        if starts:
            lines.append("```pycon")
            inside = "python"
        if line.endswith("::"):
            lines += [line[:-1], ""] if line.strip() != "::" else []
            lines.append("```text")
            inside = "text"
            continue
        if inside == "text":
            lines += [line.removeprefix("    ")] if line.strip() else []
            continue
        lines.append(line.replace(":meth:", "").replace(":func:", "") if not inside else line)
    while lines and not lines[-1].strip():
        lines.pop()
    return linked("\n".join([*lines, "```"] if inside == "text" else lines))


CITATION = re.compile(r'docs/([\w/]+\.md)(?:,\s+"([^"]+)")?')
"""How docstrings cite a page, and a heading on it."""


def linked(text: str) -> str:
    """The text with its citations of pages as links."""

    def link(found: re.Match[str]) -> str:
        page, heading = found[1], " ".join((found[2] or "").split())
        title = page.removesuffix(".md").rpartition("/")[2].replace("_", " ")
        return f"[{heading}]({page}#{anchor(heading)})" if heading else f"[{title}]({page})"

    return CITATION.sub(link, text)


# facts

FACTS = "Progress, finality, state, cost"

FACTS_HEAD = f"""## {FACTS}

What a streaming query says when, and what it keeps. c is the CTI of an operator's inputs, the least of them; an event or a row is
*settled* when its end lies before c. Of the state that stays a micro-batch reads *{OpenedPart.PARTS}*, whose size does not
grow with the events that are open in a group, *{OpenedPart.WHOLE_GROUPS}*, all events that are still needed of each group that a
new row touches. `explain()` shows the same for each operator of a query.

| operator | CTI out | a row is final | state that stays | read by a micro-batch | cost of a micro-batch |
| --- | --- | --- | --- | --- | --- |"""


def facts() -> str:
    """Progress, finality, state and cost of operators, of queries that show each of them."""
    return "\n".join([FACTS_HEAD, *(fact(name, footprint) for name, footprint in footprints().items())]) + "\n"


def fact(name: str, one: Footprint) -> str:
    """A row of the table."""
    good = f"; for good: {one.for_good}" if one.for_good and "for good" not in one.keeps else ""
    cells = [text.replace("|", "or") for text in (one.cti, one.final, one.keeps + good, one.opens, one.cost)]
    return "| " + " | ".join([name, *cells]) + " |"


def footprints() -> dict[str, Footprint]:
    """The footprints of operators, by the name of a row."""
    a = sq.events([(1, 5, {"k": 1, "v": 1.0})], name="a")
    b = sq.events([(2, 6, {"k": 1, "w": 2.0})], name="b")
    dated = sq.events([(dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2), {"k": 1})], name="dated")
    times = pa.table({"t": [1], "k": [1], "edge": ["start"]})
    lives = pa.table({"start": [1], "end": [2], "k": [1]})
    rows = pa.table({"start": [1], "end": [2], "new_end": [2], "k": [1], "kind": ["insert"]})
    pattern = sq.cedr("EVENT E WHEN SEQUENCE(A AS x FIRST, B AS y, 5)", A=a, B=b)
    weighted = sq.time_weighted_avg("v")
    of_user = sq.uda("double", name="of_user")(lambda v: v.sum())("v")
    queries: dict[str, tuple[sq.Stream, type[Operator]]] = {
        "points": (sq.points(times, "t"), Source),
        "points with id": (sq.points(times, "t", id="k"), Source),
        "intervals": (sq.intervals(lives, "start", "end"), Source),
        "edges": (sq.edges(times, "t", edge="edge", key="k"), Source),
        "physical": (sq.physical(rows), Source),
        "physical with id": (sq.physical(rows, id="k"), Source),
        "where": (a.where(sq.col("v") > 0), operators.Where),
        "select": (a.select(x=sq.col("v")), operators.Select),
        "union": (a.union(a.shift(1)), operators.Union),
        "join_table": (a.join_table(pa.table({"k": [1]}), on="k"), operators.JoinTable),
        "alter_lifetime and its like": (a.shift(1), operators.AlterLifetime),
        "chop": (a.chop(2), operators.Chop),
        "clip": (a.clip(b, on="k"), operators.Clip),
        "to_signal": (a.to_points().to_signal("k"), operators.ToSignal),
        "distinct_ids": (a.distinct_ids(2, id="k"), operators.DistinctIds),
        "last_rows": (a.last_rows(3, key="k"), operators.LastRows),
        "inner join": (a.join(b, on="k"), operators.Join),
        "left, semi and anti join": (a.left_anti_join(b, on="k"), operators.Join),
        "windowed_join": (a.windowed_join(b, on="k", size=2), operators.WindowedJoin),
        "except_": (a.except_(a.where(sq.col("v") > 0)), operators.Except),
        "scan": (a.to_points().group_by("k").scan(running("v")), operators.Scan),
        "pattern that selects or consumes": (pattern, operators.Scan),
        "hopping windows": (a.hopping_window(4, 2).select(n=sq.count()), MergePartials),
        "hopping windows with a median": (a.hopping_window(4, 2).select(m=sq.median("v")), WindowAggregate),
        "hopping windows of a user's function": (a.hopping_window(4, 2).select(x=of_user), WindowAggregate),
        "calendar windows": (dated.calendar_window("1 day", zone="UTC").select(n=sq.count()), WindowAggregate),
        "snapshots": (a.snapshot_window().select(n=sq.count()), WindowAggregate),
        "snapshots with time_weighted_avg": (a.snapshot_window(clip_input="none").select(x=weighted), WindowAggregate),
        "sessions": (a.group_by("k").session_window(3).select(n=sq.count()), WindowAggregate),
        "count windows": (a.group_by("k").count_window(3).select(n=sq.count()), WindowAggregate),
        "rows windows": (a.group_by("k").rows_window(3).select(n=sq.count()), WindowAggregate),
        "landmark windows": (a.group_by("k").landmark_window(2, start=0).select(n=sq.count()), WindowAggregate),
        "top_k of hopping windows": (a.hopping_window(4, 2).top_k(1, by="v"), operators.TopK),
        "top_k of snapshots": (a.snapshot_window().top_k(1, by="v"), operators.TopK),
    }
    found = {}
    for name, (query, kind) in queries.items():
        plan = rewrite(number_sources(query.plan)[0]).plan
        found[name] = next(node.footprint for node in nodes(plan) if isinstance(node, kind))
    found["rows whose ends are read and may still move (settle)"] = settle_footprint(at_once=True)
    found["the same, where only final rows are read"] = settle_footprint(at_once=False)
    found["rows that a level holds back"] = HOLDING
    found["CTIs as rows"] = ctis_footprint(in_order=True, reads_ends=False)
    return found


running = sq.udso("total double", name="running", initial=0.0)(lambda total, v: (total + v, [total + v]))


if __name__ == "__main__":
    main()
