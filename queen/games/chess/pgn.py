"""Games from PGN files: streamed, standard chess only, names dropped, bad input counted.

python-chess reads the moves. A faster reader can stand in its place behind `read_games`.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import chess
import chess.pgn
import xxhash

from queen.errors import QueenError
from queen.games.chess.archives import (
    ARCHIVE_SUFFIXES,
    TRUNCATED,
    UNREADABLE,
    ArchiveError,
    name_of,
)
from queen.games.chess.archives import read_chunks as _read_chunks
from queen.games.chess.pgn_headers import anonymous
from queen.games.chess.pgn_split import MAX_GAME_BYTES, RawGame, split_games
from queen.games.chess.position import Position

EMPTY, NO_MOVES, ILLEGAL_MOVE = "empty", "no_moves", "illegal_move"
BAD_FEN, VARIANT, ENCODING = "bad_fen", "variant", "encoding"
REASONS = (EMPTY, NO_MOVES, ILLEGAL_MOVE, BAD_FEN, VARIANT, TRUNCATED, ENCODING, UNREADABLE)
SPLITS = ("train", "dev", "test")
MATE_PAWNS = 1000.0

_RESULTS = ("1-0", "0-1", "1/2-1/2")
_STANDARD = {"", "standard", "chess", "normal", "from position", "fromposition"}
_SUFFIXES = (".pgn", *(f".pgn{suffix}" for suffix in ARCHIVE_SUFFIXES))
# A number of more digits is none that anybody meant, nor one that every column can hold.
_CLOCK = re.compile(r"\[%clk\s+(\d{1,9}):(\d{1,9}):(\d{1,9}(?:\.\d+)?)\s*\]")
_ELO = re.compile(r"\d{1,9}")
_EVAL = re.compile(r"\[%eval\s+(#?)([+-]?\d+(?:\.\d+)?)(?:,\d+)?\s*\]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


class PgnError(QueenError):
    """A source of games that holds none that can be read."""


@dataclass(frozen=True)
class Reject:
    """Bad input, left out or cut short.

    Attributes:
        reason: one of REASONS.
        file: name of the file, within the folder if one was given.
        index: number of the game in its file, from 0.
        offset: byte at which the game, or for a broken archive the break, lies in the
            decompressed text.
        detail: what exactly is wrong.
        kept: plies of the game that were kept.
    """

    reason: str
    file: str
    index: int
    offset: int
    detail: str
    kept: int = 0


@dataclass(frozen=True)
class Game:
    """A game of standard chess.

    Attributes:
        id: 128-bit hash of start, moves and headers without names and places.
        start: FEN of the first position.
        moves: UCI, castling as the king's step.
        clocks: seconds left to the mover after each move, or None.
        evals: after each move, in pawns for White, or None; mate in n is MATE_PAWNS - n,
            negative where Black mates.
        result: `1-0`, `0-1`, `1/2-1/2` or `*`.
        white_elo, black_elo: ratings as the headers give them.
        time_control: as the header gives it (`300+3`).
        variant: always `standard`.
        headers: the rest of the headers, without names unless these were asked for.
        source, index, offset: file, number in the file and byte in its decompressed text.
        fault: reason of the Reject that goes with a game cut short, or None.
    """

    id: str
    start: str
    moves: tuple[str, ...]
    clocks: tuple[float | None, ...]
    evals: tuple[float | None, ...]
    result: str
    white_elo: int | None
    black_elo: int | None
    time_control: str | None
    variant: str
    headers: Mapping[str, str]
    source: str
    index: int
    offset: int
    fault: str | None = None

    def position(self, ply: int) -> Position:
        """The position after `ply` moves, with the moves that led there."""
        return Position(self.start, self.moves[:ply])


def read_games(
    source: Path, *, keep_names: bool = False, on_reject: Callable[[Reject], None]
) -> Iterator[Game]:
    """Stream the games of a .pgn, .pgn.gz, .pgn.zst, .pgn.bz2 or .pgn.zip, or a folder of them.

    A folder is read with its subfolders in order of path, other files left alone. A game with a
    bad move keeps the moves before it, a broken archive the games before the break; each such
    fault is told once to `on_reject`. Comments and variations are dropped.

    Raises PgnError at once if there is no such source, and at the end if no game could be read.
    """
    files = _files(Path(source))
    return _stream(Path(source), files, keep_names, on_reject)


def split_of(game_id: str, shares: Mapping[str, float], seed: int) -> str:
    """The split a game belongs to, by hash of its id: `train`, `dev` or `test`.

    Args:
        shares: share of each split; they sum to 1, and a missing one is 0.
    """
    if set(shares) - set(SPLITS) or abs(sum(shares.values()) - 1) > 1e-9:
        raise QueenError(
            f"{dict(shares)} are no shares of {', '.join(SPLITS)}",
            where="splits",
            remedy="give shares that sum to 1",
        )
    place = xxhash.xxh3_64_intdigest(f"{seed}/{game_id}".encode()) / 2**64
    for split in SPLITS:
        place -= shares.get(split, 0.0)
        if place < 0:
            return split
    return max(SPLITS, key=lambda name: shares.get(name, 0.0))


def _files(source: Path) -> list[tuple[Path, str]]:
    """The files to read with the names to call them by."""
    if source.is_dir():
        found = sorted(
            p for p in source.rglob("*") if p.is_file() and p.name.lower().endswith(_SUFFIXES)
        )
        if found:
            return [(path, name_of(path.relative_to(source))) for path in found]
        what = f"the folder holds no {', '.join(_SUFFIXES)}"
    elif source.exists():
        return [(source, name_of(Path(source.name)))]
    else:
        what = "no such file or folder"
    raise PgnError(what, where=str(source), remedy="give a PGN file or a folder of PGN files")


def _stream(
    source: Path,
    files: list[tuple[Path, str]],
    keep_names: bool,
    on_reject: Callable[[Reject], None],
) -> Iterator[Game]:
    reasons: Counter[str] = Counter()
    games = 0

    def reject(fault: Reject) -> None:
        reasons[fault.reason] += 1
        on_reject(fault)

    for path, name in files:
        for game in _read_file(path, name, keep_names, reject):
            games += 1
            yield game
    if not games:
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        raise PgnError(
            f"no game could be read ({told})",
            where=str(source),
            remedy="give PGN games of standard chess, plain or as .gz, .zst, .bz2 or .zip",
        )


def _read_file(
    path: Path, name: str, keep_names: bool, reject: Callable[[Reject], None]
) -> Iterator[Game]:
    seen, end = 0, 0

    def counted() -> Iterator[bytes]:
        nonlocal end
        for chunk in _read_chunks(path):
            end += len(chunk)
            yield chunk

    try:
        for raw in split_games(counted()):
            seen = raw.index + 1
            game = _read_game(raw, name, keep_names, reject)
            if game is not None:
                yield game
    except ArchiveError as error:
        reject(Reject(error.reason, name, max(seen - 1, 0), end, error.what))
        return
    if not seen:
        reject(Reject(EMPTY, name, 0, 0, "the file holds nothing"))


def _read_game(
    raw: RawGame, name: str, keep_names: bool, reject: Callable[[Reject], None]
) -> Game | None:
    """A game, or None; the fault, if any, goes to `reject` (but a cut: its archive tells it)."""
    data = raw.text()
    if raw.oversize:
        record = _Record(fault=(UNREADABLE, f"longer than {MAX_GAME_BYTES} bytes"))
    elif _CONTROL.search(data):
        record = _Record(fault=(ENCODING, "control characters: neither UTF-8 nor Latin-1 text"))
    else:
        record = _parsed(decoded(whole_words(data) if raw.cut else data))
    if record.fault is None and not record.moves:
        record.fault = (NO_MOVES, "the game has no moves")
    reason, detail = record.fault or (None, "")
    if reason is not None and not raw.cut:
        reject(Reject(reason, name, raw.index, raw.offset, detail, kept=len(record.moves)))
    if not record.moves:
        return None
    return record.game(raw, name, keep_names, TRUNCATED if raw.cut else reason)


def whole_words(data: bytes) -> bytes:
    """Text that was cut off without its last word, for `Qh4` may have been `Qh4e1`."""
    return data[: max(data.rfind(space) for space in (b" ", b"\n", b"\r", b"\t")) + 1]


def decoded(data: bytes) -> str:
    """Text of a game: UTF-8, or else Latin-1."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _parsed(text: str) -> _Record:
    record: _Record = chess.pgn.read_game(io.StringIO(text), Visitor=_Record) or _Record()
    return record


