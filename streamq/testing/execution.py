"""Ways to run a case: the options of an execution, and draws of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from hypothesis import strategies as st

from streamq.choices import OutputForm
from streamq.compiler.rules import RULES, Rule
from streamq.policies import Level
from streamq.time import INTEGER, show_duration

LITERAL: Final = "literal"
STREAM: Final = "stream"
BATCH: Final = "batch"
SPARK: Final = "spark stream"
Backend = Literal["literal", "stream", "batch", "spark stream"]
"""The backends: all at once in-process, like ``show()``; micro-batches in-process; a Spark DataFrame; Structured Streaming."""


RUN: Final = "run"
WRITTEN: Final = "writeStream"
CONTROLLED: Final = "writeStream with control"
Started = Literal["run", "writeStream", "writeStream with control"]
"""The ways to start a query on Spark: ``run``; a writeStream of ``to_stream``, which cannot be ended; such a writeStream with a
control folder, into which the test writes that it ends."""

STARTS: tuple[Started, ...] = (RUN, WRITTEN, CONTROLLED)


@dataclass(frozen=True)
class Execution:
    """One way to run a case: by a ``backend``, with an ``output`` of final rows or a changelog if it is a stream.

    - ``others``: the output of every second query, if there are several (None: as of the first)
    - ``rules``: names of the rewrite rules to apply (None: all)
    - ``buckets``: the number of parts into which the rows of an operator are divided by their keys
    - ``restart``: the query restarts from its state after every micro-batch
    - ``slack``: CTIs from outside after each micro-batch, in turn: how many ticks they are below the greatest legal CTI
      (None: no CTI); empty: CTIs come from the sources' own policies only
    - ``ctis``: a changelog contains its CTIs, which are compared with the rows after them
    - ``early``: a changelog reports rows before the watermark reaches them
    - ``blocks``: for how long the input of a changelog is blocked, in ticks (None: until it is final); the next entry after
      each restart
    - ``remember``: for how long history is remembered, in ticks (None: for ever); the next entry after each restart
    - ``late_output``: the query has a late output, whose rows are compared too
    - ``ends_with_rows``: the end of the input comes in the last micro-batch, together with its rows, and not after it
    - ``rates``: the rows that are said to be expected of the sources in ten ticks, in turn; empty: nothing is said

    On Spark: ``started`` is one of STARTS; ``zone`` is the time zone of a session with Spark's own settings ("": a session that
    streamq starts); ``silent``: a source without further rows gets no further files either.
    """

    backend: Backend = STREAM
    output: OutputForm = OutputForm.FINAL
    rules: tuple[str, ...] | None = None
    buckets: int = 1
    restart: bool = False
    slack: tuple[int | None, ...] = ()
    blocks: tuple[int | None, ...] = (0,)
    remember: tuple[int | None, ...] = (None,)
    started: Started = RUN
    zone: str = ""
    silent: bool = False
    ctis: bool = False
    early: bool = False
    late_output: bool = False
    ends_with_rows: bool = False
    others: OutputForm | None = None
    rates: tuple[int, ...] = ()

    def outputs(self, count: int) -> list[OutputForm]:
        """The outputs of ``count`` queries that run side by side."""
        return [self.output if number % 2 == 0 else self.others or self.output for number in range(count)]

    def in_units(self, unit: int) -> Execution:
        """Return the execution with its durations multiplied by ``unit``, except those of one tick or less."""

        def scaled(parts: tuple[int | None, ...]) -> tuple[int | None, ...]:
            return tuple(n if n is None or n <= 1 else n * unit for n in parts)

        return replace(self, slack=scaled(self.slack), blocks=scaled(self.blocks), remember=scaled(self.remember))

    @property
    def whole(self) -> bool:
        """True if all rows are read at once, so that none is late."""
        return self.backend in (LITERAL, BATCH)

    @property
    def levels(self) -> list[Level]:
        """The levels of consistency, one for each restart, repeated from the start."""
        pairs = zip(itertools.cycle(self.blocks), itertools.cycle(self.remember), strict=False)
        many = math.lcm(len(self.blocks), len(self.remember))
        return [Level(_block(block, most), most) for block, most in itertools.islice(pairs, many)]

    @property
    def chosen(self) -> tuple[Rule, ...]:
        """The rewrite rules to apply."""
        return RULES if self.rules is None else tuple(r for r in RULES if r.name in self.rules)

    def __str__(self) -> str:
        return self.shown(INTEGER)

    def shown(self, axis: str) -> str:
        """Return the execution as text: backend, a stream's output, and options other than the default, durations by the axis."""
        parts: list[str] = [self.backend] if self.whole else [self.backend, f"{self.output} output"]
        parts += [f"{self.others} output of every second query"] * (self.others is not None)
        if self.rules is not None:
            parts.append(f"rules {', '.join(self.rules) or 'none'}")
        parts += [f"{self.buckets} buckets"] * (self.buckets > 1)
        parts += ["restarted after each micro-batch"] * self.restart
        parts += [f"promises {_durations(self.slack, axis, 'none')} behind"] * bool(self.slack)
        parts += [f"input blocked {_durations(self.blocks, axis, 'until it is final')}"] * (self.blocks != (0,))
        parts += [f"history remembered {_durations(self.remember, axis, 'for ever')}"] * (self.remember != (None,))
        parts += ["with its CTIs"] * self.ctis + ["early"] * self.early + ["with a late output"] * self.late_output
        parts += ["ended with the last rows"] * self.ends_with_rows
        parts += [f"expects {', '.join(map(str, self.rates))} rows"] * bool(self.rates)
        parts += [f"started by {self.started}"] * (self.started != RUN) + ["silent at the end"] * self.silent
        parts += [f"a session of Spark's own in {self.zone}"] * bool(self.zone)
        return ", ".join(parts)


