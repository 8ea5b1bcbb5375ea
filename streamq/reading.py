"""Reads folders of files as streaming DataFrames, with a bound on the size of a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, SourceError, sentence
from streamq.keywords import check_keywords
from streamq.run.failure import spark_errors
from streamq.run.findings import session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

AT_ONCE = 64 << 20
"""The default for the bytes of files in a micro-batch: some million rows of a few columns."""


_BOUNDS = frozenset({"maxfilespertrigger", "maxbytespertrigger"})
"""The options of Spark's that bound a micro-batch, in lower case."""


@check_keywords
def read_stream(
    path: str,
    *,
    schema: StructType | str | None = None,
    format: str = "parquet",
    at_once: int | None = AT_ONCE,
    options: Mapping[str, Any] | None = None,
    **more_options: Any,
) -> DataFrame:
    """Read a folder of files as a streaming DataFrame, at most ``at_once`` bytes of new files in each micro-batch.

    So a run that starts with a long history processes it in micro-batches of bounded memory, while ``spark.readStream`` takes
    all files in its first one. A single file is never split. ``path``, ``format`` and the options, as keywords or as
    ``options={...}``, are Spark's; ``schema`` defaults to that of the files in the folder. With ``at_once=None`` there is no
    bound; Spark's options ``maxFilesPerTrigger`` and ``maxBytesPerTrigger`` replace it. Files are read in the order in which
    they were written: if that is not the order of their rows' time, choose the delay in ``sq.generate(delay)`` accordingly,
    because rows behind the CTI are late. Raises SessionError without an active session, SourceError if there is no file to
    read a schema from, and PlanError for an ``at_once`` that is no number of bytes and for invalid options. (Spark's
    ``maxBytesPerTrigger``.)

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
    """Merge Spark's options, those of ``read_stream(options=...)`` and those passed as keywords.

    Raises PlanError for an invalid option, and for one that is passed in both ways, maybe in another case.
    """
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
