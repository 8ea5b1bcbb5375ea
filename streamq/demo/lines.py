"""Read the lines of one file of an event log, plain or compressed by zstd or gzip, even if the file is truncated or damaged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from streamq.errors import SourceError

CHUNK: Final = 1 << 18
PIECE: Final = 1 << 6
"""Compressed bytes that are decompressed at once: so much may be lost beside what is damaged."""
LONGEST_LINE: Final = 1 << 28
"""The greatest length of a line in bytes; a file with a longer one is not JSON lines."""


def refusal(wrong: str, instead: str = "", hint: str = "") -> SourceError:
    """Return the error for a log that cannot be read."""
    return SourceError("event log", wrong, instead, hint)


def show_count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 line``, ``2 lines``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class Lines:
    """The lines of one file and, after reading, the parts that could not be decompressed.

    ``tail`` is the last line if the file ends without a line break; ``lost`` is the length of that line in bytes if it is not an
    event; ``broken`` is a sentence on a part that could not be decompressed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail: bytes | None = None
        self.lost = 0
        self.broken: str | None = None
        with path.open("rb") as file:
            self.codec = _codec(path, file.read(16))

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines without line breaks; a last line without one is kept as ``tail``, too.

        Raises SourceError for a line longer than LONGEST_LINE.
        """
        begun = bytearray()
        for chunk in self._chunks():
            first, *others = chunk.split(b"\n")
            begun += first
            if others:
                yield bytes(begun)
                yield from others[:-1]
                begun = bytearray(others[-1])
            elif len(begun) > LONGEST_LINE:
                raise refusal("not a Spark event log", f"{self.path} has a line of more than {LONGEST_LINE:,} bytes")
        if begun:
            self.tail = bytes(begun)
            yield self.tail

    def first(self) -> bytes | None:
        """Return the first line, or the beginning of a file that is not JSON; None if nothing can be read."""
        for chunk in self._chunks():
            if chunk:
                return next(iter(self)) if chunk.startswith(b"{") else chunk.partition(b"\n")[0]
        return None

    def losses(self) -> list[str]:
        """Return a sentence for each part of the file that was not read."""
        sentences = [f"{self.path.name}: {self.broken}"] if self.broken else []
        if self.lost:
            sentences.append(
                f"{self.path.name}: the last line is cut off, {show_count(self.lost, 'byte')} of it skipped"
            )
        return sentences

    def _chunks(self) -> Iterator[bytes]:
        """Yield the decompressed chunks of the file; raise SourceError if it cannot be read."""
        decode = {
            "plain": lambda file: iter(lambda: file.read(CHUNK), b""),
            "gzip": lambda file: self._frames(file, lambda: zlib.decompressobj(31), zlib.error),
            "zstd": lambda file: self._frames(file, zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError),
        }[self.codec]
        try:
            with self.path.open("rb") as file:
                yield from decode(file)
        except OSError as error:
            raise refusal("a file that cannot be read", f"{self.path} gave: {error.strerror or error}") from error

    def _frames(self, file: BinaryIO, new_decoder: Callable[[], Any], damage: type[Exception]) -> Iterator[bytes]:
        """Decompress frame after frame, fed in pieces so small that a damaged one takes hardly a line with it.

        ``new_decoder`` makes the decoder of a frame, which raises ``damage``; then the rest is skipped and ``broken`` says so.
        """
        decoder, is_open = new_decoder(), False
        while piece := file.read(PIECE):
            while piece:
                try:
                    decoded = decoder.decompress(piece)
                except damage:
                    return self._break(file, len(piece))
                if decoded:
                    yield decoded
                piece, is_open = decoder.unused_data, not decoder.eof
                if decoder.eof:
                    decoder = new_decoder()
        if is_open:
            self.broken = f"the last {self.codec} frame has no end"

    def _break(self, file: BinaryIO, unread: int) -> None:
        """Note in ``broken`` that the file is damaged ``unread`` bytes before its place."""
        at, size = file.tell() - unread, self.path.stat().st_size
        self.broken = (
            f"{self.codec} data that is cut off or damaged from about byte {at:,} of {size:,}, the rest skipped"
        )


def _codec(path: Path, head: bytes) -> str:
    """Return the codec of a file by its first bytes; raise SourceError for those that cannot be read."""
    for magic, codec in {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}.items():
        if head.startswith(magic):
            return codec
    for magic, codec in {b"LZ4Block": "lz4", b"\x82SNAPPY\x00": "snappy", b"ZV\x00": "lzf", b"ZV\x01": "lzf"}.items():
        if head.startswith(magic):
            hint = "Write it with Spark's default, spark.eventLog.compression.codec=zstd."
            raise refusal(f"a log compressed with {codec}", f"found {path}", hint)
    if head.startswith(b"PK\x03\x04"):
        raise refusal("a zip archive", f"found {path}", "Unpack it first.")
    return "plain"
