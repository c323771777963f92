"""Claims worked out a second time: from the letters of the FEN and python-chess's legal moves.

Shares nothing with `queen.language.claims` nor `queen.games.chess.facts`.
"""

from __future__ import annotations

from collections.abc import Callable

import chess
from language_data import VALUES, material

from queen.language.vocabulary import Claim

Grid = dict[str, str]
STEPS = {
    "r": [(1, 0), (-1, 0), (0, 1), (0, -1)],
    "b": [(1, 1), (1, -1), (-1, 1), (-1, -1)],
    "n": [(1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1)],
}
STEPS["q"] = STEPS["k"] = STEPS["r"] + STEPS["b"]
HOMES = {"N": ("b1", "g1"), "B": ("c1", "f1"), "n": ("b8", "g8"), "b": ("c8", "f8")}


def derive(claim: Claim, root: chess.Board) -> bool:
    """Whether a board claim is true of a root."""
    board = root.copy(stack=False)
    for uci in claim.at:
        if uci not in [m.uci() for m in board.legal_moves]:
            return False
        board.push_uci(uci)
    return _RULES[claim.kind](board, *claim.args)


def grid(board: chess.Board) -> Grid:
    found = {}
    for rank, row in zip("87654321", board.board_fen().split("/"), strict=True):
        spread = "".join("." * int(c) if c.isdigit() else c for c in row)
        found |= {f"{f}{rank}": c for f, c in zip("abcdefgh", spread, strict=True) if c != "."}
    return found


def reach(pieces: Grid, start: str) -> set[str]:
    """The squares a piece attacks, by walking."""
    letter = pieces[start]
    kind, found = letter.lower(), set()
    steps = STEPS.get(kind, [(1, 1), (-1, 1)] if letter == "P" else [(1, -1), (-1, -1)])
    for file, rank in steps:
        x, y = ord(start[0]) + file, int(start[1]) + rank
        while ord("a") <= x <= ord("h") and 1 <= y <= 8:
            square = f"{chr(x)}{y}"
            found.add(square)
            if square in pieces or kind in "npk":
                break
            x, y = x + file, y + rank
    return found


def there(board: chess.Board, unit: str) -> bool:
    return grid(board).get(unit[1:]) == unit[0]


def white(letter: str) -> bool:
    return letter.isupper()


def attacked_by(pieces: Grid, square: str, side: bool) -> list[str]:
    return [s for s, c in pieces.items() if white(c) == side and square in reach(pieces, s)]


def pawns(board: chess.Board, letter: str) -> list[str]:
    return [s for s, c in grid(board).items() if c == letter]


def files_with(board: chess.Board, letter: str) -> set[str]:
    return {s[0] for s in pawns(board, letter)}


def near(a: str, b: str) -> int:
    return abs(ord(a[0]) - ord(b[0]))


def passed(board: chess.Board, unit: str) -> bool:
    if unit[0] not in "Pp" or not there(board, unit):
        return False
    rank, up = int(unit[2]), 1 if unit[0] == "P" else -1
    enemies = pawns(board, unit[0].swapcase())
    return not any(near(s, unit[1:]) <= 1 and (int(s[1]) - rank) * up > 0 for s in enemies)


def isolated(board: chess.Board, unit: str) -> bool:
    own = pawns(board, unit[0])
    return unit[0] in "Pp" and there(board, unit) and not any(near(s, unit[1:]) == 1 for s in own)


def doubled(board: chess.Board, unit: str) -> bool:
    own = pawns(board, unit[0])
    return unit[0] in "Pp" and there(board, unit) and sum(s[0] == unit[1] for s in own) > 1


def outpost(board: chess.Board, unit: str) -> bool:
    if unit[0] not in "NBnb" or not there(board, unit):
        return False
    rank = int(unit[2]) if white(unit[0]) else 9 - int(unit[2])
    up, pieces = 1 if white(unit[0]) else -1, grid(board)
    own, enemy = ("P", "p") if white(unit[0]) else ("p", "P")
    guarded = any(pieces[s] == own for s in attacked_by(pieces, unit[1:], white(unit[0])))
    harried = any(
        near(s, unit[1:]) == 1 and (int(s[1]) - int(unit[2])) * up > 0 for s in pawns(board, enemy)
    )
    return rank in (4, 5, 6) and guarded and not harried


