"""What runs on executors reaches them by value: it can be read where streamq is not installed."""

from __future__ import annotations

import gc
import pickle
import pkgutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType

import streamq as sq
from streamq import functions
from streamq.choices import OutputForm
from streamq.compiler.results import Result, choose_egress, result_columns
from streamq.connectors.stored_files import FORMATS, FileReader
from streamq.operators import Source, step, written_operators
from streamq.operators.alter_lifetime import MovedRows
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.plan.expr import Col
from streamq.plan.lowering import ship_runtime
from streamq.plan.schema import Field, Schema
from streamq.run.sink_arguments import sink_of
from streamq.run.sinks import SplitWriter
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.evaluators import joins, spans, window_evaluator
from streamq.runtime.evaluators.joins import JoinEvaluator, PairCondition
from streamq.runtime.hosts.hosted_kernel import Channel, InnerPath, ItemPaths, RenamedColumns
from streamq.runtime.hosts.packer import Packer
from streamq.runtime.hosts.processor import DRIVER_WORKER, make_processor
from streamq.runtime.hosts.shipping import KEPT, WORKER_MEMORY, dumps, packed, packed_together
from streamq.runtime.hosts.stage import Stage
from streamq.runtime.kernels import condensing, latest_rows, recompute, settle, window_aggregate
from streamq.runtime.kernels import joins as join_kernels
from streamq.runtime.time.progress import ExprProgressMap, ProgressShift
from streamq.time import Grid
from streamq.windows import KINDS, Calendar, Count, Hopping, Landmark, Rows, Session, Snapshot, Window
from tests.runtime.test_identity import MINE

READ = """
import pickle, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'streamq':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
pickle.load(open(sys.argv[1], 'rb'))
"""


A_WINDOW_A_KIND: tuple[Window, ...] = (
    Hopping(6, 2), Snapshot(), Count(2), Rows(3, 2, ("v",)), Session(4), Landmark(5, 0, 20), Calendar(1, "day", "Pacific/Apia"),
)  # fmt: skip


WRITE = f"""{READ.rpartition("pickle.load")[0]}
from unittest.mock import MagicMock
batch = MagicMock()
batch.selectExpr.return_value.first.return_value = [False, True, False, False, False, 5]
write = pickle.load(open(sys.argv[1], 'rb'))
write(batch, 3), write(batch, 4)
print(*[call.args[0] for call in batch.mock_calls if call[0].endswith('.save') and call.args], sep=chr(10))
"""


