"""Files of one format in a folder, of this computer or of a store, as the rows of a source and as a sink."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike, fspath
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.connectors.connector import Connector, Splits, option_values, schema_text, without_secrets
from streamq.connectors.file_formats import FORMATS, WHOLE, FileFormat, Share, Unclear, typed_texts
from streamq.errors import NeedsSpark, PlanError, SourceError, check_keywords, nearest
from streamq.plan.schema import MICRO_BATCH, Field, lazy
from streamq.plan.spark_types import parse_fields
from streamq.runtime.arrow.arrow_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

PARQUET = "parquet"

AT_ONCE = 64 << 20
"""The default for the bytes of files in a micro-batch: some million rows of a few columns."""


SPARKS_FORMATS = frozenset({PARQUET, "csv", "json", "orc", "avro", "text", "xml"})
"""The formats of files that Spark has; others are tables, or come with packages."""

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

    ``columns``: those that it reads, some of them in the names of the folders below a path of ``depth`` parts.
    """

    kind: FileFormat
    columns: tuple[Field, ...]
    options: Mapping[str, Any]
    depth: int

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the rows of shares of a stream's files, a row each, with the column ``split``: ``number shares url``.

        Raises SourceError for a file that only Spark reads, or that nobody does.
        """
        for split in batch.column("split").to_pylist():
            number, shares, url = split.split(" ", 2)
            try:
                yield from self.parts(*file_system(url), (int(number), int(shares)))
            except Unclear as error:
                hint = error.hint or 'Let Spark read it: sq.files(..., reader="spark").'
                raise SourceError("run", f"{url} is not read without Spark", str(error), hint) from error
            except (pa.ArrowException, OSError) as error:
                raise SourceError("run", f"{url} is not read", _first_line(error), "Mend or remove it.") from error

    def parts(self, system: fs.FileSystem, path: str, share: Share = WHOLE) -> Iterator[pa.Table]:
        """Yield the rows of a share of a file, in the Arrow types of the columns; raise Unclear, and what Arrow raises."""
        divided = texts_in_folders(path, self.depth)
        inside = [field for field in self.columns if field.name.lower() not in divided]
        with self.kind.opened(system, path) as data:
            for rows in self.kind.parts(data, inside, self.options, share):
                for field in self.columns:
                    if field.name.lower() in divided:
                        value = folder_value(divided[field.name.lower()], field, rows.num_rows)
                        rows = rows.append_column(field.name, value)
                yield rows.select([field.name for field in self.columns])


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
    # names of Hadoop's clients for S3
    system, path = fs.FileSystem.from_uri(f"{'s3' if scheme in ('s3a', 's3n') else scheme}:{rest}")
    return system, path


@dataclass(frozen=True)
class Files(Connector):
    """The files of a format at ``path``, a folder, a file, or a pattern of these, as :func:`files` describes them.

    ``schema``: the columns that the user gave, None if the files say so. ``at_once``: the bytes of files in a micro-batch, None
    without a bound. ``reader``: "spark" if only Spark is to read a stream's files, else None. ``options``: Spark's, by name.
    """

    path: str
    format: str
    schema: tuple[Field, ...] | None
    at_once: int | None
    reader: str | None
    options: tuple[tuple[str, Any], ...]

    title = "files"

    def to_json(self) -> dict[str, Any]:
        named = None if self.schema is None else schema_text(self.schema)
        others = {"format": self.format, "schema": named, "at_once": self.at_once, "reader": self.reader}
        return {"connector": "files", "path": self.path, **others, "options": without_secrets(self.options)}

    @property
    def is_pattern(self) -> bool:
        """True if the path names several folders or files."""
        return WILD.search(self.path) is not None

    @lazy
    def fields(self) -> tuple[Field, ...]:
        """The columns, those of the user or of the first file; SourceError if neither says so."""
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
        tables = [pa.table({f.name: pa.array([], arrow_type(f.type)) for f in self.fields})]
        for file in self._files(verb):
            try:
                tables += self._reader([field.name for field in self.fields]).parts(self._place[0], file.path)
            except Unclear as error:
                wrong = f"{file.path} is not read without Spark"
                raise NeedsSpark(verb, wrong, str(error), error.hint or SPARK_READS) from error
            except (pa.ArrowException, OSError) as error:
                raise SourceError(verb, f"{file.path} is not read", _first_line(error), "Mend or remove it.") from error
        return pa.concat_tables(tables)

    def _only_spark(self) -> str:
        """Return what only Spark reads, a format or an option; "" if it is read without Spark, too."""
        kind = FORMATS.get(self.format)
        more = {name.lower() for name, _ in self.options} - BOUNDS - (frozenset() if kind is None else kind.options)
        if kind is None:
            return f"{self.format} files"
        return f"option {min(more)!r} of {self.format} files" if more else ""

    def _reader(self, columns: Collection[str]) -> FileReader:
        """Return the reader of these columns; the format is one that is read without Spark."""
        fields = tuple(field for field in self.fields if field.name in columns)
        options = {name.lower(): value for name, value in self.options}
        return FileReader(FORMATS[self.format], fields, options, self._depth)

    def not_split(self) -> str:
        if self.reader is not None:
            return "reader='spark'"
        if reason := self._only_spark() or FORMATS[self.format].not_split:
            return reason
        try:
            system, path = self._place
            system.get_file_info([path])
        except (pa.ArrowException, OSError) as error:
            return f"{self.path} is out of reach without Spark: {_first_line(error)}"
        return ""

    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        # of binary files only the paths are asked for, so nothing is read
        files = spark.readStream.format("binaryFile").schema(BINARY_FILES)
        bounds = {name: value for name, value in self.options if name.lower() in BOUNDS}
        paths = self._stream(files, bounds)
        tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        shares = F.least(F.lit(tasks), F.floor(F.col("length") / SHARE) + 1)
        numbered = paths.select("path", shares.alias("shares"))
        numbered = numbered.select("*", F.explode(F.sequence(F.lit(0), F.col("shares") - 1)).alias("number"))
        split = F.concat_ws(" ", "number", "shares", "path").alias("split")
        return Splits(numbered.select(split).repartition(tasks), self._reader(columns))

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.format(self.format).schema(self._struct).options(**self._options).load(self.path)

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._stream(spark.readStream.format(self.format).schema(self._struct), self._options)

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
    def _struct(self) -> t.StructType:
        """The columns as Spark's readers take them."""
        return t.StructType([t.StructField(field.name, field.type) for field in self.fields])

    @property
    def _options(self) -> dict[str, Any]:
        """The user's options; times without a zone are in UTC whatever the session says, unless the user says so."""
        return {"timeZone": "UTC", **option_values(self.options)}

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
        if "{" in self.path:
            raise NeedsSpark(verb, f"a pattern with braces: {self.path}", "", SPARK_READS)
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
            if not all(fnmatchcase(name, part) for name, part in zip(names, parts, strict=False)):
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
        """Return the paths of the files that a stream of Spark's has finished, from its log; None without a log."""
        entries: dict[int, fs.FileInfo] = {}
        for info in below:
            parent, _, name = info.path.rpartition("/")
            number, _, compact = name.partition(".")
            if parent.endswith(f"/{LOG}") and parent.rpartition("/")[0] == folder and number.isdigit():
                if compact in ("", "compact") and (int(number) not in entries or compact):
                    entries[int(number)] = info
        if not entries:
            return None
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


