"""Random games as text, some of them with what people and programs do to PGN."""

from __future__ import annotations

import random

import chess

_JUNK = """
1-0 * 0-1 1/2-1/2 ( ) e.p. .. $5 $ ! ?? 1. ... 5 O-O O-O-O 0-0 0-0-0 -- Z0 a abc Nf =Q + #
1- / - x 1/2 e2e4 g1f3 Ng1f3 Ng1-f3 e2-e4 N exd5 R B KK b 12 3.e4 3...e5 e4e5 Nf3Nf6 Nf3+
e4# e4! e4=Q d8=Q d8Q = bxa O OO o-o 000 0 00 1.1 O-O- 1-00 1--0 10-0 { } {x ; % k l v : [
] (2. --) ({x})
"""
TAGS = (
    "[%clk 0:01:02]", "[%clk 1:02:03.5]", "[%clk 0:0:1]", "[%clk 00:00:99]", "[%clk 300:00:00]",
    "[%eval 0.24]", "[%eval -3]", "[%eval 12.3]", "[%eval #3]", "[%eval #-12]", "[%eval 0.37,20]",
    "[%eval #4,18]", "[%eval 0.1][%eval 0.2]", "[%csl Ge4]", "best was Nf3", "#", "[%clk]", "é",
    "[%eval 1e3]", "[%eval 200000]", "[%clk 0:300:00]", "[%eval #]", "[%clk\n0:00:07]",
    "[%emt 0.1]",
)  # fmt: skip
LETTERS = "0123456789:.-+[]% \nclkeva#,"


def start(rng: random.Random) -> chess.Board:
    """The usual start, one of Chess960, or a position some moves on."""
    kind = rng.random()
    if kind < 0.6:
        return chess.Board()
    board = chess.Board() if kind < 0.7 else chess.Board.from_chess960_pos(rng.randrange(960))
    for _ in range(rng.randrange(30) if kind < 0.8 else 0):
        moves = list(board.legal_moves)
        if len(moves) > 1:
            board.push(rng.choice(moves))
    return board.root() if kind >= 0.8 else chess.Board(board.fen(), chess960=board.chess960)


def comment(rng: random.Random) -> str:
    """A comment; sometimes one whose tags are spoilt."""
    text = rng.choice(["", " "]).join(rng.choice(TAGS) for _ in range(rng.choice((1, 1, 2))))
    letters = list(text)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        place = rng.randrange(len(letters) + 1)
        letters[place : place + rng.randrange(2)] = rng.choice(LETTERS)
    return rng.choice(("{ %s }", "{%s}")) % "".join(letters)


def game(rng: random.Random, longest: int = 40, mischief: float = 0.5) -> tuple[str, str]:
    """A game's start FEN (empty for the usual) and movetext; castling and en passant favoured.

    Args:
        mischief: how likely odd words are among the moves; below 0 comments are left out too.
    """
    board = start(rng)
    head = "" if board.fen() == chess.STARTING_FEN else board.fen()
    if head and board.chess960 and rng.random() < 0.5:
        head = board.fen(shredder=True)
    words: list[str] = []
    for _ in range(rng.randrange(1, longest)):
        moves = list(board.legal_moves)
        if not moves:
            break
        telling = [m for m in moves if board.is_castling(m) or board.is_en_passant(m)]
        move = rng.choice(telling or moves)
        if rng.random() < 0.5:
            words.append(f"{board.fullmove_number}." + ("" if board.turn else ".."))
        words.append(board.san(move))
        board.push(move)
        if rng.random() < 0.3 and mischief >= 0:
            words.append(comment(rng))
        if rng.random() < 0.03:
            words.append("(1. d4 {[%clk 9:09:09]} d5)")
    if rng.random() < mischief:
        for _ in range(rng.choice((1, 1, 2))):
            words.insert(rng.randrange(len(words) + 1), rng.choice(_JUNK.split()))
    words.append(rng.choice(("1-0", "0-1", "1/2-1/2", "*", "")))
    return head, rng.choice((" ", " ", "\n")).join(words) + "\n"
