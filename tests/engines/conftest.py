"""Real engines, and small scripts that speak UCI badly on demand."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import pytest

from queen.engines.locate import find_classical, find_engine
from queen.engines.uci import EngineStartError

GAME = (
    "e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7 Re1 b5 Bb3 d6 c3 O-O h3 Nb8 d4 Nbd7 c4 c6 cxb5 axb5 "
    "Nc3 Bb7 Bg5 b4 Nb1 h6 Bh4 c5 dxe5 Nxe4 Bxe7 Qxe7 exd6 Qf6"
)
ROOK_ENDING = "8/8/4k3/8/8/3K4/7R/8 w - - 149 100"
FAKE = '''\
#!{python} -SE
import json, os, sys, time, zlib

MOODS = json.loads({moods!r})


def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()


def misbehave(mood, move):
    """What `mood` does instead of an answer; True if the search is to be answered all the same."""
    if mood == "die":
        os._exit(3)
    if mood == "die once":
        if not os.path.exists({flag!r}):
            open({flag!r}, "w").close()
            os._exit(3)
        return True
    if mood == "hang":
        while True:
            time.sleep(1)
    if mood == "illegal":
        say("info depth 1 score cp 5 nodes 1 pv a1a1")
        say("bestmove a1a1")
    if mood == "scoreless":
        say("bestmove " + move)
    if mood == "babble":
        while True:
            say("%$#@! what position?")
            time.sleep(0.01)
    if mood == "flood":
        while True:
            os.write(1, b"x" * 65536)
    if mood == "twice":
        say("info depth 1 score cp 77 nodes 1 pv " + move)
        say("bestmove " + move)
        return True
    return False


def main():
    fen, answered = '', 0
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["uci"]:
            say("id name " + MOODS.get("name", "Stockfish Fake 1.0"))
            say("option name Threads type spin default 1 min 1 max 8")
            say("option name Hash type spin default 16 min 1 max 1024")
            say("option name MultiPV type spin default 1 min 1 max 500")
            say("uciok")
        elif words[:1] == ["isready"]:
            say("readyok")
        elif words[:1] == ["position"]:
            fen = " ".join(words[2:8])
        elif words[:1] == ["go"]:
            move = MOODS["moves"].get(" ".join(fen.split()[:4]), "e2e4")
            mood = MOODS.get("always") or MOODS.get("on", {{}}).get(fen)
            if answered == MOODS.get("die after", -1):
                mood = "die"
            if mood and not misbehave(mood, move):
                continue
            chosen = MOODS.get("scores", {{}}).get(fen, {{}})
            score = zlib.crc32(fen.encode()) % 1001 - 500
            score = chosen.get(" ".join(words[1:]), chosen.get("any", score))
            say("info depth 1 score cp %d nodes 7 pv %s" % (score, move))
            say("bestmove " + move)
            answered += 1
        elif words[:1] == ["quit"]:
            return


main()
'''


def first_move(fen: str) -> str:
    return min(move.uci() for move in chess.Board(fen).legal_moves)


@pytest.fixture(scope="session")
def stockfish() -> str:
    try:
        return find_engine("stockfish")
    except EngineStartError as error:
        pytest.skip(error.what)


@pytest.fixture(scope="session")
def classical() -> str:
    try:
        return find_classical()
    except EngineStartError as error:
        pytest.skip(error.what)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes an executable Python script; returns its path."""

    def write(body: str) -> str:
        path = tmp_path / f"engine-{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!{sys.executable} -SE\n{textwrap.dedent(body)}")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def fake(tmp_path: Path, fens: list[str]) -> Callable[..., str]:
    """An engine of moods: `on` = mood by FEN, `always`, `die_after` = answers, `name`.

    `scores` gives centipawns by FEN and limit ("nodes 10" or "any"). It knows a move in the
    positions of `fens`, whatever their clocks, in ROOK_ENDING and in those of `scores`.
    """
    known = {" ".join(fen.split()[:4]): first_move(fen) for fen in [*fens, ROOK_ENDING]}

    def write(**moods: Any) -> str:
        number = len(list(tmp_path.iterdir()))
        scored = {" ".join(x.split()[:4]): first_move(x) for x in moods.get("scores", ())}
        moods["moves"] = {**known, **scored}
        text = json.dumps({key.replace("_", " "): value for key, value in moods.items()})
        path = tmp_path / f"fake-{number}"
        flag = str(tmp_path / f"flag-{number}")
        path.write_text(FAKE.format(python=sys.executable, moods=text, flag=flag))
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture(scope="session")
def many_fens(fens: list[str]) -> list[str]:
    """480 positions a fake engine knows a move in."""
    return [" ".join([*fen.split()[:4], str(n), "60"]) for fen in fens[:12] for n in range(40)]


@pytest.fixture(scope="session")
def fens() -> list[str]:
    """Positions of one game, each different."""
    board, found = chess.Board(), []
    for san in GAME.split():
        board.push_san(san)
        found.append(board.fen())
    return found
