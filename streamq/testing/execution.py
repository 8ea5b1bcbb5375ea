"""How a case is run: in-process with any rules, buckets, restarts and promises; the answer it gives as a history.

The Spark ones are in ``streamq.testing.on_spark``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.rewriter import rewrite
from streamq.compiler.rules import RULES, Rule
from streamq.compiler.stages import compile_stages
from streamq.operators import Join, JoinTable, Select, Source, Union, Where
from streamq.plan.node import nodes
from streamq.policies import Level
from streamq.run.query import local_history
from streamq.runtime.egress import changelog_rows
from streamq.runtime.event import INSERT, LE, RE, RETRACT, WEIGHT
from streamq.testing.admission import ADJUSTED, DROPPED, DUPLICATES, INVALID, admitted, legal, limits
from streamq.testing.arrival import bounds, is_event, repeated, unmatched
from streamq.testing.case import Case
from streamq.testing.history import history
from streamq.testing.python_values import keys
from streamq.testing.watch import ProgressViolation, changes_before, watched
from streamq.time import INFINITY, MINUS_INFINITY

LITERAL, STREAM, BATCH, SPARK = "literal", "stream", "batch", "spark stream"
"""All at once in-process as ``show()`` does; micro-batches in-process; a Spark DataFrame; a Structured Streaming query."""


RUN, WRITTEN, CONTROLLED = "run", "writeStream", "writeStream with control"
"""How a query is started on Spark: by ``run``; by a writeStream of ``to_stream``, which nobody can end; or by one that has a
control folder, into which its end is written."""

STARTS = (RUN, WRITTEN, CONTROLLED)


class WrongOutput(AssertionError):
    """An output that is no history at all: a row taken back that was never there, or a final row taken back."""


@dataclass(frozen=True)
class Execution:
    """One way to run a case.

    ``rules`` are names of rewrite rules (None: all); ``restart``: from the state, after every micro-batch; ``slack``: how
    far the promises that sources make after each micro-batch stay behind what is true of the future, cyclically (None
    within it: none; empty: only what the sources' own policies say); ``watch``: whether kernels are watched; ``ctis``: whether
    a changelog comes with its CTIs, which are then held against what follows; ``blocks``: how long a changelog's input is
    blocked, in ticks (None: until it is final), another from restart to restart; ``remember``: for how long history is
    remembered, in ticks (None: for ever), likewise.

    On Spark: ``started`` is one of STARTS; ``zone`` is the time zone of a session with Spark's own settings ("": a session as
    streamq makes it); ``silent``: a source that has no more rows brings no more files either.
    """

    backend: str = STREAM
    output: OutputForm = OutputForm.FINAL
    rules: tuple[str, ...] | None = None
    buckets: int = 1
    restart: bool = False
    slack: tuple[int | None, ...] = ()
    watch: bool = False
    blocks: tuple[int | None, ...] = (0,)
    remember: tuple[int | None, ...] = (None,)
    started: str = RUN
    zone: str = ""
    silent: bool = False
    ctis: bool = False

    @property
    def whole(self) -> bool:
        """Whether all rows come at once, so that nothing is late."""
        return self.backend in (LITERAL, BATCH)

    @property
    def levels(self) -> list[Level]:
        """The levels of consistency, from restart to restart."""
        pairs = zip(itertools.cycle(self.blocks), itertools.cycle(self.remember), strict=False)
        many = math.lcm(len(self.blocks), len(self.remember))
        return [Level(_block(block, most), most) for block, most in itertools.islice(pairs, many)]

    @property
    def chosen(self) -> tuple[Rule, ...]:
        """Its rewrite rules."""
        return RULES if self.rules is None else tuple(r for r in RULES if r.name in self.rules)

    def __str__(self) -> str:
        parts = [self.backend] if self.backend in (LITERAL, BATCH) else [self.backend, f"{self.output} output"]
        if self.rules is not None:
            parts.append(f"rules {', '.join(self.rules) or 'none'}")
        parts += [f"{self.buckets} buckets"] * (self.buckets > 1) + ["restarted after each micro-batch"] * self.restart
        parts += [f"promises {self.slack} behind"] * bool(self.slack) + ["watched"] * self.watch
        parts += [f"input blocked for {self.blocks}"] * (self.blocks != (0,))
        parts += [f"history remembered for {self.remember}"] * (self.remember != (None,))
        parts += ["with its CTIs"] * self.ctis
        parts += [f"started by {self.started}"] * (self.started != RUN) + ["silent at the end"] * self.silent
        parts += [f"a session of Spark's own in {self.zone}"] * bool(self.zone)
        return ", ".join(parts)


def _block(block: int | None, remember: int | None) -> int | None:
    """Nothing is blocked for longer than history is remembered."""
    if remember is None:
        return block
    return remember if block is None else min(block, remember)


def subsets() -> st.SearchStrategy[tuple[str, ...] | None]:
    """All rules, none, or some."""
    names = [r.name for r in RULES]
    return st.one_of(
        st.none(),
        st.just(()),
        st.lists(st.sampled_from(names), unique=True).map(lambda some: tuple(n for n in names if n in some)),
    )


def executions(output: OutputForm) -> st.SearchStrategy[Execution]:
    """In-process, in micro-batches, in any way."""
    slack = st.one_of(st.just(()), st.lists(st.sampled_from([0, 0, 0, 1, 3, None]), min_size=1, max_size=4).map(tuple))
    # what is watched is one kernel, so one bucket
    hosts = [(3, False), (1, output == OutputForm.CHANGELOG)]
    # of final rows the level says nothing but what is remembered
    some = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 20, None]), min_size=1, max_size=3).map(tuple)
    blocks = st.one_of(st.just((0,)), some) if output == OutputForm.CHANGELOG else st.just((0,))
    most = st.lists(st.sampled_from([0, 1, 2, 5, 12, None]), min_size=1, max_size=2).map(tuple)
    # what lies behind is late: where nothing is, more is there to be right about
    remember = st.sampled_from([False, False, False, False, True]).flatmap(
        lambda weak: most if weak else st.just((None,))
    )
    # what reads a changelog back goes by the CTIs that come with it
    ctis = st.sampled_from([False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    return st.builds(
        lambda rules, host, restart, slack, blocks, remember, ctis: Execution(
            STREAM, output, rules, host[0], restart, slack, host[1], blocks, remember, ctis=ctis
        ),
        *(subsets(), st.sampled_from(hosts), st.booleans(), slack, blocks, remember, ctis),
    )


@dataclass(frozen=True)
class Expectation:
    """What a run of a case is to give: the answer of ``case``, in which nothing is late, and what is counted meanwhile.

    ``ctis``: how far sources come beside what the rows of ``case`` say; ``sure_duplicates``: by source, how many rows must
    count as duplicates even if they are late; ``filtered``: sources of whose late items only those are counted that pass a
    filter; ``refused``: a late item fails the run; ``spared``: unless a filter drops that item before it is judged.
    """

    case: Case
    counts: Counter[str]
    ctis: Mapping[str, int] = field(default_factory=dict)
    sure_duplicates: Mapping[str, int] = field(default_factory=dict)
    filtered: frozenset[str] = frozenset()
    refused: bool = False
    spared: bool = False


def expectation(case: Case, how: Execution) -> Expectation:
    """What a case is to give run in some way: what is late depends on the cut, and on how long history is remembered."""
    counts = repetitions(case)
    if how.whole:
        return Expectation(case, counts)
    remember = [level.remember for level in (how.levels if how.restart else how.levels[:1])]
    promised = promises(case, how.slack) if how.slack else []
    ctis = _greatest(pair for batch in promised for pair in batch)
    seen = admitted(case, promised, remember)
    if not seen:
        return Expectation(case, counts, ctis)
    ctis = _greatest([*ctis.items(), *((name, one.come) for name, one in seen.items())])
    shown = {case.sources[name].shown_name() for name in seen}
    counts = Counter({key: n for key, n in counts.items() if key.rpartition("|")[0] not in shown})
    counts |= {_key(case, name, reason): n for name, one in seen.items() for reason, n in one.counts.items()}
    filtered = frozenset(name for name, one in seen.items() if one.filtered)
    sure_duplicates = {name: one.sure_duplicates for name, one in seen.items()}
    refused = [one for one in seen.values() if one.refused]
    spared = all(one.filtered for one in refused)
    return Expectation(legal(case, seen), counts, ctis, sure_duplicates, filtered, bool(refused), spared)


def _greatest(ctis: Iterable[tuple[str | None, int]]) -> dict[str, int]:
    """The greatest finite instant of each source."""
    greatest: dict[str, int] = {}
    for name, c in ctis:
        if name is not None and MINUS_INFINITY < c < INFINITY:
            greatest[name] = max(c, greatest.get(name, c))
    return greatest


def _key(case: Case, name: str, reason: str) -> str:
    return f"{case.sources[name].shown_name()}|{reason}"


def executed(case: Case, how: Execution, expected: Expectation | None = None) -> pa.Table:
    """The history that a case's query gives in-process. Raises WrongOutput, ProgressViolation, and what the query raises.

    ``expected`` is its :func:`expectation`, where that has been computed.
    """
    if how.backend == LITERAL:
        answer = local_history(case.plan, case.tables, how.chosen, case.until)
        return as_history(answer.drop_columns([WEIGHT]))
    return _summed(played(case, how, expected), how.output)


def unfinished(case: Case, output: OutputForm) -> pa.Table:
    """The history, in-process, of a case's query that nobody has ended: what the rows that came have made final."""
    *out, last = played(case, Execution(STREAM, output))
    # there may have been no micro-batch at all
    return _summed([last.slice(0, 0), *out], output)