SPARK_READS = (
    "Spark reads it: q.to_df() or q.run(), in a session; what is no value of the type is NULL there (mode=...)."
)
"""The hint of an error about a file that is not read without Spark."""

WILD = re.compile(r"[*?\[{]")
"""The signs that make a part of a path a pattern."""


def folder_value(text: str, field: Field, rows: int) -> pa.ChunkedArray:
    """Return a column of what a folder's name says; raise Unclear for a text that Spark may read in another way."""
    value = None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)
    return typed_texts(pa.chunked_array([pa.array([value] * rows, pa.string())]), field)


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
    A stream's Parquet files are read by PyArrow, on the workers, and others by Spark; ``reader="spark"`` leaves all to Spark.

    Without Spark, Parquet, CSV and JSON lines are read, and each value is the one that Spark reads. What Spark reads in another
    way, or might (quotes within quotes, ``+5``, a line of another form), raises NeedsSpark with file and value, and nothing is
    guessed. Raises PlanError for wrong arguments; SourceError where there is no file to read the columns from.

    ::

        trips = sq.points(sq.files("trips/*.csv", format="csv", schema="at timestamp, fare double", header=True), time="at")
    """
    path = fspath(path) if isinstance(path, PathLike) else path
    if not isinstance(path, str) or not path:
        hint = 'As sq.files("trips/"); of several files a pattern, as "trips/*.csv".'
        raise PlanError("files", "path is a text", f"found {path!r}", hint)
    if not isinstance(format, str) or not format:
        raise PlanError("files", "format is a text", f"found {format!r}", 'As format="csv".')
    if meant := nearest(format, SPARKS_FORMATS - {format.lower()}):
        raise PlanError("files", f"no format {format!r}", "", meant)
    if reader not in (None, "spark"):
        raise PlanError("files", "reader is 'spark' or None", f"found {reader!r}")
    for name, value in options.items():
        if name != "header" and (meant := nearest(name, ("format", "schema", "at_once", "reader"))):
            raise PlanError("files", f"no parameter {name!r}", "", meant)
        if value is not None and not isinstance(value, str | bool | int | float):
            hint = f"Write {', '.join(f'{n}={v!r}' for n, v in value.items())}." if isinstance(value, Mapping) else ""
            what = f"found {name}={value!r}"
            raise PlanError("files", "the value of an option is a string, a number or a truth", what, hint)
    return Files(path, format.lower(), _columns(schema), _bytes(at_once), reader, tuple(options.items()))


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


def _bytes(at_once: int | str | None) -> int | None:
    """Return a number of bytes, at least 1, from a number or a text such as "64 MB"; raise PlanError for anything else."""
    text = str(at_once).upper() if isinstance(at_once, str | int) and not isinstance(at_once, bool) else ""
    match = re.fullmatch(r"(\d+)\s*([KMG]?B|)", text)
    count = 0 if match is None else int(match.group(1)) * UNITS[match.group(2)]
    if at_once is not None and not count:
        raise PlanError(
            "files", "at_once is a number of bytes, at least 1", f"found {at_once!r}", 'As at_once="64 MB".'
        )
    return count or None