def hits(board: chess.Board, one: str, other: str) -> bool:
    return there(board, one) and there(board, other) and other[1:] in reach(grid(board), one[1:])


def pinned(board: chess.Board, unit: str, pinner: str) -> bool:
    """The pinner would reach the king if the pinned piece were not there, and does not now."""
    if not there(board, unit) or not there(board, pinner) or unit[0] in "Kk":
        return False
    pieces = grid(board)
    king = next(s for s, c in pieces.items() if c == ("K" if white(unit[0]) else "k"))
    without = {s: c for s, c in pieces.items() if s != unit[1:]}
    return (
        white(unit[0]) != white(pinner[0])
        and king not in reach(pieces, pinner[1:])
        and king in reach(without, pinner[1:])
    )


def can_take(board: chess.Board, start: str, end: str) -> bool:
    """Whether a piece could capture there on its turn, checks to its own king left aside."""
    pieces = grid(board)
    if end not in reach(pieces, start):
        return False
    if pieces[start] in "Kk":
        without = {s: c for s, c in pieces.items() if s != start}
        return not attacked_by(without, end, not white(pieces[start]))
    return not_pinned(board, start, end)


def hanging(board: chess.Board, unit: str) -> bool:
    if unit[0] in "Kk" or not there(board, unit):
        return False
    pieces, square = grid(board), unit[1:]
    takers = [
        s for s in attacked_by(pieces, square, not white(unit[0])) if can_take(board, s, square)
    ]
    worth = {s: 100 if pieces[s] in "Kk" else VALUES[pieces[s].lower()] for s in takers}
    if not takers:
        return False
    return min(worth.values()) < VALUES[unit[0].lower()] or not retakers(board, unit)


def retakers(board: chess.Board, unit: str) -> list[str]:
    pieces, square = grid(board), unit[1:]
    enemies = attacked_by(pieces, square, not white(unit[0]))
    return [
        s
        for s in attacked_by(pieces, square, white(unit[0]))
        if (len(enemies) <= 1 if pieces[s] in "Kk" else not_pinned(board, s, square))
    ]


def not_pinned(board: chess.Board, start: str, end: str) -> bool:
    """Whether a piece may capture on a square without baring its king to a slider."""
    pieces = grid(board)
    side = white(pieces[start])
    king = next(s for s, c in pieces.items() if c == ("K" if side else "k"))
    after = {s: c for s, c in pieces.items() if s != start} | {end: pieces[start]}
    before = set(attacked_by(pieces, king, not side))
    return not set(attacked_by(after, king, not side)) - before


def taken(board: chess.Board, move: str, unit: str) -> bool:
    if not legal(board, move):
        return False
    after = board.copy(stack=False)
    after.push_uci(move)
    before, now = grid(board), grid(after)
    gone = [s for s, c in before.items() if white(c) != board.turn and now.get(s) != c]
    return [before[s] + s for s in gone] == [unit]


def legal(board: chess.Board, line: str) -> bool:
    here = board.copy(stack=False)
    for uci in line.split():
        if uci not in [m.uci() for m in here.legal_moves]:
            return False
        here.push_uci(uci)
    return True


def ended(board: chess.Board, line: str) -> chess.Board:
    here = board.copy(stack=False)
    for uci in line.split():
        here.push_uci(uci)
    return here


def lead(board: chess.Board, side: str) -> int:
    return material(board) * (1 if side == "White" else -1)


def mated(board: chess.Board) -> bool:
    king = next(s for s, c in grid(board).items() if c == ("K" if board.turn else "k"))
    return bool(attacked_by(grid(board), king, not board.turn)) and not list(board.legal_moves)


def checks(board: chess.Board, unit: str) -> bool:
    king = next(s for s, c in grid(board).items() if c == ("K" if board.turn else "k"))
    return (
        there(board, unit)
        and white(unit[0]) != board.turn
        and hits(board, unit, grid(board)[king] + king)
    )


