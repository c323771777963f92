"""Whether a claim about the board is true, worked out from the rules alone."""

from __future__ import annotations

from collections.abc import Callable

import chess

from queen.games.chess import facts
from queen.games.chess.position import Position
from queen.language.ground import Ground
from queen.language.vocabulary import BOARD_KINDS, IMPOSSIBLE, Claim

BACK_RANK = {chess.WHITE: chess.BB_RANK_1, chess.BLACK: chess.BB_RANK_8}


def checkable(claim: Claim) -> bool:
    """Whether the board alone decides the claim."""
    return claim.kind in BOARD_KINDS or claim.kind == IMPOSSIBLE


def holds(claim: Claim, position: Position) -> bool:
    """Whether a board claim said of this root is true; `board_holds` for many on one root."""
    return board_holds(claim, Ground(position))


def board_holds(claim: Claim, ground: Ground) -> bool:
    """Whether a board claim is true; false too where its moves are not legal.

    Raises KeyError for a claim that only the engine can decide.
    """
    if claim.kind == IMPOSSIBLE:
        return False
    decide = _DECIDERS[claim.kind]
    board = ground.after(claim.at)
    return board is not None and decide(board, *claim.args)


def stands(board: chess.Board, unit: str) -> chess.Square | None:
    """The square of a unit like `Nf3` if that piece stands there."""
    square = chess.parse_square(unit[1:])
    piece = board.piece_at(square)
    return square if piece is not None and piece.symbol() == unit[0] else None


def unit_at(board: chess.Board, square: chess.Square) -> str:
    """The unit on an occupied square, `Nf3`."""
    piece = board.piece_at(square)
    assert piece is not None, f"no piece on {chess.square_name(square)}"
    return piece.symbol() + chess.square_name(square)


def color_of(side: str) -> chess.Color:
    """`White` or `Black` to a colour."""
    return side == "White"


def play(board: chess.Board, line: str) -> chess.Board | None:
    """The board after a line given as an argument; None if it is not legal or empty."""
    moves = tuple(line.split())
    return Ground(board).after(moves) if moves else None


def minors_at_home(board: chess.Board, color: chess.Color) -> int:
    """How many knights and bishops stand where one of their kind began."""
    home = {
        chess.KNIGHT: chess.BB_FILE_B | chess.BB_FILE_G,
        chess.BISHOP: chess.BB_FILE_C | chess.BB_FILE_F,
    }
    return sum(
        (board.pieces_mask(kind, color) & files & BACK_RANK[color]).bit_count()
        for kind, files in home.items()
    )


def _piece(board: chess.Board, unit: str) -> bool:
    return stands(board, unit) is not None


def _level(board: chess.Board) -> bool:
    return facts.material(board) == 0


def _ahead(board: chess.Board, side: str, count: str) -> bool:
    return _lead(board, side) == int(count) > 0


def _lead(board: chess.Board, side: str) -> int:
    return facts.material(board) * (1 if color_of(side) else -1)


def _listed_by(
    find: Callable[[chess.Board, chess.Color], tuple[int, ...]],
) -> Callable[..., bool]:
    """A decider: the unit stands there and `find` names its square for its colour."""

    def decide(board: chess.Board, unit: str) -> bool:
        square = stands(board, unit)
        return square is not None and square in find(board, unit[0].isupper())

    return decide


def _open_file(board: chess.Board, file: str) -> bool:
    return chess.FILE_NAMES.index(file) in facts.open_files(board)


def _half_open(board: chess.Board, side: str, file: str) -> bool:
    return chess.FILE_NAMES.index(file) in facts.half_open_files(board, color_of(side))


def _on_open_file(board: chess.Board, unit: str) -> bool:
    return unit[0] in "RrQq" and _piece(board, unit) and _open_file(board, unit[1])


def _undeveloped(board: chess.Board, side: str, count: str) -> bool:
    return minors_at_home(board, color_of(side)) == int(count) > 0


def _can_castle(board: chess.Board, side: str, wing: str) -> bool:
    color = color_of(side)
    if wing == "kingside":
        return board.has_kingside_castling_rights(color)
    return board.has_queenside_castling_rights(color)


def _reaches(board: chess.Board, attacker: str, target: str) -> bool:
    start, end = stands(board, attacker), stands(board, target)
    return start is not None and end is not None and end in board.attacks(start)


def _attacks(board: chess.Board, attacker: str, target: str) -> bool:
    return attacker[0].isupper() != target[0].isupper() and _reaches(board, attacker, target)


