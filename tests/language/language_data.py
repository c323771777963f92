"""Positions, explanations and engine facts for the tests of language."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import chess
from hypothesis import strategies as st

from queen.games.chess.position import Position
from queen.language.engine_facts import EngineFacts, Node, TermTable
from queen.language.explanation import Candidate, Explanation, Sentence
from queen.language.grammar import SKELETONS, frames, read, write
from queen.language.ground import Ground
from queen.language.vocabulary import KINDS, TERMS, Claim, Slot

STARTS = (
    chess.STARTING_FEN,
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "r1bqk2r/ppp2ppp/2n5/3np1N1/1bB5/2N5/PPPP1PPP/R1BQK2R w KQkq - 0 1",
    "8/PPPk4/8/8/8/8/4Kppp/8 b - - 0 1",
    "rnbqkb1r/ppp1pppp/5n2/3pP3/8/8/PPPP1PPP/RNBQKBNR w KQkq d6 0 3",
    "2r3k1/pp3ppp/3p4/1N1Pp3/4P1b1/2P2P2/P5PP/2R3K1 w - - 0 1",
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",
    "4k3/8/8/8/8/8/4q3/4K2R w K - 0 1",
)
VALUES = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9, "k": 0}


def legal_ucis(board: chess.Board) -> list[str]:
    return sorted(move.uci() for move in board.legal_moves)


def stroll(board: chess.Board, rng: random.Random, plies: int, captures: float = 0.0) -> list[str]:
    """Random legal moves, played on the board; it stops before the game is over."""
    moves: list[str] = []
    while len(moves) < plies:
        prey = list(board.generate_legal_captures()) if rng.random() < captures else []
        legal = prey or list(board.legal_moves)
        if not legal:
            break
        moves.append(rng.choice(legal).uci())
        board.push_uci(moves[-1])
    return moves


def walked(start: str, seed: int, plies: int, captures: float = 0.0) -> Position:
    """A position some random plies on, one with legal moves."""
    board = chess.Board(start)
    moves = stroll(board, random.Random(seed), plies, captures)
    if not any(board.legal_moves):
        moves.pop()
    return Position(chess.Board(start).fen(), tuple(moves))


def many_positions(count: int, seed: int) -> list[Position]:
    rng = random.Random(seed)
    return [
        walked(STARTS[0], rng.randrange(10**6), rng.randrange(6, 50), captures=0.4)
        for _ in range(count)
    ]


SEEDS = st.integers(0, 10**6)


def positions() -> st.SearchStrategy[Position]:
    return st.builds(walked, st.sampled_from(STARTS), SEEDS, st.integers(0, 12))


def lines(board: chess.Board, most: int, least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.builds(
        lambda seed, plies: tuple(stroll(board.copy(stack=False), random.Random(seed), plies)),
        SEEDS,
        st.integers(least, most),
    )


@st.composite
def claims(draw: st.DrawFn, ground: Ground) -> Claim:
    """A claim of any kind whose moves are legal; what it says may be true or not."""
    at = draw(lines(ground.root, 3))
    board = ground.after(at)
    assert board is not None
    kinds = sorted(KINDS)
    if not any(board.legal_moves):
        kinds = [k for k in kinds if not {Slot.MOVE, Slot.LINE} & set(KINDS[k])]
    kind = draw(st.sampled_from(kinds))
    return Claim(kind, at, tuple(draw(arguments(slot, board)) for slot in KINDS[kind]))


def arguments(slot: Slot, board: chess.Board) -> st.SearchStrategy[str]:
    standing = sorted(p.symbol() + chess.square_name(s) for s, p in board.piece_map().items())
    some = st.builds(
        "{}{}".format, st.sampled_from("PNBRQKpnbrqk"), st.sampled_from(chess.SQUARE_NAMES)
    )
    unit = st.one_of(st.sampled_from(standing), some)
    return {
        Slot.UNIT: unit,
        Slot.UNITS: st.lists(unit, min_size=2, max_size=4).map(" ".join),
        Slot.SQUARE: st.sampled_from(chess.SQUARE_NAMES),
        Slot.SIDE: st.sampled_from(["White", "Black"]),
        Slot.COUNT: st.integers(0, 30).map(str),
        Slot.AMOUNT: st.integers(0, 999).map(lambda n: f"{n / 100:.2f}"),
        Slot.MOVE: lines(board, 1, 1).map(" ".join),
        Slot.LINE: lines(board, 4, 1).map(" ".join),
        Slot.FILE: st.sampled_from(chess.FILE_NAMES),
        Slot.WING: st.sampled_from(["kingside", "queenside"]),
        Slot.TERM: st.sampled_from(sorted(TERMS.values())),
    }[slot]


@st.composite
def sentences(draw: st.DrawFn, ground: Ground) -> Sentence:
    claim = draw(claims(ground))
    skeleton = draw(st.sampled_from(SKELETONS[claim.kind]))
    return Sentence(
        write(claim, ground, skeleton, draw(st.sampled_from(frames(claim.at)))), (claim,)
    )


FREE = st.sampled_from(["White is better.", "What a game!", "<N> <e4> of 3.", "The best of all."])


@st.composite
def explained(draw: st.DrawFn, prose: int = 6) -> tuple[Explanation, Position]:
    position = draw(positions())
    ground = Ground(position)
    moves = draw(
        st.lists(st.sampled_from(legal_ucis(ground.root)), min_size=1, max_size=4, unique=True)
    )
    weighed = [
        Candidate(move, draw(st.integers(0, 100)) / 100, draw(lines(after, 4)))
        for move in moves
        if (after := ground.after((move,))) is not None
    ]
    best = draw(st.sampled_from(moves))
    board = ground.after((best,))
    assert board is not None
    said = st.one_of(sentences(ground), FREE.map(lambda text: Sentence(text, read(text, ground))))
    text = tuple(draw(st.lists(said, max_size=prose)))
    line = (best, *draw(lines(board, 4)))
    return Explanation(position.fen, best, line, tuple(weighed), text), position


def material(board: chess.Board) -> int:
    """White minus Black, counted from the FEN's letters."""
    letters = board.board_fen()
    return sum(
        VALUES[c.lower()] * (1 if c.isupper() else -1) for c in letters if c.lower() in VALUES
    )


