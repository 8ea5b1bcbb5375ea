"""Differential: what runs in-process gives Spark's answer, type and error, for every registered function.

All expressions go into few wide selects over nasty inputs. Where the in-process evaluation says that a row is an
error, Spark gets NULL in its stead (so that an error it is alone to raise fails the test), and a sample of those rows
is then put to Spark to see it raise.
"""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as t

import streamq as sq
from streamq import functions as f
from streamq.errors import NeedsSpark, TypeMismatch
from streamq.expressions import col
from streamq.plan.expr import Lit, show
from streamq.plan.lowering import to_spark
from streamq.plan.passes import columns as columns_of
from streamq.plan.passes import infer, substitute
from streamq.plan.schema import Field, Schema
from streamq.plan.spark_types import AGGREGATES, GENERATORS, WINDOWED
from streamq.runtime.arrow.arrow_expr import arrow_type, attempt

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
from tests.spark.expression_calls import c, calls, casts, distinct, identifying, lazy, operators
from tests.spark.nasty_values import POOLS, ROWS, SCHEMA, nasty


class _Frame:
    """Columns of the test frame by their own names."""

    def column(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(name)

    def lifetime(self, part: str) -> Column:
        raise AssertionError(part)


def never(part: str) -> pa.Array:
    raise AssertionError(part)


def exact(array: pa.Array) -> list[Any]:
    """Values that compare by the last bit: -0.0 is not 0.0, NaN is NaN."""
    if pa.types.is_floating(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
        return [None if empty else b for empty, b in zip(array.is_null().to_pylist(), bits.tolist(), strict=True)]
    if pa.types.is_temporal(array.type):
        return array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).to_pylist()
    return array.to_pylist()


@pytest.mark.parametrize("group", [operators, lazy, casts, calls, identifying], ids=lambda g: g.__name__)
def test_values_types_and_errors_are_sparks(spark: SparkSession, group: Any) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    columns = nasty()
    exprs = distinct(group())
    values = [attempt(e, SCHEMA, columns, never, ROWS) for e in exprs]
    bad = [np.logical_or.reduce([x.rows for x in v.faults]) if v.faults else np.zeros(ROWS, bool) for v in values]
    masks = {f"bad{k}": pa.array(b) for k, b in enumerate(bad) if b.any()}
    frame = spark.createDataFrame(pa.table({**columns, **masks}))
    wrong: list[str] = []
    spark_columns = []
    for k, expr in enumerate(exprs):
        column = to_spark(expr, _Frame())
        spark_columns.append((F.when(~F.col(f"bad{k}"), column) if f"bad{k}" in masks else column).alias(f"r{k}"))
    for first in range(0, len(spark_columns), 150):
        part = frame.select(spark_columns[first : first + 150])
        answer = part.toArrow().combine_chunks()
        for k, field in enumerate(part.schema.fields, first):
            ours = values[k].array
            if field.dataType != infer(exprs[k], SCHEMA, "test") or ours.type != arrow_type(field.dataType):
                wrong.append(
                    f"{show(exprs[k])}: {ours.type}, {infer(exprs[k], SCHEMA, 'test')} is in Spark {field.dataType}"
                )
                continue
            theirs = answer.column(field.name).chunk(0).cast(ours.type) if ours.type != pa.null() else ours
            rows = zip(exact(ours), exact(theirs), bad[k], strict=True)
            different = [(n, a, b) for n, (a, b, skipped) in enumerate(rows) if a != b and not skipped]
            if different:
                n, a, b = different[0]
                inputs = {name: columns[name][n].as_py() for name in sorted(columns_of(exprs[k]))}
                wrong.append(f"{show(exprs[k])} on {inputs}: {a!r} is in Spark {b!r}; {len(different)} rows differ")
    one = spark.sql("SELECT 1")
    raising = [k for k in range(len(exprs)) if bad[k].any()]
    for k in raising[:: max(1, len(raising) // 30)]:
        # Over constants the optimizer alone evaluates the row, which spares a job for each.
        n = int(np.flatnonzero(bad[k])[k % bad[k].sum()])
        row = {name: Lit(columns[name][n].as_py(), SCHEMA.type_of(name)) for name in columns_of(exprs[k])}
        try:
            answers = one.select(to_spark(substitute(exprs[k], row), _Frame())).collect()
            wrong.append(f"{show(exprs[k])} on {row} is no error in Spark: {answers}")
        except PySparkException:
            pass
    assert not wrong, "\n".join(wrong[:80]) + f"\n{len(wrong)} of {len(exprs)}"


def test_the_last_bit_of_many_doubles(spark: SparkSession) -> None:
    chosen = np.random.default_rng(5)
    wide = np.abs(chosen.standard_normal(8_000)) * 10.0 ** chosen.integers(-300, 300, 8_000)
    values = np.concatenate(
        [wide, chosen.uniform(-750, 715, 8_000), chosen.uniform(-3, 3, 8_000), 1 + chosen.uniform(-1e-6, 1e-6, 3_000)]
    )
    values = np.concatenate([values, np.round(chosen.uniform(-1e6, 1e6, 8_000), 3)])
    schema = Schema((Field("d", t.DoubleType()),), "integer")
    exprs = [
        f.exp("d"),
        f.ln("d"),
        f.log10("d"),
        f.log2("d"),
        f.sqrt("d"),
        f.round("d", 2),
        f.round("d", 0),
        c("d") % 0.7,
    ]
    table = pa.table({"d": pa.array(values)})
    answer = (
        spark.createDataFrame(table)
        .select([to_spark(e, _Frame()).alias(f"r{k}") for k, e in enumerate(exprs)])
        .toArrow()
    )
    for k, expr in enumerate(exprs):
        ours = attempt(expr, schema, {"d": table["d"]}, never, len(values)).array
        pairs = zip(values.tolist(), exact(ours), exact(answer.column(f"r{k}").combine_chunks()), strict=True)
        wrong = [p for p in pairs if p[1] != p[2]]
        assert not wrong, f"{show(expr)}: {len(wrong)}: {wrong[:3]}"


def test_fields_are_called_after_the_columns_given(spark: SparkSession) -> None:
    """Also where the rules put something else in the columns' place."""
    source = sq.events([(1, 3, {"v": 1})]).select(w=col("v") + 1, a=f.array("v"))
    structs = source.select(s=f.struct("w", sq.start()), z=f.arrays_zip("a"))
    assert structs.to_df().toArrow().to_pylist() == [{"s": {"w": 2, "start": 1}, "z": [{"a": 1}], "start": 1, "end": 3}]


def test_means_of_decimals_are_sparks(spark: SparkSession) -> None:
    """In-process and in batch, with the digits that Spark's own has, whatever the digits of the quotient of sum and count."""
    numbers = [Decimal(v) for v in ("0.01", "0.02", "-0.07", "0.00005", "0.03", "0.09999")]
    kinds = ("decimal(5,5)", "decimal(11,5)", "decimal(12,6)", "decimal(20,5)", "decimal(38,18)", "decimal(38,38)")
    schema = {f"v{i}": kind for i, kind in enumerate(kinds)}
    rows = [(i, i + 1, dict.fromkeys(schema, v)) for i, v in enumerate((*numbers, None))]
    query = sq.events(rows, schema=schema).tumbling_window(100).select(**{name: sq.avg(name) for name in schema})
    columns = ", ".join(f"{name} {kind}" for name, kind in schema.items())
    frame = spark.createDataFrame([(v,) * len(kinds) for v in numbers], columns)
    plain = frame.agg(*(F.avg(name).alias(name) for name in schema)).toArrow()
    for table in (query.to_arrow(), query.to_df().toArrow()):
        assert table.select([*schema]).cast(plain.schema) == plain
        assert [table.schema.field(name).type for name in schema] == plain.schema.types


def test_types_of_aggregates_are_sparks(spark: SparkSession) -> None:
    """In the schema of a plan, of a sum of every number and of an extreme of every type."""
    columns = ", ".join(f"{name} {kind.simpleString()}" for name, (kind, _) in POOLS.items())
    frame = spark.createDataFrame([], f"at bigint, {columns}")
    numbers = [name for name, (kind, _) in POOLS.items() if isinstance(kind, t.NumericType)]
    ours: dict[str, Any] = {"count": sq.count(), "distinct": sq.count_distinct(numbers[0])}
    theirs = {"count": F.count("*"), "distinct": F.count_distinct(numbers[0])}
    for names, some in ((numbers, "sum avg var var_pop stddev stddev_pop"), (POOLS, "min max first last")):
        for name, function in itertools.product(names, some.split()):
            in_spark = {"var": "var_samp"}.get(function, function)
            ours[f"{function} {name}"], theirs[f"{function} {name}"] = (
                getattr(sq, function)(name),
                getattr(F, in_spark)(name),
            )
    for name in numbers:
        ours[f"collect {name}"], theirs[f"collect {name}"] = sq.collect(name), F.collect_list(name)
        ours[f"median {name}"], theirs[f"median {name}"] = sq.median(name), F.percentile(name, 0.5)
        for function, in_spark in (("corr", F.corr), ("covar", F.covar_samp), ("covar_pop", F.covar_pop)):
            ours[f"{function} {name}"], theirs[f"{function} {name}"] = (
                getattr(sq, function)(name, name),
                in_spark(name, name),
            )
    plan = sq.points(frame, "at").tumbling_window(5).select(**ours).plan
    of_spark = frame.agg(*(column.alias(name) for name, column in theirs.items())).schema
    wrong = [
        (f.name, plan.schema.type_of(f.name), f.dataType) for f in of_spark if plan.schema.type_of(f.name) != f.dataType
    ]
    assert [one for one in wrong if one[1].simpleString() != one[2].simpleString()] == []


def test_pyspark_columns_that_are_no_value_of_one_event(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, [1])], "at long, v long, xs array<int>")
    source = sq.points(frame, time="at")
    window = source.tumbling_window(5)
    hint = r"found spark\[.*sum\(v\).*\]\. Use sq\.sum in a window's select\."
    for verb in (
        lambda: window.select(y=F.sum("v")),
        lambda: window.select(y=F.sum("v") + 1),
        lambda: source.group_by("v").tumbling_window(5).select(y=F.sum("v")),
        lambda: window.select(y=sq.sum(F.sum("v"))),
        lambda: source.where(F.sum("v") > 3),
        lambda: source.select(y=F.sum("v")),
        lambda: window.top_k(1, by=F.sum("v")),
    ):
        with pytest.raises(TypeMismatch, match=f"a pyspark Column that is no value of one event; {hint}"):
            verb()
    with pytest.raises(TypeMismatch, match=r"kurtosis.*In a window's select there are sq\.avg, "):
        window.select(y=F.kurtosis("v"))
    for column in (F.row_number().over(Window.orderBy("v")), F.explode("xs")):
        with pytest.raises(TypeMismatch, match="a pyspark Column that is no value of one event"):
            source.select(y=column)
    rows = window.select(y=sq.sum(F.col("v") * 2)).to_df().toArrow().to_pylist()
    assert rows == [{"y": 4, "start": 0, "end": 5}]
    assert source.select(y=F.size("xs")).to_df().toArrow().to_pylist() == [{"y": 1, "start": 1, "end": 2}]
    with pytest.raises(TypeMismatch, match=r"The source has read column 'at'"):
        source.where(F.col("at") > 1)


def test_refused_functions_are_sparks_aggregates_windows_and_generators(spark: SparkSession) -> None:
    rows = spark.sql("SHOW FUNCTIONS").collect()
    assert rows
    scala = spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    registry = getattr(getattr(scala.analysis, "FunctionRegistry$"), "MODULE$").builtin()
    wrong = []

    for name in F.__all__:
        info = registry.lookupFunction(scala.FunctionIdentifier(name))
        group = info.get().getGroup() if info.isDefined() else ""
        expected = {"agg_funcs": AGGREGATES, "window_funcs": WINDOWED, "generator_funcs": GENERATORS}.get(group)
        if expected is not None and name not in expected:
            wrong.append((name, group))
    assert wrong == []


def test_what_an_error_says_of_spark_is_so(spark: SparkSession) -> None:
    rows = sq.events([(1, 2, {"v": 7}), (2, 3, {"v": -7})])
    query = rows.select(x=f.pmod("v", f.abs(sq.lit(5))), y=col("v") ** 2, z=f.array("v")[0])
    with pytest.raises(NeedsSpark, match=r"call to_df\(\), which runs on Spark"):
        query.show()
    assert sorted(tuple(row)[:3] for row in query.to_df().collect()) == [(2, 49.0, 7), (3, 49.0, -7)]
