"""Files of one format in a folder, of this computer or of a store, as the rows of a source and as a sink."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from os import PathLike, fspath
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as escaped
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.connectors.connector import Connector, Splits, option_values, schema_text, without_secrets
from streamq.connectors.csv_lines import Csv
from streamq.connectors.file_formats import WHOLE, ArrowFiles, FileFormat, Orc, Parquet, Share
from streamq.connectors.json_lines import JsonLines
from streamq.connectors.lines import COMPRESSED, NO_ROW
from streamq.connectors.messages import FILE, MALFORMED, OFFSET, WRONG
from streamq.connectors.text_values import PLAIN, Unclear, typed_texts
from streamq.errors import NeedsSpark, PlanError, SourceError, check_keywords, nearest
from streamq.plan.schema import MICRO_BATCH, Field, lazy, quote
from streamq.plan.spark_types import parse_fields
from streamq.runtime.arrow.arrow_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

PARQUET = "parquet"

AT_ONCE = 64 << 20
"""The default for the bytes of files in a micro-batch: some million rows of a few columns."""


FORMATS: Mapping[str, FileFormat] = {kind.name: kind for kind in (Parquet(), Orc(), ArrowFiles(), Csv(), JsonLines())}
"""The formats that are read without Spark, by name; Spark has more."""

SPARKS_FORMATS = frozenset({PARQUET, "csv", "json", "orc", "avro", "text", "xml"})
"""The formats of files that Spark has; others are tables, or come with packages."""

CORRUPT = "__corrupt"
"""The column in which Spark's reader puts a malformed line."""

TOLD = frozenset({"mode", "columnnameofcorruptrecord"})
"""The options, in lower case, by which the user says what Spark is to make of malformed lines."""

UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Bytes a unit."""

BOUNDS = frozenset({"maxfilespertrigger", "maxbytespertrigger"})
"""The options of Spark's that bound a micro-batch, in lower case."""

SHARE = 1 << 20
"""The bytes of a file that are worth a task of their own."""

BINARY_FILES = "path string, modificationTime timestamp, length bigint, content binary"
"""The columns of Spark's format of whole files."""

LOG = "_spark_metadata"
"""The folder in which a stream of Spark's notes the files that it has finished; one that was killed leaves others, too."""

Divided = Mapping[str, str]
"""The texts of columns, by their names in lower case, that a file's folders have in names such as ``day=2024-05-01``."""


@dataclass(frozen=True)
class FileReader:
    """Reads files of a format without Spark, on the driver and on workers, which it is sent to.

    ``columns``: those that it yields, some of them in the names of the folders below a path of ``depth`` parts. ``parsed``: those
    of which a malformed value makes the row malformed. ``is_static``: True if a malformed row is an error.
    """

    kind: FileFormat
    columns: tuple[Field, ...]
    parsed: tuple[Field, ...]
    options: Mapping[str, Any]
    depth: int
    is_static: bool = False

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the rows of shares of a stream's files, a row each, with the column ``split``: ``number shares url``.

        Raises SourceError for a file that only Spark reads, or that nobody does.
        """
        for split in batch.column("split").to_pylist():
            number, shares, url = split.split(" ", 2)
            try:
                yield from self.parts(*file_system(url), (int(number), int(shares)))
            except Unclear as error:
                wrong, hint = f"{url} is not read without Spark", error.hint or READ_BY_SPARK
                raise SourceError("files", wrong, str(error), hint) from error
            except (pa.ArrowException, OSError) as error:
                raise SourceError("files", f"{url} is not read", _first_line(error), "Mend or remove it.") from error

    def parts(self, system: fs.FileSystem, path: str, share: Share = WHOLE) -> Iterator[pa.Table]:
        """Yield the rows of a share of a file, in the Arrow types of the columns; raise Unclear, and what Arrow raises.

        Raises SourceError for a malformed row of a static table.
        """
        divided = texts_in_folders(path, self.depth)
        inside = [field for field in self.parsed if field.name.lower() not in divided]
        unread = {field.name for field in self.parsed} - {field.name for field in self.columns}
        with self.kind.opened(system, path) as data:
            for rows in self.kind.parts(data, inside, self.options, share, unread):
                for field in self.columns:
                    if field.name.lower() in divided:
                        value = folder_value(divided[field.name.lower()], field, rows.num_rows)
                        rows = rows.append_column(field.name, value)
                if self.kind.marks:
                    rows = self._with_file(rows, path)
                yield rows.select([field.name for field in self.columns])

    def _with_file(self, rows: pa.Table, path: str) -> pa.Table:
        """Return rows with the path of those that are malformed."""
        is_wrong = rows.column(MALFORMED).is_valid()
        if self.is_static and (at := pc.index(is_wrong, True).as_py()) >= 0:
            line, place, why = (rows.column(name)[at].as_py() for name in (MALFORMED, OFFSET, WRONG))
            what = f"at byte {place}: {line[:80]!r}: {why}"
            raise SourceError("join_table", f"{path} has a malformed line", what, "Mend it: a table has no invalid=.")
        return rows.append_column(FILE, pc.if_else(is_wrong, path, pa.scalar(None, pa.string())))


def texts_in_folders(path: str, depth: int) -> Divided:
    """Return the texts of columns in the names of a file's folders; the first ``depth`` parts of its path say nothing."""
    parts = (name.partition("=") for name in path.rstrip("/").split("/")[depth:-1])
    return {unquote(name).lower(): value for name, _, value in parts if name != MICRO_BATCH}


