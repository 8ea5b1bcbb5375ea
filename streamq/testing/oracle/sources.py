"""The sources: raw rows as canonical histories."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.choices import Invalid
from streamq.errors import InvalidEvent, sentence
from streamq.operators import Edges, Intervals, Physical, Points, Source
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.expressions import keys, listed, own_keys, payload, same
from streamq.testing.oracle.run import Run
from streamq.time import INFINITY, MINUS_INFINITY


def column(node: Source, name: str) -> str:
    """A column of a source's rows (:meth:`Run.source`) by its name."""
    return f"x{[f.name for f in node.columns].index(name)}"


def _payload_of(node: Source) -> list[str]:
    return [f"{column(node, f.name)} AS c{i}" for i, f in enumerate(node.payload)]


def _no_start(time: str, last: int = INFINITY - 1) -> str:
    """Branches of CASE that say why an instant is no start: -2^63 is none, 2^63 - 1 the end of time."""
    return (
        f"WHEN {time} IS NULL THEN 'null start' WHEN {time} = {MINUS_INFINITY} THEN 'a start before time begins' "
        f"WHEN {time} > {last} THEN 'a start where time ends'"
    )


def _events(node: Source, run: Run, query: str) -> str:
    """What FROM reads of the rows of a query whose column ``bad`` is NULL; under ``invalid="fail"`` all have to be."""
    rows = run.table(query)
    if node.policy.invalid_in(False) == Invalid.FAIL:
        bad = run.value(f"SELECT min(bad) FROM {rows}")
        if bad is not None:
            raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", bad))
    return f"(SELECT * EXCLUDE (bad) FROM {rows} WHERE bad IS NULL)"


def _keyed(node: Source, run: Run, rows: str) -> str:
    """Rows with what their payload is matched, grouped and ordered by."""
    own = own_keys(node.schema)
    return run.table(f"SELECT {listed('*', *own)} FROM {rows}") if own else rows


def _representatives(node: Source) -> list[str]:
    """Of rows grouped by their keys the payload."""
    return [f"any_value({c}) AS {c}" for c in payload(node.schema) if c not in keys(node.schema)]


def _once(node: Points | Intervals, run: Run, rows: str) -> str:
    """With ids: of the rows of one id and start, equal ones being one row, only the least by end, then payload, is one."""
    if not node.ids:
        return rows
    names = keys(node.schema)
    whose = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.ids]
    order = listed("re", *(f"{c} NULLS FIRST" for c in names))
    columns = listed("le", "re", *names)
    return _events(node, run, f"""
        SELECT *, CASE WHEN row_number() OVER (PARTITION BY {listed("le", *whose)} ORDER BY {order}) > 1
            THEN 'two rows of one id and start that differ' END AS bad
        FROM (SELECT {listed(columns, *_representatives(node))}
            FROM {_keyed(node, run, rows)} GROUP BY {columns})""")  # fmt: skip


