"""Matches: the rules that end games, pairs, resuming, and PGN."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import chess
import chess.pgn
import pytest

from queen.engines.analysis import EngineFailure, Limit
from queen.engines.locate import find_program
from queen.engines.match import (
    GameRecord,
    MatchError,
    Pairing,
    Rules,
    engine_verdict,
    material_verdict,
    outcome_by_rules,
    paired,
    play,
    read_record,
    to_pgn,
)
from queen.engines.openings import OpeningRules, draw_openings
from queen.engines.players import EnginePlayer, MaterialPlayer, PlayLimit, RandomPlayer
from queen.engines.pool import Analyser
from queen.engines.workers import EngineSettings
from queen.games.chess.position import Position

START = Position(chess.STARTING_FEN)
needs_stockfish = pytest.mark.skipif(find_program("stockfish") is None, reason="no stockfish")


class Scripted:
    """Plays a given line, then says nothing."""

    def __init__(self, name: str, line: str) -> None:
        self.name, self.line, self.batches = name, line.split(), 0

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        self.batches += 1
        return [self._move(board) for board in boards]

    def _move(self, board: chess.Board) -> chess.Move | None:
        ply = len(board.move_stack)
        return chess.Move.from_uci(self.line[ply]) if ply < len(self.line) else None


def one_game(line: str, opening: Position = START, rules: Rules | None = None) -> GameRecord:
    both = Scripted("a", line), Scripted("b", line)
    return play([Pairing(0, *both, opening)], rules or Rules())[0]


@pytest.mark.parametrize(
    ("line", "result", "termination"),
    [
        ("f2f3 e7e5 g2g4 d8h4", "0-1", "checkmate"),
        ("e2e4 e7e5 f1c4 b8c6 d1h5 g8f6 h5f7", "1-0", "checkmate"),
        ("g1f3 g8f6 f3g1 f6g8 " * 2, "1/2-1/2", "threefold repetition"),
        ("e2e4 e7e5 e4e5", "0-1", "illegal move: e4e5"),
        ("e2e4", "1-0", "no move"),
        ("", "0-1", "no move"),
    ],
)
def test_games_end_by_the_rules_or_by_a_fault(line: str, result: str, termination: str) -> None:
    game = one_game(line)
    assert (game.result, game.termination) == (result, termination)


@pytest.mark.parametrize(
    ("fen", "outcome"),
    [
        ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", ("1/2-1/2", "stalemate")),
        ("7k/8/6K1/8/8/8/8/8 b - - 0 1", ("1/2-1/2", "insufficient material")),
        ("7k/8/6K1/8/8/8/8/R7 b - - 100 90", ("1/2-1/2", "fifty moves")),
        ("R6k/8/6K1/8/8/8/8/8 b - - 100 90", ("1-0", "checkmate")),
        ("7k/8/6K1/8/8/8/8/R7 b - - 99 90", None),
    ],
)
def test_outcome_by_rules(fen: str, outcome: tuple[str, str] | None) -> None:
    assert outcome_by_rules(chess.Board(fen)) == outcome


QUEEN_UP = "4k3/8/8/8/8/8/8/Q3K3 w - - 0 1"


def test_the_cap_gives_the_game_to_whom_the_verdict_says() -> None:
    shuffle = "a1a2 e8e7 a2a3 e7e8"
    game = one_game(shuffle, Position(QUEEN_UP), Rules(max_plies=4))
    assert (game.result, game.termination) == ("1-0", "adjudication: ply limit")
    even = one_game("e2e4 e7e5", START, Rules(max_plies=2))
    assert (even.result, even.termination) == ("1/2-1/2", "adjudication: ply limit")
    mirrored = Position(chess.Board(QUEEN_UP).mirror().fen())
    assert one_game("", mirrored, Rules(max_plies=0)).result == "0-1"


def test_decided_needs_two_looks_running() -> None:
    rules = Rules(check_every=2, decided=0.95)
    game = one_game("a1a2 e8e7 a2a3 e7e8 a3a4 e8e7", Position(QUEEN_UP), rules)
    assert (game.result, game.termination) == ("1-0", "adjudication: decided")
    assert len(game.moves) == 4
    looks = iter([0.99, 0.5, 0.99, 0.99])

    def wavering(boards: Sequence[chess.Board]) -> list[float]:
        return [next(looks) for _ in boards]

    line = "a1a2 e8e7 a2a3 e7e8 a3a4 e8e7 a4a5 e7e8"
    both = Scripted("a", line), Scripted("b", line)
    game = play([Pairing(0, *both, Position(QUEEN_UP))], rules, wavering)[0]
    assert len(game.moves) == 8


def test_pairs_reverse_colours_and_number_games() -> None:
    a, b, c = (RandomPlayer(seed, name) for seed, name in enumerate("abc"))
    openings = draw_openings(3, 0, material_verdict, OpeningRules(max_plies=3))
    games = paired([(a, b), (a, c)], openings, first=10)
    assert [game.index for game in games] == list(range(10, 22))
    for one, two in zip(games[::2], games[1::2], strict=True):
        assert (one.white, one.black) == (two.black, two.white)
        assert one.opening == two.opening
    assert {game.black.name for game in games} == {"a", "b", "c"}


def small_match() -> list[Pairing]:
    players = [(MaterialPlayer(1), RandomPlayer(2))]
    return paired(players, draw_openings(4, 0, material_verdict, OpeningRules(max_plies=4)))


RULES = Rules(max_plies=40)


def test_results_do_not_depend_on_concurrency_and_material_beats_random() -> None:
    one = play(small_match(), RULES, concurrency=1)
    assert one == play(small_match(), RULES, concurrency=5)
    assert sum(game.score_of("material") for game in one) >= 6


def test_games_of_one_player_share_batches() -> None:
    line = "e2e4 e7e5 g1f3"
    a, b = Scripted("a", line), Scripted("b", line)
    play([Pairing(n, a, b, START) for n in range(8)], RULES, concurrency=8)
    assert (a.batches, b.batches) == (2, 2)


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_match_resumes_where_it_was_torn(tmp_path: Path, cut: int) -> None:
    record = tmp_path / "games.jsonl"
    whole = play(small_match(), RULES, record=record)
    lines = record.read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    record.write_bytes(b"".join(lines[:3]) + lines[3][:cut])
    fresh = small_match()
    assert play(fresh, RULES, record=record) == whole
    again = record.read_bytes().splitlines(keepends=True)
    assert sorted(again) == sorted(lines)
    assert again[:3] == lines[:3]
    before = record.read_bytes()
    assert play(small_match(), RULES, record=record) == whole
    assert record.read_bytes() == before


def test_finished_games_are_kept_when_a_player_fails(tmp_path: Path) -> None:
    class Breaks(RandomPlayer):
        left = 60

        def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move]:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("out of order")
            return super().moves(boards)

    record = tmp_path / "games.jsonl"
    pairings = paired([(Breaks(1, "x"), RandomPlayer(2, "y"))], [START, START])
    with pytest.raises(RuntimeError, match="out of order"):
        play(pairings, RULES, record=record, concurrency=1)
    kept = read_record(record)
    assert 1 <= len(kept) < 4
    healthy = paired([(RandomPlayer(1, "x"), RandomPlayer(2, "y"))], [START, START])
    assert play(healthy, RULES, record=record)[: len(kept)] == kept


def test_a_record_of_other_games_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "games.jsonl"
    play(small_match(), RULES, record=record)
    others = paired([(MaterialPlayer(1), RandomPlayer(2, "other"))], [START])
    with pytest.raises(MatchError, match="game 0 was played by others"):
        play(others, RULES, record=record)
    record.write_text("{}\n")
    with pytest.raises(MatchError, match="line 1"):
        read_record(record)


def test_pgn_reads_back_as_the_same_game() -> None:
    for game in play(small_match(), RULES):
        text = to_pgn(game, {"Event": "test"})
        read = chess.pgn.read_game(io.StringIO(text))
        assert read is not None
        assert not read.errors
        assert tuple(move.uci() for move in read.mainline_moves()) == game.moves
        assert read.headers["Result"] == game.result
        assert read.headers["Termination"] == game.termination
        assert read.headers["Date"] == "????.??.??"


def test_pgn_of_a_game_from_another_start_says_so() -> None:
    text = to_pgn(one_game("a1a2 e8e7", Position(QUEEN_UP)))
    assert f'[FEN "{QUEEN_UP}"]' in text


@needs_stockfish
def test_an_engine_at_more_nodes_beats_the_material_player() -> None:
    openings = draw_openings(2, 5, material_verdict)
    settings = EngineSettings("stockfish", {}, 1, 20.0, 8)
    with EnginePlayer("stockfish", PlayLimit(nodes=500)) as engine, Analyser(settings) as judge:
        games = play(
            paired([(engine, MaterialPlayer(0))], openings),
            Rules(max_plies=90, check_every=6, decided=0.97),
            engine_verdict(judge, Limit(nodes=500)),
        )
    assert [game.score_of(engine.name) for game in games] == [1.0] * 4
    assert all("illegal" not in game.termination for game in games)


def test_a_failed_adjudication_is_an_error_not_a_result() -> None:
    class Failing:
        def analyse(self, fens: Sequence[str], limit: Limit) -> list[EngineFailure]:
            return [EngineFailure(fen, "hung", "no answer") for fen in fens]

    verdict = engine_verdict(Failing(), Limit(nodes=1))  # type: ignore[arg-type]
    with pytest.raises(MatchError, match="hung"):
        play([Pairing(0, RandomPlayer(0, "a"), RandomPlayer(1, "b"), START)], RULES, verdict)
