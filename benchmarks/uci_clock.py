"""Games of `queen uci` against Stockfish at its weakest, on a real clock that ends them.

    python benchmarks/uci_clock.py --model queen-r2 --games 4 --clock 60 --increment 0.6

Says who won, whether anybody lost on time, how long moves took, and how many of the moves came
with an explanation that was not cut. Standard output is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import chess
import chess.engine

from queen.engines.locate import find_engine
from queen.engines.match import outcome_by_rules

START_S = 300.0


@dataclass
class Told:
    """What was seen of the model's moves."""

    seconds: list[float] = field(default_factory=list)
    explained: int = 0
    cut: int = 0


@dataclass(frozen=True)
class Ended:
    """A game's result, White's, and why; `plies` moves were made."""

    model: str
    result: str
    reason: str
    plies: int


def main() -> None:
    args = _arguments()
    command = [sys.executable, "-m", "queen.cli", "uci"]
    command += ["--model", args.model] if args.model else []
    told, games = Told(), list[Ended]()
    with (
        chess.engine.SimpleEngine.popen_uci(command, timeout=START_S) as model,
        chess.engine.SimpleEngine.popen_uci(find_engine("stockfish")) as weakest,
    ):
        model.ping()  # loaded: no clock runs on that
        weakest.configure({"Skill Level": 0})
        for number in range(args.games):
            games.append(play(model, weakest, bool(number % 2 == 0), args, told))
            print(games[-1], file=sys.stderr, flush=True)
    slow = sorted(told.seconds)
    figures = {
        "clock_s": args.clock,
        "increment_s": args.increment,
        "moves": len(slow),
        "lost_on_time": sum(g.reason == "time" and not won(g) for g in games),
        "median_s": round(statistics.median(slow), 3),
        "longest_s": round(slow[-1], 3),
        "explained": told.explained,
        "cut": told.cut,
        "points": sum(points(g) for g in games),
        "games": [asdict(game) for game in games],
    }
    print(json.dumps(figures, indent=2))


def play(model: Any, weakest: Any, white: bool, args: argparse.Namespace, told: Told) -> Ended:
    """One game; a side whose clock is at zero after its move has lost."""
    board, name = chess.Board(), "white" if white else "black"
    clocks = {chess.WHITE: args.clock, chess.BLACK: args.clock}
    while (outcome := outcome_by_rules(board)) is None and len(board.move_stack) < args.plies:
        limit = chess.engine.Limit(
            white_clock=clocks[chess.WHITE], black_clock=clocks[chess.BLACK],
            white_inc=args.increment, black_inc=args.increment,
        )  # fmt: skip
        mine = board.turn == white
        began = time.monotonic()
        move = _thought(model, board, limit, told) if mine else weakest.play(board, limit).move
        spent = time.monotonic() - began
        told.seconds += [spent] if mine else []
        clocks[board.turn] -= spent
        if clocks[board.turn] <= 0:
            return Ended(name, "0-1" if board.turn else "1-0", "time", len(board.move_stack))
        clocks[board.turn] += args.increment
        board.push(move)
    result, reason = outcome or ("1/2-1/2", "ply limit")
    return Ended(name, result, reason, len(board.move_stack))


def _thought(model: Any, board: chess.Board, limit: chess.engine.Limit, told: Told) -> chess.Move:
    """The model's move; what it says with it is counted."""
    strings: list[str] = []
    with model.analysis(board, limit) as analysis:
        for info in analysis:
            strings += [info["string"]] if "string" in info else []
        move = analysis.wait().move
    told.cut += any(line.startswith("cut short") for line in strings)
    told.explained += any(line.startswith("candidate") for line in strings)
    return move


def points(game: Ended) -> float:
    """The model's."""
    white = {"1-0": 1.0, "0-1": 0.0, "1/2-1/2": 0.5}[game.result]
    return white if game.model == "white" else 1.0 - white


def won(game: Ended) -> bool:
    """Whether the model did."""
    return points(game) == 1.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--games", type=int, default=4)
    parser.add_argument("--clock", type=float, default=60.0)
    parser.add_argument("--increment", type=float, default=0.6)
    parser.add_argument("--plies", type=int, default=300)
    return parser.parse_args()


if __name__ == "__main__":
    main()