@dataclass
class _Record(chess.pgn.BaseVisitor["_Record"]):
    """What python-chess's reader tells about one game, collected."""

    fault: tuple[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    start: str = chess.STARTING_FEN
    moves: list[str] = field(default_factory=list)
    clocks: list[float | None] = field(default_factory=list)
    evals: list[float | None] = field(default_factory=list)
    ending: str = "*"

    def visit_header(self, tagname: str, tagvalue: str) -> None:
        self.headers[tagname] = tagvalue

    def end_headers(self) -> chess.pgn.SkipType | None:
        variant = self.headers.get("Variant", "")
        if variant.lower() not in _STANDARD:
            self.fault = (VARIANT, f"variant {variant!r} is not read")
        elif "FEN" in self.headers:
            self._read_fen(self.headers["FEN"])
        return chess.pgn.SKIP if self.fault else None

    def _read_fen(self, fen: str) -> None:
        try:
            board = chess.Board(fen)
        except ValueError as error:
            self.fault = (BAD_FEN, str(error))
            return
        if board.has_chess960_castling_rights():
            self.fault = (VARIANT, f"castling of Chess960: {fen}")
        elif not board.is_valid():
            self.fault = (BAD_FEN, f"{board.status()!r}: {fen}")
        else:
            self.start = board.fen()

    def begin_variation(self) -> chess.pgn.SkipType:
        return chess.pgn.SKIP

    def parse_san(self, board: chess.Board, san: str) -> chess.Move:
        move = board.parse_san(san)
        if not move:
            raise ValueError(f"null move {san!r} in {board.fen()}")
        return move

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        self.moves.append(move.uci())
        self.clocks.append(None)
        self.evals.append(None)

    def visit_comment(self, comment: str) -> None:
        if not self.moves or "[%" not in comment:
            return
        if clock := _CLOCK.search(comment):
            self.clocks[-1] = int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])
        if found := _EVAL.search(comment):
            self.evals[-1] = _pawns(found[1] == "#", found[2])

    def visit_result(self, result: str) -> None:
        self.ending = result

    def handle_error(self, error: Exception) -> None:
        if self.fault is None:
            self.fault = (ILLEGAL_MOVE, f"ply {len(self.moves)}: {error}")

    def result(self) -> _Record:
        return self

    def game(self, raw: RawGame, name: str, keep_names: bool, fault: str | None) -> Game:
        public = anonymous(self.headers)
        told = self.headers.get("Result", "")
        digest = xxhash.xxh3_128()
        for part in (self.start, " ".join(self.moves), *map(repr, sorted(public.items()))):
            digest.update(part.encode() + b"\0")
        return Game(
            id=digest.hexdigest(),
            start=self.start,
            moves=tuple(self.moves),
            clocks=tuple(self.clocks),
            evals=tuple(self.evals),
            result=told if told in _RESULTS else self.ending,
            white_elo=_elo(self.headers.get("WhiteElo", "")),
            black_elo=_elo(self.headers.get("BlackElo", "")),
            time_control=self.headers.get("TimeControl"),
            variant="standard",
            headers=dict(self.headers) if keep_names else public,
            source=name,
            index=raw.index,
            offset=raw.offset,
            fault=fault,
        )


def _pawns(mate: bool, number: str) -> float:
    value = float(number)
    if not mate:
        return value
    return (MATE_PAWNS - abs(value)) * (-1 if number.startswith("-") else 1)


def _elo(text: str) -> int | None:
    digits = text.strip().rstrip("?")
    return int(digits) if _ELO.fullmatch(digits) and int(digits) > 0 else None
