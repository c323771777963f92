"""Players that are one network: they take mates, know draws, and play alike alone or together."""

from __future__ import annotations

from pathlib import Path

import chess
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from queen.engines.thinking import POLICY_OPTIONS, SHARED, Limits, Search, defaults
from queen.networks.lc0.load import build, net_of
from queen.networks.lc0.random_net import RandomShape, random_net
from queen.networks.players import GreedyPlayer, PolicyPlayer, decided
from queen.positions.packed import Packed, squares_of, unpack

MATE = "6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1"
STALEMATES = "7k/8/5KQ1/8/8/8/8/8 w - - 0 1"
WORTH = np.array([0, 1, 3, 3, 5, 9, 0, 0, 0, -1, -3, -3, -5, -9, 0, 0], np.float64)


class CountsMaterial:
    """Values positions by their material; notes how often and about what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Packed, NDArray[np.int64]]] = []

    def expected(self, packed: Packed, halfmove: NDArray[np.int64]) -> NDArray[np.float32]:
        self.asked.append((packed, halfmove))
        pawns = WORTH[squares_of(packed)].sum(1) * np.where(packed[:, 32] == 0, 1, -1)
        return (1 / (1 + np.exp(-pawns / 3))).astype(np.float32)


def played(*moves: str, fen: str = chess.STARTING_FEN) -> chess.Board:
    board = chess.Board(fen)
    for move in moves:
        board.push_uci(move)
    return board


@pytest.fixture(scope="module")
def policy() -> PolicyPlayer:
    torch.set_num_threads(1)
    return PolicyPlayer(build(net_of(random_net(RandomShape(), 5), "random")))


def test_mate_in_one_is_taken_whatever_the_network_thinks() -> None:
    player = GreedyPlayer(CountsMaterial())
    greedy = chess.Board("q5k1/5ppp/8/8/8/8/8/R3K2R w KQ - 0 1")  # a queen hangs, no mate
    assert player.moves([chess.Board(MATE), greedy]) == [
        chess.Move.from_uci("a1a8"), chess.Move.from_uci("a1a8"),
    ]  # fmt: skip
    assert player.scores([chess.Board(MATE)])[0]["a1a8"] == 1.0
    said: list[str] = []
    move = player.think(chess.Board(MATE), Search(Limits(), said.append), defaults(SHARED))
    assert move.uci() == "a1a8"
    assert "score mate 1" in said[0]


def test_all_children_of_all_boards_are_asked_about_at_once() -> None:
    values = CountsMaterial()
    boards = [played(), played("e2e4", "g8f6"), chess.Board(MATE)]
    scores = GreedyPlayer(values).scores(boards)
    assert len(values.asked) == 1
    packed, clocks = values.asked[0]
    mates = sum(after(board, move).is_checkmate() for board in boards for move in board.legal_moves)
    assert len(packed) == len(clocks) == sum(len(found) for found in scores) - mates
    for board, found in zip(boards, scores, strict=True):
        assert found.keys() == {move.uci() for move in board.legal_moves}
    children = [
        after(board, move)
        for board in boards
        for move in board.legal_moves
        if not after(board, move).is_checkmate()
    ]
    for row, clock, child in zip(packed, clocks, children, strict=True):
        assert unpack(row.tobytes(), int(clock), child.fullmove_number).fen() == child.fen(
            en_passant="legal"
        )


def after(board: chess.Board, move: chess.Move) -> chess.Board:
    child = board.copy()
    child.push(move)
    return child


def test_the_mover_gets_what_the_opponent_does_not() -> None:
    scores = GreedyPlayer(CountsMaterial()).scores(
        [chess.Board("4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1")]
    )
    assert max(scores[0], key=scores[0].__getitem__) == "e4d5"
    assert scores[0]["e4d5"] > 0.5 > scores[0]["e4e5"]
    black = GreedyPlayer(CountsMaterial()).scores(
        [chess.Board("4k3/8/8/3p4/4Q3/8/8/4K3 b - - 0 1")]
    )
    assert max(black[0], key=black[0].__getitem__) == "d5e4"


@pytest.mark.parametrize(
    ("board", "move"),
    [
        (chess.Board(STALEMATES), "f6f7"),
        (chess.Board("8/8/4k3/8/8/4K3/4p3/8 w - - 0 1"), "e3e2"),
        (chess.Board("4k3/8/8/8/8/8/4R3/4K3 w - - 99 80"), "e2e3"),
        (played("g1f3", "g8f6", "f3g1", "f6g8", "g1f3", "g8f6", "f3g1"), "f6g8"),
    ],
    ids=["stalemate", "too little material", "fifty moves", "third occurrence"],
)  # fmt: skip
def test_drawn_children_are_worth_half_a_point(board: chess.Board, move: str) -> None:
    assert GreedyPlayer(CountsMaterial()).scores([board])[0][move] == 0.5
    assert decided(after(board, chess.Move.from_uci(move))) == 0.5


def test_a_second_occurrence_is_no_draw_yet() -> None:
    board = played("g1f3", "g8f6", "f3g1")
    assert decided(after(board, chess.Move.from_uci("f6g8"))) is None


def test_it_wins_a_won_ending_from_the_losing_side_it_repeats() -> None:
    """Behind in material it goes for the repetition, ahead it does not."""
    ahead = "q3k3/8/8/8/8/8/8/1N2K3 b - - 0 1"
    moves = ["a8b8", "b1a3", "b8a8", "a3b1", "a8b8", "b1a3", "b8a8"]
    behind = played(*moves, fen=ahead)
    assert GreedyPlayer(CountsMaterial()).moves([behind])[0] == chess.Move.from_uci("a3b1")
    winner = played(*moves[:-1], fen=ahead)
    best = GreedyPlayer(CountsMaterial()).moves([winner])[0]
    assert best is not None
    assert decided(after(winner, best)) is None


def test_the_likeliest_move_is_played_alone_as_among_others(policy: PolicyPlayer) -> None:
    boards = [played(), played("e2e4", "e7e5"), chess.Board(MATE), played("d2d4")]
    together = policy.moves(boards)
    assert together == [policy.moves([board])[0] for board in boards]
    for board, move, opinion in zip(boards, together, policy.opinions(boards), strict=True):
        assert move is not None
        assert opinion.logits.keys() == {each.uci() for each in board.legal_moves}
        assert opinion.logits[move.uci()] == max(opinion.logits.values())
        assert opinion.wdl is not None
        assert opinion.expected == pytest.approx(opinion.wdl[0] + opinion.wdl[1] / 2, abs=1e-6)
        assert sum(opinion.shares().values()) == pytest.approx(1)


def test_history_is_part_of_what_is_seen(policy: PolicyPlayer) -> None:
    board = played("e2e4", "e7e5")
    bare = chess.Board(board.fen())
    with_moves, without = policy.opinions([board, bare])
    assert with_moves.logits != without.logits


def test_a_thought_tells_wdl_and_shares(policy: PolicyPlayer) -> None:
    board, said = played("e2e4"), list[str]()
    options = {**defaults(POLICY_OPTIONS), "UCI_ShowWDL": True}
    move = policy.think(board, Search(Limits(), said.append), options)
    assert [move] == policy.moves([board])
    words = said[0].split()
    assert words[:3] == ["depth", "1", "score"]
    wdl = [int(word) for word in words[words.index("wdl") + 1 :][:3]]
    assert 999 <= sum(wdl) <= 1001
    assert words[-2:] == ["pv", move.uci()]
    assert said[1].startswith("string policy: ")
    assert board == played("e2e4")
    said.clear()
    policy.think(board, Search(Limits(), said.append), {**options, "UCI_ShowWDL": False})
    assert "wdl" not in said[0]
    only = Search(Limits(moves=("h7h6",)), said.append)
    assert policy.think(board, only, options).uci() == "h7h6"


def test_warm_draws_repeat_by_the_seed(policy: PolicyPlayer) -> None:
    warm = {**defaults(POLICY_OPTIONS), "Temperature": 5.0}
    search = Search(Limits(), lambda text: None)
    drawn = [policy.think(played(), search, {**warm, "Seed": seed}) for seed in range(12)]
    assert drawn == [policy.think(played(), search, {**warm, "Seed": seed}) for seed in range(12)]
    assert len(set(drawn)) > 3


def test_a_random_value_network_plays_legal_moves(tmp_path: Path) -> None:
    value = pytest.importorskip("queen.networks.value")
    from queen.networks.value.settings import ValueSettings  # type: ignore[import-untyped]

    small = ValueSettings(width=32, residual_blocks=1, transformer_blocks=1, heads=2)
    value.save_value(value.new_value(small, 1), tmp_path)
    player = GreedyPlayer(value.load_value(tmp_path))
    boards = [played(), chess.Board(MATE), played("e2e4")]
    moves = player.moves(boards)
    assert all(move in board.legal_moves for move, board in zip(moves, boards, strict=True))
    assert moves[1] == chess.Move.from_uci("a1a8")
    alone = [player.scores([board])[0] for board in boards]
    for one, found in zip(alone, player.scores(boards), strict=True):
        assert found == pytest.approx(one, abs=1e-5)
