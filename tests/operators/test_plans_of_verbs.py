"""The plan that each call of a verb makes: every verb, with every argument, against the text of the plan that it means.

The texts were written down while a second, independent definition of the verbs gave the same plans. A plan is written as its
nodes are made, without the fields that have their defaults; sources are called by their names.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql.types import DataType

import streamq as sq
from streamq import col
from streamq.operators import Source
from streamq.patterns.definitions import Definitions
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, Lit
from streamq.plan.function import NamedObject
from streamq.testing.table import table
from tests.drawn.operators import RESETTING_SUM
from tests.each import each
from tests.mutation.queries import rises


def written(part: Any) -> str:
    """The text of a plan, or of a part of one."""
    match part:
        case Source():
            return part.table
        case Definitions():
            return " ".join(part.text.split())
        case Col(name=name):
            return name
        case Lit(value=value, type=None):
            return repr(value)
        case Call() | Aggregate():
            where = [f"where={written(part.where)}"] if isinstance(part, Aggregate) and part.where is not None else []
            options = [repr(part.options)] if isinstance(part, Aggregate) and part.options else []
            return f"{part.function.name}({', '.join([*map(written, part.args), *options, *where])})"
        case DataType():
            return part.simpleString()
        case StrEnum() | str():
            return str(part)
        case NamedObject(name=name):
            return name
        case tuple() if part and all(isinstance(pair, tuple) and len(pair) == 2 for pair in part):
            return f"[{', '.join(f'{written(a)}={written(b)}' for a, b in part)}]"
        case tuple():
            return f"[{', '.join(map(written, part))}]"
    if not is_dataclass(part):
        return repr(part)
    values = []
    for field in fields(part):
        value = getattr(part, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if default is MISSING:
            values.append(written(value))
        elif field.init and written(value) != written(default):
            values.append(f"{field.name}={written(value)}")
    return f"{type(part).__name__}({', '.join(values)})"


def source(name: str, columns: str, time: str = "int", kind: Any = sq.intervals) -> Any:
    """A stream without rows; every verb of it may be called."""
    if kind is sq.points:
        return sq.points(table(f"le {time}, {columns}", []), "le", name=name)
    return sq.intervals(table(f"le {time}, re {time}, {columns}", []), "le", "re", name=name)


S, T, U = (source(name, "k string, v double, w double") for name in ("s", "t", "u"))
OTHER, LISTS = (
    source("o", "id string, K string, v double"),
    source("l", "k string, xs array<struct<a: int, b: string>>"),
)
POINTS = source("p", "k string, v double, w double", kind=sq.points)
TIMED = source("m", "k string, v double, at timestamp", "timestamp")
CITIES = table("k string, V double, city string", [])
BY_KEY = S.group_by("k")
N: dict[str, Any] = {"n": sq.count()}
BOUNDS: dict[str, Any] = {"from_": sq.window_start(), "till": sq.window_end(), "lasts": sq.duration(), "at": sq.start()}
OWN: dict[str, Any] = {"clip_input": "left", "stamp": "align"}
x, y, z, w = S.alias("x"), T.alias("y"), U.alias("z"), OTHER.alias("w")

PLANS: list[tuple[Any, str]] = [
    (S.where(lambda e: (e.v > 1) & (e["w"] < sq.end())), "Where(s, and(>(v, 1), <(w, Lifetime(end))))"),
    (S.filter(predicate=col("v").is_null()), "Where(s, isnull(v))"),
    (
        S.select("k", col("v"), (col("v") * 2).alias("twice"), word="text", at=sq.start(), more=lambda e: e.v + e.w),
        "Select(s, [k=k, v=v, twice=*(v, 2), word='text', at=Lifetime(start), more=+(v, w)])",
    ),
    (
        BY_KEY.tumbling_window(4).select(**N).select("n", a=sq.window_start()),
        "Select(WindowAggregate(s, [k], Hopping(4, 4), [n=count()]), [n=n, a=Lifetime(start)])",
    ),
    (S.with_columns(v=col("w"), more=1, k=lambda e: e.k), "Select(s, [k=k, v=w, w=w, more=1])"),
    (S.drop("k", "w"), "Select(s, [v=v])"),
    (S.rename({"k": "v", "v": "k"}, w="x"), "Select(s, [v=k, k=v, x=w])"),
    (LISTS.explode("xs"), "Explode(l, xs)"),
    (LISTS.explode(column="xs", flatten=True), "Explode(l, xs, flatten=True)"),
    (S.distinct_ids(4, id=["k", "v"]).distinct_ids(within=0, id="k"), "DistinctIds(DistinctIds(s, [k, v], 4), [k], 0)"),
    (
        S.shift(by=-3).extend(by=2).extend(-1),
        "AlterLifetime(AlterLifetime(AlterLifetime(s, Start(by=-3), Length()), Start(), Length(by=2)), Start(), "
        "Length(by=-1))",
    ),
    (
        TIMED.shift("1 minute").extend("-2 seconds").tumbling_window("1 hour", "5 minutes").select(**N),
        "WindowAggregate(AlterLifetime(AlterLifetime(m, Start(by=60000000), Length()), Start(), "
        "Length(by=-2000000)), [], Hopping(3600000000, 3600000000, offset=300000000), [n=count()])",
    ),
    (
        S.to_points().to_points_at_end(),
        "AlterLifetime(AlterLifetime(s, Start(), Length(kind=fixed, by=1)), Start(anchor=RE), Length(kind=fixed, "
        "by=1))",
    ),
    (
        S.set_duration(None).set_duration(5).set_duration(duration=col("v").cast("int")),
        "AlterLifetime(AlterLifetime(AlterLifetime(s, Start(), Length(kind=given, expr=Cast(None, bigint))), "
        "Start(), Length(kind=fixed, by=5)), Start(), Length(kind=given, expr=Cast(Cast(v, int), bigint)))",
    ),
    (
        S.set_duration(sq.duration()).set_duration(sq.duration() * 2),
        "AlterLifetime(AlterLifetime(s, Start(), Length()), Start(), Length(kind=given, expr=*(Lifetime(duration), "
        "2)))",
    ),
    (
        S.alter_lifetime(sq.end(), 3).alter_lifetime().alter_lifetime(sq.start(), sq.duration()),
        "AlterLifetime(AlterLifetime(AlterLifetime(s, Start(anchor=RE), Length(kind=fixed, by=3)), Start(), "
        "Length()), Start(), Length())",
    ),
    (
        S.alter_lifetime(start=sq.start() - col("v").cast("bigint"), duration=col("w").cast("int"), within=7),
        "AlterLifetime(s, Start(anchor=given, expr=-(Lifetime(start), Cast(v, bigint)), within=7), "
        "Length(kind=given, expr=Cast(Cast(w, int), bigint)))",
    ),
    (
        TIMED.alter_lifetime(start=col("at"), duration=sq.end() - sq.start(), within="1 day").alter_lifetime(
            duration="5 minutes"
        ),
        "AlterLifetime(AlterLifetime(m, Start(anchor=given, expr=unix_micros(at), within=86400000000), "
        "Length(kind=given, expr=-(unix_micros(Lifetime(end)), unix_micros(Lifetime(start))))), Start(), "
        "Length(kind=fixed, by=300000000))",
    ),
    (
        S.to_signal(key=["k", "w"], order_by="v").to_signal("k").to_signal(),
        "ToSignal(ToSignal(ToSignal(s, [k, w], order_by=[v]), [k]), [])",
    ),
    (
        S.last_rows(3, 2, key=["k", "w"]).last_rows(n=2, order_by="v").last_rows(1).select(n=sq.count()),
        "WindowAggregate(LastRows(LastRows(LastRows(s, [k, w], Rows(3, 2, [])), [], Rows(2, 1, [v])), [], Rows(1, "
        "1, [])), [], Snapshot(), [n=count()])",
    ),
    (S.chop(5, 2).chop(period=3, offset=-1).chop(4), "Chop(Chop(Chop(s, 5, 2), 3, -1), 4, 0)"),
    (
        BY_KEY.hopping_window(size=6, hop=2, offset=1, **OWN).select(**N),
        "WindowAggregate(s, [k], Hopping(6, 2, offset=1), [n=count()], clip=left)",
    ),
    (
        S.hopping_window(6, 2, clip_input="none", stamp="point_at_end").select(**N),
        "WindowAggregate(s, [], Hopping(6, 2), [n=count()], clip=none, stamp=point_at_end)",
    ),
    (
        BY_KEY.tumbling_window(size=6, offset=-1, **OWN).select(**N),
        "WindowAggregate(s, [k], Hopping(6, 6, offset=-1), [n=count()], clip=left)",
    ),
    (BY_KEY.snapshot_window(**OWN).select(**N), "WindowAggregate(s, [k], Snapshot(), [n=count()], clip=left)"),
    (
        BY_KEY.sliding_window(5, **OWN).select(**N),
        "WindowAggregate(AlterLifetime(s, Start(), Length(by=5)), [k], Snapshot(), [n=count()], clip=left)",
    ),
    (
        POINTS.sliding_window(duration=5).agg(sq.max("v").alias("most"), n=sq.count()),
        "WindowAggregate(AlterLifetime(p, Start(), Length(kind=fixed, by=5)), [], Snapshot(), [most=max(v), "
        "n=count()])",
    ),
    (
        BY_KEY.count_window(n=3, by="start", **OWN).select(**N),
        "WindowAggregate(s, [k], Count(3), [n=count()], clip=left)",
    ),
    (
        S.count_window(3, "end").select(**N),
        "WindowAggregate(s, [], Count(3, by=end), [n=count()], clip=right, stamp=point_at_end)",
    ),
    (
        S.count_window(3, by="end", clip_input="none").select(**N),
        "WindowAggregate(s, [], Count(3, by=end), [n=count()], clip=none, stamp=point_at_end)",
    ),
    (
        BY_KEY.rows_window(n=3, step=2, order_by=["v", "w"], **OWN).select(**N),
        "WindowAggregate(s, [k], Rows(3, 2, [v, w]), [n=count()], clip=left)",
    ),
    (
        S.rows_window(3, order_by="v").select(**N),
        "WindowAggregate(s, [], Rows(3, 1, [v]), [n=count()], stamp=point_at_end)",
    ),
    (BY_KEY.session_window(gap=4, **OWN).select(**N), "WindowAggregate(s, [k], Session(4), [n=count()], clip=left)"),
    (
        BY_KEY.landmark_window(5, start=3, period=20, **OWN).select(**N),
        "WindowAggregate(s, [k], Landmark(5, start=3, period=20), [n=count()], clip=left)",
    ),
    (
        S.landmark_window(hop=5, period=20).select(**N).landmark_window(5, start=-1).select(n=sq.count()),
        "WindowAggregate(WindowAggregate(s, [], Landmark(5, period=20), [n=count()], stamp=point_at_end), [], "
        "Landmark(5, start=-1), [n=count()], stamp=point_at_end)",
    ),
    (
        TIMED.group_by("k").calendar_window(period="2 weeks", zone="Europe/Berlin", **OWN).select(**N),
        "WindowAggregate(m, [k], Calendar(2, week, Europe/Berlin), [n=count()], clip=left)",
    ),
    (
        BY_KEY.hopping_window(6, 2).select(**N).group_by("n").per_window().top_k(1, by="k"),
        "Select(TopK(Select(WindowAggregate(s, [k], Hopping(6, 2), [n=count()]), [k=k, n=n, "
        "__lifetime_start=Lifetime(start), __lifetime_end=Lifetime(end)]), [n, __lifetime_start, __lifetime_end], "
        "Snapshot(), 1, k, True, keep, full, align), [k=k, n=n, rank=rank])",
    ),
    (
        BY_KEY.tumbling_window(4).select(**BOUNDS),
        "Select(WindowAggregate(s, [k], Hopping(4, 4), []), [k=k, from_=Lifetime(start), till=Lifetime(end), "
        "lasts=Lifetime(duration), at=Lifetime(start)])",
    ),
    (
        BY_KEY.count_window(2).select(**BOUNDS, n=sq.count()),
        "Select(WindowAggregate(s, [k], Count(2), [__window_start0=window_start(), __window_end1=window_end(), "
        "n=count()], stamp=point_at_end), [k=k, from_=__window_start0, till=__window_end1, lasts=-(__window_end1, "
        "__window_start0), at=__window_start0, n=n])",
    ),
    (
        S.rows_window(2).select(x=sq.max(sq.duration()), y=sq.window_end() - sq.max(sq.end()) + sq.count()),
        "Select(WindowAggregate(s, [], Rows(2, 1, []), [x=max(Lifetime(duration)), __max1=max(Lifetime(end)), "
        "__count2=count(), __window_end3=window_end()], stamp=point_at_end), [x=x, y=+(-(__window_end3, __max1), "
        "__count2)])",
    ),
    (
        BY_KEY.tumbling_window(4).select(
            "k",
            sq.count().alias("n"),
            share=sq.sum("v") / sq.count(),
            n2=sq.count(),
            key=col("k"),
            total=sq.sum("v"),
            one=1,
        ),
        "Select(WindowAggregate(s, [k], Hopping(4, 4), [n=count(), __sum1=sum(v)]), [k=k, n=n, share=/(__sum1, n), "
        "n2=n, key=k, total=__sum1, one=1])",
    ),
    (
        BY_KEY.tumbling_window(4).select(
            high=sq.count("v", where=col("v") > 1),
            all=sq.count("v"),
            share=sq.sum("v", where=col("w") > 0) / sq.sum("v"),
        ),
        "Select(WindowAggregate(s, [k], Hopping(4, 4), [high=count(v, where=>(v, 1)), all=count(v), __sum2=sum(v, "
        "where=>(w, 0)), __sum3=sum(v)]), [k=k, high=high, all=all, share=/(__sum2, __sum3)])",
    ),
    (
        BY_KEY.tumbling_window(4).top_k(k=2, by=col("v") + 1, desc=False, ties="break", row_number=True),
        "TopK(s, [k], Hopping(4, 4), 2, +(v, 1), False, break, full, align, row_number=True)",
    ),
    (S.snapshot_window().top_k(2, "v"), "TopK(s, [], Snapshot(), 2, v, True, keep, full, align)"),
    (
        S.snapshot_window().top_k(2, by=lambda e: -e.v, ties="keep"),
        "TopK(s, [], Snapshot(), 2, negative(v), True, keep, full, align)",
    ),
    (
        S.group_by("k", high=col("v") > 1, v=lambda e: e.v + 1).tumbling_window(4).select(**N),
        "WindowAggregate(Select(s, [k=k, v=+(v, 1), w=w, high=>(v, 1)]), [k, high, v], Hopping(4, 4), [n=count()])",
    ),
    (
        BY_KEY.apply(sub_plan=lambda g: g.group_by("v").per_window().select(**N).where(col("n") > 1)),
        "Select(Where(Select(Select(WindowAggregate(Select(Select(s, [k=k, v=v, w=w, __g0_v_k=k]), [k=k, v=v, w=w, "
        "__lifetime_start=Lifetime(start), __lifetime_end=Lifetime(end), __g0_v_k=__g0_v_k]), [v, __lifetime_start,"
        " __lifetime_end, __g0_v_k], Snapshot(), [n=count()]), [v=v, __lifetime_start=__lifetime_start, "
        "__lifetime_end=__lifetime_end, n=n, __g0_v_k=__g0_v_k]), [v=v, n=n, __g0_v_k=__g0_v_k]), >(n, 1)), "
        "[k=__g0_v_k, v=v, n=n])",
    ),
    (
        POINTS.group_by("k").scan(RESETTING_SUM("v", where=col("w") > 1)),
        "Scan(p, [k], resetting_sum, [v], where=>(w, 1))",
    ),
    (
        S.to_points().scan(operator=RESETTING_SUM(col("v") + 1)),
        "Scan(AlterLifetime(s, Start(), Length(kind=fixed, by=1)), [], resetting_sum, [+(v, 1)])",
    ),
    (
        S.session_window(4, stamp="clip", clip_input="none").select(rises("k", "v")),
        "Select(AlterLifetime(Explode(WindowAggregate(s, [], Session(4), [__rows=rises(k, v, ('clip', 'k', 'v'))], "
        "clip=none), __rows, flatten=True), Start(anchor=given, expr=__own_start, within=0), Length(kind=given, "
        "expr=__own_lasts)), [k=k, rise=rise])",
    ),
    (S.union(T, U, S.shift(1)), "Union([s, t, u, AlterLifetime(s, Start(by=1), Length())])"),
    (S.except_(other=T), "Except(s, t)"),
    (
        S.clip(by=OTHER, on={"k": "id"}).clip(T, ["k", ("v", "w")]).clip(T),
        "Clip(Clip(Clip(s, o, [k=id]), t, [k=k, v=w]), t, [])",
    ),
    (S.join(T, on="k", suffixes=("_l", "_r")), "Join(s, t, [k=k], None, inner, [k=k, v=v_l, w=w_l], [v=v_r, w=w_r])"),
    (
        S.join(other=OTHER, on=[("k", "id")], where=lambda a, b: a.v < b.v, how="left", suffixes=("", "_o")),
        "Join(s, o, [k=id], <(v, v_o), left, [k=k, v=v, w=w], [id=id, K=K_o, v=v_o])",
    ),
    (
        S.join(OTHER, {"k": "id"}, lambda a, b: a.k != b.K, "semi"),
        "Join(s, o, [k=id], !=(k, K__right), semi, [k=k, v=v, w=w], [id=id, K=K__right, v=v__right])",
    ),
    (
        S.join(OTHER, [("k", "id"), "v"], col("v") > col("w"), suffixes=("_l", "_r")),
        "Join(s, o, [k=id, v=v], >(v, w), inner, [k=k_l, v=v, w=w], [id=id, K=K_r])",
    ),
    (
        S.join(OTHER, ["v"], lambda a, b: (b.v > 1) & (a["v"] > 1), suffixes=("_l", "_r")),
        "Join(s, o, [v=v], and(>(v, 1), >(v, 1)), inner, [k=k_l, v=v, w=w], [id=id, K=K_r])",
    ),
    (
        S.join(OTHER, how="anti", where=lambda a, b: a.v == b.v),
        "Join(s, o, [], ==(v, v__right), anti, [k=k, v=v, w=w], [id=id, K=K__right, v=v__right])",
    ),
    (
        S.join(S, on="k", where=lambda a, b: a.v < b.v, suffixes=("", "_2")),
        "Join(s, s, [k=k], <(v, v_2), inner, [k=k, v=v, w=w], [v=v_2, w=w_2])",
    ),
    (
        S.left_anti_join(other=OTHER, on=[("k", "id")], where=lambda a, b: a.v < b.v),
        "Join(s, o, [k=id], <(v, v__right), anti, [k=k, v=v, w=w], [id=id, K=K__right, v=v__right])",
    ),
    (
        S.windowed_join(other=T, on="k", size=6, hop=2, offset=1, where=lambda a, b: a.v < b.v, suffixes=("", "_r")),
        "WindowedJoin(s, t, Hopping(6, 2, offset=1), [k=k], <(v, v_r), [k=k, v=v, w=w], [v=v_r, w=w_r])",
    ),
    (
        S.windowed_join(OTHER, [("k", "id")], size=6, suffixes=("_l", "_r")).group_by("w").select(n=sq.count()),
        "Select(WindowAggregate(Select(WindowedJoin(s, o, Hopping(6, 6), [k=id], None, [k=k_l, v=v_l, w=w], [id=id,"
        " K=K_r, v=v_r]), [k_l=k_l, v_l=v_l, w=w, id=id, K_r=K_r, v_r=v_r, __lifetime_start=Lifetime(start), "
        "__lifetime_end=Lifetime(end)]), [w, __lifetime_start, __lifetime_end], Snapshot(), [n=count()]), [w=w, "
        "n=n])",
    ),
    (
        S.windowed_join(OTHER, [("k", "id")], size=6, suffixes=("_l", "_r")),
        "WindowedJoin(s, o, Hopping(6, 6), [k=id], None, [k=k_l, v=v_l, w=w], [id=id, K=K_r, v=v_r])",
    ),
    (
        S.windowed_join(OTHER, [("k", "id")], rows=3, step=2, order_by="v", suffixes=("_l", "_r")),
        "Join(LastRows(s, [], Rows(3, 2, [v])), LastRows(o, [], Rows(3, 2, [v])), [k=id], None, inner, [k=k_l, "
        "v=v_l, w=w], [id=id, K=K_r, v=v_r])",
    ),
    (
        S.join_table(table=CITIES, on="k", how="left", suffixes=("", "_t"), name="cities").join_table(
            CITIES, [("k", "city"), "k"], "inner", suffixes=("", "_u"), name="again"
        ),
        "JoinTable(JoinTable(s, cities, [Field(k, string), Field(V, double), Field(city, string)], [k=k], left, "
        "[V=V_t, city=city]), again, [Field(k, string), Field(V, double), Field(city, string)], [k=city, k=k], "
        "inner, [V=V_u, city=city_u])",
    ),
    (
        sq.sequence(x.first(), y.last().consume(), z, within=8).where("CorrelationKey(k, EQUAL)"),
        "Detect([s, t, u], [x, y, z], EVENT Pattern WHEN SEQUENCE(x AS x FIRST, y AS y LAST CONSUME, z AS z, 8) "
        "WHERE CorrelationKey(k, EQUAL))",
    ),
    (
        sq.all_of(x.consume(), y, within=8).where(lambda x, y: x.k == y.k).where(condition="x.v < y.v"),
        "Detect([s, t], [x, y], EVENT Pattern WHEN ALL(x AS x CONSUME, y AS y, 8) WHERE x.v < y.v, "
        "conditions=[==(x.k, y.k)])",
    ),
    (
        sq.all_of(x, y, within=8).where("x.k = y.k").where("x.v < y.v AND y.v < 5"),
        "Detect([s, t], [x, y], EVENT Pattern WHEN ALL(x AS x, y AS y, 8) WHERE x.k = y.k AND x.v < y.v AND y.v < 5)",
    ),
    (sq.at_least(1, x, y, within=8), "Detect([s, t], [x, y], EVENT Pattern WHEN ATLEAST(1, x AS x, y AS y, 8))"),
    (sq.at_most(2, x, y, within=8), "Detect([s, t], [x, y], EVENT Pattern WHEN ATMOST(2, x AS x, y AS y, 8))"),
    (
        sq.repeat(x, 2, within=8).where("x.v > 0").consume(),
        "Detect([s], [x], EVENT Pattern WHEN REPEAT(x AS x CONSUME, 2, 8) WHERE x.v > 0)",
    ),
    (
        sq.repeat(part=x.consume(), count=2, most=3, within=8).where("CorrelationKey(k, EQUAL)"),
        "Detect([s], [x], EVENT Pattern WHEN REPEAT(x AS x CONSUME, 2, 3, 8) WHERE CorrelationKey(k, EQUAL))",
    ),
    (
        sq.sequence(sq.sequence(x, y, within=8).unless(negated=z, within=5, nth=1).alias(name="m"), w, within=9),
        "Detect([s, t, u, o], [x, y, z, w], EVENT Pattern WHEN SEQUENCE(UNLESS(SEQUENCE(x AS x, y AS y, 8), z AS z,"
        " 1, 5) AS m, w AS w, 9))",
    ),
    (
        sq.any_of(x).unless(sq.any_of(y).alias("m"), 5).where("x.k = y.k"),
        "Detect([s, t], [x, y], EVENT Pattern WHEN UNLESS(ANY(x AS x), ANY(y AS y) AS m, 5) WHERE x.k = y.k)",
    ),
    (
        sq.sequence(x, y, within=8).unless_before(negated=z, within=5),
        "Detect([s, t, u], [x, y, z], EVENT Pattern WHEN UNLESS_BEFORE(SEQUENCE(x AS x, y AS y, 8), z AS z, 5))",
    ),
    (
        sq.sequence(x, y, within=8).where("[k EQUAL 'a'] AND CorrelationKey(v, UNIQUE)").without(negated=z),
        "Detect([u, s, t], [z, x, y], EVENT Pattern WHEN NOT(z AS z, SEQUENCE(x AS x, y AS y, 8)) WHERE x.k = 'a' "
        "AND y.k = 'a' AND x.v <> y.v)",
    ),
    (
        sq.sequence(sq.sequence(x, y, within=8).alias("m"), w, within=9).cancel_when(z),
        "Detect([s, t, o, u], [x, y, w, z], EVENT Pattern WHEN CANCEL_WHEN(SEQUENCE(SEQUENCE(x AS x, y AS y, 8) AS "
        "m, w AS w, 9), z AS z))",
    ),
    (
        sq.sequence(x, y, within=8).filter(col("x_v") > 1).tumbling_window(4).select(n=sq.count()),
        "WindowAggregate(Where(Detect([s, t], [x, y], EVENT Pattern WHEN SEQUENCE(x AS x, y AS y, 8)), >(x_v, 1)), "
        "[], Hopping(4, 4), [n=count()])",
    ),
    (
        sq.sequence(TIMED.alias("x"), TIMED.alias("y"), within="8 seconds").unless(TIMED.alias("z"), "1 minute"),
        "Detect([m], [x], EVENT Pattern WHEN UNLESS(SEQUENCE(x AS x, x AS y, 8 seconds), x AS z, 1 minute))",
    ),
    (
        sq.cedr("EVENT A WHEN SEQUENCE(X AS x FIRST, Y, 8) OUTPUT x.k AS k @ [2, 6)", X=S, Y=T),
        "Detect([s, t], [X, Y], EVENT A WHEN SEQUENCE(X AS x FIRST, Y, 8) OUTPUT x.k @ [2, 6))",
    ),
    (
        sq.cedr("EVENT E WHEN SEQUENCE(X AS x, Y AS y, 8)", X=S, Y=T).where(lambda x, y: x.vs < y.v),
        "Detect([s, t], [X, Y], EVENT E WHEN SEQUENCE(X AS x, Y AS y, 8), conditions=[<(x.@, y.v)])",
    ),
    (
        sq.sequence(sq.any_of(x).where(lambda x: x.v > 1), sq.any_of(y).where(lambda y: y.v < 5), within=8),
        "Detect([s, t], [x, y], EVENT Pattern WHEN SEQUENCE(ANY(x AS x), ANY(y AS y), 8), conditions=[>(x.v, 1), "
        "<(y.v, 5)])",
    ),
]
"""Each verb with each argument, and the plan that it means."""


@each(PLANS)
def test_a_verb_makes_the_plan_that_it_means(case: tuple[Any, str]) -> None:
    query, plan = case
    assert written(query.plan) == plan
