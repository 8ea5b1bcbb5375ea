"""A publication: the changelog of a query that runs, with its CTIs and its end, in a folder that other queries read.

Beside the rows, Parquet files in Spark's log of the folder, a description says which columns they have, and which run writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark.sql import types as t

from streamq.choices import check_word
from streamq.connectors.connector import Connector, Splits, StartPosition
from streamq.connectors.kafka import EARLIEST, LATEST
from streamq.connectors.stored_files import AT_ONCE, Files, file_system
from streamq.errors import PlanError, SourceError
from streamq.plan.lowering import map_in_arrow
from streamq.plan.schema import Field, lazy
from streamq.runtime.deltas import CTI, END, INSERT, RETRACT
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SNAPSHOT = "snapshot"
"""The start at the events that live at the CTI of now, or later."""

STARTS = (EARLIEST, LATEST, SNAPSHOT)

DESCRIPTION = "_publication.json"
"""The name of the file that describes a publication; readers of its folder pass over it."""


@dataclass(frozen=True)
class Description:
    """What a publication's file says: the payload's columns, the time axis, the shape of events, and the writer's checkpoint.

    ``id`` tells it from another one that has had its name; ``columns`` are as Spark has them in JSON.
    """

    id: str
    columns: Mapping[str, Any]
    axis: str
    shape: str
    checkpoint: str

    @property
    def payload(self) -> tuple[Field, ...]:
        """The columns of its events."""
        return tuple(Field(f.name, f.dataType) for f in t.StructType.fromJson(dict(self.columns)).fields)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of its changelog."""
        time = t.TimestampType() if self.axis == TIMESTAMP else t.LongType()
        return (
            Field("kind", t.StringType()),
            *self.payload,
            *(Field(name, time) for name in ("start", "end", "new_end")),
        )


@dataclass(frozen=True)
class EventsFrom:
    """Keeps the rows of a changelog that are about events from a CTI on; it is sent to workers.

    Events that ``LATEST`` takes start at ``since`` or later, those of ``SNAPSHOT`` end there or later: the changelog that is left
    is that of these events, because a retraction of an end before ``since`` to a later one inserts an event, and the reverse
    deletes one.
    """

    start: str
    since: int

    def rows(self, changelog: pa.Table) -> pa.Table:
        """Return the rows that are left of a changelog's."""
        if self.start == EARLIEST:
            return changelog
        start, end, new_end = (
            pc.fill_null(changelog.column(name).cast(pa.int64()), INFINITY) for name in ("start", "end", "new_end")
        )
        kind = changelog.column("kind")
        is_item, is_retraction = pc.is_in(kind, pa.array([INSERT, RETRACT])), pc.equal(kind, RETRACT)
        is_cti = pc.and_(pc.equal(kind, CTI), pc.greater_equal(start, self.since))
        is_progress = pc.or_(is_cti, pc.equal(kind, END))
        if self.start == LATEST:
            return changelog.filter(pc.or_(pc.and_(is_item, pc.greater_equal(start, self.since)), is_progress))
        was_there = pc.and_(is_item, pc.greater_equal(end, self.since))
        lives_on = pc.greater_equal(new_end, self.since)
        begins = pc.and_(is_retraction, pc.and_(lives_on, pc.invert(was_there)))
        goes = pc.and_(is_retraction, pc.invert(lives_on))
        times = {name: changelog.column(name) for name in ("start", "end", "new_end")}
        none = pa.scalar(None, times["end"].type)
        changed = {
            "kind": pc.if_else(begins, INSERT, kind),
            "end": pc.if_else(begins, times["new_end"], times["end"]),
            "new_end": pc.if_else(begins, none, pc.if_else(goes, times["start"], times["new_end"])),
        }
        table = pa.table({name: changed.get(name, changelog.column(name)) for name in changelog.column_names})
        return table.filter(pc.or_(pc.or_(was_there, begins), is_progress))


