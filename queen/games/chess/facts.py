"""Facts about a chess position, computed from the rules alone.

Every function is pure and returns sorted tuples. Three words are used throughout in one sense:

- *attacks*: the piece's geometry reaches the square, own pieces included, pins ignored.
- *takes*: it attacks and no absolute pin forbids the capture; the king takes only what no enemy
  guards. En passant is left out.
- *hanging*: a piece, the king apart, that an enemy takes while nothing of its own could retake,
  or that a cheaper enemy takes. The king retakes only from a single attacker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import chess

PIECE_VALUES = {
    chess.PAWN: 1,
    chess.KNIGHT: 3,
    chess.BISHOP: 3,
    chess.ROOK: 5,
    chess.QUEEN: 9,
}
KING_VALUE = 100
_VALUE = (0, 1, 3, 3, 5, 9, KING_VALUE)


class Pin(NamedTuple):
    """An absolute pin: `pinned` may not leave the line from `pinner` to its own `king`."""

    pinned: chess.Square
    pinner: chess.Square
    king: chess.Square


class Fork(NamedTuple):
    """One piece that threatens several: the squares of the attacker and of its targets."""

    attacker: chess.Square
    targets: tuple[chess.Square, ...]


def attackers(board: chess.Board, color: chess.Color, square: chess.Square) -> tuple[int, ...]:
    """The squares of `color`'s pieces that attack a square."""
    return _squares(board.attackers_mask(color, square))


def defenders(board: chess.Board, square: chess.Square) -> tuple[int, ...]:
    """The pieces that attack a square where one of their own stands; none for an empty one."""
    color = board.color_at(square)
    return () if color is None else attackers(board, color, square)


def pins(board: chess.Board, color: chess.Color) -> tuple[Pin, ...]:
    """The absolute pins of `color`'s pieces, by the pinned square."""
    king = board.king(color)
    if king is None:
        return ()
    found = []
    for pinner in _aligned_sliders(board, king, not color):
        blockers = chess.between(king, pinner) & board.occupied
        if blockers and not blockers & (blockers - 1) and blockers & board.occupied_co[color]:
            found.append(Pin(chess.lsb(blockers), pinner, king))
    return tuple(sorted(found))


def hanging(board: chess.Board, color: chess.Color) -> tuple[int, ...]:
    """The squares of `color`'s hanging pieces (see the module's words)."""
    exchange = _Exchange(board)
    return tuple(s for s in chess.scan_forward(board.occupied_co[color]) if exchange.hangs(s))


def forks(board: chess.Board, color: chess.Color) -> tuple[Fork, ...]:
    """The forks by `color`: pieces that threaten two or more at once and do not hang themselves.

    A target is the king, a piece worth more than the attacker that it takes, or one that it
    takes and nothing could retake.
    """
    exchange = _Exchange(board)
    found = []
    for attacker in chess.scan_forward(board.occupied_co[color]):
        targets = exchange.threatened_by(attacker, color)
        if len(targets) >= 2 and not exchange.hangs(attacker):
            found.append(Fork(attacker, targets))
    return tuple(found)


def material(board: chess.Board) -> int:
    """White's material minus Black's, in pawns (1, 3, 3, 5, 9)."""
    return sum(
        value
        * (board.pieces_mask(kind, True).bit_count() - board.pieces_mask(kind, False).bit_count())
        for kind, value in PIECE_VALUES.items()
    )


def passed_pawns(board: chess.Board, color: chess.Color) -> tuple[int, ...]:
    """Pawns with no enemy pawn ahead of them on their own or a neighbouring file."""
    enemy = board.pieces_mask(chess.PAWN, not color)
    return tuple(
        square
        for square in chess.scan_forward(board.pieces_mask(chess.PAWN, color))
        if not enemy & span_ahead(square, color)
    )


def span_ahead(square: chess.Square, color: chess.Color) -> chess.Bitboard:
    """Squares from which enemy pawns stop a pawn: ahead on its own or a neighbouring file."""
    return _ahead(square, color) & _files_around(square, own=True)


def isolated_pawns(board: chess.Board, color: chess.Color) -> tuple[int, ...]:
    """Pawns with no pawn of their own side on a neighbouring file."""
    pawns = board.pieces_mask(chess.PAWN, color)
    return tuple(
        square
        for square in chess.scan_forward(pawns)
        if not pawns & _files_around(square, own=False)
    )


def doubled_pawns(board: chess.Board, color: chess.Color) -> tuple[int, ...]:
    """All pawns that share their file with another pawn of their own side."""
    pawns = board.pieces_mask(chess.PAWN, color)
    return tuple(
        square
        for square in chess.scan_forward(pawns)
        if (pawns & chess.BB_FILES[chess.square_file(square)]).bit_count() > 1
    )


def open_files(board: chess.Board) -> tuple[int, ...]:
    """Indices (0 is the a-file) of the files without any pawn."""
    return tuple(i for i, file in enumerate(chess.BB_FILES) if not board.pawns & file)


def half_open_files(board: chess.Board, color: chess.Color) -> tuple[int, ...]:
    """Indices of the files without a pawn of `color` but with an enemy pawn."""
    ours, theirs = (board.pieces_mask(chess.PAWN, side) for side in (color, not color))
    return tuple(i for i, file in enumerate(chess.BB_FILES) if theirs & file and not ours & file)