def file_system(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URL, and the path in it; raises what Arrow raises for one that it does not know."""
    scheme, separator, rest = url.partition(":")
    if not separator or "/" in scheme:
        return fs.LocalFileSystem(), normpath(Path(url).absolute())
    if scheme == "file":
        return fs.LocalFileSystem(), normpath(Path("/" + rest.lstrip("/")).absolute())
    store, slash, path = rest.removeprefix("//").partition("/")
    # names of Hadoop's clients for S3; paths are Spark's, without escapes
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    system, path = fs.FileSystem.from_uri(f"{scheme}://{store}{slash}{escaped(path)}")
    return system, path


@dataclass(frozen=True)
class Files(Connector):
    """The files of a format at ``path``, a folder, a file, or a pattern of these, as :func:`files` describes them.

    ``schema``: the columns that the user gave, None if the files say so. ``at_once``: the bytes of files in a micro-batch, None
    without a bound. ``reader``: "spark" if only Spark is to read the files, else None. ``options``: Spark's, by name.
    ``is_static``: True for a table that a stream is joined with, in which a malformed row is an error.
    """

    path: str
    format: str
    schema: tuple[Field, ...] | None
    at_once: int | None
    reader: str | None
    options: tuple[tuple[str, Any], ...]
    is_static: bool = False

    title = "files"

    def to_json(self) -> dict[str, Any]:
        named = None if self.schema is None else schema_text(self.schema)
        others = {"format": self.format, "schema": named, "at_once": self.at_once, "reader": self.reader}
        return {"connector": "files", "path": self.path, **others, "options": without_secrets(self.options)}

    @property
    def is_pattern(self) -> bool:
        """True if the path names several folders or files."""
        return WILD.search(self.path) is not None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self._stored, *self._marks)

    @property
    def _marks(self) -> tuple[Field, ...]:
        """The columns of malformed rows, of a format that has some."""
        marks = FORMATS[self.format].marks if self.format in FORMATS and not self.is_static else ()
        return (*marks, Field(FILE, t.StringType())) if marks else ()

    @property
    def transport_columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._marks)

    def static(self) -> Files:
        return replace(self, is_static=True)

    @lazy
    def _stored(self) -> tuple[Field, ...]:
        """The columns of the files, those of the user or of the first file; SourceError if neither says so."""
        if self.schema is not None:
            return self.schema
        hint = f'Give the columns: sq.files({self.path!r}, format={self.format!r}, schema="at timestamp, v double").'
        kind = FORMATS.get(self.format)
        if kind is None:
            raise SourceError("files", f"the columns of {self.format} files", "only Spark reads these", hint)
        for file in self._files("files"):
            if texts_in_folders(file.path, self._depth):
                raise SourceError("files", "columns in the names of folders have no type", file.path, hint)
            try:
                with kind.opened(self._place[0], file.path) as data:
                    return kind.fields(data)
            except Unclear as error:
                raise SourceError("files", f"no columns in {file.path}", str(error), error.hint or hint) from error
            except (pa.ArrowException, OSError) as error:
                raise SourceError("files", f"no columns in {file.path}", _first_line(error), hint) from error
        raise SourceError("files", f"no file in {self.path}", "which columns there are is not known", hint)

    def in_memory(self, verb: str) -> pa.Table:
        if what := self._only_spark():
            raise NeedsSpark(verb, what, "", SPARK_READS)
        empty = pa.table({f.name: pa.array([], arrow_type(f.type)) for f in self.fields})
        return pa.concat_tables([empty, *self._tables(self._files(verb), empty.column_names, verb)])

    def newest_first(self, columns: Collection[str], verb: str) -> Iterator[pa.Table]:
        """Yield these columns of the rows, those of files that were written last first; raises what ``in_memory`` does."""
        files = sorted(self._files(verb), key=lambda file: file.mtime_ns or 0, reverse=True)
        return self._tables(files, columns, verb)

    def _tables(self, files: Iterable[fs.FileInfo], columns: Collection[str], verb: str) -> Iterator[pa.Table]:
        """Yield these columns of the rows of some files, part by part."""
        for file in files:
            try:
                yield from self._reader(columns).parts(self._place[0], file.path)
            except Unclear as error:
                wrong = f"{file.path} is not read without Spark"
                raise NeedsSpark(verb, wrong, str(error), error.hint or READ_BY_SPARK) from error
            except (pa.ArrowException, OSError) as error:
                raise SourceError(verb, f"{file.path} is not read", _first_line(error), "Mend or remove it.") from error

    def _only_spark(self) -> str:
        """Return what only Spark reads, a format, an option or a column; "" if it is read without Spark, too."""
        kind = FORMATS.get(self.format)
        if kind is None:
            return f"{self.format} files"
        if more := {name.lower() for name, _ in self.options} - BOUNDS - kind.options:
            return f"option {min(more)!r} of {self.format} files"
        return kind.not_decoded(self._stored, {name.lower(): value for name, value in self.options})

    def _reader(self, columns: Collection[str]) -> FileReader:
        """Return the reader of these columns; the format is one that is read without Spark."""
        kind = FORMATS[self.format]
        fields = tuple(field for field in self.fields if field.name in columns)
        options = {name.lower(): value for name, value in self.options}
        # whether a row is malformed is no matter of the columns that a query reads
        return FileReader(kind, fields, self._stored if kind.marks else fields, options, self._depth, self.is_static)

    def not_split(self) -> str:
        if self.reader is not None:
            return "reader='spark'"
        if reason := self._only_spark():
            return f"only Spark reads {reason}"
        try:
            system, path = self._place
            system.get_file_info([path])
        except (pa.ArrowException, OSError) as error:
            return f"{self.path} is out of reach without Spark: {_first_line(error)}"
        return ""

    @property
    def is_decoded(self) -> bool:
        """True if workers read the files whoever asks: Spark does not read them, or would make NULLs of values."""
        return self.format in FORMATS and not FORMATS[self.format].by_spark and not self.not_split()

    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        # of binary files only the paths are asked for, so nothing is read
        files = spark.readStream.format("binaryFile").schema(BINARY_FILES)
        bounds = {name: value for name, value in self.options if name.lower() in BOUNDS}
        return self._splits(self._stream(files, bounds), columns)

    def _splits(self, paths: DataFrame, columns: Collection[str]) -> Splits:
        """Return the splits of files with the columns ``path`` and ``length``: a large one is shared by several tasks."""
        tasks = int(paths.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
        shares = F.least(F.lit(tasks), F.floor(F.col("length") / SHARE) + 1)
        if FORMATS[self.format].marks:
            shares = F.when(F.col("path").rlike(COMPRESSED.pattern), 1).otherwise(shares)
        numbered = paths.select("path", shares.alias("shares"))
        numbered = numbered.select("*", F.explode(F.sequence(F.lit(0), F.col("shares") - 1)).alias("number"))
        split = F.concat_ws(" ", "number", "shares", "path").alias("split")
        return Splits(numbered.select(split).repartition(tasks), self._reader(columns))

    def frame(self, spark: SparkSession) -> DataFrame:
        if self.is_decoded:
            paths = spark.read.format("binaryFile").schema(BINARY_FILES).load(self.path)
            return self._splits(paths, self._names).decoded(self.fields)
        reader = spark.read.format(self.format).schema(self._struct).options(**self._options)
        return self._with_marks(reader.load(self.path))

    def stream(self, spark: SparkSession) -> DataFrame:
        if self.is_decoded:
            return self.splits(spark, self._names).decoded(self.fields)
        return self._with_marks(self._stream(spark.readStream.format(self.format).schema(self._struct), self._options))

    def _with_marks(self, rows: DataFrame) -> DataFrame:
        """Return rows that Spark's reader has read, with the columns of malformed ones."""
        if not self._marks:
            return rows
        if CORRUPT not in rows.columns:
            return rows.select(*rows.columns, *(F.lit(None).cast(f.type).alias(f.name) for f in self._marks))
        line = F.col(CORRUPT)
        marks = {
            MALFORMED: line.cast("binary"),
            OFFSET: F.lit(None).cast(t.LongType()),
            WRONG: F.when(line.isNotNull(), F.lit(NO_ROW)),
            FILE: F.when(line.isNotNull(), F.col("_metadata.file_path")),
        }
        stored = (F.col(quote(field.name)) for field in self._stored)
        return rows.select(*stored, *(column.alias(name) for name, column in marks.items()))

    def _stream(self, reader: DataStreamReader, options: Mapping[str, Any]) -> DataFrame:
        """Return what a reader of Spark's reads from these files and those to come, within the bound of a micro-batch."""
        path = self.path
        if self._is_file:
            # of a path without a pattern Spark's stream reads folders alone
            path = f"{path[:-1]}[{path[-1]}]"
        if self.at_once is not None and BOUNDS.isdisjoint(name.lower() for name, _ in self.options):
            reader = reader.option("maxBytesPerTrigger", self.at_once)
        return reader.options(**options).load(path)

    @property
    def _names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def _depth(self) -> int:
        """The number of parts of the path; what stands behind them in a file's path are folders below it."""
        return len(self._place[1].rstrip("/").split("/"))

    @property
    def _is_file(self) -> bool:
        """True if the path is that of a single file, as far as can be told without Spark."""
        try:
            system, path = self._place
            (info,) = system.get_file_info([path])
        except (pa.ArrowException, OSError):
            return False
        return not self.is_pattern and info.type == fs.FileType.File

    @property
    def _says_malformed(self) -> bool:
        """True if Spark's reader is asked for the lines that are malformed: unless the user says what becomes of them."""
        has_lines = self.format in FORMATS and bool(FORMATS[self.format].marks)
        return has_lines and TOLD.isdisjoint(name.lower() for name, _ in self.options)

    @property
    def _struct(self) -> t.StructType:
        """The columns as Spark's readers take them."""
        columns = t.StructType([t.StructField(field.name, field.type) for field in self._stored])
        return columns.add(CORRUPT, t.StringType()) if self._says_malformed and not self.is_static else columns

    @property
    def _options(self) -> dict[str, Any]:
        """The user's options; times without a zone are in UTC whatever the session says, unless the user says so."""
        malformed: dict[str, Any] = {}
        if self._says_malformed:
            # a malformed row is one whichever columns a query reads
            marked = {"columnNameOfCorruptRecord": CORRUPT, "columnPruning": False}
            malformed = {"mode": "FAILFAST"} if self.is_static else marked
        return {"timeZone": "UTC", **malformed, **option_values(self.options)}

    @property
    def _place(self) -> tuple[fs.FileSystem, str]:
        """The file system and the path in it; raises what Arrow raises for one that it does not know."""
        return file_system(self.path)

    def _files(self, verb: str) -> Iterator[fs.FileInfo]:
        """Yield the files that Spark reads, by their paths; SourceError if there is no folder.

        These are the files in the folder and in folders named ``column=value``, without those whose names begin with ``_`` or
        ``.``; if a stream has written the folder, those that it has finished.
        """
        try:
            system, path = self._place
        except (pa.ArrowException, OSError) as error:
            raise NeedsSpark(verb, f"{self.path} is out of reach", _first_line(error), SPARK_READS) from error
        parts = path.rstrip("/").split("/")
        fixed = next((i for i, part in enumerate(parts) if WILD.search(part)), len(parts))
        begin = "/".join(parts[:fixed]) or "/"
        wanted = [patterns_in_braces(part) for part in parts]
        if any(part.count("{") != part.count("}") for part in parts):
            raise NeedsSpark(verb, f"a pattern with braces around folders: {self.path}", "", SPARK_READS)
        try:
            (top,) = system.get_file_info([begin])
            if top.type == fs.FileType.NotFound:
                raise SourceError(verb, f"nothing at {self.path}", f"{begin} does not exist", "Look at the path.")
            is_file = top.type == fs.FileType.File
            below = [top] if is_file else system.get_file_info(fs.FileSelector(begin, recursive=True))
            finished = None if self.is_pattern else self._finished(system, begin, below)
        except OSError as error:
            raise SourceError(verb, f"{self.path} cannot be listed", _first_line(error)) from error
        is_any = False
        for info in sorted(below, key=lambda info: info.path):
            names = info.path.rstrip("/").split("/")
            folders = names[len(parts) : -1]
            if info.type != fs.FileType.File or len(names) < len(parts):
                continue
            if not all(any(fnmatchcase(name, p) for p in part) for name, part in zip(names, wanted, strict=False)):
                continue
            if names[-1].startswith(("_", ".")) or not all("=" in name and name[0] not in "_." for name in folders):
                continue
            if finished is not None and info.path.strip("/") not in finished:
                continue
            is_any = True
            yield info
        if self.is_pattern and not is_any:
            raise SourceError(verb, f"no file fits {self.path}", "", "Look at the path.")

    def _finished(self, system: fs.FileSystem, folder: str, below: list[fs.FileInfo]) -> set[str] | None:
        """Return the paths of the files that a stream of Spark's has finished, from its log, maybe none; None without a log."""
        entries: dict[int, fs.FileInfo] = {}
        for info in below:
            parent, _, name = info.path.rpartition("/")
            number, _, compact = name.partition(".")
            if parent.endswith(f"/{LOG}") and parent.rpartition("/")[0] == folder and number.isdigit():
                if compact in ("", "compact") and (int(number) not in entries or compact):
                    entries[int(number)] = info
        if not entries:
            return set() if any(info.path == f"{folder}/{LOG}" for info in below) else None
        first = max((number for number, info in entries.items() if info.path.endswith(".compact")), default=0)
        paths: set[str] = set()
        for number in sorted(number for number in entries if number >= first):
            text = system.open_input_stream(entries[number].path).read().decode()
            # the first line is the version of the log
            for line in text.splitlines()[1:]:
                entry = json.loads(line)
                url = urlsplit(entry["path"])
                path = unquote(url.path) if url.scheme == "file" else f"{url.netloc}{unquote(url.path)}"
                (paths.discard if entry.get("action") == "delete" else paths.add)(path.strip("/"))
        return paths


SPARK_READS = "Spark reads it: q.to_df() or q.run(), in a session."
"""The hint of an error about files that are not read without Spark."""

READ_BY_SPARK = 'Let Spark read it, in a session: sq.files(..., reader="spark"), with q.to_df() or q.run().'
"""The hint of an error about a value that Spark reads by rules of its own."""

WILD = re.compile(r"[*?\[{]")
"""The signs that make a part of a path a pattern."""


def patterns_in_braces(part: str) -> list[str]:
    """Return the patterns that a part of a path stands for: ``ab`` and ``ac`` for ``a{b,c}``."""
    braces = re.search(r"\{([^{}]*)\}", part)
    if braces is None:
        return [part]
    begin, end = part[: braces.start()], part[braces.end() :]
    return [one for word in braces[1].split(",") for one in patterns_in_braces(f"{begin}{word}{end}")]


def folder_value(text: str, field: Field, rows: int) -> pa.Array:
    """Return a column of what a folder's name says; raise Unclear for a text that Spark may read in another way."""
    value = None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)
    pattern = "(?s:.*)" if isinstance(field.type, t.StringType) else PLAIN.get(type(field.type))
    if pattern is None or (value is not None and not re.fullmatch(pattern, value)):
        raise Unclear(f"{value!r} in column {field.name}, which is {field.type.simpleString()}")
    values, is_wrong = typed_texts(pa.array([value], pa.string()), field.type)
    if is_wrong.any():
        raise Unclear(f"{value!r} in column {field.name}, which is {field.type.simpleString()}")
    return pa.repeat(values[0], rows)


