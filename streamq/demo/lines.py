"""The lines of one file of an event log, whatever codec of Spark's it was written with and however it ends."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from streamq.errors import SourceError, sentence

CHUNK: Final = 1 << 18
LONGEST_LINE: Final = 1 << 28
"""Bytes without a line break after which a file is taken for something else than JSON lines."""


def refusal(wrong: str, instead: str = "", hint: str = "") -> SourceError:
    """The error of a log that is refused."""
    return SourceError(sentence("event log", wrong, instead, hint))


def count(number: int, noun: str) -> str:
    """``1 line``, ``2 lines``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class Lines:
    """The lines of one file, whatever it is compressed with; afterwards, what could not be decompressed.

    ``tail`` is the last line if the file ends without a line break, ``lost`` what of it was no event, in bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail: bytes | None = None
        self.lost = 0
        self.broken: str | None = None
        with path.open("rb") as file:
            self.codec = _codec(path, file.read(16))

    def __iter__(self) -> Iterator[bytes]:
        begun: list[bytes] = []
        for chunk in self._chunks():
            first, *others = chunk.split(b"\n")
            begun.append(first)
            if others:
                yield b"".join(begun)
                yield from others[:-1]
                begun = [others[-1]]
            elif sum(map(len, begun)) > LONGEST_LINE:
                raise refusal("not a Spark event log", f"{self.path} has a line of more than {LONGEST_LINE:,} bytes")
        if rest := b"".join(begun):
            self.tail = rest
            yield rest

    def first(self) -> bytes | None:
        """The first line, or the beginning of a file that is not even JSON, or None where nothing can be read."""
        for chunk in self._chunks():
            if chunk:
                return next(iter(self)) if chunk.startswith(b"{") else chunk.partition(b"\n")[0]
        return None

    def losses(self) -> list[str]:
        """What was not read of the file, in sentences."""
        sentences = [f"{self.path.name}: {self.broken}"] if self.broken else []
        if self.lost:
            sentences.append(f"{self.path.name}: the last line is cut off, {count(self.lost, 'byte')} of it skipped")
        return sentences

    def _chunks(self) -> Iterator[bytes]:
        decode = {
            "plain": self._plain,
            "gzip": self._gzip,
            "zstd": self._zstd,
            "lz4": self._lz4,
            "snappy": self._snappy,
        }[self.codec]
        try:
            with self.path.open("rb") as file:
                yield from decode(file)
        except OSError as error:
            raise refusal("a file that cannot be read", f"{self.path} gave: {error.strerror or error}") from error

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        while chunk := file.read(CHUNK):
            yield chunk

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        decoder, fed = zlib.decompressobj(31), False
        while chunk := file.read(CHUNK):
            while chunk:
                before = decoder.copy()
                try:
                    yield decoder.decompress(chunk)
                except zlib.error:
                    yield (whole := _decode_bytewise(before, chunk))[0]
                    return self._break(file, len(chunk) - whole[1], "gzip")
                chunk, fed = decoder.unused_data, True
                if decoder.eof:
                    decoder, fed = zlib.decompressobj(31), False
        if fed:
            yield decoder.flush()
            self.broken = "the gzip stream has no end"

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        """Arrow drops what a failing read has decoded, so its place is gone to again and read byte by byte."""
        done, ended = 0, False
        with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
            try:
                while chunk := stream.read(CHUNK):
                    done += len(chunk)
                    yield chunk
                return
            except OSError as error:
                ended = "Truncated" in str(error)
        size = self.path.stat().st_size
        last = bytearray()
        with self.path.open("rb") as again, pa.CompressedInputStream(pa.PythonFile(again, "r"), "zstd") as stream:
            while done > 0:
                done -= len(stream.read(min(CHUNK, done)))
            try:
                while byte := stream.read(1):
                    last += byte
            except OSError:
                at = again.tell()
        yield bytes(last)
        self.broken = (
            "the last zstd frame has no end"
            if ended
            else f"damaged zstd data before byte {at:,} of {size:,}, the rest skipped"
        )

    def _lz4(self, file: BinaryIO) -> Iterator[bytes]:
        """The format of lz4-java's block stream: magic, token, two lengths, checksum (not verified), a raw block."""
        while header := file.read(21):
            packed, size = int.from_bytes(header[9:13], "little"), int.from_bytes(header[13:17], "little")
            if len(header) < 21 or header[:8] != b"LZ4Block" or size > LONGEST_LINE:
                return self._break(file, len(header), "lz4")
            if size:
                block = file.read(packed)
                try:
                    yield block if header[8] & 0xF0 == 0x10 else pa.decompress(block, size, "lz4_raw", asbytes=True)
                except (OSError, ValueError):
                    return self._break(file, len(header) + len(block), "lz4")

    def _snappy(self, file: BinaryIO) -> Iterator[bytes]:
        """The format of snappy-java's stream: a header of 16 bytes, then blocks with their length in front."""
        while header := file.read(4):
            if header == b"\x82SNA":
                file.read(12)
                continue
            length = int.from_bytes(header, "big")
            block = file.read(length) if length < LONGEST_LINE else b""
            try:
                yield pa.decompress(block, _varint(block), "snappy", asbytes=True)
            except (OSError, ValueError):
                return self._break(file, len(header) + len(block), "snappy")

    def _break(self, file: BinaryIO, unread: int, codec: str) -> None:
        at, size = file.tell() - unread, self.path.stat().st_size
        self.broken = f"{codec} data that is cut off or damaged from about byte {at:,} of {size:,}, the rest skipped"


def _codec(path: Path, head: bytes) -> str:
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


def _decode_bytewise(decoder: Any, chunk: bytes) -> tuple[bytes, int]:
    """What a gzip decoder makes of a damaged chunk, and of how many of its bytes."""
    decoded = []
    for place in range(len(chunk)):
        try:
            decoded.append(decoder.decompress(chunk[place : place + 1]))
        except zlib.error:
            return b"".join(decoded), place
    return b"".join(decoded), len(chunk)


def _varint(block: bytes) -> int:
    value = 0
    for place, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value
    raise ValueError("a snappy block without a length")
