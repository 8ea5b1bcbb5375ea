"""Read the lines of one file of an event log, in any of Spark's codecs, even if the file is truncated or damaged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import zstandard

from streamq.errors import SourceError, sentence

CHUNK: Final = 1 << 18
PIECE: Final = 1 << 6
"""Compressed bytes that are decompressed at once: so much may be lost beside what is damaged."""
LONGEST_LINE: Final = 1 << 28
"""The greatest length of a line in bytes; a file with a longer one is not JSON lines."""


def refusal(wrong: str, instead: str = "", hint: str = "") -> SourceError:
    """Return the error for a log that cannot be read."""
    return SourceError(sentence("event log", wrong, instead, hint))


def show_count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 line``, ``2 lines``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class Lines:
    """The lines of one file in any codec and, after reading, the parts that could not be decompressed.

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
            "lz4": self._lz4,
            "snappy": self._snappy,
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

    def _lz4(self, file: BinaryIO) -> Iterator[bytes]:
        """Decompress lz4-java's block stream: magic, token, two lengths, checksum (not verified), a raw block.

        From a damaged block on, the rest is skipped.
        """
        while header := file.read(21):
            packed, size = int.from_bytes(header[9:13], "little"), int.from_bytes(header[13:17], "little")
            if len(header) < 21 or header[:8] != b"LZ4Block" or size > LONGEST_LINE:
                return self._break(file, len(header))
            if size:
                block = file.read(packed)
                try:
                    yield block if header[8] & 0xF0 == 0x10 else pa.decompress(block, size, "lz4_raw", asbytes=True)
                except (OSError, ValueError):
                    return self._break(file, len(header) + len(block))

    def _snappy(self, file: BinaryIO) -> Iterator[bytes]:
        """Decompress snappy-java's stream: a header of 16 bytes, then blocks, each after its length.

        From a damaged block on, the rest is skipped.
        """
        while header := file.read(4):
            if header == b"\x82SNA":
                file.read(12)
                continue
            length = int.from_bytes(header, "big")
            block = file.read(length) if length < LONGEST_LINE else b""
            try:
                yield pa.decompress(block, _varint(block), "snappy", asbytes=True)
            except (OSError, ValueError):
                return self._break(file, len(header) + len(block))

    def _break(self, file: BinaryIO, unread: int) -> None:
        """Note in ``broken`` that the file is damaged ``unread`` bytes before its place."""
        at, size = file.tell() - unread, self.path.stat().st_size
        self.broken = (
            f"{self.codec} data that is cut off or damaged from about byte {at:,} of {size:,}, the rest skipped"
        )


def _codec(path: Path, head: bytes) -> str:
    """Return the codec of a file by its first bytes; raise SourceError for lzf and zip, which cannot be read."""
    magics = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"LZ4Block": "lz4", b"\x82SNAPPY\x00": "snappy"}
    for magic, codec in magics.items():
        if head.startswith(magic):
            return codec
    if head.startswith(b"ZV") and head[2:3] in (b"\x00", b"\x01"):
        raise refusal(
            "a log compressed with lzf", f"found {path}", "Write it with spark.eventLog.compression.codec=zstd."
        )
    if head.startswith(b"PK\x03\x04"):
        raise refusal("a zip archive", f"found {path}", "Unpack it first.")
    return "plain"


def _varint(block: bytes) -> int:
    """Return the integer with which a snappy block begins, its decompressed length; raise ValueError if there is none."""
    value = 0
    for place, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value
    raise ValueError("a snappy block without a length")
