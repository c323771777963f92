"""A slow, plain mailbox board: the independent computation that tests compare with.

Nothing here uses python-chess. Squares are 0..63 (a1, b1, ...), pieces FEN letters, sides "w"
and "b", moves UCI strings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FILES = "abcdefgh"
KNIGHT = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]
STRAIGHT = [(1, 0), (-1, 0), (0, 1), (0, -1)]
DIAGONAL = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
SLIDES = {"r": STRAIGHT, "b": DIAGONAL, "q": STRAIGHT + DIAGONAL}
WORTH = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9, "k": 100}
ROOK_HOME = {"K": "h1", "Q": "a1", "k": "h8", "q": "a8"}


def name(square: int) -> str:
    return FILES[square % 8] + str(square // 8 + 1)


def index(text: str) -> int:
    return FILES.index(text[0]) + 8 * (int(text[1]) - 1)


def side_of(piece: str) -> str:
    return "w" if piece.isupper() else "b"


def other(side: str) -> str:
    return "b" if side == "w" else "w"


def step(square: int, dx: int, dy: int) -> int | None:
    x, y = square % 8 + dx, square // 8 + dy
    return x + 8 * y if 0 <= x < 8 and 0 <= y < 8 else None


@dataclass
class Mailbox:
    men: dict[int, str] = field(default_factory=dict)
    turn: str = "w"
    rights: str = ""
    passing: int | None = None

    @classmethod
    def parse(cls, fen: str) -> Mailbox:
        rows, turn, rights, passing, *_ = fen.split()
        men = {}
        for y, row in enumerate(reversed(rows.split("/"))):
            x = 0
            for letter in row:
                if letter.isdigit():
                    x += int(letter)
                else:
                    men[x + 8 * y] = letter
                    x += 1
        ep = None if passing == "-" else index(passing)
        return cls(men, turn, rights.replace("-", ""), ep)

    def squares_of(self, letters: str) -> list[int]:
        return sorted(s for s, piece in self.men.items() if piece in letters)

    def side(self, color: str) -> list[int]:
        return sorted(s for s, piece in self.men.items() if side_of(piece) == color)

    def king(self, color: str) -> int:
        return self.squares_of("K" if color == "w" else "k")[0]

    def reach(self, square: int) -> set[int]:
        """The squares the piece attacks, whoever stands there."""
        piece = self.men[square]
        kind = piece.lower()
        if kind in SLIDES:
            return {s for dx, dy in SLIDES[kind] for s in self.walk(square, dx, dy)}
        if kind == "p":
            steps = [(-1, 1), (1, 1)] if piece == "P" else [(-1, -1), (1, -1)]
        else:
            steps = KNIGHT if kind == "n" else STRAIGHT + DIAGONAL
        return {s for dx, dy in steps if (s := step(square, dx, dy)) is not None}

    def walk(self, square: int, dx: int, dy: int) -> list[int]:
        seen = []
        here = step(square, dx, dy)
        while here is not None:
            seen.append(here)
            if here in self.men:
                break
            here = step(here, dx, dy)
        return seen

    def attackers(self, color: str, square: int) -> list[int]:
        return [s for s in self.side(color) if square in self.reach(s)]

    def checked(self, color: str) -> bool:
        return bool(self.attackers(other(color), self.king(color)))

    def without(self, square: int) -> Mailbox:
        men = {s: piece for s, piece in self.men.items() if s != square}
        return Mailbox(men, self.turn, self.rights, self.passing)

    def pins(self, color: str) -> list[tuple[int, int, int]]:
        """(pinned, pinner, king): take a piece away and see who newly reaches the king."""
        king = self.king(color)
        before = set(self.attackers(other(color), king))
        found = []
        for square in self.side(color):
            if square != king:
                after = self.without(square).attackers(other(color), king)
                found += [(square, pinner, king) for pinner in after if pinner not in before]
        return found

    def takers(self, color: str, square: int, guards: int = 0) -> list[int]:
        """`color`'s pieces that take on a square, in the sense of queen.games.chess.facts."""
        pinned = {pin[0]: pin[1] for pin in self.pins(color)}
        found = []
        for s in self.attackers(color, square):
            if s == self.king(color):
                allowed = len(self.attackers(other(color), square)) <= guards
            else:
                allowed = s not in pinned or self.on_line(self.king(color), pinned[s], square)
            if allowed:
                found.append(s)
        return found

    def on_line(self, king: int, pinner: int, square: int) -> bool:
        """Is the square on the segment from the king (excluded) to the pinner (included)?"""
        dx = (pinner % 8 > king % 8) - (pinner % 8 < king % 8)
        dy = (pinner // 8 > king // 8) - (pinner // 8 < king // 8)
        here = king
        while here != pinner:
            here = here + dx + 8 * dy
            if here == square:
                return True
        return False

    def worth(self, square: int) -> int:
        return WORTH[self.men[square].lower()]

    def hangs(self, square: int) -> bool:
        color = side_of(self.men[square])
        takers = self.takers(other(color), square)
        if self.men[square] in "Kk" or not takers:
            return False
        cheaper = any(self.worth(s) < self.worth(square) for s in takers)
        return cheaper or not self.takers(color, square, guards=1)

    def forks(self, color: str) -> list[tuple[int, tuple[int, ...]]]:
        found = []
        for square in self.side(color):
            hit = tuple(t for t in sorted(self.reach(square)) if self.threatens(square, t, color))
            if len(hit) > 1 and not self.hangs(square):
                found.append((square, hit))
        return found

    def threatens(self, square: int, target: int, color: str) -> bool:
        if target not in self.men or side_of(self.men[target]) == color:
            return False
        if self.men[target] in "Kk":
            return True
        if square not in self.takers(color, target):
            return False
        loose = not self.takers(other(color), target, guards=1)
        return loose or self.worth(target) > self.worth(square)

    def moves(self) -> list[str]:
        """All legal moves: make each one and see whether the king could be taken."""
        return sorted(m for m in self.tries() if not self.played(m).checked(self.turn))

    def moves_from(self, square: int) -> list[str]:
        return [m for m in self.moves() if m.startswith(name(square))]

    def tries(self) -> list[str]:
        found = []
        for square in self.side(self.turn):
            if self.men[square] in "Pp":
                found += self.pawn_tries(square)
            else:
                found += [
                    name(square) + name(s) for s in self.reach(square) if not self.own(s, self.turn)
                ]
        return found + self.castlings()

    def own(self, square: int, color: str) -> bool:
        return square in self.men and side_of(self.men[square]) == color

    def pawn_tries(self, square: int) -> list[str]:
        up = 1 if self.turn == "w" else -1
        goals = []
        one = step(square, 0, up)
        if one is not None and one not in self.men:
            goals.append(one)
            two = step(one, 0, up)
            if square // 8 == (1 if up == 1 else 6) and two is not None and two not in self.men:
                goals.append(two)
        for s in self.reach(square):
            if self.own(s, other(self.turn)) or (s == self.passing and s not in self.men):
                goals.append(s)
        return [
            name(square) + name(s) + last
            for s in goals
            for last in ("qrbn" if s // 8 in (0, 7) else [""])
        ]

    def castlings(self) -> list[str]:
        home, foe = ("e1" if self.turn == "w" else "e8"), other(self.turn)
        found = []
        for right in self.rights:
            if side_of(right) != self.turn:
                continue
            king, rook = index(home), index(ROOK_HOME[right])
            toward = 1 if rook > king else -1
            gap = range(min(king, rook) + 1, max(king, rook))
            path = (king, king + toward, king + 2 * toward)
            blocked = any(s in self.men for s in gap)
            if not blocked and not any(self.attackers(foe, s) for s in path):
                found.append(home + name(king + 2 * toward))
        return found

    def played(self, move: str) -> Mailbox:
        start, end = index(move[:2]), index(move[2:4])
        men = dict(self.men)
        piece = men.pop(start)
        if piece in "Pp" and end == self.passing and end not in men:
            del men[end + (-8 if piece == "P" else 8)]
        if piece in "Kk" and abs(end - start) == 2:
            rook = index(("h" if end > start else "a") + move[1])
            men[(start + end) // 2] = men.pop(rook)
        if len(move) == 5:
            piece = move[4].upper() if piece == "P" else move[4]
        men[end] = piece
        passing = (start + end) // 2 if piece in "Pp" and abs(end - start) == 16 else None
        return Mailbox(men, other(self.turn), self.rights_after(move), passing)

    def rights_after(self, move: str) -> str:
        touched = (move[:2], move[2:4])
        lost = "".join(right for right, home in ROOK_HOME.items() if home in touched)
        lost += ("KQ" if "e1" in touched else "") + ("kq" if "e8" in touched else "")
        return "".join(right for right in self.rights if right not in lost)

    def captures(self) -> list[str]:
        return [m for m in self.moves() if self.is_capture(m)]

    def is_capture(self, move: str) -> bool:
        return len(self.played(move).men) < len(self.men)

    def checks(self) -> list[str]:
        return [m for m in self.moves() if self.played(m).checked(other(self.turn))]
