"""Where an embedded Spark finds itself: PySpark's folder, without the archive of its Python sources."""

from __future__ import annotations

import atexit
import os
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKER_SITE = Path(__file__).parent / "worker_site"
"""What embedded workers have first on their path."""


def archive_is_not_needed(worker: str) -> bool:
    """Return True if workers find the PySpark that this process has where packages are installed."""
    import pyspark

    places = {Path(place) for place in (*site.getsitepackages(), site.getusersitepackages())}
    home = Path(pyspark.__file__).parent
    return worker == sys.executable and home.parent in places and (home / "jars").is_dir()


@contextmanager
def home_without_archive(worker: str) -> Iterator[None]:
    """While the JVM is started, SPARK_HOME is a folder of links to Spark; ``python/lib/pyspark.zip`` is one of ours.

    Spark puts that archive before all else on the path of Python workers. Python compiles what it imports from there anew,
    each time, and as a query starts, each of its stages imports PySpark in a new process: a second of planning a stage, where
    the same package, installed and compiled, takes a sixth of it. In its place is ``worker_site``, which keeps PySpark's
    chatter out of terminals. A SPARK_HOME of the user's own stays, and so does the archive where ``worker`` could not do
    without.
    """
    import pyspark

    if "SPARK_HOME" in os.environ or os.name != "posix" or not archive_is_not_needed(worker):
        yield
        return
    home = Path(tempfile.mkdtemp(prefix="streamq-spark-home-"))
    # what the JVM needs of it is open by then
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    lib = home / "python" / "lib"
    lib.mkdir(parents=True)
    (lib / "pyspark.zip").symlink_to(WORKER_SITE)
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
