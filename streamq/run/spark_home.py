"""The SPARK_HOME of an embedded Spark: PySpark's folder, without the archive of its Python sources."""

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
"""The first folder on the path of embedded workers."""


def archive_is_not_needed(worker: str) -> bool:
    """Return True if workers run this Python and find this process' PySpark, with its jars, among the installed packages."""
    import pyspark

    places = {Path(place) for place in (*site.getsitepackages(), site.getusersitepackages())}
    home = Path(pyspark.__file__).parent
    return worker == sys.executable and home.parent in places and (home / "jars").is_dir()


@contextmanager
def home_without_archive(worker: str) -> Iterator[None]:
    """Set SPARK_HOME, while the JVM starts, to a folder of links to Spark in which ``python/lib/pyspark.zip`` is replaced.

    Spark puts that archive first on the path of Python workers. Python compiles modules from an archive on every import, and
    each stage of a starting query imports PySpark in a new process, which takes a second a stage; the installed, compiled
    package takes a sixth of that. The archive is replaced by ``worker_site``, which suppresses PySpark's output in terminals. A
    SPARK_HOME that the user has set is kept, and so is the archive if ``worker`` needs it.
    """
    import pyspark

    if "SPARK_HOME" in os.environ or os.name != "posix" or not archive_is_not_needed(worker):
        yield
        return
    home = Path(tempfile.mkdtemp(prefix="streamq-spark-home-"))
    # by the end of this process the JVM has opened all files it needs from the folder
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
