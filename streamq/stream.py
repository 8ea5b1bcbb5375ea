"""Stream: a query that is built verb by verb; its base classes are the table of contents of the language."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from streamq import html
from streamq.connectors.connector import Connector
from streamq.errors import PlanError, UnknownVerb
from streamq.operators.alter_lifetime import AlterLifetimeVerbs
from streamq.operators.bags import BagVerbs
from streamq.operators.clip import ClipVerbs
from streamq.operators.expansion import ExpansionVerbs
from streamq.operators.grouped_stream import GroupVerbs
from streamq.operators.join import JoinVerbs
from streamq.operators.scan import ScanVerbs
from streamq.operators.select import SelectVerbs
from streamq.operators.spans import SpanVerbs
from streamq.patterns.pattern_tree import AliasVerbs
from streamq.plan.expr import Expr
from streamq.plan.footprint import Expected
from streamq.plan.hints import OF_STREAMS, for_item, for_verb
from streamq.plan.node import Node, Verbs, tables_behind
from streamq.plan.passes import answers_kept
from streamq.plan.resolve import EventProxy
from streamq.plan.schema import Schema
from streamq.policies import Consistency
from streamq.run.run_verbs import RunVerbs

if TYPE_CHECKING:
    import pandas as pd

    from streamq.compiler.plan_graph import Section
    from streamq.pictures.picture import Picture
    from streamq.run.batch.answers import Quarantine
    from streamq.tracing.trace import Trace

P = ParamSpec("P")
R = TypeVar("R")


class Stream(
    SelectVerbs,
    BagVerbs,
    JoinVerbs,
    ClipVerbs,
    AlterLifetimeVerbs,
    SpanVerbs,
    ExpansionVerbs,
    GroupVerbs,
    ScanVerbs[Any],
    AliasVerbs,
    RunVerbs,
):
    """A query over events with lifetimes; it is immutable, and every verb returns another stream.

    ``plan`` is the logical plan; ``tables`` are the DataFrames or Arrow tables that its sources read, by name.
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
        if not isinstance(name, str):
            raise PlanError("stream", "in brackets is a column's name", f"found {name!r}", for_item(name, self.columns))
        return EventProxy(self.plan, "column")[name]

    def __len__(self) -> int:
        """Raise PlanError: only an answer has a number of rows."""
        raise PlanError("stream", "no length", "its rows are not computed yet", str(OF_STREAMS["shape"]))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        hint = "Its rows are stream.to_arrow().to_pylist(), its columns' names stream.columns."
        raise PlanError("stream", "not iterable", "", hint)

    if not TYPE_CHECKING:  # so that a type checker reports a verb that does not exist

        def __getattr__(self, name):
            """Raise UnknownVerb with a hint, UnknownColumn for a consumed column, AttributeError for ``_`` names."""
            if name.startswith("_") or "tables" not in self.__dict__:
                raise AttributeError(name)
            if name in self.plan.schema.names:
                hint = f"A column is sq.col({name!r}), stream[{name!r}], or in a lambda e.{name}."
            elif name in self.plan.schema.consumed:
                self.plan.schema.unknown(name, "stream")
            else:
                hint = for_verb(name, [n for n in dir(type(self)) if not n.startswith("_")], self.plan.schema.axis)
            raise UnknownVerb("stream", f"no verb {name!r}", "", hint)

    def pipe(self, function: Callable[Concatenate[Self, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return ``function(self, ...)``, so that your own verbs chain like streamq's.

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
        key: str | Sequence[str] = (),
        early: bool = False,
        expected: Expected | None = None,
        form: str | None = None,
    ) -> None:
        """Print the logical plan, the rules that fired (and why others did not), the incremental plan and the stages.

        A notebook shows them as HTML. ``mode`` selects one part: "logical", "rules", "incremental", "physical" or, for a
        pattern, "pattern", which shows the state of each of its operators. ``format`` is "text", "json", "html" (a whole page, to
        be saved or sent; :meth:`explanation` returns it), "fragment" (an element for a page of your own) or, for one part that is
        a plan, "mermaid".
        ``consistency``, ``output``, ``key``, ``ctis`` and ``early`` are those of :meth:`run`; the stages are those of a run with
        these arguments. ``expected``: an ``sq.Expected``, from which rows, state, the costs of batch forms and the order of joins
        are estimated. ``form``: that of :meth:`to_df`; the incremental plan shows what each operator makes of it.
        """
        arguments = {name: value for name, value in locals().items() if name not in ("self", "format")}
        from streamq.compiler.explain import print_explanation

        print_explanation(lambda format: self.explanation(format=format, **arguments), format)

    def explanation(
        self,
        mode: str | None = None,
        format: str = "text",
        *,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        key: str | Sequence[str] = (),
        early: bool = False,
        expected: Expected | None = None,
        form: str | None = None,
    ) -> str:
        """Return the text that :meth:`explain` prints; raise PlanError for arguments that do not exist or do not fit."""
        from streamq.compiler.batch import chosen_form
        from streamq.compiler.explain import explain
        from streamq.compiler.ports import why_spark_reads
        from streamq.compiler.stages import compile_stages
        from streamq.plan.node import number_sources
        from streamq.run.run_options import RunOptions

        plans, options = RunOptions.from_call("explain", locals()).compiled_with()
        hint = chosen_form(form, "explain")
        with answers_kept():
            numbered, names = number_sources(plans)
            program = compile_stages(numbered, options)
            tables = {names[name]: table for name, table in self.tables.items() if name in names}
            spark_reads = why_spark_reads(program, tables)
            return explain(program, mode, format, self._explained_first(), hint, spark_reads=spark_reads)

    def _explained_first(self) -> Sequence[Section]:
        """Return the sections of an explanation that come before those of the plan."""
        return ()

    def to_json(self) -> str:
        """Return the query as JSON, which :func:`from_json` reads back; of its tables it has the names, and ``sq.files(...)``.

        Equal queries have equal texts, with one entry per line, so that texts can be compared. Code of your own is written as
        its name in ``sq.modules``. Raises PlanError for a pyspark Column, which only Spark can read, and for a module without
        a name or with options that are not plain values.

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"v": 3})], name="s")
        >>> sq.from_json(s.shift(1).to_json(), s=s).show()
        v  start  end
        3      2    6
        """
        from streamq.compiler.plan_json import plan_to_json, to_text
        from streamq.plan.node import number_sources

        plan, names = number_sources(self.plan)
        outside = {
            names[name]: one.to_json()
            for name, one in self.tables.items()
            if name in names and isinstance(one, Connector)
        }
        return to_text({**plan_to_json(plan), **({"tables": outside} if outside else {})})

    def to_df(
        self, until: int | dt.datetime | None = None, *, expected: Expected | None = None, form: str | None = None
    ) -> DataFrame:
        """Return the answer over the whole batch input: payload columns, ``start`` and ``end`` (NULL: still alive).

        ``until`` bounds the windows and pieces that are reported: those that start before it. Without ``until`` all are
        reported, unless lifetimes never end: then the bound is the greatest finite endpoint of the window's input or, if that
        is later, the progress of its sources (the greatest start or CTI among their rows, also those that filters drop or
        retractions remove). The result consists of DataFrame operations only; nothing runs until you act on it. ``expected``:
        an ``sq.Expected``, from which windows on a grid choose the form that costs least, and inner joins, and the parts of a
        SEQUENCE, the order in which they make fewest pairs. ``form`` overrides the form:
        "direct", "explode", "difference", "running", "blocks", "dyadic" or "evaluated"
        (docs/decisions/forms_of_windows_in_batch.md), for all windows that can be computed so; the others choose for themselves,
        as :meth:`explain` shows. Raises PlanError if none can.
        """
        from streamq.compiler.batch import chosen_form
        from streamq.compiler.estimates import checked_expected
        from streamq.run.batch.answers import batch_frame

        expected, hint = checked_expected(expected, self.plan, "to_df"), chosen_form(form, "to_df")
        return batch_frame(self.plan, self.tables, until, expected, hint)

    def to_arrow(self, until: int | dt.datetime | None = None) -> pa.Table:
        """Return the answer as an Arrow table, ordered by start, end and payload; without DataFrames it needs no Spark.

        The table can hold every value of Spark's types. Python has no years beyond 9999 or before 1: for such instants
        Arrow's ``to_pylist`` raises an OverflowError, while :meth:`show` and :meth:`to_pandas` work.
        """
        from streamq.run.batch.answers import compute_answer

        return compute_answer(self.plan, self.tables, until, "to_arrow")

    def to_pandas(self, until: int | dt.datetime | None = None) -> pd.DataFrame:
        """Return the answer as a pandas DataFrame, ordered by start, end and payload.

        Queries without DataFrames run in-process, without Spark; others as a batch. Instants are ``datetime64[us, UTC]``,
        which has the range of Spark's timestamps (except its least value, -2^63, pandas' NaT); dates are ``datetime64[ms]``.
        Arrays are lists, structs dicts, and maps lists of pairs, of Python values; in them an instant beyond Python's range
        is text. ``until`` as in :meth:`to_df`.
        """
        from streamq.run.batch.answers import compute_answer, to_pandas

        return to_pandas(compute_answer(self.plan, self.tables, until, "to_pandas"))

    def show(self, n: int = 20, until: int | dt.datetime | None = None) -> None:
        """Print the first ``n`` rows of the answer as a table; a notebook shows them as HTML.

        Instants are in UTC; years beyond 9999 or before 0 have a sign. Of a value longer than 500 characters the beginning is
        shown, and its length; control characters and line ends are escapes, as ``\\n``. ``until`` as in
        :meth:`to_df`. Raises PlanError for a negative ``n``.
        """
        from streamq.run.batch.answers import as_html, as_text, compute_answer

        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise PlanError("show", "n is a number of rows", f"found {n!r}")
        answer = compute_answer(self.plan, self.tables, until, "show")
        html.print_or_display(as_text(answer, n), lambda: as_html(answer, n))

    def plot(
        self,
        rows: Any = None,
        *,
        output: str = "final",
        key: str | Sequence[str] | None = None,
        between: tuple[int | dt.datetime, int | dt.datetime] | None = None,
        until: int | dt.datetime | None = None,
        title: str | None = None,
    ) -> Picture:
        """Return a picture of the inputs, the windows and the answer, one above the other on one axis of time.

        Events are bars, open ends arrows, points ticks; events of a key share a colour, and lanes beside the key's name. What
        a physical stream took back is hollow, with an arrow to what replaced it; CTIs are dotted lines. A panel of more than
        800 events, or of more than 40 lanes, counts them in bins of time. A notebook shows the picture, with its words and a
        table of all events below it; ``save("x.svg")``, ``save("x.png")`` or ``save("x.html")`` writes it, and ``altair`` is it
        as an Altair chart. These need the extra ``charts``.

        The query runs in-process over its tables. ``rows`` replace them: an Arrow table, a pandas frame or a batch DataFrame,
        which is read into memory, for several sources these by name, or a list of micro-batches, as ``run.sample()`` returns
        it; over a DataFrame ``rows`` are necessary.
        ``output="changelog"`` draws what a stream reports and takes back when its sources' rows arrive one by one, each with the
        CTIs so far. ``key``: the columns that give lanes and colours; default: the keys of the query. ``between``: the first and
        the last instant of the axis. ``until`` as in :meth:`to_df`. Raises PlanError, UnknownColumn. (docs/pictures.md)

        >>> import streamq as sq
        >>> cars = sq.events([(1, 3, {"booth": "A"}), (2, None, {"booth": "B"})], name="cars")
        >>> cars.plot(key="booth")
        cars
          cars: 2 events of 2 keys (booth), from 1 to 3, 1 without an end.
          The axis goes from 1 to 3.
        """
        from streamq.pictures.query_picture import draw_query

        return draw_query(
            self.plan, self.tables, rows, until=until, output=output, key=key, between=between, title=title
        )

    def trace(self, rows: Any = None, *, where: Any = None, until: int | dt.datetime | None = None) -> Trace:
        """Return the flow of events through the query: what each operator receives and sends, and which events cause which rows.

        The query runs in-process, micro-batch by micro-batch. ``rows``: a list of micro-batches, each a mapping of the
        sources' names to Arrow tables, pandas frames or batch DataFrames, as ``run.sample()`` returns them; or tables by
        name, or one table for the only source; None: the query's own tables. The rows of tables arrive one by one, of several
        tables by their times. ``where`` chooses the events to follow: a condition over payload and lifetime as in
        :meth:`where`, or values of columns, as ``{"booth": "B"}``. A filter behind each source that has all its columns, the
        operator "trace(where)", keeps these events; progress stays that of all rows. ``until`` as in :meth:`to_df`. A
        notebook shows the trace as a page with a slider, which ``save("trace.html")`` writes; ``causes``, ``effects`` and
        ``prevented`` answer why a row is there, what an event changes, and why a row is missing. Raises PlanError for more
        than 5,000 rows, UnknownColumn for a ``where`` that fits no source, and the query's own errors. (docs/debugging.md)

        >>> import streamq as sq
        >>> cars = sq.events([(1, 3, {"booth": "A"}), (2, 4, {"booth": "B"}), (2, 5, {"booth": "B"})], name="cars")
        >>> busy = cars.group_by("booth").tumbling_window(5).select(n=sq.count()).where(sq.col("n") > 1)
        >>> trace = busy.trace()
        >>> trace.operators
        ['cars', 'hopping', 'where']
        >>> trace.causes({"booth": "B"})
        event  together source  start  end  payload
            1     False   cars      2    4  booth=B
            2     False   cars      2    5  booth=B
        """
        from streamq.tracing.trace import trace_query

        return trace_query(self.plan, self.tables, rows, until, where)

    def chart(
        self,
        *columns: str,
        key: str | Sequence[str] | None = None,
        until: int | dt.datetime | None = None,
        title: str = "",
    ) -> Picture:
        """Return a chart of the answer's numbers over time: a step for each event, over its lifetime, a line for each key.

        ``columns``: the columns with numbers, each a chart below the other; default: all that are no keys. ``key`` and ``until``
        as in :meth:`plot`; over DataFrames the answer is computed on Spark. NULL, NaN and infinite values are left out. A
        notebook shows the chart without the network; ``save("x.svg")`` or ``save("x.png")`` writes it; ``altair`` is it as an
        Altair chart. These need the extra ``charts``. Raises UnknownColumn, TypeMismatch for a column without numbers, and
        PlanError for more than 20,000 events. (docs/pictures.md, "Numbers over time")

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"v": 3}), (4, 9, {"v": 8})])
        >>> s.tumbling_window(5).select(load=sq.sum("v")).chart()
        load over time; 2 events.
        """
        from streamq.pictures.query_picture import chart_query

        return chart_query(self.plan, self.tables, columns, key=key, until=until, title=title)

    def quarantine(self, rows: Any = None, until: int | dt.datetime | None = None) -> Quarantine[Stream]:
        """Return the events for which modules with ``on_error="quarantine"`` failed, with lifetime, window, group and reason.

        Without ``rows`` they are those of the answer over the whole batch input; :meth:`to_df`, :meth:`to_pandas` and
        :meth:`show` drop them with a warning. ``rows``: the rows of a run's ``late_sink``, as a DataFrame, or an Arrow or
        pandas table. The result can be read as a table or, for one module, as a stream that can be replayed. Raises
        UnknownColumn for ``rows`` without the columns of a late output. (docs/modules.md, "What fails")

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
        from streamq.run.batch.answers import Quarantine

        return Quarantine(self, _stream_of_events, rows, until)

    def __repr__(self) -> str:
        return f"Stream({self.schema!r})"

    def _repr_html_(self) -> str:
        """The columns and the logical plan, as a notebook shows them."""
        return html.fragment(self.schema.table(), html.lines(self.explanation("logical")))


def _stream_of_events(table: pa.Table) -> Stream:
    """Return the stream of a table of events; they have one tick if it has no column ``end``."""
    from streamq.sources.insert_only import intervals, points

    return intervals(table, "start", "end") if "end" in table.column_names else points(table, "start")
