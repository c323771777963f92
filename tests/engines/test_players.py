"""Players: legal, repeatable, and as strong as they say."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import chess
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.engines.locate import find_program
from queen.engines.players import (
    MATE,
    PIECE_VALUES,
    EnginePlayer,
    MaterialPlayer,
    PlayLimit,
    RandomPlayer,
    choose_by_skill,
    material_gain,
)
from queen.engines.score import Score
from queen.engines.stream import Choice, EngineGoneError, EngineStream, Query

needs_stockfish = pytest.mark.skipif(find_program("stockfish") is None, reason="no stockfish")


def random_board(seed: int, plies: int) -> chess.Board:
    rng, board = random.Random(seed), chess.Board()
    for _ in range(plies):
        moves = list(board.legal_moves)
        if not moves:
            break
        board.push(rng.choice(moves))
    return board


boards = st.builds(random_board, st.integers(0, 10**6), st.integers(0, 60)).filter(
    lambda board: any(board.legal_moves)
)


@settings(max_examples=40, deadline=None)
@given(boards, st.integers(0, 5))
def test_answers_do_not_depend_on_the_batch_and_leave_boards_alone(
    board: chess.Board, seed: int
) -> None:
    other = chess.Board()
    for player in (RandomPlayer(seed), MaterialPlayer(seed)):
        before = board.fen(), list(board.move_stack)
        alone = player.moves([board])[0]
        assert player.moves([other, board])[1] == alone
        assert board.is_legal(alone)
        assert (board.fen(), list(board.move_stack)) == before


def test_random_player_plays_every_move_about_equally_often() -> None:
    counts: dict[str, int] = {}
    for seed in range(4000):
        move = RandomPlayer(seed).moves([chess.Board()])[0]
        counts[move.uci()] = counts.get(move.uci(), 0) + 1
    assert len(counts) == 20
    assert min(counts.values()) > 140
    assert max(counts.values()) < 260


def test_random_player_depends_on_the_game_so_far() -> None:
    transposed = [chess.Board(), chess.Board()]
    for board, line in zip(transposed, ("Nf3 Nf6 Nc3 Nc6", "Nc3 Nc6 Nf3 Nf6"), strict=True):
        for san in line.split():
            board.push_san(san)
    picks = [RandomPlayer(s).moves(transposed) for s in range(30)]
    assert any(one != other for one, other in picks)


@pytest.mark.parametrize(
    ("fen", "best"),
    [
        ("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", {"d1d8"}),  # mates
        ("4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1", {"e4d5"}),  # takes a queen
        ("4k3/2p5/3p4/4r3/3P4/8/8/4R1K1 w - - 0 1", {"d4e5"}),  # pawn first
        ("4k3/1P6/8/8/8/8/8/4K3 w - - 0 1", {"b7b8q"}),  # promotes to the most
        ("rnbqkbnr/ppp1pppp/8/3pP3/8/8/PPPP1PPP/RNBQKBNR b KQkq - 0 2", None),
    ],
)
def test_material_player_takes_what_is_to_be_had(fen: str, best: set[str] | None) -> None:
    board = chess.Board(fen)
    moves = {MaterialPlayer(seed).moves([board])[0].uci() for seed in range(20)}
    assert moves == best if best else len(moves) > 5


def test_material_player_leaves_a_defended_pawn_alone() -> None:
    board = chess.Board("4k3/2p5/3p4/8/8/3Q4/8/4K3 w - - 0 1")
    assert material_gain(board, chess.Move.from_uci("d3d6")) == 1 - 9
    moves = {MaterialPlayer(seed).moves([board])[0].uci() for seed in range(40)}
    assert "d3d6" not in moves


def exchange(board: chess.Board, square: chess.Square) -> tuple[int, bool]:
    """Independent of the code under test: minimax over captures on one square.

    Also whether nobody had a choice of takers, where static exchange must agree.
    """
    takes = [m for m in board.legal_moves if m.to_square == square and board.is_capture(m)]
    takes = [m for m in takes if not board.is_en_passant(m)]
    best, forced = 0, len(takes) <= 1
    for move in takes:
        taken = board.piece_type_at(square)
        assert taken
        gain = PIECE_VALUES[taken] + (PIECE_VALUES[move.promotion] - 1 if move.promotion else 0)
        board.push(move)
        rest, alone = exchange(board, square)
        board.pop()
        best, forced = max(best, gain - rest), forced and alone
    return best, forced


@settings(max_examples=60, deadline=None)
@given(boards)
def test_material_gain_is_that_of_the_exchange_where_nobody_can_choose(board: chess.Board) -> None:
    for move in list(board.legal_moves)[:12]:
        gain, taken = material_gain(board, move), 0
        if board.is_capture(move):
            kind = chess.PAWN if board.is_en_passant(move) else board.piece_type_at(move.to_square)
            assert kind
            taken = PIECE_VALUES[kind]
        taken += PIECE_VALUES[move.promotion] - 1 if move.promotion else 0
        after = board.copy()
        after.push(move)
        rest, forced = exchange(after, move.to_square)
        if after.is_checkmate():
            assert gain == MATE
        elif not (after.is_stalemate() or after.is_insufficient_material()):
            assert gain <= taken
            assert gain == taken - rest or not forced


def test_a_limit_is_needed_and_spelt_as_uci() -> None:
    assert PlayLimit(nodes=50, depth=3).go == "go nodes 50 depth 3"
    assert PlayLimit(movetime_ms=20).go == "go movetime 20"
    with pytest.raises(ValueError, match="limit"):
        PlayLimit()


@needs_stockfish
def test_engine_player_repeats_itself_and_sees_a_mate() -> None:
    back_rank = chess.Board("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1")
    positions = [back_rank, *(random_board(seed, 15) for seed in range(20))]
    with EnginePlayer("stockfish", PlayLimit(nodes=300)) as player:
        assert player.name.endswith("nodes=300")
        together = player.moves(positions)
        apart = [player.moves([board])[0] for board in reversed(positions)]
    assert together == apart[::-1]
    assert together[0] == chess.Move.from_uci("d1d8")


def choices(*centipawns: int) -> list[Choice]:
    return [Choice(f"a{n + 2}a{n + 3}", Score(cp=cp)) for n, cp in enumerate(centipawns)]


def test_skill_makes_the_best_of_four_moves_more_likely() -> None:
    four = choices(60, 40, 10, -30)
    rates = []
    for skill in (0, 8, 19):
        picks = Counter(choose_by_skill(four, skill, random.Random(n)) for n in range(2000))
        rates.append(picks[four[0].move])
    assert 500 < rates[0] < rates[1] < rates[2] < 2000
    assert rates[2] > rates[0] + 100


def test_skill_seldom_gives_up_a_mate() -> None:
    mate = [Choice("a1a8", Score(mate=1)), *choices(300, 200, 100)]
    picks = [choose_by_skill(mate, 15, random.Random(n)) for n in range(200)]
    assert picks.count("a1a8") == 200


@needs_stockfish
def test_a_weakened_engine_repeats_itself_and_plays_less_well() -> None:
    positions = [random_board(seed, 12) for seed in range(40)]
    options = {"Skill Level": 0}
    with (
        EnginePlayer("stockfish", PlayLimit(nodes=200), options) as weak,
        EnginePlayer("stockfish", PlayLimit(nodes=200), options) as again,
        EnginePlayer("stockfish", PlayLimit(nodes=200), options, seed=1) as other,
        EnginePlayer("stockfish", PlayLimit(nodes=200)) as strong,
    ):
        assert weak.name.endswith("nodes=200 depth=1 skill=0")
        moves = weak.moves(positions)
        assert again.moves(positions[::-1])[::-1] == moves
        assert other.moves(positions) != moves
        best = strong.moves(positions)
    agreed = sum(one == two for one, two in zip(moves, best, strict=True))
    assert 0 < agreed < 30


@needs_stockfish
def test_an_engine_takes_the_repetition_that_a_bare_fen_would_hide() -> None:
    board = chess.Board("6k1/5ppp/8/8/8/2q5/6PP/7K w - - 0 1")
    for uci in ("h1g1", "g8f8", "g1h1", "f8g8") * 2:
        board.push_uci(uci)
    with EngineStream("stockfish", {}) as stream:
        told, bare = stream.search(
            [Query.of(b, "go nodes 2000") for b in (board, chess.Board(board.fen()))]
        )
    assert told.choices[0].score.expected == pytest.approx(0.5, abs=0.03)
    assert bare.choices[0].score.expected < 0.3


@needs_stockfish
def test_engine_dies_with_a_parent_that_is_killed() -> None:
    code = (
        "import chess, os, time\n"
        "from queen.engines.players import EnginePlayer, PlayLimit\n"
        "p = EnginePlayer('stockfish', PlayLimit(nodes=5)); p.moves([chess.Board()])\n"
        "print(p._stream._engine().pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    engine = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 5
    while engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def fake_engine(folder: Path, on_go: str) -> str:
    path = folder / "fake_engine"
    path.write_text(
        '#!/bin/sh\nwhile read -r line; do case "$line" in\n'
        'uci) printf "id name Fake 1\\noption name Threads type spin default 1 min 1 max 1\\n'
        "option name Hash type spin default 1 min 1 max 1\\n"
        'option name MultiPV type spin default 1 min 1 max 5\\nuciok\\n";;\n'
        f"isready) echo readyok;;\ngo*) {on_go};;\nesac; done\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("on_go", "says"),
    [
        ("exit 3", "crashed twice"),
        (":", "hung twice"),
        ("echo bestmove e2e9", "rubbish twice"),
    ],
)
def test_an_engine_that_fails_twice_is_an_error(tmp_path: Path, on_go: str, says: str) -> None:
    command = fake_engine(tmp_path, on_go)
    with (
        EngineStream(command, {}, timeout_s=0.3) as stream,
        pytest.raises(EngineGoneError, match=says),
    ):
        stream.search([Query.of(chess.Board(), "go nodes 1")])


def test_an_engine_that_fails_once_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "failed"
    on_go = f"if [ -e {mark} ]; then echo bestmove e2e4; else touch {mark}; exit 1; fi"
    with EngineStream(fake_engine(tmp_path, on_go), {}) as stream:
        replies = stream.search([Query.of(chess.Board(), "go nodes 1")] * 3)
    assert [reply.best for reply in replies] == ["e2e4"] * 3
    assert os.path.exists(mark)
