"""A stream of PGN bytes cut into parts of whole games, and a part into its games.

A part ends at the first game that begins after so many bytes, so where parts begin and end
depends on the text alone: not on the archive's kind, on who reads it, or on where a killed run
took up again. Memory is bounded whatever the text holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from queen.games.chess.archives import ArchiveError
from queen.games.chess.pgn_split import MAX_GAME_BYTES, RawGame, split_games

SLACK = 4 * MAX_GAME_BYTES
_EVENT = b'[Event "'
_BLANK = (b"\n\n", b"\n\r\n")
_RESULT = re.compile(rb"(?:1-0|0-1|1/2-1/2|\*)[ \t]*\r?\n\Z")
# Where no game can be told from the next by its first header, a part ends where it must.
_LESSER = (re.compile(rb"\n\r?\n(?=\[)"), re.compile(rb"\n\r?\n"), re.compile(rb"\n"))

_EMPTY_LINE, _TAG_LINE, _MOVES_LINE, _ODD_LINE = range(4)
_KINDS = np.full(256, _MOVES_LINE, np.uint8)
_KINDS[list(b"\n\r")] = _EMPTY_LINE
_KINDS[list(b"[")] = _TAG_LINE
_KINDS[list(b" \t%;")] = _ODD_LINE


@dataclass(frozen=True)
class Part:
    """Whole games of one file.

    Attributes:
        data: their bytes, decompressed.
        offset: of the first byte in the file's decompressed text.
        failure: what stopped the reading after these bytes, if anything did.
    """

    data: bytes
    offset: int
    failure: ArchiveError | None = None

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(slots=True)
class GameText:
    """One game's bytes.

    Attributes:
        offset: where it begins in the file's decompressed text.
        head: its header lines.
        body: its movetext.
        plain: headers, an empty line and one paragraph of movetext, as most files have it.
        cut: the file broke off within it.
        oversize: it is too long; the rest was left out.
    """

    offset: int
    head: bytes
    body: bytes
    plain: bool = True
    cut: bool = False
    oversize: bool = False


def parts(chunks: Iterable[bytes], size: int, offset: int = 0) -> Iterator[Part]:
    """Cut a stream of bytes into parts of whole games, of `size` bytes and a little more.

    Args:
        chunks: the bytes from `offset` on, where a part begins.

    A broken stream gives what it held; its last part carries the failure.
    """
    held, failure = bytearray(), None
    try:
        for chunk in chunks:
            held += chunk
            while len(held) >= size + SLACK:
                end = _end_of_part(held, size)
                yield Part(bytes(held[:end]), offset)
                offset += end
                del held[:end]
    except ArchiveError as error:
        failure = error
    while len(held) > size and (end := _end_of_part(held, size)) < len(held):
        yield Part(bytes(held[:end]), offset)
        offset += end
        del held[:end]
    if held or failure is not None:
        yield Part(bytes(held), offset, failure)


def games_of(part: Part) -> Iterator[GameText]:
    """The games of a part, in order."""
    starts = _starts(part.data)
    plain, bodies = _plain_spans(part.data, starts)
    last = len(starts) - 1
    for number, start in enumerate(starts):
        stop = starts[number + 1] if number < last else len(part.data)
        cut = part.failure is not None and number == last
        if plain[number] and not cut and stop - start <= MAX_GAME_BYTES:
            body = int(bodies[number])
            yield GameText(part.offset + start, part.data[start:body], part.data[body:stop])
        else:
            yield from _split_slowly(part.data[start:stop], part.offset + start, cut)


def _end_of_part(held: bytearray, size: int) -> int:
    """Where a part of at least `size` bytes ends: before a game if one begins within SLACK."""
    at = held.find(_EVENT, size, size + SLACK)
    while at >= 0:
        if _begins_game(held, at):
            return at
        at = held.find(_EVENT, at + 1, size + SLACK)
    if len(held) < size + SLACK:
        return len(held)  # the stream's last part
    for pattern in _LESSER:
        if found := pattern.search(held, size, size + SLACK):
            return found.end()
    return size + SLACK


def _begins_game(data: bytes | bytearray, at: int) -> bool:
    """Whether the `[Event "` at a byte comes after an empty line or a game's result."""
    before = bytes(data[max(0, at - 16) : at])
    return before.endswith(_BLANK) or _RESULT.search(before) is not None


def _starts(data: bytes) -> list[int]:
    starts, at = [0], data.find(_EVENT, 1)
    while at >= 0:
        if _begins_game(data, at):
            starts.append(at)
        at = data.find(_EVENT, at + 1)
    return starts if data else []


def _plain_spans(
    data: bytes, starts: list[int]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """For each span whether it is tags, empty lines, one paragraph; and where this begins."""
    if not starts:
        return np.zeros(0, np.bool_), np.zeros(0, np.int64)
    text = np.frombuffer(data, np.uint8)
    lines = np.concatenate([[0], np.flatnonzero(text == 10) + 1])
    lines = lines[lines < len(text)]
    kind = _KINDS[text[lines]]
    before = np.concatenate([[_EMPTY_LINE], kind[:-1]])
    first = np.searchsorted(lines, starts)
    before[first] = _EMPTY_LINE
    to_tags = (kind == _TAG_LINE) & (before != _TAG_LINE)
    to_moves = (kind == _MOVES_LINE) & (before != _MOVES_LINE)
    bad = (kind == _ODD_LINE) | (to_moves & (before == _TAG_LINE))
    sums = [np.add.reduceat(x.astype(np.int64), first) for x in (to_tags, to_moves, bad)]
    plain = (sums[0] == 1) & (sums[1] == 1) & (sums[2] == 0) & (kind[first] == _TAG_LINE)
    bodies = np.zeros(len(starts), np.int64)
    begun = np.flatnonzero(to_moves)
    span = np.searchsorted(starts, lines[begun], side="right") - 1
    bodies[span[::-1]] = lines[begun][::-1]
    return plain, bodies


def _split_slowly(data: bytes, offset: int, cut: bool) -> Iterator[GameText]:
    """Games of a span that is not plain, line by line."""
    found: list[RawGame] = list(split_games([data]))
    for game in found:
        yield GameText(
            offset + game.offset,
            b"".join(game.head),
            b"".join(game.body),
            plain=False,
            cut=cut and game is found[-1],
            oversize=game.oversize,
        )
