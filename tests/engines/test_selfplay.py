"""The making of the shipped games, and the shipped games themselves."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from pathlib import Path

import chess.pgn
import pytest
import zstandard

from queen.engines.locate import find_program
from queen.engines.match import outcome_by_rules, read_record
from tools.selfplay import (
    ENGINES,
    LADDER,
    Workshop,
    choose_pair,
    main,
    make_games,
    write_pgn,
)

SHIPPED = Path(__file__).parents[2] / "data" / "shipped"
COMMANDS = {engine: engine for engine in ENGINES}
needs_engines = pytest.mark.skipif(
    any(find_program(engine) is None for engine in ENGINES), reason="no engines"
)


def test_pairs_are_of_two_and_mostly_close() -> None:
    pairs = [choose_pair(random.Random(n)) for n in range(600)]
    gaps = [abs(LADDER.index(one) - LADDER.index(other)) for one, other in pairs]
    assert min(gaps) >= 1
    assert 0.7 < sum(gap <= 3 for gap in gaps) / 600 < 0.9
    assert {one for one, _ in pairs} == set(LADDER)


@needs_engines
def test_a_game_depends_on_seed_and_number_alone() -> None:
    one, other = Workshop(COMMANDS, 5), Workshop(COMMANDS, 5)
    try:
        forward = [one.game(index) for index in (0, 1)]
        backward = [other.game(index) for index in (1, 0)]
        assert forward == backward[::-1]
        assert len({game.moves for game in forward}) == 2
    finally:
        one.close()
        other.close()


@needs_engines
def test_games_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    main([str(tmp_path), "--games", "3", "--seed", "5", "--workers", "2", "--keep-partial"])
    working, pgn = tmp_path / "engine_games.partial.jsonl", tmp_path / "engine_games.pgn.zst"
    whole, lines = pgn.read_bytes(), working.read_bytes().splitlines(keepends=True)
    working.write_bytes(lines[0] + lines[1][:50])
    pgn.unlink()
    main([str(tmp_path), "--games", "3", "--seed", "5", "--workers", "1", "--keep-partial"])
    assert pgn.read_bytes() == whole
    assert len(read_record(working)) == 3
    games = make_games(working, 2, 5, 1, COMMANDS)
    assert [game.index for game in games] == [0, 1]
    write_pgn(pgn, games, {games[0].white: 1234.4})
    text = zstandard.decompress(pgn.read_bytes()).decode()
    assert '[WhiteElo "1234"]' in text


@pytest.fixture(scope="module")
def shipped_text() -> str:
    return (
        zstandard.ZstdDecompressor()
        .stream_reader((SHIPPED / "engine_games.pgn.zst").read_bytes())
        .read()
        .decode()
    )


def test_the_counts_that_ship_are_those_of_the_games(shipped_text: str) -> None:
    counts = json.loads((SHIPPED / "engine_games.json").read_text())
    headers = Counter(line for line in shipped_text.splitlines() if line.startswith("["))
    assert headers['[Event "Queen engine games"]'] == counts["games"] == 1500
    for field, key in (("Result", "results"), ("Termination", "terminations")):
        for value, games in counts[key].items():
            assert headers[f'[{field} "{value}"]'] == games
    for name, player in counts["players"].items():
        seen = headers[f'[White "{name}"]'] + headers[f'[Black "{name}"]']
        assert seen == player["games"]
    plies = sum(int(line[11:-2]) * n for line, n in headers.items() if line.startswith("[PlyC"))
    assert plies == counts["plies"]


def test_shipped_games_are_legal_and_end_as_they_say(shipped_text: str) -> None:
    games = shipped_text.split("\n\n[Event ")
    for text in games[::10]:
        text = text if text.startswith("[Event") else f"[Event {text}"
        game = chess.pgn.read_game(io.StringIO(text))
        assert game is not None
        assert not game.errors
        board = game.end().board()
        assert len(board.move_stack) == int(game.headers["PlyCount"])
        outcome = outcome_by_rules(board)
        if game.headers["Termination"].startswith("adjudication"):
            assert outcome is None
        else:
            assert outcome == (game.headers["Result"], game.headers["Termination"])


def test_shipped_games_name_no_date_and_no_place(shipped_text: str) -> None:
    headers = {line for line in shipped_text.splitlines() if line.startswith("[")}
    assert {line for line in headers if line.startswith(("[Date", "[Site"))} == {
        '[Date "????.??.??"]',
        '[Site "?"]',
    }
