"""A stream of PGN bytes cut into games, so that one broken game spoils no other.

python-chess ends a game at any empty line and swallows what follows an unclosed comment; here
a game ends where the next one's headers begin, or at its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from queen.games.chess.archives import ArchiveError

MAX_GAME_BYTES = 4 << 20
_TAG = re.compile(rb'\s*\[\s*([A-Za-z0-9_]+)\s+"')
_RESULT = re.compile(rb"(?:^|\s)(?:1-0|0-1|1/2-1/2|\*)\s*$")


@dataclass
class RawGame:
    """One game's bytes.

    Attributes:
        index: its number in the file, from 0.
        offset: where it begins in the decompressed bytes.
        head: its header lines.
        body: its movetext lines, without empty ones.
        cut: the file broke off within it.
        oversize: it is longer than MAX_GAME_BYTES; the rest was left out.
    """

    index: int
    offset: int
    head: list[bytes] = field(default_factory=list)
    body: list[bytes] = field(default_factory=list)
    cut: bool = False
    oversize: bool = False

    def text(self) -> bytes:
        return b"".join(self.head) + b"\n" + b"".join(self.body)


def split_games(chunks: Iterable[bytes]) -> Iterator[RawGame]:
    """The games of a byte stream. Re-raises the stream's ArchiveError after the last game."""
    splitter, failure = _Splitter(), None
    try:
        for line in _lines(chunks):
            if (done := splitter.feed(line)) is not None:
                yield done
    except ArchiveError as error:
        failure = error
    last = splitter.game
    if last.head or last.body or last.oversize:
        last.cut = failure is not None
        yield last
    if failure is not None:
        raise failure


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their ends, whatever these are; a broken stream's last piece comes first."""
    rest = b""
    try:
        for chunk in chunks:
            rest += chunk
            pieces = rest.splitlines(keepends=True)
            whole = rest.endswith(b"\n") or len(pieces[-1]) > MAX_GAME_BYTES
            rest = b"" if whole else pieces.pop()
            yield from pieces
    except ArchiveError:
        yield from filter(None, [rest])
        raise
    yield from filter(None, [rest])


class _Splitter:
    """Decides line by line where a game ends."""

    def __init__(self) -> None:
        self.game = RawGame(0, 0)
        self.position = 0
        self._forget()

    def _forget(self) -> None:
        self.size = 0
        self.tags: set[bytes] = set()
        self.blank = self.in_comment = self.ended = False

    def feed(self, line: bytes) -> RawGame | None:
        """Take a line; the game before it, if the line begins another."""
        if self.position == 0:
            line = self._without_mark(line)
        if self.ended and self.blank and line.startswith((b"%", b";")):
            self.position += len(line)  # said between two games: part of neither
            return None
        tag = _TAG.match(line)
        done = self.game if self._begins(line, tag) else None
        if done is not None:
            self.game = RawGame(done.index + 1, self.position)
            self._forget()
        self._add(line, tag)
        self.position += len(line)
        return done

    def _without_mark(self, line: bytes) -> bytes:
        mark = b"\xef\xbb\xbf"
        self.position = len(mark) if line.startswith(mark) else 0
        return line.removeprefix(mark)

    def _begins(self, line: bytes, tag: re.Match[bytes] | None) -> bool:
        if tag is None:
            return self.ended and self.blank and bool(line.strip())
        if self.game.body or (self.game.oversize and not self.game.head):
            return not self.in_comment or (self.blank and tag[1] == b"Event")
        return self.blank and tag[1] in self.tags

    def _add(self, line: bytes, tag: re.Match[bytes] | None) -> None:
        self.size += len(line)
        self.blank = not line.strip()
        if self.blank:
            return
        if self.size > MAX_GAME_BYTES:
            self.game.oversize = True
        elif not self.game.body and line.lstrip()[:1] in (b"[", b"%", b";"):
            self._add_head(line, tag)
        else:
            self._add_body(line)

    def _add_head(self, line: bytes, tag: re.Match[bytes] | None) -> None:
        self.game.head.append(line)
        if tag is not None:
            self.tags.add(tag[1])

    def _add_body(self, line: bytes) -> None:
        self.game.body.append(line)
        if b"{" in line or b"}" in line:
            self.in_comment = line.rfind(b"{") > line.rfind(b"}")
        self.ended = not self.in_comment and _RESULT.search(line[-16:]) is not None
