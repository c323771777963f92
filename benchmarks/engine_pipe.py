"""Searches a second: this project's analyser, python-chess's SimpleEngine, a bare pipe.

    python benchmarks/engine_pipe.py [--positions 300] [--nodes 500 2000] [--workers 2]

All three run the same engine on the same positions, one thread and a cleared 1 MB hash each, as
many processes as workers. The bare pipe writes commands and picks scores out, with no check of
anything: what is lost against it is the price of legality checks, faults and time limits. Prints
one JSON object; of several rounds the median counts, the ways taking turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import chess
import chess.engine

from queen.engines.locate import find_engine
from queen.engines.pool import Analyser, Analysis, EngineSettings, Limit

Way = Callable[[str, Sequence[str], int, int], list[int | None]]


def positions(count: int, seed: int = 1) -> list[str]:
    """FENs of random games, 8 to 60 plies in, none of them over."""
    found: list[str] = []
    for index in range(10 * count):
        rng, board = random.Random(f"{seed} {index}"), chess.Board()
        for _ in range(rng.randrange(8, 60)):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
        if not board.is_game_over() and len(found) < count:
            found.append(board.fen())
    return found


def ours(command: str, fens: Sequence[str], nodes: int, workers: int) -> list[int | None]:
    with Analyser(EngineSettings(command, workers=workers)) as analyser:
        answers = analyser.analyse(fens, Limit(nodes=nodes))
    return [x.best.score.cp if isinstance(x, Analysis) else None for x in answers]


def simple_engine(command: str, fens: Sequence[str], nodes: int, workers: int) -> list[int | None]:
    scores: list[int | None] = [None] * len(fens)

    def work(first: int) -> None:
        with chess.engine.SimpleEngine.popen_uci(command) as engine:
            engine.configure({"Threads": 1, "Hash": 1})
            for number in range(first, len(fens), workers):
                board, limit = chess.Board(fens[number]), chess.engine.Limit(nodes=nodes)
                info = engine.analyse(board, limit, game=object())
                scores[number] = info["score"].relative.score()

    _in_threads(work, workers)
    return scores


def bare_pipe(command: str, fens: Sequence[str], nodes: int, workers: int) -> list[int | None]:
    scores: list[int | None] = [None] * len(fens)

    def work(first: int) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        engine = subprocess.Popen([command], text=True, **pipes)  # type: ignore[call-overload]
        engine.stdin.write("setoption name Threads value 1\nsetoption name Hash value 1\n")
        mine = list(range(first, len(fens), workers))
        for start in range(0, len(mine), 32):
            group = mine[start : start + 32]
            for number in group:
                go = f"ucinewgame\nposition fen {fens[number]}\ngo nodes {nodes}\n"
                engine.stdin.write(go)
            engine.stdin.flush()
            for number in group:
                scores[number] = _next_score(engine.stdout)
        engine.communicate("quit\n")

    _in_threads(work, workers)
    return scores


def _next_score(lines: Any) -> int | None:
    last = ""
    for line in lines:
        if line.startswith("info") and " score " in line:
            last = line
        elif line.startswith("bestmove"):
            break
    words = last.split()
    place = words.index("score")
    return int(words[place + 2]) if words[place + 1] == "cp" else None


def _in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


WAYS: dict[str, Way] = {"ours": ours, "simple_engine": simple_engine, "bare_pipe": bare_pipe}


def measure(
    command: str, fens: Sequence[str], nodes: int, workers: int, rounds: int
) -> dict[str, Any]:
    """Searches a second of each way, our ratio to the others, and whether all scores agree."""
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    scores: dict[str, list[int | None]] = {}
    for _ in range(rounds):
        for name, way in WAYS.items():
            started = time.perf_counter()
            scores[name] = way(command, fens, nodes, workers)
            rates[name].append(len(fens) / (time.perf_counter() - started))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    return {
        "nodes": nodes,
        "searches_per_second": {name: round(rate, 1) for name, rate in middle.items()},
        "ours_to_simple_engine": round(middle["ours"] / middle["simple_engine"], 2),
        "ours_to_bare_pipe": round(middle["ours"] / middle["bare_pipe"], 2),
        "same_scores": scores["ours"] == scores["simple_engine"] == scores["bare_pipe"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--positions", type=int, default=300)
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    command, fens = find_engine(chosen.engine), positions(chosen.positions)
    with Analyser(EngineSettings(command)) as analyser:
        identity = analyser.identity.as_dict()
    results = [measure(command, fens, n, chosen.workers, chosen.rounds) for n in chosen.nodes]
    report = {
        "engine": identity,
        "positions": len(fens),
        "workers": chosen.workers,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "load": round(os.getloadavg()[0], 1),
        "results": results,
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
