"""Players that are one network: by its policy, or by the values of the positions it can reach.

Both play many boards at once in matches (`moves`) and one at a clock (`think`).
Source: METHOD section 2 (played greedily: the value of each child).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import chess
import numpy as np
import torch
from numpy.typing import NDArray

from queen.engines.match import outcome_by_rules
from queen.engines.players import game_rng
from queen.engines.thinking import (
    SHOW_WDL,
    Search,
    Value,
    chances,
    draw_move,
    score_words,
    wdl_words,
)
from queen.games.chess.position import Position
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.history import Histories
from queen.networks.lc0.moves import policy_over_legal
from queen.networks.lc0.planes import encode_histories
from queen.positions.packed import POSITION_BYTES, Packed, pack

SHOWN = 5
DRAWN = 0.5


class Values(Protocol):
    """What says how good positions are."""

    def expected(self, packed: Packed, halfmove: NDArray[np.int64]) -> NDArray[np.float32]:
        """Expected score [n] of the side to move, of positions [n, 36] and their clocks [n]."""
        ...


@dataclass(frozen=True)
class Opinion:
    """What a network says of a position, for the side to move.

    Attributes:
        logits: of each legal move by UCI.
        expected: score in [0, 1].
        wdl: shares of win, draw and loss; None where the network has no such head.
    """

    logits: Mapping[str, float]
    expected: float
    wdl: tuple[float, float, float] | None

    def shares(self) -> dict[str, float]:
        """Probability of each move, likeliest first."""
        names = sorted(self.logits, key=lambda name: (-self.logits[name], name))
        values = torch.tensor([self.logits[name] for name in names], dtype=torch.float64)
        return dict(zip(names, values.softmax(0).tolist(), strict=True))


class PolicyPlayer:
    """Plays the move that an Lc0 network's policy finds likeliest, or draws one by it.

    Args:
        encoder: the network.
        name: in records.
        temperature, seed: of draws in matches; 0 draws none.
    """

    def __init__(
        self, encoder: Lc0Encoder, name: str = "policy", temperature: float = 0.0, seed: int = 0
    ) -> None:
        self.encoder, self.name = encoder.eval(), name
        self.temperature, self.seed = temperature, seed
        self._histories = Histories()

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        """One move for each board."""
        return [
            chess.Move.from_uci(
                draw_move(opinion.logits, self.temperature, game_rng(self.seed, board))
            )
            for board, opinion in zip(boards, self.opinions(boards), strict=True)
        ]

    def think(self, board: chess.Board, search: Search, options: Mapping[str, Value]) -> chess.Move:
        """See `queen.engines.thinking.Thinker`."""
        torch.set_num_threads(int(options["Threads"]))
        opinion = self.opinions([board])[0]
        temperature, seed = chances(options)
        allowed = search.allowed(opinion.logits)
        move = draw_move(allowed, temperature, game_rng(seed, board))
        score = score_words(opinion.expected)
        if opinion.wdl is not None and options[SHOW_WDL.name]:
            score += f" {wdl_words(opinion.wdl)}"
        search.say(f"depth 1 {score} nodes 1 time {search.elapsed_ms} pv {move}")
        shares = list(opinion.shares().items())[:SHOWN]
        words = ", ".join(
            f"{board.san(chess.Move.from_uci(uci))} {share:.1%}" for uci, share in shares
        )
        search.tell(f"policy: {words}")
        return chess.Move.from_uci(move)

    @torch.inference_mode()
    def opinions(self, boards: Sequence[chess.Board]) -> list[Opinion]:
        """What the network says of each board, its history known."""
        histories = [self._histories.of(position_of(board)) for board in boards]
        form = self.encoder.input_format
        output = self.encoder(encode_histories(histories, form))
        expected = output.expected.flatten().tolist()
        wdl = [None] * len(boards) if output.wdl is None else output.wdl.tolist()
        rows = zip(output.policy.float().cpu(), histories, expected, wdl, strict=True)
        return [
            Opinion(
                policy_over_legal(logits, history.board, form),
                score,
                None if shares is None else (shares[0], shares[1], shares[2]),
            )
            for logits, history, score, shares in rows
        ]


class GreedyPlayer:
    """Plays the move after which a value network finds the opponent's position worst.

    Mate is taken where there is one; children that are drawn by rule count half a point. All
    children of all boards go through the network at once.

    Args:
        values: the network.
        name: in records.
    """

    def __init__(self, values: Values, name: str = "value") -> None:
        self.values, self.name = values, name

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        """One move for each board; the first by name of equals."""
        return [chess.Move.from_uci(best_of(scores)) for scores in self.scores(boards)]

    def think(self, board: chess.Board, search: Search, options: Mapping[str, Value]) -> chess.Move:
        """See `queen.engines.thinking.Thinker`."""
        torch.set_num_threads(int(options["Threads"]))
        scores = search.allowed(self.scores([board])[0])
        move = best_of(scores)
        mates = chess.Move.from_uci(move) in board.legal_moves and _is_mate(board, move)
        score = "score mate 1" if mates else score_words(scores[move])
        search.say(f"depth 1 {score} nodes {len(scores)} time {search.elapsed_ms} pv {move}")
        ranked = sorted(scores, key=lambda uci: (-scores[uci], uci))[:SHOWN]
        words = ", ".join(f"{board.san(chess.Move.from_uci(m))} {scores[m]:.1%}" for m in ranked)
        search.tell(f"values: {words}")
        return chess.Move.from_uci(move)

    def scores(self, boards: Sequence[chess.Board]) -> list[dict[str, float]]:
        """The mover's expected score after each legal move, by UCI, for each board."""
        found: list[dict[str, float]] = [{} for _ in boards]
        asked: list[tuple[int, str]] = []
        packed, clocks = bytearray(), list[int]()
        for index, board in enumerate(boards):
            for uci, child in _children(board):
                known = decided(child)
                found[index][uci] = np.nan if known is None else known
                if known is None:
                    asked.append((index, uci))
                    packed += pack(child)
                    clocks.append(child.halfmove_clock)
        if asked:
            rows = np.frombuffer(packed, np.uint8).reshape(-1, POSITION_BYTES)
            values = self.values.expected(rows, np.array(clocks, np.int64))
            for (index, uci), value in zip(asked, values.tolist(), strict=True):
                found[index][uci] = 1.0 - value
        return found


def decided(child: chess.Board) -> float | None:
    """The score of who has just moved where the game is over, or may be claimed drawn.

    1 for mate, half a point for what ends a match's game as a draw; None while the game goes on.
    """
    ended = outcome_by_rules(child)
    if ended is None:
        return None
    return DRAWN if ended[0] == "1/2-1/2" else 1.0


def best_of(scores: Mapping[str, float]) -> str:
    """The move of the highest score; the first by name of equals."""
    return max(sorted(scores), key=scores.__getitem__)


def position_of(board: chess.Board) -> Position:
    """A board with the moves that led to it, as networks take it."""
    moves = tuple(move.uci() for move in board.move_stack)
    return Position(board.root().fen(en_passant="legal"), moves)


def _children(board: chess.Board) -> Iterator[tuple[str, chess.Board]]:
    """Each legal move and the board after it: the same board every time."""
    here = board.copy()
    for move in list(board.legal_moves):
        here.push(move)
        yield move.uci(), here
        here.pop()


def _is_mate(board: chess.Board, uci: str) -> bool:
    after = board.copy(stack=False)
    after.push_uci(uci)
    return after.is_checkmate()
