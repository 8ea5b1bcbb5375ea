"""Stream: a query, built verb by verb; the table of contents of the language."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from streamq.choices import OutputForm, choose_word
from streamq.errors import PlanError, UnknownVerb, sentence
from streamq.operators.alter_lifetime import AlterLifetimeVerbs
from streamq.operators.chop import ChopVerbs
from streamq.operators.clip import ClipVerbs
from streamq.operators.distinct_ids import DistinctIdsVerbs
from streamq.operators.except_ import ExceptVerbs
from streamq.operators.explode import ExplodeVerbs
from streamq.operators.grouped_stream import GroupVerbs
from streamq.operators.join import JoinVerbs
from streamq.operators.join_table import JoinTableVerbs
from streamq.operators.scan import ScanVerbs
from streamq.operators.select import SelectVerbs
from streamq.operators.to_signal import ToSignalVerbs
from streamq.operators.union import UnionVerbs
from streamq.operators.where import WhereVerbs
from streamq.operators.windowed_join import WindowedJoinVerbs
from streamq.patterns.contributor import AliasVerbs
from streamq.plan.expr import Expr
from streamq.plan.hints import for_verb
from streamq.plan.node import Node
from streamq.plan.resolve import EventProxy
from streamq.plan.schema import Schema
from streamq.plan.verbs import Verbs, tables_behind
from streamq.policies import Consistency, consistency_of
from streamq.run.run_verbs import RunVerbs

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from streamq.compiler.explain_html import Section
    from streamq.run.quarantine import Quarantine

P = ParamSpec("P")
R = TypeVar("R")


class Stream(
    WhereVerbs,
    SelectVerbs,
    UnionVerbs,
    JoinVerbs,
    WindowedJoinVerbs,
    ExceptVerbs,
    JoinTableVerbs,
    ClipVerbs,
    AlterLifetimeVerbs,
    ToSignalVerbs,
    ChopVerbs,
    ExplodeVerbs,
    DistinctIdsVerbs,
    GroupVerbs,
    ScanVerbs[Any],
    AliasVerbs,
    RunVerbs,
):
    """Events with lifetimes and what is to be computed over them; immutable: every verb gives another stream.

    ``plan`` is the logical plan; ``tables`` the DataFrames or Arrow tables behind its sources, by name.
    """

    def __init__(self, plan: Node, tables: Mapping[str, Any]):
        self.plan = plan
        self.tables = tables

    def _derive(self, plan: Node, *others: Verbs) -> Self:
        return type(self)(plan, tables_behind((self, *others), "union"))

    @property
    def schema(self) -> Schema:
        """The payload's columns and types, the time axis and the declared shape."""
        return self.plan.schema

    @property
    def columns(self) -> list[str]:
        """The payload's column names."""
        return list(self.plan.schema.names)

    def __getitem__(self, name: str) -> Expr:
        return EventProxy(self.plan, "column")[name]

    def __iter__(self) -> Iterator[Any]:
        hint = "Its rows are stream.to_arrow().to_pylist(), its columns' names stream.columns."
        raise PlanError(sentence("stream", "not iterable", "", hint))

    if not TYPE_CHECKING:  # a type checker is to see that there is no such verb

        def __getattr__(self, name):
            if name.startswith("_") or "tables" not in self.__dict__:
                raise AttributeError(name)
            if name in self.plan.schema.names:
                hint = f"A column is sq.col({name!r}), stream[{name!r}], or in a lambda e.{name}."
            elif name in self.plan.schema.consumed:
                self.plan.schema.unknown(name, "stream")
            else:
                hint = for_verb(name, [n for n in dir(type(self)) if not n.startswith("_")])
            raise UnknownVerb(sentence("stream", f"no verb {name!r}", "", hint))

    def pipe(self, function: Callable[Concatenate[Self, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """``function(self, ...)``, so that your own verbs chain like streamq's.

        >>> import streamq as sq
        >>> def fast(cars, limit):
        ...     return cars.where(sq.col("v") > limit)
        >>> sq.events([(1, 3, {"v": 90}), (2, 4, {"v": 30})]).pipe(fast, 50).show()
         v  start  end
        90      1    3
        """
        return function(self, *args, **kwargs)

    def explain(
        self,
        mode: str | None = None,
        format: str = "text",
        *,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        early: bool = False,
    ) -> None:
        """Print the logical plan, the rules that fired (and why others did not), the incremental plan and the stages.

        ``mode`` picks one part: "logical", "rules", "incremental" or "physical", of a pattern "pattern" too, which says what
        each of its operators keeps; ``format`` is "text", "html" or "json".
        ``consistency``, ``output``, ``ctis`` and ``early`` are those of :meth:`run`: the stages are those of such a run.
        """
        print(self.explanation(mode, format, consistency=consistency, output=output, ctis=ctis, early=early))

    def explanation(
        self,
        mode: str | None = None,
        format: str = "text",
        *,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        early: bool = False,
    ) -> str:
        """What :meth:`explain` prints."""
        from streamq.compiler.egress import choose_egress
        from streamq.compiler.explain import explain
        from streamq.compiler.options import Options, check_early
        from streamq.compiler.results import Results

        form = choose_word(OutputForm, output, "output", "explain")
        level = consistency_of(consistency, self.plan.schema.axis, "explain")
        out = choose_egress(self.plan, form, ctis=ctis, verb="explain")
        check_early(early, (out,), level, "explain")
        options = Options(egresses=(out,), level=level, early=early)
        return explain(Results((self.plan,)), mode, format, options, self._explained_first())

    def _explained_first(self) -> Sequence[Section]:
        """Parts of an explanation that come before those of the plan."""
        return ()

    def to_json(self) -> str:
        """The query as JSON, to be kept and read back by :func:`from_json`; without its tables, which are named.

        Equal queries give equal texts; an entry stands on a line, so that two texts can be compared. Code of your own is in
        it by its name in ``sq.modules``. Raises PlanError for a pyspark Column in it, which only Spark knows, and for a
        module without a name, or with options that are not plain values.

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"v": 3})], name="s")
        >>> sq.from_json(s.shift(1).to_json(), s=s).show()
        v  start  end
        3      2    6
        """
        from streamq.compiler.plan_json import plan_to_json, to_text
        from streamq.plan.node import number_sources

        return to_text(plan_to_json(number_sources(self.plan)[0]))

    def to_df(self, until: int | dt.datetime | None = None) -> DataFrame:
        """The answer over the whole of a batch input: payload columns, ``start`` and ``end`` (NULL: still alive).

        ``until`` bounds the windows and pieces that are reported: those that start before it. By default, where a lifetime
        never ends, that is the greatest finite endpoint of the window's input, or how far time has come in its sources, if
        that is further (the greatest start or CTI among their rows, those that filters drop or retractions take back
        included); else all are. Pure DataFrame operations; nothing runs until you act on it.
        """
        from streamq.run.query import batch_frame

        return batch_frame(self.plan, self.tables, until)

    def to_arrow(self, until: int | dt.datetime | None = None) -> pa.Table:
        """The answer as an Arrow table, ordered by start, end and payload; without Spark over literal and Arrow tables.

        Every value of Spark's types is in it. Python itself has no years beyond 9999 or before 1: of such instants Arrow's
        ``to_pylist`` raises an OverflowError, where :meth:`show` and :meth:`to_pandas` go on.
        """
        from streamq.run.query import compute_answer

        return compute_answer(self.plan, self.tables, until, "to_arrow")

    def to_pandas(self, until: int | dt.datetime | None = None) -> pd.DataFrame:
        """The answer as a pandas DataFrame, ordered by start, end and payload.

        Literal streams and Arrow tables run in-process, without Spark; others as a batch. Instants are ``datetime64[us, UTC]``,
        which reaches as far as Spark's timestamps (its least value, -2^63, is pandas' NaT); days ``datetime64[ms]``. Arrays are
        lists, structs dicts, maps lists of pairs, of Python's values; an instant that Python has no value for is text.
        """
        from streamq.run.answers import to_pandas
        from streamq.run.query import compute_answer

        return to_pandas(compute_answer(self.plan, self.tables, until, "to_pandas"), self.plan.schema)

    def show(self, n: int = 20, until: int | dt.datetime | None = None) -> None:
        """Print the first ``n`` rows of the answer, as a table; instants in UTC, years beyond 9999 or before 0 with a sign."""
        from streamq.run.answers import as_text
        from streamq.run.query import compute_answer

        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise PlanError(sentence("show", "n is a number of rows", f"found {n!r}"))
        print(as_text(compute_answer(self.plan, self.tables, until, "show"), n))

    def quarantine(self, rows: Any = None, until: int | dt.datetime | None = None) -> Quarantine[Self]:
        """What modules with ``on_error="quarantine"`` failed for: whole events with their lifetimes, window, group and reason.

        Without ``rows``, of the answer over the whole of a batch input, as :meth:`to_df`, :meth:`to_pandas` and :meth:`show` give
        it; those leave it out, with a warning. ``rows``: those of a run's ``late_sink``, a DataFrame, or an Arrow or pandas
        table. The rows come as a table, or, of one module, as a stream that can be replayed. Raises UnknownColumn for ``rows``
        without the columns of a late output. (docs/modules.md, "What fails")

        >>> import streamq as sq
        >>> inverse = sq.udf("double", name="inverse", on_error="quarantine")(lambda v: 1 / v)
        >>> s = sq.events([(1, 5, {"v": 0}), (2, 4, {"v": 8})])
        >>> aside = s.select(x=inverse("v")).quarantine()
        >>> aside.to_arrow().column("reason").to_pylist()
        ['ZeroDivisionError: division by zero; of v = 0']
        >>> aside.events("inverse").show()
        v  start  end
        0      1    5
        """
        from streamq.run.quarantine import Quarantine

        return Quarantine(self, rows, until)

    def __repr__(self) -> str:
        return f"Stream({self.schema.describe()})"