def _first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


@check_keywords
def files(
    path: str | PathLike[str],
    *,
    format: str = PARQUET,
    schema: t.StructType | str | None = None,
    at_once: int | str | None = AT_ONCE,
    reader: str | None = None,
    **options: Any,
) -> Files:
    """Say that rows are in files: a value for ``sq.points`` and other sources, for ``join_table`` and, as a sink, for ``run``.

    The same query then runs in-process, without Spark (``show()``, ``to_pandas()``, ``to_arrow()``), as a batch (``to_df()``)
    and as a stream (``run()``), which goes on with the files that come. ``path`` is a folder, a file or a pattern such as
    ``"trips/*.csv"``, on this computer or by a URL (``s3://``, ``gs://``, ``abfss://``, ``hdfs://``). ``format`` and ``options``
    are Spark's. ``schema`` gives the columns and types, ``"at timestamp, fare double"``; Parquet files say them themselves.

    A micro-batch has at most ``at_once`` bytes of new files, ``64 << 20`` or ``"64 MB"``, but a file at least, so that a long
    history passes in bounded memory; None: all there is. Spark's options ``maxFilesPerTrigger`` and ``maxBytesPerTrigger``
    replace it. Files are read in the order in which they were written: choose the delay in ``sq.generate(delay)`` accordingly.

    Parquet, ORC, "arrow" (Arrow's own files, Feather), CSV and JSON lines are read by PyArrow: in-process, by the workers of a
    stream, and in a batch those that Spark does not read, or reads with a loss. Other formats, options that only Spark knows, and
    with ``reader="spark"`` all are Spark's. Each value is the one that Spark reads. What Spark reads by rules that are its own (a
    zone by its name, quotes within quotes) ends the query with file and value; nothing is guessed. A line of CSV or JSON that
    is no row (a text that is no value of its type, too few fields) is an invalid row, see ``invalid`` of the source, and in a
    table of ``join_table`` an error. Beside the events stand ``_malformed``, its bytes, ``_wrong``, ``_file`` and
    ``_offset``, in bytes from 0: in the late output. Raises PlanError for wrong arguments; SourceError where there is no
    file to read the columns from.

    ::

        trips = sq.points(sq.files("trips/*.csv", format="csv", schema="at timestamp, fare double", header=True), time="at")
    """
    path = fspath(path) if isinstance(path, PathLike) else path
    if not isinstance(path, str) or not path:
        hint = 'As sq.files("trips/"); of several files a pattern, as "trips/*.csv".'
        raise PlanError("files", "path is a text", f"found {path!r}", hint)
    if not isinstance(format, str) or not format:
        raise PlanError("files", "format is a text", f"found {format!r}", 'As format="csv".')
    if meant := nearest(format, (SPARKS_FORMATS | {*FORMATS}) - {format.lower()}):
        raise PlanError("files", f"no format {format!r}", "", meant)
    if reader not in (None, "spark"):
        raise PlanError("files", "reader is 'spark' or None", f"found {reader!r}")
    own = {name for one in FORMATS.values() for name in one.options}
    for name, value in options.items():
        if name.lower() not in own and (
            meant := nearest(name, ("format", "schema", "at_once", "reader", *sorted(own)))
        ):
            raise PlanError("files", f"no parameter {name!r}", "", meant)
        if value is not None and not isinstance(value, str | bool | int | float):
            hint = f"Write {', '.join(f'{n}={v!r}' for n, v in value.items())}." if isinstance(value, Mapping) else ""
            what = f"found {name}={value!r}"
            raise PlanError("files", "the value of an option is a string, a number or a truth", what, hint)
    columns = _columns(schema)
    where = Files(path, format.lower(), columns, bytes_of(at_once, "files"), reader, tuple(options.items()))
    lower = {field.name.lower() for field in columns or ()}
    if clash := next((name for name in where.transport_columns if name in lower), None):
        hint = "Columns of CSV go by place: give it another name; read JSON by a DataFrame of Spark's."
        raise PlanError("files", f"column {clash!r} is that of malformed lines", "", hint)
    if reader is not None and where.format in FORMATS and where.format not in SPARKS_FORMATS:
        raise PlanError(
            "files", f"Spark does not read {where.format} files", f"found reader={reader!r}", "Leave it out."
        )
    return where