def _durations(ticks: Sequence[int | None], axis: str, none: str) -> str:
    """Return durations as text: ``3, then 5`` on an integer axis, with units on the timestamp axis; ``none`` replaces None."""
    return ", then ".join(none if n is None else show_duration(n, axis) for n in ticks)


def _block(block: int | None, remember: int | None) -> int | None:
    """Return the blocking time, at most the time for which history is remembered; None is without bound."""
    if remember is None:
        return block
    return remember if block is None else min(block, remember)


def subsets() -> st.SearchStrategy[tuple[str, ...] | None]:
    """Draw the names of the rules to apply: None for all, or any subset, none included, in the order of RULES."""
    names = [r.name for r in RULES]
    return st.one_of(
        st.none(),
        st.just(()),
        st.lists(st.sampled_from(names), unique=True).map(lambda some: tuple(n for n in names if n in some)),
    )


def executions(output: OutputForm) -> st.SearchStrategy[Execution]:
    """Draw an in-process execution in micro-batches, with any options that ``output`` allows."""
    slack = st.one_of(st.just(()), st.lists(st.sampled_from([0, 0, 0, 1, 3, None]), min_size=1, max_size=4).map(tuple))
    # blocking does not concern final rows
    some = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 20, None]), min_size=1, max_size=3).map(tuple)
    blocks = st.one_of(st.just((0,)), some) if output == OutputForm.CHANGELOG else st.just((0,))
    most = st.lists(st.sampled_from([0, 1, 2, 5, 12, None]), min_size=1, max_size=2).map(tuple)
    # forgotten history makes items late; mostly keep all of it, so that answers have more rows to compare
    remember = st.sampled_from([False, False, False, False, True]).flatmap(
        lambda weak: most if weak else st.just((None,))
    )
    # CTIs can be in a changelog only
    ctis = st.sampled_from([False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    # early output excludes blocking
    early = st.sampled_from([False, False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    # with a late output, nothing is combined before the shuffle
    late_outputs = st.sampled_from([False, False, False, True])
    return st.builds(
        lambda rules, buckets, restart, slack, blocks, remember, ctis, early, late_output, ends_with_rows: Execution(
            STREAM,
            output,
            rules,
            buckets=buckets,
            restart=restart,
            slack=slack,
            blocks=(0,) if early else blocks,
            remember=remember,
            ctis=ctis,
            early=early,
            late_output=late_output,
            # where history is forgotten, edges count otherwise at the end than before it
            ends_with_rows=ends_with_rows and remember == (None,),
        ),
        *(subsets(), st.sampled_from([2, 1]), st.booleans(), slack, blocks, remember, ctis, early, late_outputs),
        st.sampled_from([False, False, True]),
    )


def mixed(drawn: st.SearchStrategy[Execution]) -> st.SearchStrategy[Execution]:
    """Draw an execution of several queries, of which every second one may have another output."""
    forms = st.sampled_from([None, OutputForm.FINAL, OutputForm.CHANGELOG])
    return st.builds(lambda how, others: replace(how, others=others), drawn, forms)


def in_process(*, several: bool = False) -> list[st.SearchStrategy[tuple[Execution, ...]]]:
    """Return four strategies to use in turn: three run micro-batches, as final rows and as a changelog, one runs all at once.

    ``several``: of several queries, whose outputs may differ.
    """
    ways = [executions(OutputForm.FINAL), executions(OutputForm.CHANGELOG)]
    cut = st.tuples(*(mixed(way) if several else way for way in ways))
    whole = st.tuples(subsets().map(lambda rules: Execution(LITERAL, rules=rules)))
    return [cut, cut, whole, cut]


ZONES = ("", "", "Asia/Tokyo", "America/New_York")
"""Time zones of foreign sessions; "", drawn for half of the cases, is a session that streamq starts."""


def on_spark(backend: str, *, several: bool = False) -> st.SearchStrategy[tuple[Execution, ...]]:
    """Draw a tuple of one execution by ``backend``, BATCH or SPARK; a streaming one applies all rules, as users' queries do.

    ``several``: of several queries, which ``run_all`` runs as one stream.
    """
    if backend == BATCH:
        rules = st.one_of(st.none(), subsets())
        return st.tuples(
            st.builds(lambda rules, zone: Execution(BATCH, rules=rules, zone=zone), rules, st.sampled_from(ZONES))
        )
    starts = (RUN,) if several else STARTS
    streamed = st.builds(
        lambda output, restart, started, zone, silent, early: Execution(
            SPARK,
            output,
            buckets=2,
            restart=restart,
            started=started,
            zone=zone,
            silent=silent,
            early=early and output == OutputForm.CHANGELOG,
        ),
        st.sampled_from([OutputForm.FINAL, OutputForm.CHANGELOG]),
        st.booleans(),
        st.sampled_from(starts),
        st.sampled_from(ZONES),
        st.booleans(),
        st.booleans(),
    )
    return st.tuples(mixed(streamed) if several else streamed)