def at_home(board: chess.Board, side: bool) -> int:
    pieces = grid(board)
    return sum(
        pieces.get(square) == letter
        for letter, squares in HOMES.items()
        if white(letter) == side
        for square in squares
    )


def developing(board: chess.Board, move: str) -> bool:
    return legal(board, move) and move[:2] in HOMES.get(grid(board)[move[:2]], ())


def castling(board: chess.Board, move: str, wing: str) -> bool:
    king = grid(board).get(move[:2], "") in ("K", "k")
    goal = {"kingside": "g", "queenside": "c"}[wing]
    return (
        legal(board, move)
        and king
        and move[0] == "e"
        and move[2] == goal
        and near(move[:2], move[2:]) == 2
    )


def may_castle(board: chess.Board, side: str, wing: str) -> bool:
    letter = {"kingside": "k", "queenside": "q"}[wing]
    return (letter.upper() if side == "White" else letter) in board.fen().split()[2]


def goals(board: chess.Board, unit: str) -> int:
    return len({m.uci()[2:4] for m in board.legal_moves if m.uci()[:2] == unit[1:]})


_RULES: dict[str, Callable[..., bool]] = {
    "piece": there,
    "level": lambda board: material(board) == 0,
    "ahead": lambda board, side, count: lead(board, side) == int(count) > 0,
    "passed": passed,
    "isolated": isolated,
    "doubled": doubled,
    "outpost": outpost,
    "open_file": lambda board, f: f not in files_with(board, "P") | files_with(board, "p"),
    "half_open": lambda board, side, f: (
        f in files_with(board, "p" if side == "White" else "P")
        and f not in files_with(board, "P" if side == "White" else "p")
    ),
    "on_open_file": lambda board, unit: (
        unit[0] in "RrQq"
        and there(board, unit)
        and unit[1] not in files_with(board, "P") | files_with(board, "p")
    ),
    "undeveloped": lambda board, side, n: at_home(board, side == "White") == int(n) > 0,
    "can_castle": may_castle,
    "attacks": lambda board, a, b: white(a[0]) != white(b[0]) and hits(board, a, b),
    "defends": lambda board, a, b: (
        white(a[0]) == white(b[0]) and b[0] not in "Kk" and hits(board, a, b)
    ),
    "controls": lambda board, a, square: (
        there(board, a) and square not in grid(board) and square in reach(grid(board), a[1:])
    ),
    "hanging": hanging,
    "loose": lambda board, unit: (
        there(board, unit)
        and unit[0] not in "Kk"
        and not attacked_by(grid(board), unit[1:], white(unit[0]))
    ),
    "pin": pinned,
    "check": checks,
    "checkmate": lambda board, side: board.turn == (side == "White") and mated(board),
    "stalemate": lambda board, side: (
        board.turn == (side == "White") and not mated(board) and not list(board.legal_moves)
    ),
    "reach": lambda board, unit, n: there(board, unit) and goals(board, unit) == int(n) > 0,
    "takes": taken,
    "wins": lambda board, line, side, n: (
        legal(board, line) and lead(ended(board, line), side) - lead(board, side) == int(n) > 0
    ),
    "mates": lambda board, line: legal(board, line) and mated(ended(board, line)),
    "castles": castling,
    "develops": developing,
    "promotes": lambda board, move: legal(board, move) and len(move) == 5,
    "forced": lambda board, move: [m.uci() for m in board.legal_moves] == [move],
}


def fork(board: chess.Board, attacker: str, targets: str) -> bool:
    """All enemies the attacker threatens, two or more, and it does not hang itself."""
    if not there(board, attacker) or hanging(board, attacker):
        return False
    pieces, found = grid(board), set()
    for square in reach(pieces, attacker[1:]):
        letter = pieces.get(square, ".")
        if letter == "." or white(letter) == white(attacker[0]):
            continue
        if letter in "Kk":
            found.add(letter + square)
        elif can_take(board, attacker[1:], square):
            cheaper = attacker[0] not in "Kk" and (
                VALUES[letter.lower()] > VALUES[attacker[0].lower()]
            )
            if cheaper or not retakers(board, letter + square):
                found.add(letter + square)
    return len(found) >= 2 and found == set(targets.split())


_RULES["fork"] = fork
