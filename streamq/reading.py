"""Folders of files as streaming DataFrames, a bounded part of them a micro-batch: a history is caught up with step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, SourceError, sentence
from streamq.run.active import session_of
from streamq.run.failure import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

AT_ONCE = 64 << 20
"""Bytes of files that a micro-batch takes unless told otherwise: some million rows of a few columns."""


_BOUNDS = frozenset({"maxfilespertrigger", "maxbytespertrigger"})
"""Spark's own options that bound a micro-batch."""


def read_stream(
    path: str,
    *,
    schema: StructType | str | None = None,
    format: str = "parquet",
    at_once: int | None = AT_ONCE,
    options: Mapping[str, Any] | None = None,
    **more_options: Any,
) -> DataFrame:
    """A folder of files as a streaming DataFrame that takes at most ``at_once`` bytes of new files a micro-batch.

    So a long history is caught up with in micro-batches whose memory is bounded, the first run as well; ``spark.readStream``
    takes all there is in the first. A single file is taken whole. ``format`` and the options, as keywords or as
    ``options={...}``, are Spark's, as are the names of files; ``schema`` is by default that of the files which are there. With
    ``at_once=None`` there is no bound; Spark's own ``maxFilesPerTrigger`` and ``maxBytesPerTrigger`` go before it. Files are
    taken in the order in which they were written: where that is not the order of their rows' time, allow for it in
    ``sq.generate(delay)``, for what comes behind is late. Raises SessionError without an active session, SourceError where there
    is no file to read a schema from, PlanError for an ``at_once`` that is no number of bytes, and for options that are none.
    (Spark's ``maxBytesPerTrigger``.)

    ::

        trips = sq.points(sq.read_stream("trips"), time="pickup", progress=sq.generate("1 hour"))
    """
    from pyspark.errors import AnalysisException

    if at_once is not None and (not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1):
        raise PlanError(sentence("read_stream", "at_once is a number of bytes, at least 1", f"found {at_once!r}"))
    every = _options({} if options is None else options, more_options)
    spark = session_of((), "read_stream")
    with spark_errors(
        "read_stream", f"Spark does not read {path}", "Look at the path, the format, the options.", SourceError
    ):
        if schema is None:
            try:
                schema = spark.read.format(format).options(**every).load(path).schema
            except AnalysisException as error:
                hint = "Give schema=..., or a folder with files in it."
                reason = f"{path}: {error.getCondition()}"
                raise SourceError(sentence("read_stream", "no schema", reason, hint)) from error
        reader = spark.readStream.format(format).schema(schema).options(**every)
        if at_once is not None and _BOUNDS.isdisjoint(map(str.lower, every)):
            reader = reader.option("maxBytesPerTrigger", at_once)
        return reader.load(path)


def _options(options: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of Spark's in a dictionary and as keywords; raises PlanError for what is none, or is given twice."""
    if not isinstance(options, Mapping):
        raise PlanError(sentence("read_stream", "options is a dictionary", f"found {options!r}"))
    for name, value in (*options.items(), *more.items()):
        if not isinstance(name, str):
            raise PlanError(sentence("read_stream", "the name of an option is a string", f"found {name!r}"))
        if value is not None and not isinstance(value, str | bool | int | float):
            hint = "Write options={...}." if isinstance(value, Mapping) else ""
            what = f"found {name}={value!r}"
            raise PlanError(
                sentence("read_stream", "the value of an option is a string, a number or a truth", what, hint)
            )
    keywords = {name.lower() for name in more}
    if twice := [name for name in options if name.lower() in keywords]:
        raise PlanError(sentence("read_stream", f"option {twice[0]!r} twice", "as a keyword and in options"))
    return {**options, **more}
