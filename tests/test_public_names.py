"""``streamq.__all__`` is what ``from streamq import *`` promises: every name there, once, public."""

from __future__ import annotations

import subprocess
import sys

import pytest

import streamq
import streamq.testing

HEAVY = ("IPython", "duckdb", "google", "grpc", "hypothesis", "lark", "pandas", "pytest", "rich")
"""Packages that no query needs to be written down, or that only some runs need."""

HEAVY_PARTS = ("pyspark.ml", "pyspark.pandas", "pyspark.sql.connect", "streamq.demo", "streamq.testing")


def test_every_name_resolves_and_stands_once_in_order() -> None:
    names = list(streamq.__all__)
    assert [name for name in names if not hasattr(streamq, name)] == []
    assert names == sorted(set(names))


def test_no_public_name_is_missing() -> None:
    own = {name for name, value in vars(streamq).items() if getattr(value, "__module__", "").startswith("streamq.")}
    assert sorted(name for name in own - set(streamq.__all__) if not name.startswith("_")) == []


def test_completion_in_the_test_framework_offers_what_is_public() -> None:
    assert dir(streamq.testing) == sorted(set(streamq.testing.__all__))
    assert [name for name in dir(streamq.testing) if not hasattr(streamq.testing, name)] == []


def test_the_import_loads_nothing_that_a_script_may_not_need() -> None:
    script = "import sys; import streamq; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"streamq"} == set(loaded) & {*HEAVY, "numpy", "pyarrow", "pyspark", "streamq"}


@pytest.mark.slow
def test_the_language_loads_no_more_than_spark_and_arrow() -> None:
    script = "import sys; from streamq import *; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"streamq.stream", "pyspark.sql"} <= set(loaded)
    assert [name for name in loaded if name.split(".")[0] in HEAVY or name.startswith(HEAVY_PARTS)] == []