def _summed(out: Sequence[pa.Table], output: str) -> pa.Table:
    """The history that outputs of micro-batches add up to; raises WrongOutput where they add up to none."""
    if output == OutputForm.CHANGELOG:
        return net([_read_back(deltas) for deltas in out])
    table = pa.concat_tables(out)
    if pc.any(pc.not_equal(table.column(WEIGHT), 1)).as_py():
        raise WrongOutput("a final row is taken back")
    return as_history(table.drop_columns([WEIGHT]))


def _read_back(deltas: pa.Table) -> pa.Table:
    """Deltas as the rows of their changelog tell them."""
    payload = [name for name in deltas.column_names if name not in (LE, RE, WEIGHT)]
    # a changelog has names of its own
    numbers = {name: f"p{number}" for number, name in enumerate(payload)}
    rows = changelog_rows(deltas.rename_columns([numbers.get(name, name) for name in deltas.column_names]))
    names = {number: name for name, number in numbers.items()}
    deltas_again = from_changelog(rows)
    return deltas_again.rename_columns([names.get(name, name) for name in deltas_again.column_names])


def played(case: Case, how: Execution, expected: Expectation | None = None) -> list[pa.Table]:
    """The deltas of each micro-batch, and of the end of the stream; ``expected`` as in :func:`executed`."""
    if expected is None:
        expected = expectation(case, how)
    plan = rewrite(case.plan, how.chosen).plan
    options = [Options(how.output, ctis=how.ctis, buckets=how.buckets, level=level) for level in how.levels]
    compiled = [compile_stages(plan, one) for one in options]
    if how.watch or how.slack:
        compiled = [watched(program, how.watch) for program in compiled]
    programs = itertools.cycle(compiled)
    run = LocalRun(next(programs), static=case.static)
    out = []
    promised = promises(case, how.slack) if how.slack else [[]] * len(case.cut)
    for batch, ctis in zip(case.batches, promised, strict=True):
        out.append(_checked(run, partial(run.batch, batch, ctis)))
        if how.restart:
            run = replace(run.restart(), program=next(programs))
    out.append(_checked(run, partial(run.finish, case.until)))
    if how.ctis and run.cti != INFINITY:
        raise ProgressViolation(f"the result does not end with its inputs: its CTI is {run.cti}")
    if how.output == OutputForm.CHANGELOG and how.blocks != (0,) and not how.ctis:
        _check_blocked(case, how, promised, out, expected)
    counted: Counter[str] = Counter()
    for totals in run.totals.values():
        counted.update(totals)
    _check_counts(case, counted, expected)
    return out


