"""Boards as inline SVG; the pieces are drawn once on the page and used by every board."""

from __future__ import annotations

import re
from collections.abc import Sequence

import chess
import chess.svg
from markupsafe import Markup

from queen.games.chess.position import Position

COLOURS = {
    "square light": "#efe6d4",
    "square dark": "#b99d77",
    "square light lastmove": "#e9e2a0",
    "square dark lastmove": "#c3ad56",
    "margin": "#00000000",
    "coord": "#8a7a63",
}
BEST, OLD = "#2f855acc", "#c05621aa"
SIZE = 340
_DEFS = re.compile(r"<defs>.*?</defs>", re.DOTALL)
_DESC = re.compile(r"<desc>.*?</desc>", re.DOTALL)


def pieces() -> Markup:
    """The pieces' drawings, for the page's top: every board refers to them."""
    drawn = chess.svg.board(chess.Board(), coordinates=False)
    found = _DEFS.search(drawn)
    assert found is not None
    return Markup(
        '<svg width="0" height="0" style="position:absolute" aria-hidden="true">'
        f"{found.group()}</svg>"
    )


def board_svg(position: Position, best: str | None, old: str | None = None) -> Markup:
    """The position from the mover's side, with arrows for the best move and another.

    Args:
        best: UCI, green.
        old: UCI, orange, if it is another move.
    """
    board = position.board()
    drawn = chess.svg.board(
        board,
        orientation=board.turn,
        lastmove=board.peek() if board.move_stack else None,
        arrows=_arrows(((old, OLD), (best, BEST)) if old != best else ((best, BEST),)),
        size=SIZE,
        colors=COLOURS,
    )
    told = f"<desc>{position.fen}</desc>"
    return Markup(_DESC.sub(told, _DEFS.sub("", drawn)))


def _arrows(pairs: Sequence[tuple[str | None, str]]) -> list[chess.svg.Arrow]:
    moves = [(chess.Move.from_uci(uci), colour) for uci, colour in pairs if uci]
    return [chess.svg.Arrow(m.from_square, m.to_square, color=colour) for m, colour in moves]
