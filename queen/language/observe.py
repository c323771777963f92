"""True things to say about the board after a line, the telling ones first.

Everything here comes from the rules. A weight says how much a reader would care (ours): mates and
double attacks above captures, these above pressure, pressure above what merely stands somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import chess

from queen.games.chess import facts
from queen.language.claims import develops, minors_at_home, taken, unit_at
from queen.language.ground import Ground, Line
from queen.language.vocabulary import Claim

Observation = tuple[float, Claim]

_WORTH = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}
_CENTRE = chess.BB_CENTER
_BROAD_CENTRE = (chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6) & (
    chess.BB_FILE_C | chess.BB_FILE_D | chess.BB_FILE_E | chess.BB_FILE_F
)


@dataclass(frozen=True)
class Scene:
    """The last move of a line: the boards around it, and whose it was.

    Attributes:
        line: UCI moves from the root, not empty.
        before, after: the boards around its last move.
        move: that move.
    """

    line: Line
    before: chess.Board
    after: chess.Board
    move: chess.Move

    @classmethod
    def of(cls, ground: Ground, line: Line) -> Scene:
        """The scene after a legal line."""
        before, after = ground.after(line[:-1]), ground.after(line)
        assert before is not None
        assert after is not None
        return cls(line, before, after, chess.Move.from_uci(line[-1]))

    @property
    def mover(self) -> chess.Color:
        return self.before.turn

    @property
    def moved(self) -> str:
        """The unit that moved, where it stands now."""
        return unit_at(self.after, self.move.to_square)

    def unit(self, square: chess.Square) -> str:
        return unit_at(self.after, square)

    def new(
        self, find: Callable[[chess.Board, chess.Color], tuple[int, ...]], color: bool
    ) -> set[int]:
        """The squares that `find` names now and did not before."""
        return set(find(self.after, color)) - set(find(self.before, color))


def observations(ground: Ground, line: Line) -> list[Observation]:
    """What is true because of the last move of a line, the weightiest first."""
    scene = Scene.of(ground, line)
    found = {
        claim: weight
        for observe in (_of_the_move, _of_tactics, _of_pressure, _of_structure, _of_the_rest)
        for weight, claim in observe(scene)
    }
    return sorted(((w, c) for c, w in found.items()), key=lambda pair: (-pair[0], repr(pair[1])))


def losses(ground: Ground, line: Line, side: chess.Color) -> list[Observation]:
    """What hangs for a side after its own last move of a line."""
    scene = Scene.of(ground, line)
    return [
        (60 + _worth(scene.after, square), Claim("hanging", line, (scene.unit(square),)))
        for square in facts.hanging(scene.after, side)
    ]


def gain(ground: Ground, at: Line, line: Line, side: chess.Color) -> Claim | None:
    """The shortest start of a line whose material gain for a side lasts to the line's end.

    At least one further ply must be known, so that a gain is never a mere first half of a trade.
    """
    start = ground.after(at)
    assert start is not None
    sign = 1 if side else -1
    leads = []
    for ply in range(len(line) + 1):
        board = ground.after(at + line[:ply])
        assert board is not None
        leads.append(sign * (facts.material(board) - facts.material(start)))
    for ply in range(1, len(line)):
        if 0 < leads[ply] <= min(leads[ply:]):
            return Claim("wins", at, (" ".join(line[:ply]), side_name(side), str(leads[ply])))
    return None


def side_name(color: chess.Color) -> str:
    """`White` or `Black`."""
    return "White" if color else "Black"


def _of_the_move(scene: Scene) -> Iterator[Observation]:
    at, uci, other = scene.line[:-1], scene.move.uci(), side_name(not scene.mover)
    if scene.after.is_checkmate():
        yield 100, Claim("mates", at, (uci,))
        yield 99, Claim("checkmate", scene.line, (other,))
    if scene.after.is_stalemate():
        yield 95, Claim("stalemate", scene.line, (other,))
    if scene.move.promotion:
        yield 90, Claim("promotes", at, (uci,))
    if scene.before.legal_moves.count() == 1:
        yield 75, Claim("forced", at, (uci,))
    prey = taken(scene.before, scene.move)
    if prey is not None:
        square = chess.parse_square(prey[1:])
        yield 62 + _worth(scene.before, square), Claim("takes", at, (uci, prey))
    if scene.before.is_castling(scene.move):
        wing = "kingside" if chess.square_file(scene.move.to_square) == 6 else "queenside"
        yield 64, Claim("castles", at, (uci, wing))
    elif develops(scene.before, scene.move):
        yield 40, Claim("develops", at, (uci,))


def _of_tactics(scene: Scene) -> Iterator[Observation]:
    at, mover = scene.line, scene.mover
    for fork in facts.forks(scene.after, mover):
        targets = " ".join(scene.unit(square) for square in fork.targets)
        yield (
            _if_moved(scene, fork.attacker, 85, 45),
            Claim("fork", at, (scene.unit(fork.attacker), targets)),
        )
    for square in scene.after.checkers():
        yield 60, Claim("check", at, (scene.unit(square),))
    known = set(facts.pins(scene.before, not mover))
    for pin in facts.pins(scene.after, not mover):
        weight = 30 if pin in known else 72
        yield weight, Claim("pin", at, (scene.unit(pin.pinned), scene.unit(pin.pinner)))
    fresh = scene.new(facts.hanging, not mover)
    for square in facts.hanging(scene.after, not mover):
        weight = (58 if square in fresh else 34) + _worth(scene.after, square)
        yield weight, Claim("hanging", at, (scene.unit(square),))


def _of_pressure(scene: Scene) -> Iterator[Observation]:
    board, start = scene.after, scene.move.to_square
    attacked = board.attacks(start)
    for square in attacked:
        piece = board.piece_at(square)
        if piece is None:
            if chess.BB_SQUARES[square] & _BROAD_CENTRE:
                weight = 30 if chess.BB_SQUARES[square] & _CENTRE else 22
                yield (
                    weight,
                    Claim("controls", scene.line, (scene.moved, chess.square_name(square))),
                )
        elif piece.piece_type == chess.KING:
            continue
        elif piece.color != scene.mover:
            weight = 42 + _worth(board, square)
            yield weight, Claim("attacks", scene.line, (scene.moved, scene.unit(square)))
        else:
            weight = 38 if board.is_attacked_by(not scene.mover, square) else 18
            yield weight, Claim("defends", scene.line, (scene.moved, scene.unit(square)))


def _of_structure(scene: Scene) -> Iterator[Observation]:
    at, us, them = scene.line, scene.mover, not scene.mover
    for square in scene.new(facts.passed_pawns, us):
        yield 54, Claim("passed", at, (scene.unit(square),))
    for square in scene.new(facts.outposts, us):
        yield 56, Claim("outpost", at, (scene.unit(square),))
    for kind, find in (("isolated", facts.isolated_pawns), ("doubled", facts.doubled_pawns)):
        for square in scene.new(find, them):
            yield 44, Claim(kind, at, (scene.unit(square),))
    open_now = set(facts.open_files(scene.after))
    if scene.moved[0] in "RrQq" and chess.square_file(scene.move.to_square) in open_now:
        yield 46, Claim("on_open_file", at, (scene.moved,))
    for file in open_now - set(facts.open_files(scene.before)):
        yield 42, Claim("open_file", at, (chess.FILE_NAMES[file],))
    for file in scene.new(facts.half_open_files, us):
        yield 36, Claim("half_open", at, (side_name(us), chess.FILE_NAMES[file]))


def _of_the_rest(scene: Scene) -> Iterator[Observation]:
    at, board = scene.line, scene.after
    lead = facts.material(board)
    if lead:
        yield 26, Claim("ahead", at, (side_name(lead > 0), str(abs(lead))))
    else:
        yield 10, Claim("level", at)
    for color in chess.COLORS:
        count = minors_at_home(board, color)
        if count and board.fullmove_number < 20:
            yield 12 + 2 * count, Claim("undeveloped", at, (side_name(color), str(count)))
        if color != scene.mover and board.has_kingside_castling_rights(color):
            yield 12, Claim("can_castle", at, (side_name(color), "kingside"))
    for square in chess.scan_forward(board.occupied_co[not scene.mover]):
        if square == board.king(not scene.mover) or facts.defenders(board, square):
            continue
        if board.is_attacked_by(scene.mover, square):
            yield 33, Claim("loose", at, (scene.unit(square),))
    king = board.king(not scene.mover)
    if king is not None and (count := len(facts.legal_targets(board, king))):
        yield 14 + 4 * (count <= 2), Claim("reach", at, (scene.unit(king), str(count)))
    yield 5, Claim("piece", at, (scene.moved,))


def _if_moved(scene: Scene, square: chess.Square, weight: float, otherwise: float) -> float:
    return weight if square == scene.move.to_square else otherwise


def _worth(board: chess.Board, square: chess.Square) -> int:
    return _WORTH.get(board.piece_type_at(square) or 0, 0)