def _defends(board: chess.Board, defender: str, target: str) -> bool:
    return (
        defender[0].isupper() == target[0].isupper()
        and target[0] not in "Kk"
        and _reaches(board, defender, target)
    )


def _controls(board: chess.Board, unit: str, square: str) -> bool:
    start, end = stands(board, unit), chess.parse_square(square)
    return start is not None and board.piece_at(end) is None and end in board.attacks(start)


def _loose(board: chess.Board, unit: str) -> bool:
    square = stands(board, unit)
    return square is not None and unit[0] not in "Kk" and not facts.defenders(board, square)


def _pin(board: chess.Board, pinned: str, pinner: str) -> bool:
    start, end = stands(board, pinned), stands(board, pinner)
    return any(
        (pin.pinned, pin.pinner) == (start, end) for pin in facts.pins(board, pinned[0].isupper())
    )


def _fork(board: chess.Board, attacker: str, targets: str) -> bool:
    start, ends = stands(board, attacker), [stands(board, unit) for unit in targets.split()]
    if start is None or None in ends:
        return False
    found = facts.forks(board, attacker[0].isupper())
    return any(fork.attacker == start and set(fork.targets) == set(ends) for fork in found)


def _check(board: chess.Board, unit: str) -> bool:
    square = stands(board, unit)
    return square is not None and square in board.checkers()


def _checkmate(board: chess.Board, side: str) -> bool:
    return board.turn == color_of(side) and board.is_checkmate()


def _stalemate(board: chess.Board, side: str) -> bool:
    return board.turn == color_of(side) and board.is_stalemate()


def _reach(board: chess.Board, unit: str, count: str) -> bool:
    square = stands(board, unit)
    return square is not None and len(facts.legal_targets(board, square)) == int(count) > 0


def _takes(board: chess.Board, move: str, unit: str) -> bool:
    if play(board, move) is None:
        return False
    return taken(board, chess.Move.from_uci(move)) == unit


def taken(board: chess.Board, move: chess.Move) -> str | None:
    """The unit a legal move captures, en passant included."""
    if not board.is_capture(move):
        return None
    square = move.to_square
    if board.is_en_passant(move):
        square = chess.square(chess.square_file(square), chess.square_rank(move.from_square))
    return unit_at(board, square)


def _wins(board: chess.Board, line: str, side: str, count: str) -> bool:
    after = play(board, line)
    return after is not None and _lead(after, side) - _lead(board, side) == int(count) > 0


def _mates(board: chess.Board, line: str) -> bool:
    after = play(board, line)
    return after is not None and after.is_checkmate()


def _castles(board: chess.Board, move: str, wing: str) -> bool:
    if play(board, move) is None or not board.is_castling(chess.Move.from_uci(move)):
        return False
    return (move[2] == "g") == (wing == "kingside")


def develops(board: chess.Board, move: chess.Move) -> bool:
    """Whether a move takes a knight or bishop from where one of its kind began."""
    return minors_at_home(board, board.turn) > _minors_left(board, move)


def _minors_left(board: chess.Board, move: chess.Move) -> int:
    after = board.copy(stack=False)
    after.push(move)
    return minors_at_home(after, board.turn)


def _develops(board: chess.Board, move: str) -> bool:
    return play(board, move) is not None and develops(board, chess.Move.from_uci(move))


def _promotes(board: chess.Board, move: str) -> bool:
    return len(move) == 5 and play(board, move) is not None


def _forced(board: chess.Board, move: str) -> bool:
    return play(board, move) is not None and board.legal_moves.count() == 1


_DECIDERS: dict[str, Callable[..., bool]] = {
    "piece": _piece,
    "level": _level,
    "ahead": _ahead,
    "passed": _listed_by(facts.passed_pawns),
    "isolated": _listed_by(facts.isolated_pawns),
    "doubled": _listed_by(facts.doubled_pawns),
    "outpost": _listed_by(facts.outposts),
    "open_file": _open_file,
    "half_open": _half_open,
    "on_open_file": _on_open_file,
    "undeveloped": _undeveloped,
    "can_castle": _can_castle,
    "attacks": _attacks,
    "defends": _defends,
    "controls": _controls,
    "hanging": _listed_by(facts.hanging),
    "loose": _loose,
    "pin": _pin,
    "fork": _fork,
    "check": _check,
    "checkmate": _checkmate,
    "stalemate": _stalemate,
    "reach": _reach,
    "takes": _takes,
    "wins": _wins,
    "mates": _mates,
    "castles": _castles,
    "develops": _develops,
    "promotes": _promotes,
    "forced": _forced,
}