def _checked(run: LocalRun, step: Callable[[], pa.Table]) -> pa.Table:
    """A step's deltas; raises ProgressViolation where they change what lies before the CTI that came with earlier ones."""
    before = run.cti
    deltas = step()
    if changed := changes_before(before, [deltas]):
        raise ProgressViolation(f"the result changes before its CTI {before}: {changed}")
    return deltas


BLOCKED = (Source, Where, Select, Union, Join, JoinTable)
"""Operators whose rows start where rows of their inputs start."""


def _check_blocked(
    case: Case, how: Execution, promised: Sequence[Any], out: Sequence[pa.Table], expected: Expectation
) -> None:
    """Raises WrongOutput where an item is let go before the level lets it, or later, as far as rows of the answer say so."""
    plan = nodes(case.plan)
    if not all(isinstance(node, BLOCKED) for node in plan):
        return
    blocks = [level.block for level in (how.levels if how.restart else how.levels[:1])]
    (first, *_) = case.sources.values()
    name = first.table
    # rows of the answer are those of one source, each once
    whole = (
        len(plan) <= 2
        and first.insert_only
        and not first.ids
        and not isinstance(plan[-1], Where | Union | Join | JoinTable)
    )
    whole = whole and expected.case is case
    arrived_items = released = 0
    for n, limit, table in zip(case.cut, limits(case, promised, blocks), out, strict=False):
        early = pc.greater_equal(table.column(LE), limit)
        if pc.any(early).as_py():
            raise WrongOutput(f"items are held from {limit} on, and let go is {table.filter(early).to_pylist()[0]}")
        arrived_items, released = arrived_items + n, released + table.num_rows
        arrived = [item for of, item in case.arrival[:arrived_items] if of == name and is_event(item)]
        due = sum(item.start is not None and item.start < limit for item in arrived)
        if whole and released != due:
            raise WrongOutput(f"items are held from {limit} on, so {due} are let go, not {released}")


