"""Claims about the board, decided twice by ways that share no code."""

from __future__ import annotations

from collections import Counter

import chess
import pytest
from derivation import derive
from hypothesis import given, settings
from hypothesis import strategies as st
from language_data import claims, many_positions, positions

from queen.games.chess.position import Position
from queen.language.claims import board_holds, checkable, holds
from queen.language.ground import Ground
from queen.language.observe import observations
from queen.language.vocabulary import BOARD_KINDS, ENGINE_KINDS, IMPOSSIBLE, Claim

START = Position.from_fen(chess.STARTING_FEN)
RICH = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
CASES = [
    (chess.STARTING_FEN, Claim("piece", (), ("Ng1",)), True),
    (chess.STARTING_FEN, Claim("piece", ("g1f3",), ("Ng1",)), False),
    (chess.STARTING_FEN, Claim("piece", ("g1g3",), ("Ng3",)), False),
    (chess.STARTING_FEN, Claim("undeveloped", ("g1f3",), ("White", "3")), True),
    (chess.STARTING_FEN, Claim("develops", (), ("g1f3",)), True),
    (chess.STARTING_FEN, Claim("develops", ("g1f3", "e7e5"), ("f3g5",)), False),
    (chess.STARTING_FEN, Claim("attacks", ("e2e4", "d7d5"), ("Pe4", "pd5")), True),
    (chess.STARTING_FEN, Claim("takes", ("e2e4", "d7d5"), ("e4d5", "pd5")), True),
    (chess.STARTING_FEN, Claim("wins", ("e2e4", "d7d5"), ("e4d5 d8d5", "White", "1")), False),
    (chess.STARTING_FEN, Claim("mates", ("f2f3", "e7e5", "g2g4"), ("d8h4",)), True),
    (chess.STARTING_FEN, Claim("checkmate", ("f2f3", "e7e5", "g2g4", "d8h4"), ("White",)), True),
    (RICH, Claim("castles", (), ("e1g1", "kingside")), True),
    (RICH, Claim("castles", (), ("e1c1", "kingside")), False),
    (RICH, Claim("can_castle", ("e1f1",), ("White", "queenside")), False),
    ("4k3/8/8/8/8/8/4q3/4K2R w K - 0 1", Claim("forced", (), ("e1e2",)), True),
    ("4k3/8/8/8/4r3/8/4B3/4K3 w - - 0 1", Claim("pin", (), ("Be2", "re4")), True),
    ("4k3/8/8/3q1r2/8/2N5/8/4K3 w - - 0 1", Claim("fork", ("c3e4",), ("Ne4", "qd5 rf5")), False),
    ("q3k3/8/8/3N4/8/8/8/4K3 w - - 0 1", Claim("fork", ("d5c7",), ("Nc7", "ke8 qa8")), True),
    ("q3k3/8/8/3N4/8/8/8/4K3 w - - 0 1", Claim("fork", ("d5c7",), ("Nc7", "qa8 ke8")), True),
    ("7k/8/5K2/6Q1/8/8/8/8 w - - 0 1", Claim("stalemate", ("g5g6",), ("Black",)), True),
    ("8/P6k/8/8/8/8/8/K7 w - - 0 1", Claim("promotes", (), ("a7a8n",)), True),
]


@pytest.mark.parametrize(("fen", "claim", "true"), CASES)
def test_known_cases(fen: str, claim: Claim, true: bool) -> None:
    assert holds(claim, Position.from_fen(fen)) is true
    assert derive(claim, chess.Board(fen)) is true


def test_en_passant_takes_the_pawn_beside() -> None:
    line = ("e2e4", "a7a6", "e4e5", "d7d5")
    assert holds(Claim("takes", line, ("e5d6", "pd5")), START)
    assert not holds(Claim("takes", line, ("e5d6", "pd6")), START)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_random_claims_are_decided_alike(data: st.DataObject) -> None:
    position = data.draw(positions())
    claim = data.draw(claims(Ground(position)).filter(checkable))
    assert board_holds(claim, Ground(position)) == derive(claim, position.board())


def test_observations_are_true_and_of_many_kinds() -> None:
    kinds: Counter[str] = Counter()
    for position in many_positions(60, seed=5):
        ground, board = Ground(position), position.board()
        for move in sorted(m.uci() for m in board.legal_moves)[:6]:
            for _, claim in observations(ground, (move,)):
                kinds[claim.kind] += 1
                assert board_holds(claim, ground), claim
                assert derive(claim, board), claim
    assert len(kinds) >= 22, kinds


def test_every_board_kind_can_be_decided_and_no_engine_kind() -> None:
    from queen.language.claims import _DECIDERS

    assert set(_DECIDERS) == set(BOARD_KINDS)
    for kind in ENGINE_KINDS:
        with pytest.raises(KeyError):
            board_holds(Claim(kind), Ground(START))
    assert not holds(Claim(IMPOSSIBLE, (), ("<N><g1><g3>",)), START)
