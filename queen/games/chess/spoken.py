"""Moves as people and language models write them: SAN or UCI, with numbers and marks around."""

from __future__ import annotations

import re
from collections.abc import Sequence

import chess

from queen.games.chess.notation import ILLEGAL, MALFORMED, MoveTextError

_NUMBER = re.compile(r"\A\d+\.(?:\.\.|…)?\s*")
_MARKS = re.compile(r"(?:\s*e\.p\.)?[+#!?]*\Z")
_UCI = re.compile(r"([a-h][1-8])-?([a-h][1-8])=?([qrbnQRBN])?")
_SAN = re.compile(r"[KQRBN]?[a-h]?[1-8]?x?[a-h][1-8](?:=?[QRBN])?|O-O(?:-O)?")


def read_move(board: chess.Board, text: str) -> chess.Move:
    """The legal move that a text names: `Nf3`, `12...Nxe4+!`, `0-0`, `g1f3`, `e7-e8=Q`.

    Castling comes as the king's step. Raises MoveTextError: `malformed` for what is no move,
    `illegal` for one that cannot be played or means several.
    """
    bare = _MARKS.sub("", _NUMBER.sub("", text.strip())).replace("0-0", "O-O").replace("O-0", "O-O")
    found = _UCI.fullmatch(bare)
    try:
        if found:
            return board.parse_uci(found[1] + found[2] + (found[3] or "").lower())
        if _SAN.fullmatch(bare):
            return board.parse_san(bare)
    except ValueError:
        raise _error(ILLEGAL, f"{text!r} cannot be played", board) from None
    raise _error(MALFORMED, f"{text!r} is no move", board)


def read_line(board: chess.Board, texts: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """A line as UCI up to its first text that is no legal move, and how many are left out."""
    here = board.copy(stack=False)
    moves: list[str] = []
    for text in texts:
        try:
            move = read_move(here, text)
        except MoveTextError:
            break
        moves.append(move.uci())
        here.push(move)
    return tuple(moves), len(texts) - len(moves)


def _error(reason: str, what: str, board: chess.Board) -> MoveTextError:
    return MoveTextError(
        what,
        where=f"at {board.fen()}",
        remedy="write the move in SAN or UCI, legal in the position",
        reason=reason,
    )