def _check_counts(case: Case, counted: Counter[str], expected: Expectation) -> None:
    """Raises WrongOutput where other items are counted as late, invalid or delivered again than those that are."""
    wanted = dict(expected.counts)
    for name, source in case.sources.items():
        if name in expected.filtered:
            # of what is late a filter may have left some out before
            for reason in (DROPPED, ADJUSTED):
                key = _key(case, name, reason)
                wanted[key] = min(wanted.get(key, 0), counted[key])
        if source.ids:
            # what comes again so late that nothing of it were left may be known still, or be late
            again, lost = _key(case, name, DUPLICATES), _key(case, name, DROPPED)
            many = wanted.get(again, 0) + wanted.get(lost, 0)
            if counted[again] + counted[lost] == many and counted[again] >= expected.sure_duplicates.get(name, 0):
                wanted |= {again: counted[again], lost: counted[lost]}
    wanted = {key: n for key, n in wanted.items() if n}
    if +counted != Counter(wanted):
        raise WrongOutput(f"counted are {dict(+counted)}, not {wanted}")


def repetitions(case: Case) -> Counter[str]:
    """What is counted of a case in which nothing is late: what its sources deliver again, and rows that are no events."""
    counts = {_key(case, name, DUPLICATES): repeated(s, case.arrived(name)) for name, s in case.sources.items()}
    counts |= {_key(case, name, INVALID): unmatched(s, case.arrived(name)) for name, s in case.sources.items()}
    return Counter({key: n for key, n in counts.items() if n})