def greedy_value(board: chess.Board) -> float:
    """Expected score for the side to move: mate, or material after its best capture."""
    if board.is_checkmate():
        return 0.0
    if not any(board.legal_moves):
        return 0.5
    sign = 1 if board.turn else -1
    best = sign * material(board)
    for move in board.generate_legal_captures():
        board.push(move)
        best = max(best, sign * material(board))
        board.pop()
    return 1 / (1 + math.exp(-0.37 * best))


def greedy_node(board: chess.Board, asked: Sequence[str] = ()) -> Node:
    """The moves asked about and the likeliest valued one ply deep; a greedy line of five plies."""
    here = board.copy(stack=False)
    values = {uci: _greedy_worth(here, uci) for uci in {*asked, *_forcing(here)}}
    best = max(values, key=lambda uci: (values[uci], uci))
    line = [best]
    here.push_uci(best)
    while len(line) < 5 and any(here.legal_moves):
        line.append(max(_forcing(here), key=lambda uci: (_greedy_worth(here, uci), uci)))
        here.push_uci(line[-1])
    return Node(values[best], best, tuple(line), values)


def _forcing(board: chess.Board) -> list[str]:
    """A few captures and, for want of them, other moves."""
    captures = [m.uci() for m in board.generate_legal_captures()]
    return (captures + legal_ucis(board)[::7])[:5]


def _greedy_worth(board: chess.Board, uci: str) -> float:
    board.push_uci(uci)
    value = 1 - greedy_value(board)
    board.pop()
    return value


def random_table(rng: random.Random) -> TermTable:
    return {name: (rng.uniform(-2, 2), rng.uniform(-2, 2)) for name in TERMS}


def greedy_facts(position: Position, human: Sequence[str]) -> EngineFacts:
    """Facts at the root and after each human move, no terms."""
    ground = Ground(position)
    nodes = {(): greedy_node(ground.root, human)}
    for move in human:
        after = ground.after((move,))
        assert after is not None
        if any(after.legal_moves):
            nodes[(move,)] = greedy_node(after)
    return EngineFacts(nodes)
