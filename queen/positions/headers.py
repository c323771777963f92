"""What the headers of a game tell that positions need: no names among it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import chess

from queen.positions.packed import pack

STANDARD, CHESS960 = "standard", "chess960"
SPEEDS = ("ultrabullet", "bullet", "blitz", "rapid", "classical", "correspondence", "unknown")
RESULTS = {"1-0": 1, "1/2-1/2": 0, "0-1": -1}
UNFINISHED = "*"

_TOLD = (
    b"Result|WhiteElo|BlackElo|TimeControl|Variant|FEN|Date|UTCDate|UTCTime|Round|WhiteRatingDiff"
)
_TAGS = re.compile(rb"^\s*\[\s*(" + _TOLD + rb')\s+"([^"\n]*)"', re.MULTILINE)
# Which game it was, beside its moves; nothing that names a person or a place.
_IDENTIFYING = (b"Date", b"UTCDate", b"UTCTime", b"Round", b"TimeControl", b"WhiteRatingDiff")
_NAMES = {
    **dict.fromkeys(
        ("", "standard", "chess", "normal", "classical", "from position", "fromposition"), STANDARD
    ),
    **dict.fromkeys(
        ("chess960", "chess 960", "fischerandom", "fischerrandom", "fischer random"), CHESS960
    ),
}
# Python reads no number of more than 4,300 digits.
_STAGE = re.compile(r"(?:\d+/)?(\d{1,4000})(?:\+(\d{1,4000}))?")
_ELO = re.compile(rb"\d{1,4000}")
_DAILY = re.compile(r"1/\d{5,}")
_LARGEST_ELO = 32_767


@dataclass(frozen=True, slots=True)
class Facts:
    """What a game's headers say.

    Attributes:
        variant: `standard`, `chess960`, or the header's own word for another.
        fen: of the start, None for the usual one.
        result: White's: 1, 0, -1; None if the headers have none.
        speed: one of SPEEDS.
        identifying: headers that tell this game from others with the same moves.
    """

    variant: str
    fen: str | None
    result: int | None
    white_elo: int | None
    black_elo: int | None
    speed: str
    identifying: bytes


@dataclass(frozen=True)
class Start:
    """A start position.

    Attributes:
        row: its 36 bytes.
        fen: None for the usual one.
        chess960: it is played by the rules of Chess960.
        rooks: files of the rooks that castle: White's on the king's and the queen's side,
            Black's; -1 for none.
        kings: squares of the kings, White's first.
    """

    row: bytes
    fen: str | None = None
    chess960: bool = False
    rooks: tuple[int, int, int, int] = (7, 0, 7, 0)
    kings: tuple[int, int] = (chess.E1, chess.E8)

    def board(self) -> chess.Board:
        return chess.Board(self.fen or chess.STARTING_FEN, chess960=self.chess960)


USUAL = Start(pack(chess.Board()))


def facts_of(head: bytes) -> Facts:
    """What a game's header lines tell."""
    tags = dict(_TAGS.findall(head))
    told = tags.get(b"Variant", b"").decode("latin-1").strip().lower()
    fen = tags.get(b"FEN")
    return Facts(
        variant=_NAMES.get(told, told),
        fen=None if fen is None else fen.decode("latin-1").strip(),
        result=RESULTS.get(tags.get(b"Result", b"").decode("latin-1")),
        white_elo=_elo(tags.get(b"WhiteElo", b"")),
        black_elo=_elo(tags.get(b"BlackElo", b"")),
        speed=speed_of(tags.get(b"TimeControl", b"").decode("latin-1")),
        identifying=b"\0".join(tags.get(tag, b"") for tag in _IDENTIFYING),
    )


@lru_cache(maxsize=4096)
def start_of(fen: str | None, chess960: bool) -> Start:
    """The start position of a game. Raises ValueError if the FEN is none of a legal position.

    A FEN whose castling only Chess960 knows is played by its rules, whatever the headers say.
    """
    if fen is None:
        return USUAL
    board = chess.Board(fen, chess960=True)
    board.chess960 = chess960 or board.has_chess960_castling_rights()
    if not board.is_valid():
        raise ValueError(f"{board.status()!r}: {fen}")
    kings = int(board.king(chess.WHITE) or 0), int(board.king(chess.BLACK) or 0)
    return Start(pack(board), board.fen(), board.chess960, _castling_rooks(board), kings)


def _castling_rooks(board: chess.Board) -> tuple[int, int, int, int]:
    files = []
    for color in chess.COLORS:
        rights = board.clean_castling_rights() & (chess.BB_RANK_1 if color else chess.BB_RANK_8)
        king = board.king(color)
        assert king is not None
        squares = chess.SquareSet(rights)
        files.append(max((s & 7 for s in squares if s > king), default=-1))
        files.append(min((s & 7 for s in squares if s < king), default=-1))
    return files[0], files[1], files[2], files[3]


@lru_cache(maxsize=4096)
def speed_of(time_control: str) -> str:
    """The speed of a game as Lichess has it: by the time for 40 moves of the first period."""
    if _DAILY.fullmatch(time_control):
        return "correspondence"
    found = _STAGE.fullmatch(time_control.split(":")[0].strip())
    if found is None:
        return "unknown"
    seconds = int(found[1]) + 40 * int(found[2] or 0)
    for name, longest in (("ultrabullet", 29), ("bullet", 179), ("blitz", 479), ("rapid", 1499)):
        if seconds <= longest:
            return name
    return "classical"


@lru_cache(maxsize=4096)
def _elo(text: bytes) -> int | None:
    digits = text.strip().rstrip(b"?")
    return int(digits) if _ELO.fullmatch(digits) and 0 < int(digits) <= _LARGEST_ELO else None