def files_from_json(entry: Mapping[str, Any]) -> Files:
    """Return the files that an entry of a plan names, checked like the user's arguments."""
    try:
        arguments = {name: entry[name] for name in ("format", "schema", "at_once", "reader")}
        return files(entry["path"], **arguments, **entry["options"])
    except (KeyError, TypeError) as error:
        raise PlanError("from_json", "not the files of a plan", f"found {entry!r}") from error


def _columns(schema: t.StructType | str | None) -> tuple[Field, ...] | None:
    """Return the user's columns; raise TypeMismatch for what names none."""
    return None if schema is None else tuple(Field(f.name, f.dataType) for f in parse_fields(schema, "files"))


def bytes_of(at_once: int | str | None, verb: str) -> int | None:
    """Return a number of bytes, at least 1, from a number or a text such as "64 MB"; raise PlanError for anything else."""
    text = str(at_once).upper() if isinstance(at_once, str | int) and not isinstance(at_once, bool) else ""
    match = re.fullmatch(r"(\d+)\s*([KMG]?B|)", text)
    count = 0 if match is None else int(match.group(1)) * UNITS[match.group(2)]
    if at_once is not None and not count:
        raise PlanError(verb, "at_once is a number of bytes, at least 1", f"found {at_once!r}", 'As at_once="64 MB".')
    return count or None
