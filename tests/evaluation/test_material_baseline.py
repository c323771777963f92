"""The baseline that counts pieces: it reads boards as python-chess does and is fitted rightly."""

from __future__ import annotations

import math
import random

import chess
import numpy as np
import pytest
import torch

from queen.evaluation.material import fit_material, piece_differences
from queen.networks.value.labels import cross_entropy, expected_score
from queen.positions.packed import pack

KINDS = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN)


def boards(count: int) -> list[chess.Board]:
    rng, found, board = random.Random(5), [], chess.Board()
    while len(found) < count:
        if board.is_game_over() or rng.random() < 0.01:
            board = chess.Board()
        board.push(rng.choice(list(board.legal_moves)))
        found.append(board.copy(stack=False))
    return found


def packed_of(some: list[chess.Board]) -> np.ndarray:
    return np.frombuffer(b"".join(map(pack, some)), np.uint8).reshape(-1, 36)


def counted(board: chess.Board) -> list[int]:
    own, other = board.turn, not board.turn
    return [len(board.pieces(kind, own)) - len(board.pieces(kind, other)) for kind in KINDS]


def test_differences_are_those_that_python_chess_counts() -> None:
    some = boards(400)
    assert {board.turn for board in some} == {True, False}
    assert piece_differences(packed_of(some)).tolist() == [counted(board) for board in some]


def test_the_fit_finds_the_worth_that_made_the_labels() -> None:
    packed = packed_of(boards(2500))
    worth = np.array([0.3, 0.9, 1.1, 1.6, 2.9])
    odds = piece_differences(packed) @ worth + 0.2
    classes = np.rint(100 / (1 + np.exp(-odds))).astype(np.uint8)
    fit = fit_material(packed, classes)
    assert fit.weights == pytest.approx([*worth, 0.2], abs=0.05)


def test_bands_say_how_often_each_class_was_there() -> None:
    up, down = chess.Board(), chess.Board()
    up.remove_piece_at(chess.D8)
    down.remove_piece_at(chess.D1)
    packed = packed_of([up] * 300 + [down] * 100)
    classes = np.array([90] * 200 + [101] * 100 + [5] * 100, np.uint8)
    fit = fit_material(packed, classes)
    logits = fit.logits(packed_of([up, down]))
    shares = logits.softmax(-1).numpy()
    assert shares.sum(1) == pytest.approx([1, 1], abs=1e-5)
    assert shares[0, [90, 101]] == pytest.approx([2 / 3, 1 / 3], abs=0.01)
    assert shares[1, 5] == pytest.approx(1, abs=0.02)
    assert expected_score(logits).tolist() == pytest.approx([0.9333, 0.05], abs=0.02)


def test_it_beats_the_constant_only_where_material_says_something() -> None:
    some = boards(2000)
    packed, rng = packed_of(some), np.random.default_rng(1)
    told = np.array([50 + 3 * sum(counted(board)) for board in some]).clip(0, 100).astype(np.uint8)
    for classes, gain in ((told, 0.5), (rng.permutation(told), -0.2)):
        fit = fit_material(packed[:1500], classes[:1500])
        said = (
            cross_entropy(
                fit.logits(packed[1500:]), torch.from_numpy(classes[1500:].astype(np.int64))
            )
            .mean()
            .item()
        )
        counts = np.bincount(classes[:1500], minlength=103) + 1.0
        always = -np.log(counts / counts.sum())[classes[1500:]].mean()
        assert always - said > gain
        assert math.isfinite(said)
    assert always - said < 0.05