def outposts(board: chess.Board, color: chess.Color) -> tuple[int, ...]:
    """Knights and bishops of `color` on an outpost.

    That is the fourth, fifth or sixth rank as `color` counts, guarded by a pawn of its own, where
    no enemy pawn attacks now or could after advancing on its file.
    """
    minors = board.occupied_co[color] & (board.knights | board.bishops)
    return tuple(s for s in chess.scan_forward(minors) if _is_outpost(board, s, color))


def checking_moves(board: chess.Board) -> tuple[chess.Move, ...]:
    """The legal moves that give check, by from, to and promotion."""
    return _by_square(move for move in board.legal_moves if board.gives_check(move))


def capturing_moves(board: chess.Board) -> tuple[chess.Move, ...]:
    """The legal captures, en passant included, by from, to and promotion."""
    return _by_square(board.generate_legal_captures())


def legal_targets(board: chess.Board, square: chess.Square) -> tuple[int, ...]:
    """Where the piece on a square may legally go; castling is the king's two-square step."""
    moves = board.generate_legal_moves(from_mask=chess.BB_SQUARES[square])
    return tuple(sorted({move.to_square for move in moves}))


def _squares(mask: chess.Bitboard) -> tuple[int, ...]:
    return tuple(chess.scan_forward(mask))


def _by_square(moves: Iterable[chess.Move]) -> tuple[chess.Move, ...]:
    return tuple(sorted(moves, key=lambda m: (m.from_square, m.to_square, m.promotion or 0)))


def _aligned_sliders(
    board: chess.Board, square: chess.Square, color: chess.Color
) -> Iterable[chess.Square]:
    """The sliders of `color` that would attack the square on an empty board."""
    straight = (chess.BB_RANK_ATTACKS[square][0] | chess.BB_FILE_ATTACKS[square][0]) & (
        board.rooks | board.queens
    )
    diagonal = chess.BB_DIAG_ATTACKS[square][0] & (board.bishops | board.queens)
    return chess.scan_forward((straight | diagonal) & board.occupied_co[color])


def _pin_lines(board: chess.Board, color: chess.Color) -> dict[chess.Square, chess.Bitboard]:
    """For each pinned piece of `color` the line it may move along."""
    return {pin.pinned: chess.ray(pin.king, pin.pinner) for pin in pins(board, color)}


class _Exchange:
    """Who takes and retakes where, with the pins of both sides worked out once."""

    def __init__(self, board: chess.Board) -> None:
        self.board = board
        self.lines = {color: _pin_lines(board, color) for color in chess.COLORS}

    def takers(self, color: chess.Color, square: chess.Square, guards: int) -> list[chess.Square]:
        """`color`'s pieces that may capture on a square; the king if at most `guards` enemies."""
        board, target, lines = self.board, chess.BB_SQUARES[square], self.lines[color]
        found = [
            s
            for s in chess.scan_forward(board.attackers_mask(color, square))
            if s not in lines or lines[s] & target
        ]
        king = board.king(color)
        if king in found and board.attackers_mask(not color, square).bit_count() > guards:
            found.remove(king)
        return found

    def hangs(self, square: chess.Square) -> bool:
        color = self.board.color_at(square)
        if color is None or self.board.kings & chess.BB_SQUARES[square]:
            return False
        takers = self.takers(not color, square, guards=0)
        if not takers:
            return False
        cheapest = min(self.worth(s) for s in takers)
        return cheapest < self.worth(square) or not self.takers(color, square, guards=1)

    def threatened_by(self, attacker: chess.Square, color: chess.Color) -> tuple[chess.Square, ...]:
        reached = self.board.attacks_mask(attacker) & self.board.occupied_co[not color]
        return tuple(s for s in chess.scan_forward(reached) if self._threatens(attacker, s, color))

    def worth(self, square: chess.Square) -> int:
        return _VALUE[self.board.piece_type_at(square) or 0]

    def _threatens(self, attacker: chess.Square, target: chess.Square, color: bool) -> bool:
        if self.board.kings & chess.BB_SQUARES[target]:
            return True
        if attacker not in self.takers(color, target, guards=0):
            return False
        return self.worth(target) > self.worth(attacker) or not self.takers(
            not color, target, guards=1
        )


def _files_around(square: chess.Square, *, own: bool) -> chess.Bitboard:
    """The neighbouring files of a square, with its own if asked."""
    file = chess.square_file(square)
    wanted = [f for f in (file - 1, file, file + 1) if 0 <= f < 8 and (own or f != file)]
    return sum(chess.BB_FILES[f] for f in wanted)


def _ahead(square: chess.Square, color: chess.Color) -> chess.Bitboard:
    """All squares on ranks beyond the square's, as `color` advances."""
    rank = chess.square_rank(square)
    if color:
        return chess.BB_ALL & ~((1 << (8 * (rank + 1))) - 1)
    return (1 << (8 * rank)) - 1


def _is_outpost(board: chess.Board, square: chess.Square, color: chess.Color) -> bool:
    rank = chess.square_rank(square)
    if (rank if color else 7 - rank) not in (3, 4, 5):
        return False
    if not board.attackers_mask(color, square) & board.pawns:
        return False
    enemy = board.pieces_mask(chess.PAWN, not color)
    return not enemy & _ahead(square, color) & _files_around(square, own=False)
