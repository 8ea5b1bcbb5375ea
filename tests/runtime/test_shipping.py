"""What runs on executors reaches them by value: it can be read where streamq is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle

from streamq.compiler.hosting import HOSTED
from streamq.compiler.streaming import ship_runtime
from streamq.runtime.evaluators import joins, spans, windows
from streamq.runtime.kernels import inner_join, recompute, relay, settle, window_aggregate
from streamq.runtime.stage import Packer, Stage

READ = """
import pickle, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'streamq':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
pickle.load(open(sys.argv[1], 'rb'))
"""


def test_stages_kernels_and_evaluators_go_by_value(tmp_path: Path) -> None:
    ship_runtime()
    modules = (joins, spans, windows, inner_join, recompute, relay, settle, window_aggregate)
    shipped = [v for m in modules for v in vars(m).values() if isinstance(v, type) and v.__module__ == m.__name__]
    assert len(shipped) >= len(HOSTED)
    (tmp_path / "shipped").write_bytes(cloudpickle.dumps((Stage, Packer, shipped)))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "shipped")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