@dataclass(frozen=True)
class Publication(Connector):
    """What the run that publishes ``name`` in ``store`` has written, as ``sq.subscribe`` describes it.

    ``since``: the CTI at which a stream has begun, None before it has.
    """

    store: str
    name: str
    start: str = EARLIEST
    at_once: int | None = AT_ONCE
    since: int | None = None

    title = "publication"

    @property
    def folder(self) -> str:
        """The folder of its rows."""
        return f"{self.store.rstrip('/')}/{self.name}"

    @lazy
    def description(self) -> Description:
        """What is said of it; raises SourceError if nothing is published by the name."""
        description = self.described("subscribe")
        if description is None:
            names = self._names()
            there = f"there are: {', '.join(names)}" if names else "nothing is published there"
            hint = f'Start the run that writes it first: sq.publish(query, {self.name!r}, store="{self.store}", ...).'
            raise SourceError("subscribe", f"no publication {self.name!r} in {self.store}", there, hint)
        return description

    def described(self, verb: str) -> Description | None:
        """Return what is said of it, None if nothing is; raise SourceError, worded for ``verb``, for a file that is damaged."""
        system, path = self._place(verb)
        try:
            with system.open_input_stream(f"{path}/{DESCRIPTION}") as stream:
                return Description(**json.loads(stream.read()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            hint = "Delete the folder, and publish under the name again."
            raise SourceError(verb, f"{self.folder}/{DESCRIPTION} is not read", str(error), hint) from error

    def describe(self, description: Description) -> None:
        """Write what is said of it, at once and as a whole."""
        system, path = self._place("publish")
        system.create_dir(path, recursive=True)
        with system.open_output_stream(f"{path}/.{DESCRIPTION}") as stream:
            stream.write(json.dumps(vars(description)).encode())
        system.move(f"{path}/.{DESCRIPTION}", f"{path}/{DESCRIPTION}")

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.description.fields

    def to_json(self) -> dict[str, Any]:
        place = {"store": self.store, "name": self.name, "start": self.start, "at_once": self.at_once}
        return {"connector": "publication", **place}

    @property
    def start_position(self) -> StartPosition:
        def now() -> str:
            return json.dumps({"id": self.description.id, "start": self.start, "since": self._now()})

        return StartPosition(now, self._rows_from)

    def _rows_from(self, line: str) -> Publication:
        stored = json.loads(line)
        if stored["id"] != self.description.id:
            wrong = f"{self.name!r} in {self.store} is another publication than the one that the checkpoint has read"
            raise SourceError("subscribe", wrong, "it was published anew", "Use a new checkpoint, and new sinks.")
        return replace(self, start=stored["start"], since=stored["since"])

    def in_memory(self, verb: str) -> pa.Table:
        rows = self._files.in_memory(verb)
        promises = rows.filter(pc.is_in(rows.column("kind"), pa.array([CTI, END])))
        return EventsFrom(self.start, _greatest(promises)).rows(rows)

    def frame(self, spark: SparkSession) -> DataFrame:
        return self._kept(self._files.frame(spark), self._now())

    def not_split(self) -> str:
        return self._files.not_split()

    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        files = self._files.splits(spark, columns)
        if self.start == EARLIEST:
            return files
        assert self.since is not None
        events, read = EventsFrom(self.start, self.since), files.read
        return replace(files, read=lambda batch: map(events.rows, read(batch)))

    def stream(self, spark: SparkSession) -> DataFrame:
        assert self.since is not None
        return self._kept(self._files.stream(spark), self.since)

    def _kept(self, frame: DataFrame, since: int) -> DataFrame:
        """Return the rows of a DataFrame that are about events from a CTI on."""
        if self.start == EARLIEST:
            return frame
        events = EventsFrom(self.start, since)

        def kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from events.rows(pa.Table.from_batches([batch])).combine_chunks().to_batches()

        return map_in_arrow(frame, kept, t.StructType([t.StructField(f.name, f.type) for f in self.fields]))

    @property
    def _files(self) -> Files:
        """The files of its rows."""
        return Files(self.folder, "parquet", self.fields, self.at_once, None, ())

    def _now(self) -> int:
        """Return a CTI that is there now, in the newest file that has one, if the start asks for it; INFINITY is the end."""
        if self.start == EARLIEST:
            return MINUS_INFINITY
        for rows in self._files.newest_first(("kind", "start"), "subscribe"):
            promises = rows.filter(pc.is_in(rows.column("kind"), pa.array([CTI, END])))
            if promises.num_rows:
                return _greatest(promises)
        return MINUS_INFINITY

    def _names(self) -> list[str]:
        """Return the names of what is published in the store."""
        system, path = file_system(self.store)
        below = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        folders = [info.path for info in below if info.type == fs.FileType.Directory]
        described = system.get_file_info([f"{folder}/{DESCRIPTION}" for folder in folders])
        return sorted(info.path.split("/")[-2] for info in described if info.type == fs.FileType.File)

    def _place(self, verb: str) -> tuple[fs.FileSystem, str]:
        """Return the file system of its folder, and the path in it; raise SourceError for one that Arrow does not know."""
        try:
            return file_system(self.folder)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                verb, f"{self.store} is out of reach", str(error), "Use a path that Arrow knows."
            ) from error


def _greatest(promises: pa.Table) -> int:
    """Return the greatest CTI of some rows of kind CTI and END; MINUS_INFINITY if there is none."""
    instants = pc.fill_null(promises.column("start").cast(pa.int64()), INFINITY)
    return int(pc.max(instants).as_py()) if promises.num_rows else MINUS_INFINITY


def publication(
    name: str | None, store: str, verb: str, start: str = EARLIEST, at_once: int | None = AT_ONCE
) -> Publication:
    """Return the publication of a name in a store; raise PlanError, worded for ``verb``, for arguments that are none."""
    if name is None:
        hint = f'Readers know it by name: name="by_zone", store={store!r}.'
        raise PlanError(verb, "a publication has a name", "found none", hint)
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name) or name.startswith("_"):
        hint = "It is that of a folder: letters, digits, and in it also _ - ."
        raise PlanError(verb, "not a name for a publication", f"found {name!r}", hint)
    if not isinstance(store, str) or not store:
        raise PlanError(verb, "store is the path of a folder", f"found {store!r}", 'As store="queries".')
    check_word(start, list(STARTS), "start", verb)
    return Publication(store, name, start, at_once)


def publication_from_json(entry: Mapping[str, Any]) -> Publication:
    """Return the publication that an entry of a plan names, checked like the user's arguments."""
    try:
        return publication(entry["name"], entry["store"], "from_json", entry["start"], entry["at_once"])
    except KeyError as error:
        raise PlanError("from_json", "not a publication of a plan", f"found {entry!r}") from error
