"""Bytes of plain and compressed files as a stream, with what is wrong told at the end.

A damaged archive yields all that could be read before it raises, so that nothing is lost.
"""

from __future__ import annotations

import bz2
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TextIO

import zstandard

from queen.errors import QueenError

CHUNK = 1 << 18
TRUNCATED, UNREADABLE = "truncated_archive", "unreadable"


class ArchiveError(QueenError):
    """A file whose bytes could not all be read.

    Attributes:
        reason: `truncated_archive` (it ends early or breaks midway; what came before was
            yielded) or `unreadable` (nothing came).
    """

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", reason: str = UNREADABLE
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.what, self.where, self.remedy, self.reason)


def _rebuild(what: str, where: str, remedy: str, reason: str) -> ArchiveError:
    return ArchiveError(what, where=where, remedy=remedy, reason=reason)


class _Decoder(Protocol):
    """What zlib's, bz2's and zstandard's decompression objects have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip() -> _Decoder:
    return zlib.decompressobj(31)


def _bzip() -> _Decoder:
    return bz2.BZ2Decompressor()


def _zstd() -> _Decoder:
    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


_DECODERS: dict[str, tuple[bytes, Callable[[], _Decoder]]] = {
    ".gz": (b"\x1f\x8b", _gzip),
    ".bz2": (b"BZh", _bzip),
    ".zst": (b"\x28\xb5\x2f\xfd", _zstd),
}
ARCHIVE_SUFFIXES = (*_DECODERS, ".zip")


def name_of(path: Path) -> str:
    """A path as text that can be stored: bytes of a file name that are no UTF-8 as escapes."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def read_chunks(path: Path) -> Iterator[bytes]:
    """The file's bytes, decompressed by its suffix (.gz, .bz2, .zst, .zip; else as they are).

    Archives of several members or frames are read through. Raises ArchiveError once all that
    can be read has been yielded.
    """
    try:
        suffix = path.suffix.lower()
        if suffix == ".zip":
            yield from _zip_chunks(path)
        elif suffix in _DECODERS:
            yield from _decoded(path, *_DECODERS[suffix])
        else:
            yield from _raw_chunks(path)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A plain or compressed file as UTF-8 text. Reading raises ArchiveError where it is broken."""
    with io.TextIOWrapper(io.BufferedReader(_ChunkStream(read_chunks(path))), "utf-8") as text:
        yield text


class _ChunkStream(io.RawIOBase):
    """Chunks of bytes as a readable stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = next(self._chunks, b"")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _raw_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while chunk := handle.read(CHUNK):
            yield chunk


def _decoded(path: Path, magic: bytes, new: Callable[[], _Decoder]) -> Iterator[bytes]:
    decoder, begun = new(), False
    for chunk in _raw_chunks(path):
        if not begun and not chunk.startswith(magic):
            raise _unreadable(path, f"no {path.suffix} archive by its first bytes")
        begun = True
        while chunk:
            if decoder.eof:
                chunk = chunk.lstrip(b"\0")
                decoder = new() if chunk else decoder
            try:
                out = decoder.decompress(chunk) if chunk else b""
            except (zlib.error, OSError, EOFError, zstandard.ZstdError) as error:
                raise _broken(path, f"the archive is damaged: {error}") from error
            chunk = decoder.unused_data if decoder.eof and chunk else b""
            if out:
                yield out
    if begun and not decoder.eof:
        raise _broken(path, "the archive ends early")


def _zip_chunks(path: Path) -> Iterator[bytes]:
    """The PGN members of a zip archive, by name, each followed by an empty line."""
    if path.stat().st_size == 0:
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.lower().endswith(".pgn")]
            for name in sorted(names):
                with archive.open(name) as member:
                    while chunk := member.read(CHUNK):
                        yield chunk
                yield b"\n\n"
    except zipfile.BadZipFile as error:
        raise _unreadable(path, f"no whole .zip archive: {error}") from error
    except (zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _broken(path, f"the archive is damaged: {error}") from error


def _unreadable(path: Path, what: str) -> ArchiveError:
    return ArchiveError(
        what,
        where=str(path),
        remedy="fetch the file again, or give it the suffix of what it holds",
        reason=UNREADABLE,
    )


def _broken(path: Path, what: str) -> ArchiveError:
    return ArchiveError(
        what,
        where=str(path),
        remedy="fetch the file again; what came before the break was read",
        reason=TRUNCATED,
    )
