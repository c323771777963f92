"""Questions about moves and interactions. Source: METHOD section 1, dynamic stages."""

from __future__ import annotations

import random
from operator import attrgetter

import chess

from queen.games.chess import facts
from queen.games.chess.notation import (
    MoveTextError,
    move_text,
    parse_move_text,
    square_token,
)
from queen.language.questions.topics import (
    AnyTopic,
    Topic,
    evenly,
    moves_text,
    nothing,
    side_name,
    side_topic,
    squares_text,
)

_SidedSquare = tuple[bool, chess.Square]


def _mover(board: chess.Board, rng: random.Random) -> chess.Square | None:
    """A piece of the side to move: three times in four one that has a move."""
    able = sorted({move.from_square for move in board.legal_moves})
    own = list(chess.scan_forward(board.occupied_co[board.turn]))
    return rng.choice(able if able and rng.random() < 0.75 else own)


def _moves(board: chess.Board, square: chess.Square) -> str:
    return squares_text(facts.legal_targets(board, square))


def _attacked(board: chess.Board, rng: random.Random) -> _SidedSquare | None:
    color = rng.random() < 0.5
    hit = [(color, s) for s in chess.SQUARES if board.attackers_mask(color, s)]
    return evenly(rng, hit, [(color, s) for s in chess.SQUARES if (color, s) not in hit])


def _attackers(board: chess.Board, choice: _SidedSquare) -> str:
    return squares_text(facts.attackers(board, *choice))


def _guarded(board: chess.Board, rng: random.Random) -> chess.Square | None:
    men = list(chess.scan_forward(board.occupied & ~board.kings))
    safe = [s for s in men if facts.defenders(board, s)]
    return evenly(rng, safe, [s for s in men if s not in safe])


def _defenders(board: chess.Board, square: chess.Square) -> str:
    return squares_text(facts.defenders(board, square))


def _in_check(board: chess.Board, _: tuple[()]) -> str:
    return "yes" if board.is_check() else "no"


def _checks(board: chess.Board, _: tuple[()]) -> str:
    return moves_text(board, facts.checking_moves(board))


def _taker(board: chess.Board, rng: random.Random) -> chess.Square | None:
    """A piece of the side to move, as often with a capture as without."""
    able = sorted({move.from_square for move in facts.capturing_moves(board)})
    own = chess.scan_forward(board.occupied_co[board.turn])
    return evenly(rng, able, [s for s in own if s not in able])


def _captures(board: chess.Board, square: chess.Square) -> str:
    moves = facts.capturing_moves(board)
    return squares_text({move.to_square for move in moves if move.from_square == square})


def _legal_or_not(board: chess.Board, rng: random.Random) -> str | None:
    """A move's text: legal, or one that its piece could make on some board but not here."""
    legal = sorted(board.legal_moves, key=chess.Move.uci)
    move = evenly(rng, legal, _impossible(board))
    return move_text(board, move) if move else None


def _impossible(board: chess.Board) -> list[chess.Move]:
    found = []
    for start in chess.scan_forward(board.occupied_co[board.turn]):
        for end in chess.scan_forward(_pattern(board, start)):
            last = chess.square_rank(end) in (0, 7) and board.pawns & chess.BB_SQUARES[start]
            move = chess.Move(start, end, chess.QUEEN if last else None)
            if not board.is_legal(move):
                found.append(move)
    return found


def _pattern(board: chess.Board, square: chess.Square) -> chess.Bitboard:
    """Where such a piece could go from the square, whatever stood on the others."""
    piece = board.piece_at(square)
    assert piece is not None
    empty = chess.Board(None)
    empty.set_piece_at(square, piece)
    reach = empty.attacks_mask(square)
    if piece.piece_type == chess.PAWN:
        home = chess.square_rank(square) == (1 if piece.color else 6)
        for steps in (1, 2) if home else (1,):
            reach |= chess.BB_SQUARES[square + (8 if piece.color else -8) * steps]
    if square == (chess.E1 if piece.color else chess.E8) and piece.piece_type == chess.KING:
        reach |= chess.BB_SQUARES[square + 2] | chess.BB_SQUARES[square - 2]
    return reach


def _is_legal(board: chess.Board, text: str) -> str:
    try:
        parse_move_text(board, text)
    except MoveTextError:
        return "no"
    return "yes"


def _can_check(board: chess.Board) -> bool:
    return bool(facts.checking_moves(board))


def _has_pin(board: chess.Board) -> bool:
    return any(facts.pins(board, color) for color in chess.COLORS)


def _has_fork(board: chess.Board) -> bool:
    return any(facts.forks(board, color) for color in chess.COLORS)


def _same(answer: str) -> str:
    return answer


DYNAMIC: tuple[AnyTopic, ...] = (
    Topic("moves", _mover, lambda s: f"moves {square_token(s)} ?", _moves),
    Topic(
        "attackers",
        _attacked,
        lambda choice: f"attackers {side_name(choice[0])} {square_token(choice[1])} ?",
        _attackers,
    ),
    Topic("defenders", _guarded, lambda s: f"defenders {square_token(s)} ?", _defenders),
    Topic("in_check", nothing, lambda _: "in check ?", _in_check, _same, chess.Board.is_check),
    Topic("checking_moves", nothing, lambda _: "checks ?", _checks, rare=_can_check),
    side_topic("pins", "pinned", facts.pins, attrgetter("pinned"), rare=_has_pin),
    side_topic("forks", "forks", facts.forks, attrgetter("attacker"), rare=_has_fork),
    side_topic("hanging", "hanging", facts.hanging),
    Topic("captures", _taker, lambda s: f"captures {square_token(s)} ?", _captures),
    Topic("legal_move", _legal_or_not, lambda text: f"legal {text} ?", _is_legal, _same),
)