@defines(Points)
def points(node: Points, inputs: Sequence[str], run: Run) -> str:
    """``[t, t + 1)``."""
    time = column(node, node.time)
    rows = _events(node, run, f"""
        SELECT {listed(f"{time} AS le", f"CASE WHEN {time} < {INFINITY} THEN {time} + 1 END AS re", *_payload_of(node))},
            CASE {_no_start(time, INFINITY - 2)} END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    return f"SELECT {listed('le', 're', *payload(node.schema))} FROM {_once(node, run, rows)}"


@defines(Intervals)
def intervals(node: Intervals, inputs: Sequence[str], run: Run) -> str:
    """``[start, end)`` with ``start < end``; a NULL end is infinity."""
    start, end = column(node, node.start), f"coalesce({column(node, node.end)}, {INFINITY})"
    rows = _events(node, run, f"""
        SELECT {listed(f"{start} AS le", f"{end} AS re", *_payload_of(node))},
            CASE {_no_start(start)} WHEN NOT {start} < {end} THEN 'end before start' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    return f"SELECT {listed('le', 're', *payload(node.schema))} FROM {_once(node, run, rows)}"


@defines(Edges)
def edges(node: Edges, inputs: Sequence[str], run: Run) -> str:
    """A start lives until the first later instant at which its key has an edge.

    An end closes if the last earlier instant at which its key has an edge has a start; the ends of an instant come
    before its starts. Equal edges are one, delivered several times; of several starts, or ends, of one key and instant
    that differ only the least by payload is one.
    """
    time, edge = column(node, node.time), column(node, node.edge)
    opens, closes = run.sql(node.open, node.schema), run.sql(node.close, node.schema)
    valid_edges = _events(node, run, f"""
        SELECT {listed("n", f"{time} AS le", f"{edge} IS NOT DISTINCT FROM {opens} AS opens", *_payload_of(node))},
            CASE {_no_start(time)}
                WHEN {edge} IS DISTINCT FROM {opens} AND {edge} IS DISTINCT FROM {closes}
                THEN 'neither a start nor an end' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    names = keys(node.schema)
    columns = listed("le", "opens", *names)
    grouped = listed("min(n) AS n", columns, *_representatives(node))
    rows = run.table(f"SELECT {grouped} FROM {_keyed(node, run, valid_edges)} GROUP BY {columns}")
    key = [c for c, f in zip(names, node.payload, strict=True) if f.name in node.key]
    rest = [c for c, f in zip(payload(node.schema), node.payload, strict=True) if f.name not in node.key]
    compared = [f"{c} NULLS FIRST" for c in names if c not in key]
    places = run.table(f"""
        SELECT *, row_number() OVER (PARTITION BY {listed(*key, "le", "opens")}
            ORDER BY {listed(*compared, "n")}) AS place
        FROM {rows}""")  # fmt: skip
    before = f"(SELECT max(b.le) FROM {rows} b WHERE {same(key)} AND b.le < a.le)"
    chain = _events(node, run, f"""
        SELECT *, CASE
            WHEN NOT opens AND NOT EXISTS (SELECT 1 FROM {rows} b WHERE {same(key)} AND b.opens AND b.le = {before})
            THEN 'an end without an open start'
            WHEN place > 1 AND opens THEN 'two starts of one key at one instant'
            WHEN place > 1 THEN 'two ends of one key at one instant' END AS bad
        FROM {places} a""")  # fmt: skip
    starts = run.table(f"""
        SELECT a.*, (SELECT min(b.le) FROM {chain} b WHERE {same(key)} AND b.le > a.le) AS til
        FROM {chain} a WHERE a.opens""")  # fmt: skip
    ends = f"SELECT * FROM {chain} WHERE NOT opens"
    late = [f"CASE WHEN b.n IS NULL THEN a.{c} ELSE b.{c} END" for c in rest]
    from_end = dict(zip(rest, late, strict=True)) if node.payload_from == "end" else {}
    columns_of_pair = [f"{from_end.get(c, f'a.{c}')} AS {c}" for c in payload(node.schema)]
    return f"""
        SELECT {listed("a.le", f"coalesce(a.til, {INFINITY}) AS re", *columns_of_pair)}
        FROM {starts} a LEFT JOIN ({ends}) b ON {same(key)} AND b.le = a.til"""


@defines(Physical)
def physical(node: Physical, inputs: Sequence[str], run: Run) -> str:
    """Each insert counts one lifetime, each retraction one of the new lifetime less one of that it names.

    With ids a retraction names its event by id and end, and start and payload are the insert's; without, by start, end and
    payload. An id names one event: equal inserts of it are one, and of those that differ the least by start, end, payload.
    Where an end of it would count less than none, equal retractions of it are one as well. A lifetime that counts less
    than none is an error of the source; under ``invalid="drop"`` those retractions that arrived last go, with what
    follows from them. Empty lifetimes and CTIs are gone.
    """
    kind, start = f"lower({column(node, node.kind)})", column(node, node.start)
    end, new_end = (f"coalesce({column(node, name)}, {INFINITY})" for name in (node.end, node.new_end))
    rows = _events(node, run, f"""
        SELECT n, {kind} = 'insert' AS inserts, {listed(f"{start} AS le", f"{end} AS re", f"{new_end} AS new_re")}, CASE
            WHEN {kind} IS NULL OR {kind} NOT IN ('insert', 'retract') THEN 'neither insert, retract nor cti'
            {_no_start(start)}
            WHEN NOT {start} < {end} THEN 'end before start'
            WHEN {kind} = 'retract' AND {new_end} < {start} THEN 'new end before start' END AS bad
            {"".join(f", {column}" for column in _payload_of(node))}
        FROM {run.source(node)} WHERE {kind} IS DISTINCT FROM 'cti'""")  # fmt: skip
    names, columns = keys(node.schema), payload(node.schema)
    whose = [c for c, f in zip(names, node.payload, strict=True) if f.name == node.id] if node.id else names
    rows = _keyed(node, run, rows)
    if node.id:
        rows = _of_one_event(node, run, rows, whose)
    values = [] if node.id else _representatives(node)

    def counted(rows: str) -> str:
        return run.table(f"""
            SELECT {listed("le", "re", *whose, *values)}, sum(w) AS w FROM (
                SELECT *, CASE WHEN inserts THEN 1 ELSE -1 END AS w FROM {rows}
                UNION ALL SELECT * REPLACE (new_re AS re), 1 FROM {rows} WHERE NOT inserts
            ) GROUP BY {listed("le", "re", *whose)}""")  # fmt: skip

    totals = counted(rows)
    while run.value(f"SELECT count(*) FROM {totals} WHERE w < 0"):
        if node.policy.invalid_in(False) == Invalid.FAIL:
            wrong = "a retraction that matches nothing"
            raise InvalidEvent(sentence(f"source {node.shown_name()}", "a row is no event", wrong))
        place = f"row_number() OVER (PARTITION BY {listed('inserts', 'le', 're', *whose)} ORDER BY n DESC)"
        rows = run.table(f"""
            SELECT a.* EXCLUDE (place) FROM (SELECT *, {place} AS place FROM {rows}) a
            JOIN {totals} b ON {same(["le", "re", *whose])} WHERE a.inserts OR a.place > -b.w""")  # fmt: skip
        totals = counted(rows)
    living = run.table(f"SELECT * EXCLUDE (w), unnest(range(CAST(w AS BIGINT))) AS copy FROM {totals}")
    if not node.id:
        return f"SELECT {listed('le', 're', *columns)} FROM {living} WHERE le < re"
    return f"""
        SELECT {listed("a.le", "a.re", *(f"b.{c}" for c in columns))}
        FROM {living} a JOIN {rows} b ON {same(whose)} AND b.inserts WHERE a.le < a.re"""


def _of_one_event(node: Physical, run: Run, rows: str, whose: list[str]) -> str:
    """The rows of ids that each name one event: repetitions are gone, and a retraction has the start of its insert."""
    names = keys(node.schema)
    values = [c for c in payload(node.schema) if c not in names]
    columns = listed("inserts", "le", "re", "new_re", *names, *values)
    order = listed("le", "re", *(f"{c} NULLS FIRST" for c in names))
    inserts = _events(node, run, f"""
        SELECT *, CASE WHEN row_number() OVER (PARTITION BY {listed(*whose)} ORDER BY {order}) > 1
            THEN 'two events of one id' END AS bad
        FROM (SELECT min(n) AS n, inserts, le, re, CAST(NULL AS BIGINT) AS new_re, {listed(*names, *_representatives(node))}
            FROM {rows} WHERE inserts GROUP BY {listed("inserts", "le", "re", *names)})""")  # fmt: skip
    moves = run.table(f"""
        SELECT a.n, false AS inserts, coalesce(b.le, a.le) AS le, a.re, a.new_re,
            {listed(*(f"a.{c}" for c in (*names, *values)))},
            row_number() OVER (PARTITION BY {listed(*(f"a.{c}" for c in whose), "a.re", "a.new_re")} ORDER BY a.n) AS turn
        FROM {rows} a LEFT JOIN {inserts} b ON {same(whose)} WHERE NOT a.inserts""")  # fmt: skip
    ids = listed(*whose)
    torn = run.table(f"""
        SELECT DISTINCT {ids} FROM (
            SELECT {ids}, re AS instant, 1 AS w FROM {inserts}
            UNION ALL SELECT {ids}, re, -1 FROM {moves}
            UNION ALL SELECT {ids}, new_re, 1 FROM {moves}
        ) GROUP BY {listed(ids, "instant")} HAVING sum(w) < 0""")  # fmt: skip
    return run.table(f"""
        SELECT n, {columns} FROM {inserts}
        UNION ALL SELECT n, {columns} FROM {moves} a
        WHERE turn = 1 OR NOT EXISTS (SELECT 1 FROM {torn} b WHERE {same(whose)})""")