def promises(case: Case, slack: Sequence[int | None]) -> list[list[tuple[str | None, int]]]:
    """After each micro-batch what every source can promise, some way behind what is true of all that is still to come."""
    due = {name: iter(bounds(case.arrived(name))) for name in case.sources}
    coming = [(of, next(due[of])) for of, _ in case.arrival]
    ctis_by_batch: list[list[tuple[str | None, int]]] = []
    # windows that it reaches are reported, whatever their bound is
    most = case.latest + 5 if case.until is None else min(case.latest + 5, case.until)
    seen = 0
    for n, behind in zip(case.cut, itertools.cycle(slack)):
        seen += n
        ctis: list[tuple[str | None, int]] = []
        for name in due if behind is not None else ():
            least = min((bound for of, bound in coming[seen:] if of == name), default=INFINITY)
            ctis.append((name, min(least, most) - (behind or 0)))
        ctis_by_batch.append(ctis)
    return ctis_by_batch


def from_changelog(rows: pa.Table) -> pa.Table:
    """The deltas that the rows of a changelog tell of, CTIs aside."""
    kind, events = rows.column("kind"), rows.drop_columns(["kind", "new_end"])
    is_retraction = pc.equal(kind, RETRACT)
    moved = events.set_column(events.column_names.index("end"), "end", rows.column("new_end")).filter(is_retraction)
    inserted = [
        events.filter(pc.equal(kind, INSERT)),
        moved.filter(pc.not_equal(moved["end"], moved["start"]).fill_null(True)),
    ]
    return pa.concat_tables([_weighed(pa.concat_tables(inserted), 1), _weighed(events.filter(is_retraction), -1)])


def _weighed(rows: pa.Table, weight: int) -> pa.Table:
    ticked = history(rows)
    names = [{"start": LE, "end": RE}.get(name, name) for name in ticked.column_names]
    return ticked.rename_columns(names).append_column(WEIGHT, pa.array([weight] * ticked.num_rows, pa.int64()))


def net(tables: Sequence[pa.Table]) -> pa.Table:
    """Deltas summed into a history; WrongOutput where after some micro-batch a weight is below zero."""
    table = pa.concat_tables(tables)
    names = [n for n in table.column_names if n != WEIGHT]
    weights: Counter[Any] = Counter()
    rows: dict[Any, int] = {}
    last = {sum(t.num_rows for t in tables[: i + 1]) - 1 for i in range(len(tables))}
    touched: set[Any] = set()
    for i, (key, weight) in enumerate(zip(keys(table.select(names)), table[WEIGHT].to_pylist(), strict=True)):
        weights[key] += weight
        rows.setdefault(key, i)
        touched.add(key)
        if i not in last:
            continue
        # within a micro-batch order means nothing
        for one in touched:
            if weights[one] < 0:
                raise WrongOutput(f"a row is taken back that was not there: {dict(zip(names, one, strict=True))}")
        touched = set()
    copies = [rows[key] for key, n in weights.items() for _ in range(n)]
    return as_history(table.select(names).take(pa.array(copies, pa.int64())))


def as_history(table: pa.Table) -> pa.Table:
    """Deltas' columns under the names of a history."""
    return table.rename_columns([{LE: "start", RE: "end"}.get(n, n) for n in table.column_names])


__all__ = [
    "BATCH", "CONTROLLED", "LITERAL", "RUN", "SPARK", "STARTS", "STREAM", "WRITTEN", "Execution",
    "Expectation", "WrongOutput", "as_history", "executed", "executions", "expectation", "from_changelog", "net", "played",
    "promises", "repetitions", "subsets", "unfinished",
]  # fmt: skip
