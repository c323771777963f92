"""The fast reader gives what python-chess gives, row for row and fault for fault."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import chess
import chess.pgn
import numpy as np
import pytest
from pgn_mischief import game

from queen.games.chess.archives import read_chunks
from queen.positions.cutting import games_of, parts
from queen.positions.headers import facts_of, start_of
from queen.positions.packed import pack, unpack
from queen.positions.reading import Movetext, Plies, Reader
from queen.positions.reference import ReferenceReader
from queen.positions.rust_reader import RustReader
from queen.positions.schema import move_code, move_of

COLUMNS = ("lengths", "endings", "packed", "halfmove", "move", "clock", "evals")
READERS = [RustReader(), ReferenceReader()]
BY_NAME = pytest.mark.parametrize("reader", READERS, ids=["rust", "python-chess"])


class Refusing(ReferenceReader):
    """A reference that must not be needed."""

    def read(self, games: Sequence[Movetext]) -> Plies:
        raise AssertionError([g.body for g in games])


def movetext(body: str, fen: str | None = None, chess960: bool = False) -> Movetext:
    return Movetext(body.encode(), start_of(fen, chess960))


def assert_same(games: Sequence[Movetext]) -> Plies:
    fast, slow = (reader.read(games) for reader in READERS)
    for name in COLUMNS:
        nan = name in ("clock", "evals")
        assert np.array_equal(getattr(fast, name), getattr(slow, name), equal_nan=nan), name
    assert fast.faults == slow.faults
    return slow


@pytest.mark.parametrize(("seed", "mischief"), [(1, 0.0), (2, 0.5), (3, 1.0)])
def test_readers_agree_on_random_games(seed: int, mischief: float) -> None:
    rng = random.Random(seed)
    games = []
    for _ in range(60):
        fen, text = game(rng, mischief=mischief)
        odd = any(line[:1] in "%; \t[" for line in text.splitlines() if line)
        games.append(Movetext(text.encode(), start_of(fen or None, False), plain=not odd))
    assert_same(games)


@BY_NAME
def test_positions_are_those_of_python_chess(reader: Reader) -> None:
    rng = random.Random(5)
    for _ in range(12):
        fen, text = game(rng, mischief=0.0)
        board = start_of(fen or None, False).board()
        plies = reader.read([movetext(text, fen or None)])
        for row, halfmove, code in zip(plies.packed, plies.halfmove, plies.move, strict=True):
            before, move = unpack(pack(board)), move_of(int(code))
            assert move in before.legal_moves
            board.push(board.parse_uci(board.uci(before.parse_uci(before.uci(move)))))
            assert row.tobytes() == pack(board)
            assert halfmove == board.halfmove_clock


@pytest.mark.parametrize(
    ("body", "evals", "clocks"),
    [
        ("1. e4 { [%eval 0.24] [%clk 0:10:00] } 1-0", [0.24], [600.0]),
        ("1. e4 { [%eval #3] } e5 { [%eval #-12] } 1-0", [10_003, -100_012], [None, None]),
        ("1. e4 { [%eval 1.25,20] } e5 { [%eval #4,18] } *", [1.25, 10_004], [None, None]),
        ("1. e4 {[%clk 0:00:09.5]} (1. d4 {[%clk 9:09:09]}) e5 *", [None, None], [9.5, None]),
        ("{ [%eval 0.5] } 1. e4 {a} {[%eval 0.1] b} { [%eval 0.2] } *", [0.2], [None]),
        ("1. e4 { [%clk 0:01] [%eval x] [%eval .5] } 1-0 { [%clk 0:00:01] }", [0.5], [None]),
    ],
)
def test_clocks_and_evaluations(
    body: str, evals: list[float | None], clocks: list[float | None]
) -> None:
    plies = assert_same([movetext(body)])
    for found, wanted in ((plies.evals, evals), (plies.clock, clocks)):
        told = np.array([np.nan if x is None else x for x in wanted], np.float32)
        assert np.array_equal(found, told, equal_nan=True)


@pytest.mark.parametrize(
    ("body", "plies", "kind"),
    [
        ("1. e4 e5 2. Ke3 Nf6 1-0", 2, "illegal_move"),
        ("1. e4 e5 2. Ke3 (2. Nf3) Nf6 1-0", 2, "illegal_move"),
        ("1. e4 -- 2. d4 1-0", 1, "illegal_move"),
        ("1. Nc3 a6 2. Nf3 b6 3. Ne4 c6 4. Ng5 1-0", 6, "illegal_move"),
        ("1. e5 e5", 0, "illegal_move"),
        ("1-0", 0, "no_moves"),
        ("", 0, "no_moves"),
        ("(1. d4 d5) 1-0", 2, None),
        ("1. e2-e4 e7-e5 2. Ng1-f3 1-0", 3, None),
        ("1. e4 ; rest Nf3\ne5 *", 2, None),
        ("1. e4 e5 1-0 2. Nf3", 2, None),
        ("1. e4 {never closed e5", 1, None),
        ("1.e4 d5 2.exd5 e5 3.dxe6 {ep} Nf6", 6, None),
    ],
)
def test_odd_and_broken_movetext(body: str, plies: int, kind: str | None) -> None:
    found = assert_same([movetext("1. e4 e5 *"), movetext(body), movetext("1. d4 d5 *")])
    assert found.lengths.tolist() == [2, plies, 2]
    assert {n: reason for n, (reason, _) in found.faults.items()} == ({1: kind} if kind else {})


def test_a_cut_game_loses_its_last_word() -> None:
    whole = movetext("1. e4 e5 2. Qh5 Nc6 3. Qh")
    cut = Movetext(whole.body, whole.start, cut=True)
    assert assert_same([cut]).faults == {}
    assert assert_same([cut]).lengths.tolist() == [4]


def test_a_clock_of_more_digits_than_python_reads_is_none() -> None:
    digits = "9" * 5000
    plies = assert_same([movetext(f"1. e4 {{ [%clk {digits}:00:01] }} e5 {{ [%clk 0:00:07] }} *")])
    assert np.array_equal(plies.clock, np.array([np.nan, 7], np.float32), equal_nan=True)


def test_only_a_legal_en_passant_capture_counts() -> None:
    # Black's pawn d4 is bound to its king on d8 by a rook, or beside its king on one rank.
    bound = "3k4/8/8/8/3p4/8/4P3/3RK3 w - - 0 1"
    rank = "8/8/8/8/k2p3R/8/4P3/4K3 w - - 0 1"
    free = "3k4/8/8/8/3p4/8/4P3/4K3 w - - 0 1"
    plies = assert_same([movetext("1. e4 *", fen) for fen in (bound, rank, free)])
    assert plies.packed[:, 35].tolist() == [255, 255, chess.E3]


def test_castling_is_coded_so_that_the_position_understands_it() -> None:
    fen = "bqnbrnkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBRNKR w KQkq - 0 1"
    games = [
        movetext("1. Ng3 Ng6 2. O-O O-O 1-0", fen, chess960=True),
        movetext("1. Ng3 Ng6 2. O-O O-O 1-0", fen),
        movetext("1. Nf3 Nf6 2. g3 g6 3. Bg2 Bg7 4. O-O O-O *"),
        movetext("1. Kg1 *", "4k3/8/8/8/8/8/8/5K1R w H - 0 1", chess960=True),
        movetext("1. O-O *", "4k3/8/8/8/8/8/8/5K1R w H - 0 1", chess960=True),
    ]
    plies = assert_same(games)
    ends = np.cumsum(plies.lengths) - 1
    told = [str(move_of(int(plies.move[end]))) for end in ends]
    assert told == ["g8h8", "g8h8", "e8g8", "f1g1", "f1h1"]
    first, second = (assert_same([game]).packed for game in games[:2])
    assert np.array_equal(first, second)


def test_usual_games_of_both_kinds_do_not_need_the_reference() -> None:
    rng = random.Random(11)
    board = chess.Board()
    for _ in range(60):
        board.push(rng.choice(list(board.legal_moves)))
    text = str(chess.pgn.Game.from_board(board)).split("\n\n")[1]
    bodies = [text, "1. e4 { [%eval 0.2] [%clk 0:03:00] } 1... e5 { [%eval #-3] } 2. Nf3?! *"]
    bodies += ["1. e4 $1 e5 (1... c5 2. Nf3 {best}) 2. Nf3 { good, says é } 1/2-1/2"]
    games = [movetext(body) for body in bodies]
    for seed in range(40):
        fen, body = game(random.Random(seed), mischief=-1.0)
        games.append(movetext(body.replace("(1. d4 {[%clk 9:09:09]} d5)", ""), fen or None))
    assert any(game.start.chess960 for game in games)
    assert RustReader(Refusing()).read(games).faults == {}


def test_the_clock_of_the_fifty_move_rule_stays_within_its_byte() -> None:
    fen = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 253 140"
    plies = assert_same([movetext("1. Nf3 Nf6 2. Ng1 Ng8 3. e4 *", fen)])
    assert plies.halfmove.tolist() == [254, 255, 255, 255, 0]


def test_move_codes_of_promotions() -> None:
    plies = assert_same([movetext("1. a8=N Kd7 *", "4k3/P7/8/8/8/8/8/4K3 w - - 0 1")])
    assert int(plies.move[0]) == move_code(chess.Move.from_uci("a7a8n"))


@pytest.mark.data
@pytest.mark.parametrize("name", ["human_blitz.pgn.gz", "lila_public.pgn.gz"])
def test_readers_agree_on_real_games(name: str) -> None:
    folder = os.environ.get("QUEEN_TEST_DATA")
    if not folder:
        pytest.skip("QUEEN_TEST_DATA is not set")
    part = next(parts(read_chunks(Path(folder) / "games" / name), 1 << 20))
    texts = list(games_of(part))[::25]
    games = []
    for text in texts:
        facts = facts_of(text.head)
        games.append(Movetext(text.body, start_of(facts.fen, False), text.plain))
    assert len(games) > 8
    assert assert_same(games).faults == {}
