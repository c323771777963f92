"""Games by python-chess: slow, and what the fast reader has to agree with."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import chess
import chess.pgn
import numpy as np

from queen.games.chess.pgn import ILLEGAL_MOVE, NO_MOVES, decoded, whole_words
from queen.positions import comments
from queen.positions.headers import RESULTS, UNFINISHED, Start
from queen.positions.packed import (
    BLACK_CODE,
    BLACK_ROOKS,
    EN_PASSANT,
    NO_SQUARE,
    POSITION_BYTES,
    SIDE,
    WHITE_ROOKS,
    Packed,
)
from queen.positions.reading import Movetext, Plies, no_plies
from queen.positions.schema import move_code

# Per position: six bitboards by piece type, White's pieces, castling rights, then small numbers.
_BOARDS, _WHITE, _RIGHTS = 6, 6, 7


class ReferenceReader:
    """Reads games with python-chess."""

    def read(self, games: Sequence[Movetext]) -> Plies:
        """The plies of games, the good ones before a fault too."""
        read = [_read(game) for game in games]
        out = no_plies(len(games))
        if not read:
            return out
        out.lengths = np.array([len(game.moves) for game in read], np.int64)
        out.endings = np.array([game.ending for game in read], np.int8)
        out.packed = pack_bitboards([row for game in read for row in game.boards])
        out.halfmove = np.array([n for game in read for n in game.halfmoves], np.uint8)
        out.move = np.array([code for game in read for code in game.moves], np.uint16)
        out.clock = np.array([x for game in read for x in game.clocks], np.float64).astype("f4")
        with np.errstate(over="ignore"):
            out.evals = np.array([x for g in read for x in g.evals], np.float64).astype("f4")
        out.faults = {n: game.fault for n, game in enumerate(read) if game.fault is not None}
        return out


def pack_bitboards(rows: Sequence[tuple[int, ...]]) -> Packed:
    """Positions in 36 bytes, [n, 36], from bitboards.

    Args:
        rows: of each position pawns, knights, bishops, rooks, queens, kings, White's pieces and
            castling rights as bitboards, then 1 if Black is to move, then the en-passant square.
    """
    out = np.zeros((len(rows), POSITION_BYTES), np.uint8)
    if not rows:
        return out
    table = np.array([row[: _RIGHTS + 1] for row in rows], np.uint64)
    bits = np.unpackbits(table[:, :_RIGHTS].copy().view(np.uint8), axis=1, bitorder="little")
    bits = bits.reshape(len(rows), _RIGHTS, 64)
    codes = np.einsum("nps,p->ns", bits[:, :_BOARDS], np.arange(1, 7, dtype=np.uint8))
    codes += BLACK_CODE * ((codes > 0) & (bits[:, _WHITE] == 0)).astype(np.uint8)
    out[:, :32] = codes[:, 0::2] | codes[:, 1::2] << 4
    out[:, WHITE_ROOKS] = table[:, _RIGHTS] & np.uint64(0xFF)
    out[:, BLACK_ROOKS] = table[:, _RIGHTS] >> np.uint64(56)
    out[:, SIDE], out[:, EN_PASSANT] = np.array([row[_RIGHTS + 1 :] for row in rows]).T
    return out


def bitboards(board: chess.Board) -> tuple[int, ...]:
    """A board as `pack_bitboards` takes it."""
    square = board.ep_square
    return (
        board.pawns,
        board.knights,
        board.bishops,
        board.rooks,
        board.queens,
        board.kings,
        board.occupied_co[chess.WHITE],
        board.clean_castling_rights(),
        not board.turn,
        NO_SQUARE if square is None or not board.has_legal_en_passant() else square,
    )


def _read(game: Movetext) -> _Game:
    body = whole_words(game.body) if game.cut else game.body
    text = _heading(game.start) + decoded(comments.numeric(body))
    read: _Game = chess.pgn.read_game(io.StringIO(text), Visitor=_Game) or _Game()
    if not read.moves and read.fault is None:
        read.fault = (NO_MOVES, "the game has no moves")
    return read


def _heading(start: Start) -> str:
    if start.fen is None:
        return "\n"
    variant = '[Variant "Chess960"]\n' if start.chess960 else ""
    return f'{variant}[FEN "{start.fen}"]\n\n'


@dataclass
class _Game(chess.pgn.BaseVisitor["_Game"]):
    """What python-chess's reader tells about one game, collected ply by ply."""

    fault: tuple[str, str] | None = None
    ending: int = -2
    ended: bool = False
    boards: list[tuple[int, ...]] = field(default_factory=list)
    halfmoves: list[int] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    evals: list[float] = field(default_factory=list)

    def begin_variation(self) -> chess.pgn.SkipType:
        return chess.pgn.SKIP

    def begin_parse_san(self, board: chess.Board, san: str) -> chess.pgn.SkipType | None:
        return chess.pgn.SKIP if self.ended or self.fault else None

    def parse_san(self, board: chess.Board, san: str) -> chess.Move:
        move = board.parse_san(san)
        if not move:
            raise ValueError(f"null move {san!r}")
        return move

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        if board.chess960 and board.is_castling(move) and not board.has_chess960_castling_rights():
            king, side = move.from_square, 2 if move.to_square > move.from_square else -2
            move = chess.Move(king, king + side)
        self.moves.append(move_code(move))
        self.clocks.append(np.nan)
        self.evals.append(np.nan)

    def visit_board(self, board: chess.Board) -> None:
        if len(self.boards) < len(self.moves):
            self.boards.append(bitboards(board))
            self.halfmoves.append(min(board.halfmove_clock, 255))

    def visit_comment(self, comment: str) -> None:
        if not self.moves or self.ended or self.fault or "[%" not in comment:
            return
        clock, evaluation = comments.told(comment)
        self.clocks[-1] = self.clocks[-1] if clock is None else clock
        self.evals[-1] = self.evals[-1] if evaluation is None else evaluation

    def visit_result(self, result: str) -> None:
        if not self.ended:
            self.ended = True
            self.ending = -2 if result == UNFINISHED else RESULTS[result]

    def handle_error(self, error: Exception) -> None:
        if self.fault is None and not self.ended:
            self.fault = (ILLEGAL_MOVE, f"ply {len(self.moves) + 1}: {error}")

    def result(self) -> Any:
        return self