@pytest.mark.slow
def test_the_function_that_writes_micro_batches_goes_by_value(tmp_path: Path) -> None:
    """Spark Connect calls it on the server: it writes results of all forms, and late rows, without streamq.

    At first into all sinks, then where there are rows, and into the last one.
    """
    counts = sq.events([(1, 2, {"k": "a"})]).group_by("k").tumbling_window(4).select(n=sq.count())
    columns = [
        result_columns(Result(number=n, plan=counts.plan, egress=egress, in_order=True), packed=True)
        for n, egress in enumerate(choose_egress(counts.plan, form, verb="run_all") for form in OutputForm)
    ]
    *sinks, late = [sink_of(name, "run_all") for name in ("final", "changelog", "upsert", "latest", "late")]
    writer = SimpleNamespace(foreachBatch=cloudpickle.dumps)
    (tmp_path / "shipped").write_bytes(cast(Any, SplitWriter(columns, sinks, late, None).start(cast(Any, writer))))
    done = subprocess.run([sys.executable, "-c", WRITE, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written = [(name, 3) for name in ("final", "changelog", "upsert", "latest", "late")] + [
        ("changelog", 4),
        ("late", 4),
    ]
    assert done.stdout.split() == [f"{name}/streamq_batch={number}" for name, number in written]


COMMIT = f"""{READ.rpartition("pickle.load")[0]}
from unittest.mock import MagicMock
from pyspark import cloudpickle
rows = MagicMock()
rows.sparkSession.read.text.return_value.first.return_value = ['{{"id": "ab"}}']
pickle.load(open(sys.argv[1], 'rb'))(rows, 3)
(commit, _), _ = rows.coalesce.return_value.mapInArrow.call_args
print(type(pickle.loads(cloudpickle.dumps(commit))).__name__)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "sink",
    [
        sq.kafka("host:9092", "rows"),
        sq.kafka("host:9092", "rows", value="protobuf", registry="http://host:8081"),
        sq.merge_into("delta", "rows"),
        sq.postgres("host=db", "rows"),
    ],
    ids=["kafka", "registry", "delta", "postgres"],
)
def test_the_function_that_commits_micro_batches_goes_by_value(sink: Any, tmp_path: Path) -> None:
    """Spark Connect calls it on the server, where it sends the function of its task on; neither has streamq."""
    writer = SimpleNamespace(foreachBatch=cloudpickle.dumps)
    ship_runtime()
    (tmp_path / "shipped").write_bytes(cast(Any, sink_of(sink, "run").start(cast(Any, writer))))
    done = subprocess.run([sys.executable, "-c", COMMIT, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.stdout == "function\n", done.stderr


@pytest.mark.slow
def test_stages_kernels_and_evaluators_go_by_value(tmp_path: Path) -> None:
    ship_runtime()
    evaluators = (joins, spans, window_evaluator)
    modules = (*evaluators, condensing, join_kernels, latest_rows, recompute, settle, window_aggregate)
    shipped = [v for m in modules for v in vars(m).values() if isinstance(v, type) and v.__module__ == m.__name__]
    assert len(shipped) >= sum(issubclass(kind, EvaluatedOperator) for kind in written_operators())
    assigners = [window.assigner(("v",)) for window in A_WINDOW_A_KIND]
    assert {type(window) for window in A_WINDOW_A_KIND} == set(KINDS)
    steps = [step.ComputedColumns, step.FilteredRows, MovedRows]
    points = sq.points(pa.table({"at": [1], "v": [2]}), time="at", id="v").plan
    assert isinstance(points, Source)
    splits = [
        *(FileReader(kind, points.columns, points.columns, {}, 1) for kind in FORMATS.values()),
        points.rows_in_arrow,
        ItemPaths,
    ]
    (tmp_path / "shipped").write_bytes(
        dumps((Stage, Packer, ExprProgressMap, InnerPath, steps, shipped, assigners, splits))
    )
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@sq.udf("bigint")
def doubled(v: int) -> int:
    return 2 * v


@sq.uda("bigint")
def total(v: pd.Series) -> int:
    return int(v.sum())


@sq.udso("v bigint", initial=0)
def running(last: int, v: int) -> tuple[int, list[int]]:
    return last + v, [last + v]


@pytest.mark.slow
def test_what_modules_are_called_by_goes_by_value(tmp_path: Path) -> None:
    ship_runtime()
    (tmp_path / "shipped").write_bytes(dumps((doubled._on_worker, total.module, running.calling(1))))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_processor_says_what_state_it_has_without_what_its_stage_needs(tmp_path: Path) -> None:
    """Spark asks in a new Python as a query starts; imports would be most of it."""
    ship_runtime()
    processor = make_processor(Stage(0, (), (Channel(0, "source:a", 0, 0, 0, ()),), {}, frozenset(), 1), MINE, {0: 0})
    (tmp_path / "shipped").write_bytes(cloudpickle.dumps(processor))
    ask = """
class Handle:
    def getMapState(self, name, key, value):
        print(name)
pickle.load(open(sys.argv[1], 'rb')).init(Handle())
print({'pandas', 'pyarrow', 'numpy'} & set(sys.modules))
"""
    # in the process of PySpark's that does so, its own lines stay unprinted once the processor is there
    hushed = f"sys.modules['__main__'].__spec__ = type('Spec', (), {{'name': {DRIVER_WORKER!r}}})\n"
    done = subprocess.run([sys.executable, "-c", READ + ask, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["baskets", "set()"], done.stderr
    command = [
        sys.executable,
        "-c",
        READ.replace("pickle.load", hushed + "pickle.load") + "\nprint(1)\nraise ValueError(2)",
    ]
    done = subprocess.run([*command, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.stdout == "" and "ValueError: 2" in done.stderr


def test_a_stage_takes_the_evaluator_of_expressions_along_only_where_progress_goes_by_one() -> None:
    ship_runtime()
    plain = Channel(0, "source:a", 0, 0, 0, (), progress_maps=(ProgressShift(3),))
    moved = replace(plain, progress_maps=(ExprProgressMap(Col("a"), Schema((), "integer")),))
    shipped = [cloudpickle.dumps(Stage(0, (), (c,), {}, frozenset(), 1)) for c in (plain, moved)]
    assert [evaluate.__module__.encode() in s for s in shipped] == [False, True]
    assert len(shipped[0]) < 180_000


def test_an_inner_path_takes_it_along_only_where_it_computes() -> None:
    ship_runtime()
    schema = Schema((Field("a", LongType()),), "integer")
    steps = (RenamedColumns((("b", "a"),)), step.FilteredRows(Col("a") == Col("a"), schema))
    shipped = [cloudpickle.dumps(InnerPath(pa.schema([]), (step,), (), ())) for step in steps]
    assert [evaluate.__module__.encode() in s for s in shipped] == [False, True]
    assert len(shipped[0]) < 20_000


def test_a_join_takes_it_along_only_where_it_has_a_condition() -> None:
    ship_runtime()
    condition_of = PairCondition(Col("a") == Col("b"), Schema((), "integer"))
    shipped = [cloudpickle.dumps(JoinEvaluator("inner", (), where, (), (), ())) for where in (None, condition_of)]
    assert [evaluate.__module__.encode() in s for s in shipped] == [False, True]


def test_a_condition_takes_along_the_functions_it_calls_and_no_others() -> None:
    ship_runtime()
    schema = Schema((Field("a", LongType()), Field("b", LongType())), "integer")
    shipped = cloudpickle.dumps(PairCondition(Col("a") == Col("b"), schema))
    rooms = [m.name for m in pkgutil.iter_modules(functions.__path__, "streamq.functions.")]
    assert {"streamq.functions.text", "streamq.functions.dates"} <= set(rooms)
    rooms_along = {room for room in rooms if room.encode() in shipped}
    assert rooms_along == {f"streamq.functions.{n}" for n in ("built_in", "logic")}


def test_code_travels_without_what_only_its_readers_use(tmp_path: Path) -> None:
    ship_runtime()
    bare = dumps((Grid, Grid(6, 2)))
    assert Grid.__doc__ and Grid.first_ending_after.__doc__
    texts = (Grid.__doc__, Grid.first_ending_after.__doc__, "__repr__", "__delattr__", "__annotations__")
    assert not [text for text in texts if text.encode() in bare]
    (tmp_path / "shipped").write_bytes(bare)
    use = """
import dataclasses
kind, grid = pickle.load(open(sys.argv[1], 'rb'))
print(grid == dataclasses.replace(kind(1, 2), size=6), hash(grid) == hash(kind(6, 2)), grid.first_ending_after(7))
print(kind.n.fget.__qualname__, kind.n.fget.__module__, kind.__init__.__qualname__, kind.__init__.__defaults__)
"""
    done = subprocess.run([sys.executable, "-c", READ + use, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True True 1", "Grid.n streamq.time Grid.__init__ (0,)"], done.stderr


def test_code_that_is_not_streamqs_travels_as_it_was_written() -> None:
    ship_runtime()

    def aggregate(rows: list[int]) -> int:
        """Told to users."""
        return sum(rows)

    loaded = pickle.loads(dumps(aggregate))
    assert (loaded.__doc__, loaded.__annotations__) == ("Told to users.", {"rows": "list[int]", "return": "int"})


def counter(start: int) -> Callable[[], int]:
    """A function that counts its calls, on from ``start``; how many there were is lost when it is unpacked anew."""
    calls = [start]

    def count() -> int:
        calls[0] += 1
        return calls[0]

    return count


def test_a_worker_unpacks_a_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, WORKER_MEMORY, raising=False)
    shipped = cloudpickle.dumps(packed(counter(0)))
    assert [pickle.loads(shipped)() for _ in range(3)] == [1, 2, 3]


def test_functions_packed_together_are_unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, WORKER_MEMORY, raising=False)
    shipped = [cloudpickle.dumps(one) for one in packed_together([counter(10), counter(20)])]
    assert [pickle.loads(one)() for one in (*shipped, *shipped)] == [11, 21, 12, 22]
    assert len(vars(sys.modules[WORKER_MEMORY])["functions"]) == 1


def test_the_garbage_collector_passes_over_what_a_first_call_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, WORKER_MEMORY, raising=False)
    count = packed(counter(0))
    frozen = []
    for _ in range(3):
        count()
        frozen.append(gc.get_freeze_count())
    gc.unfreeze()
    # what is frozen may end
    assert frozen[0] < frozen[1] >= frozen[2]


def test_a_worker_forgets_the_function_called_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, WORKER_MEMORY, raising=False)
    first, *others = [packed(counter(1_000 * i)) for i in range(KEPT + 1)]
    for count in (first, *others[:-1], first, others[-1]):
        count()
    assert [first(), others[1]()] == [3, 2_002]
    assert others[0]() == 1_001


def test_a_forgotten_function_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, WORKER_MEMORY, raising=False)
    first, *others = [packed(counter(1_000 * i)) for i in range(KEPT + 1)]
    first()
    functions = vars(sys.modules[WORKER_MEMORY])["functions"]
    ((function,),) = functions.values()
    function.itself, gone = function, weakref.ref(function)
    first()
    del function
    assert gc.get_freeze_count() and gone() is not None
    for count in others:
        count()
    assert gone() is None


OWN = """
import streamq as sq

def triple(value):
    return value * 3

@sq.udf("int")
def doubled(value):
    return value * 2
"""
PLAIN = "def once(value):\n    return value\n"
SCRIPT = """
import sys
import own
import plain
import streamq as sq
from streamq.plan.lowering import ship_runtime
from streamq.runtime.hosts.shipping import dumps

@sq.udf("int")
def six(value):
    return own.triple(plain.once(value)) * own.doubled.code(1)

ship_runtime()
open(sys.argv[1], "wb").write(dumps(six._on_worker))
"""
USED = """
import pyarrow as pa
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("streamq", "own", "plain"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
print(pickle.load(open(sys.argv[1], "rb"))(pa.array([True]), pa.array([5])).field("value").to_pylist())
"""


@pytest.mark.slow
def test_a_file_that_also_holds_decorated_modules_goes_by_value(tmp_path: Path) -> None:
    """A script's function calls a plain one of it, and the code of a decorated one; workers have neither it nor streamq.

    It also calls a function of a file in which nothing is decorated.
    """
    for name, text in (
        ("own.py", OWN),
        ("plain.py", PLAIN),
        ("script.py", SCRIPT),
        ("used.py", "import pickle, sys" + USED),
    ):
        (tmp_path / name).write_text(text)
    for name in ("script.py", "used.py"):
        command = [sys.executable, str(tmp_path / name), str(tmp_path / "shipped")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "[30]\n"


WRITES = """
import plain, sys
from types import SimpleNamespace
from pyspark import cloudpickle
from streamq.plan.lowering import ship_runtime
from streamq.run.sink_arguments import sink_of

def write(rows, number):
    print(plain.once(number))

ship_runtime()
writer = SimpleNamespace(foreachBatch=cloudpickle.dumps)
sys.stdout.buffer.write(sink_of(write, "run").start(writer))
"""
WRITTEN = """
import pickle, sys
from unittest.mock import MagicMock
sys.modules["streamq"] = sys.modules["plain"] = None
pickle.load(sys.stdin.buffer)(MagicMock(), 7)
"""


def test_a_function_as_sink_brings_the_files_beside_it(tmp_path: Path) -> None:
    """Spark Connect calls it on the server, which has neither these nor streamq."""
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "script.py").write_text(WRITES)
    sent = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, check=True).stdout
    done = subprocess.run([sys.executable, "-c", WRITTEN], input=sent, capture_output=True, check=False)
    assert done.stdout == b"7\n", done.stderr.decode()


DECODED = """
import sys
from pyspark.cloudpickle import dumps
from streamq.connectors.connector import Splits
from streamq.time import show_ticks

class Frame:
    columns = ["path"]
    def toDF(self, *names): return self
    def mapInArrow(self, run, schema): sys.stdout.buffer.write(dumps(run))

Splits(Frame(), show_ticks).decoded(())
"""

LOADED = "import pickle, sys; sys.modules['streamq'] = None; print(callable(pickle.load(sys.stdin.buffer)))"


def test_the_first_function_that_a_process_sends_brings_its_code() -> None:
    """PySpark pickles the reader of a source's splits as its DataFrame is made, before anything else is sent."""
    sent = subprocess.run([sys.executable, "-c", DECODED], capture_output=True, check=True).stdout
    loaded = subprocess.run([sys.executable, "-c", LOADED], input=sent, capture_output=True, check=False)
    assert loaded.stdout.strip() == b"True", loaded.stderr.decode()
