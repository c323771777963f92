"""Moves as the language model writes them, and as people read them.

A move is written as its piece, from and to, one token each: `<N><g1><f3>`. The piece's letter is
that of a FEN, so its case says the colour. A promotion adds the new piece: `<p><e2><e1><q>`.
Castling is the king's step: `<K><e1><g1>`. The moves of a line stand one space apart.
Source: METHOD section 1, the 76 tokens for squares and pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import chess

from queen.errors import QueenError

PIECE_LETTERS = "PNBRQKpnbrqk"
MALFORMED, WRONG_PIECE, ILLEGAL = "malformed", "wrong_piece", "illegal"

_SQUARE = r"<([a-h][1-8])>"
_MOVE = re.compile(rf"<([{PIECE_LETTERS}])>{_SQUARE}{_SQUARE}(?:<([NBRQnbrq])>(?!<))?")
_RUN = re.compile(rf"(?:{_MOVE.pattern})(?: (?:{_MOVE.pattern}))*")
_PIECE_ON = re.compile(rf"<([{PIECE_LETTERS}])>{_SQUARE}")
_TOKEN = re.compile(rf"<([{PIECE_LETTERS}]|[a-h][1-8])>")


class MoveTextError(QueenError):
    """A move text that names no legal move.

    Attributes:
        reason: `malformed` (not piece, from, to), `wrong_piece` (another piece, or none, stands
            on the from-square, or the promoted piece is the other side's) or `illegal`.
        ply: index of the move in its line, 0 for a single move.
    """

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", reason: str = ILLEGAL, ply: int = 0
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason, self.ply = reason, ply

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.what, self.where, self.remedy, self.reason, self.ply)


def _rebuild(what: str, where: str, remedy: str, reason: str, ply: int) -> MoveTextError:
    return MoveTextError(what, where=where, remedy=remedy, reason=reason, ply=ply)


def square_token(square: chess.Square) -> str:
    """`<e4>`."""
    return f"<{chess.SQUARE_NAMES[square]}>"


def piece_token(piece: chess.Piece) -> str:
    """`<N>` for a white knight, `<n>` for a black one."""
    return f"<{piece.symbol()}>"


def move_text(board: chess.Board, move: chess.Move | str) -> str:
    """A move of the position as tokens; UCI strings are taken too.

    Legality is not checked, but a piece must stand on the from-square: else MoveTextError.
    """
    move = _as_move(board, move)
    piece = board.piece_at(move.from_square)
    if piece is None:
        raise _error(WRONG_PIECE, f"no piece to move by {move.uci()}", board, 0)
    text = piece_token(piece) + square_token(move.from_square) + square_token(move.to_square)
    if move.promotion:
        text += piece_token(chess.Piece(move.promotion, piece.color))
    return text


def parse_move_text(board: chess.Board, text: str) -> chess.Move:
    """The legal move that the text names. Raises MoveTextError with the reason."""
    return _parse(board, text, 0)


def line_text(board: chess.Board, moves: Iterable[chess.Move | str]) -> str:
    """The moves of a line from the position, one space apart; the board is left as it was."""
    here = board.copy(stack=False)
    words: list[str] = []
    for move in moves:
        words.append(move_text(here, move))
        here.push(_as_move(here, move))
    return " ".join(words)


def parse_line(board: chess.Board, text: str) -> tuple[chess.Move, ...]:
    """The legal moves of a line's text. Raises MoveTextError with the bad move's ply."""
    here = board.copy(stack=False)
    moves = []
    for ply, word in enumerate(text.split(" ") if text else ()):
        moves.append(_parse(here, word, ply))
        here.push(moves[-1])
    return tuple(moves)


def san_line(board: chess.Board, moves: Iterable[chess.Move | str]) -> str:
    """A line for people: `1. e4 e5 2. Nf3`, or `1... e5 2. Nf3` where Black begins.

    Raises MoveTextError on an illegal move.
    """
    here = board.copy(stack=False)
    words: list[str] = []
    for ply, move in enumerate(moves):
        move = _as_move(here, move)
        if not here.is_legal(move):
            raise _error(ILLEGAL, f"move {move.uci()} is not legal", here, ply)
        if here.turn or not words:
            words.append(f"{here.fullmove_number}." if here.turn else f"{here.fullmove_number}...")
        words.append(here.san_and_push(move))
    return " ".join(words)


def humanize(board: chess.Board, text: str) -> str:
    """Prose with its tokens turned into words: `<N> on <f3>` becomes "knight on f3".

    Runs of moves become numbered SAN: in each line of text a run goes on where the run before it
    ended, or else begins at the position. Where neither is legal the moves are spelt out
    ("knight g1-f3").
    """
    return "\n".join(_humanize_line(board, line) for line in text.split("\n"))


def _humanize_line(board: chess.Board, text: str) -> str:
    here = board

    def run(match: re.Match[str]) -> str:
        nonlocal here
        for start in (here, board):
            try:
                moves = parse_line(start, match.group())
            except MoveTextError:
                continue
            here = _after(start, moves)
            return san_line(start, moves)
        return _MOVE.sub(_spelt, match.group())

    text = _RUN.sub(run, text)
    text = _PIECE_ON.sub(lambda m: f"{_name(m[1])} on {m[2]}", text)
    return _TOKEN.sub(lambda m: m[1] if len(m[1]) == 2 else _name(m[1]), text)


def _parse(board: chess.Board, text: str, ply: int) -> chess.Move:
    match = _MOVE.fullmatch(text)
    if match is None:
        raise _error(MALFORMED, f"{text!r} is not piece, from-square, to-square", board, ply)
    letter, start, end, promoted = match.groups()
    stands = board.piece_at(chess.parse_square(start))
    if stands is None or stands.symbol() != letter:
        found = stands.symbol() if stands else "nothing"
        raise _error(WRONG_PIECE, f"{text}: on {start} stands {found}", board, ply)
    if promoted and promoted.isupper() != letter.isupper():
        raise _error(WRONG_PIECE, f"{text}: promotes to the other side's piece", board, ply)
    if start == end:
        raise _error(ILLEGAL, f"{text} is no move at all", board, ply)
    move = chess.Move.from_uci(start + end + (promoted or "").lower())
    onto_own = board.color_at(move.to_square) == stands.color
    if onto_own or not board.is_legal(move):
        raise _error(ILLEGAL, f"{text} is not legal", board, ply)
    return move


def _error(reason: str, what: str, board: chess.Board, ply: int) -> MoveTextError:
    return MoveTextError(
        what,
        where=f"move {ply + 1} at {board.fen()}",
        remedy="write each move as piece, from and to, legal at its place in the line",
        reason=reason,
        ply=ply,
    )


def _as_move(board: chess.Board, move: chess.Move | str) -> chess.Move:
    """A move object; castling as the king's two-square step, whichever way it came."""
    move = chess.Move.from_uci(move) if isinstance(move, str) else move
    castles = board.kings & chess.BB_SQUARES[move.from_square] and board.is_castling(move)
    if castles and abs(move.to_square - move.from_square) != 2:
        file = 6 if move.to_square > move.from_square else 2
        rank = chess.square_rank(move.from_square)
        return chess.Move(move.from_square, chess.square(file, rank))
    return move


def _after(board: chess.Board, moves: Iterable[chess.Move]) -> chess.Board:
    here = board.copy(stack=False)
    for move in moves:
        here.push(move)
    return here


def _name(letter: str) -> str:
    return chess.piece_name(chess.PIECE_SYMBOLS.index(letter.lower()))


def _spelt(match: re.Match[str]) -> str:
    piece, start, end, promoted = match.groups()
    words = f"{_name(piece)} {start}-{end}"
    return f"{words} becoming a {_name(promoted)}" if promoted else words
