"""Questions about what stands on the board. Source: METHOD section 1, static stages."""

from __future__ import annotations

import random

import chess

from queen.games.chess import facts
from queen.games.chess.notation import PIECE_LETTERS, piece_token, square_token
from queen.language.questions.topics import (
    NONE,
    AnyTopic,
    Topic,
    any_side,
    by_file,
    by_file_text,
    concluded,
    nothing,
    reasoned,
    side_name,
    side_topic,
    squares_text,
)

MARK = "!"
_MEN = tuple(chess.Piece.from_symbol(letter) for letter in PIECE_LETTERS if letter not in "Kk")


def _square(board: chess.Board, rng: random.Random) -> chess.Square:
    """Occupied or empty alike; where moves led here, half the time a square they touched."""
    wanted = board.occupied if rng.random() < 0.5 else ~board.occupied & chess.BB_ALL
    touched = 0
    for move in board.move_stack:
        touched |= chess.BB_SQUARES[move.from_square] | chess.BB_SQUARES[move.to_square]
    if touched & wanted and rng.random() < 0.5:
        wanted &= touched
    return rng.choice(list(chess.scan_forward(wanted)))


def _piece_on(board: chess.Board, square: chess.Square) -> str:
    piece = board.piece_at(square)
    return piece_token(piece) if piece else NONE


def _man(board: chess.Board, rng: random.Random) -> chess.Piece:
    """A kind of piece, three times in four one that is on the board."""
    present = [man for man in _MEN if board.pieces_mask(man.piece_type, man.color)]
    return rng.choice(present if present and rng.random() < 0.75 else _MEN)


def _where(board: chess.Board, man: chess.Piece) -> str:
    return squares_text(board.pieces(man.piece_type, man.color))


def _count(board: chess.Board, man: chess.Piece) -> str:
    return reasoned(_where(board, man), str(len(board.pieces(man.piece_type, man.color))))


def _king(board: chess.Board, color: bool) -> str:
    return squares_text(board.pieces(chess.KING, color))


def _material(board: chess.Board, _: tuple[()]) -> str:
    """Men of each kind, White's then Black's, where they stand and how many, and the lead so far;
    the last lead once more: `<a2><b2><P>2 <c7><p>1 White 1 none<N>0 ... : White 3`.

    A lead that grows kind by kind is a small step each time; two totals of a side that must be
    subtracted at the end were not learnt (ours).
    """
    lead, told = 0, []
    for kind in (man.piece_type for man in _MEN if man.color):
        for color in chess.COLORS:
            squares = board.pieces(kind, color)
            man = chess.Piece(kind, color)
            told.append(f"{squares_text(squares)}{piece_token(man)}{len(squares)}")
            lead += len(squares) * facts.PIECE_VALUES[kind] * (1 if color else -1)
        told.append(_lead(lead))
    return reasoned(" ".join(told), _lead(lead))


def _lead(lead: int) -> str:
    return f"{side_name(lead > 0)} {abs(lead)}" if lead else "even"


def _by_file(pawns: int, marked: int = 0) -> str:
    """The pawns of each file from a to h, `-` where there is none: `<a2> - <c2><c3>! ...`.

    Where the conclusion names pawns, a mark stands behind them: copied from marks it is learnt
    soon, where whole lists had to be searched once more it was what went wrong (ours).
    """
    files = (
        squares_text(chess.SquareSet(pawns & file)) + (MARK if pawns & file & marked else "")
        for file in chess.BB_FILES
    )
    return " ".join("-" if text == NONE else text for text in files)


def _doubled(board: chess.Board, color: bool) -> str:
    found = chess.SquareSet(facts.doubled_pawns(board, color))
    return _by_file(board.pieces_mask(chess.PAWN, color), int(found))


def _isolated(board: chess.Board, color: bool) -> str:
    found = chess.SquareSet(facts.isolated_pawns(board, color))
    return _by_file(board.pieces_mask(chess.PAWN, color), int(found))


def _stopped(board: chess.Board, color: bool) -> str:
    """Both sides' pawns by file, then each of the side's with the enemy's that may stop it, or a
    mark: `<a2> - ... , - <b7> ... , <a2><b7> <e5>!`."""
    own, theirs = (board.pieces_mask(chess.PAWN, side) for side in (color, not color))
    each = []
    for pawn in by_file(chess.SquareSet(own)):
        stoppers = by_file(chess.SquareSet(facts.span_ahead(pawn, color) & theirs))
        each.append(square_token(pawn) + ("".join(map(square_token, stoppers)) or MARK))
    listed = " ".join(each) or NONE
    return f"{_by_file(own)} , {_by_file(theirs)} , {listed}"


def _castling(board: chess.Board, color: bool) -> str:
    short = board.has_kingside_castling_rights(color)
    long = board.has_queenside_castling_rights(color)
    return ("both" if long else "short") if short else ("long" if long else NONE)


def _to_move(board: chess.Board, _: tuple[()]) -> str:
    return side_name(board.turn)


def _open_files(board: chess.Board, _: tuple[()]) -> str:
    files = " ".join(chess.FILE_NAMES[file] for file in facts.open_files(board)) or NONE
    return reasoned(_by_file(board.pawns), files)


STATIC: tuple[AnyTopic, ...] = (
    Topic(
        "piece_on",
        _square,
        lambda square: f"on {square_token(square)} ?",
        _piece_on,
        lambda answer: "empty" if answer == NONE else "occupied",
    ),
    Topic("squares_of", _man, lambda man: f"where {piece_token(man)} ?", _where),
    Topic(
        "count",
        _man,
        lambda man: f"count {piece_token(man)} ?",
        _count,
    ),
    Topic("king_square", any_side, lambda c: f"king {side_name(c)} ?", _king, lambda _: "all"),
    Topic(
        "material",
        nothing,
        lambda _: "material ?",
        _material,
        lambda answer: "even" if concluded(answer) == "even" else "uneven",
    ),
    Topic("castling", any_side, lambda c: f"castling {side_name(c)} ?", _castling),
    Topic("side_to_move", nothing, lambda _: "to move ?", _to_move, lambda answer: answer),
    side_topic(
        "doubled_pawns", "doubled", facts.doubled_pawns, evidence=_doubled, text=by_file_text
    ),
    side_topic(
        "isolated_pawns", "isolated", facts.isolated_pawns, evidence=_isolated, text=by_file_text
    ),
    side_topic("passed_pawns", "passed", facts.passed_pawns, evidence=_stopped, text=by_file_text),
    Topic("open_files", nothing, lambda _: "open files ?", _open_files),
)
