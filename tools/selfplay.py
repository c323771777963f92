"""The games that ship with the project: engines of varied strength, from varied openings.

    python -m tools.selfplay OUT --games 1500 --seed 0 --workers 2

writes OUT/engine_games.pgn.zst and OUT/engine_games.json (the counts). Every game depends on the
seed and its number alone. Finished games stand in OUT/engine_games.partial.jsonl until all are
done, so a run that was stopped goes on where it was.

Weak play has to be varied and to repeat exactly, and Stockfish's own Skill Level draws from the
clock: so its rule is applied here (`choose_by_skill`), with the game's generator. On top of that a
player plays any move at all at its blunder rate.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import multiprocessing
import random
import signal
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import chess
import orjson
import zstandard
from rich.progress import track

from queen.engines.match import (
    GameRecord,
    Pairing,
    Rules,
    play,
    read_record,
    to_pgn,
)
from queen.engines.openings import OpeningRules, draw_opening, random_ply
from queen.engines.players import FULL_SKILL, SKILL_LINES, centipawns, choose_by_skill, game_rng
from queen.engines.stream import EngineStream, Query, Reply
from queen.engines.uci import PR_SET_PDEATHSIG
from queen.games.chess.position import Position

ENGINES = ("stockfish", "fairy-stockfish")
ARBITER_NODES = 2000
OPENING = OpeningRules(min_plies=2, max_plies=10, balance_cp=150)


@dataclass(frozen=True)
class Strength:
    """How well one side plays.

    Attributes:
        engine: which of ENGINES. nodes: searched on each move.
        skill: 0..20, as Stockfish's Skill Level; 20 plays the search's move.
        blunder: share of moves drawn from all legal ones.
    """

    engine: str
    nodes: int
    skill: int
    blunder: float

    def describe(self, engine_name: str) -> str:
        """As it stands in the headers."""
        skill = "" if self.skill == FULL_SKILL else f" skill={self.skill}"
        blunder = f" blunder={self.blunder:g}" if self.blunder else ""
        return f"{engine_name} nodes={self.nodes}{skill}{blunder}"

    @property
    def go(self) -> str:
        depth = "" if self.skill == FULL_SKILL else f" depth {1 + self.skill}"
        return f"go nodes {self.nodes}{depth}"


# Engine, nodes, skill, blunder: weakest first, as a first set of games rated them.
LADDER = tuple(
    Strength(*row)
    for row in (
        ("fairy-stockfish", 1, 1, 0.08),
        ("stockfish", 20, 0, 0.08),
        ("stockfish", 1, 0, 0.12),
        ("stockfish", 1, 2, 0.06),
        ("fairy-stockfish", 50, 4, 0.04),
        ("stockfish", 50, 2, 0.04),
        ("stockfish", 100, 3, 0.0),
        ("stockfish", 20, 4, 0.02),
        ("stockfish", 1, 5, 0.03),
        ("fairy-stockfish", 1, 20, 0.0),
        ("stockfish", 500, 6, 0.02),
        ("stockfish", 200, 5, 0.0),
        ("fairy-stockfish", 500, 3, 0.0),
        ("stockfish", 1000, 8, 0.0),
        ("stockfish", 200, 12, 0.0),
        ("fairy-stockfish", 200, 8, 0.0),
        ("stockfish", 100, 10, 0.02),
        ("stockfish", 500, 10, 0.0),
        ("fairy-stockfish", 100, 20, 0.01),
        ("stockfish", 1, 20, 0.05),
        ("stockfish", 1000, 15, 0.0),
        ("stockfish", 50, 8, 0.0),
        ("fairy-stockfish", 1000, 12, 0.0),
        ("stockfish", 50, 20, 0.02),
        ("stockfish", 200, 20, 0.01),
        ("stockfish", 2000, 12, 0.01),
        ("fairy-stockfish", 500, 20, 0.0),
        ("stockfish", 1, 20, 0.0),
        ("stockfish", 500, 20, 0.0),
        ("fairy-stockfish", 2000, 20, 0.0),
        ("stockfish", 1000, 20, 0.0),
        ("stockfish", 1500, 20, 0.0),
        ("stockfish", 2000, 20, 0.0),
    )
)


def choose_pair(rng: random.Random) -> tuple[Strength, Strength]:
    """White and Black: three times in four of like strength, else any two."""
    one = rng.randrange(len(LADDER))
    others = [i for i in range(len(LADDER)) if i != one]
    near = [i for i in others if abs(i - one) <= 3]
    other = rng.choice(near if rng.random() < 0.75 else others)
    both = [LADDER[one], LADDER[other]]
    rng.shuffle(both)
    return both[0], both[1]


class StrengthPlayer:
    """A player of one Strength over a shared engine; its draws follow from seed and game."""

    def __init__(self, strength: Strength, stream: EngineStream, seed: int) -> None:
        self.strength, self.seed = strength, seed
        self.name = strength.describe(stream.name)
        self._stream = stream

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        lines = 1 if self.strength.skill == FULL_SKILL else SKILL_LINES
        queries = [Query.of(board, self.strength.go, lines) for board in boards]
        replies = self._stream.search(queries)
        return [self._move(board, reply) for board, reply in zip(boards, replies, strict=True)]

    def _move(self, board: chess.Board, reply: Reply) -> chess.Move | None:
        rng = game_rng(self.seed, board)
        if rng.random() < self.strength.blunder:
            return random_ply(board, rng)
        weak = self.strength.skill < FULL_SKILL and len(reply.choices) > 1
        move = choose_by_skill(reply.choices, self.strength.skill, rng) if weak else reply.best
        return chess.Move.from_uci(move) if move else None


class Workshop:
    """What a worker needs: its engines, and how it makes one game."""

    def __init__(self, commands: Mapping[str, str], seed: int) -> None:
        self.seed = seed
        self.streams = {key: EngineStream(command, {}) for key, command in commands.items()}

    def game(self, index: int) -> GameRecord:
        """Game `index` of the seed: opening, players and rules drawn, then played."""
        rng = random.Random(f"{self.seed}/{index}")
        white, black = choose_pair(rng)
        pairing = Pairing(
            index, self._player(white, rng), self._player(black, rng), self._opening(rng)
        )
        # Most games are given up when decided; the others go on to mate or a draw.
        looks = 4 if rng.random() < 0.6 else 0
        rules = Rules(max_plies=rng.randint(130, 200), check_every=looks, decided=0.97)
        return play([pairing], rules, self.verdict)[0]

    def verdict(self, boards: Sequence[chess.Board]) -> list[float]:
        """White's expected score by Stockfish at ARBITER_NODES."""
        live = [board for board in boards if any(board.generate_legal_moves())]
        queries = [Query.of(board, f"go nodes {ARBITER_NODES}") for board in live]
        values = {
            id(board): reply.choices[0].score.expected
            for board, reply in zip(live, self.streams["stockfish"].search(queries), strict=True)
        }
        own = [values.get(id(board), 0.0 if board.is_check() else 0.5) for board in boards]
        return [v if b.turn else 1 - v for b, v in zip(boards, own, strict=True)]

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()

    def _player(self, strength: Strength, rng: random.Random) -> StrengthPlayer:
        return StrengthPlayer(strength, self.streams[strength.engine], rng.getrandbits(32))

    def _opening(self, rng: random.Random) -> Position:
        """Half of any legal plies, half of plies an engine finds playable."""
        mover = random_ply if rng.random() < 0.5 else self._playable_ply
        return draw_opening(rng, self.verdict, OPENING, mover)

    def _playable_ply(self, board: chess.Board, rng: random.Random) -> chess.Move:
        """One of Stockfish's ten best plies, the likelier the better (40 cp to a factor of e)."""
        choices = self.streams["stockfish"].search([Query.of(board, "go nodes 300", 10)])[0].choices
        scores = [centipawns(choice) for choice in choices]
        weights = [math.exp((score - max(scores)) / 40) for score in scores]
        return chess.Move.from_uci(rng.choices(choices, weights)[0].move)


_workshop: Workshop | None = None


def _open_workshop(commands: Mapping[str, str], seed: int) -> None:
    global _workshop
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _workshop = Workshop(commands, seed)


def _make_game(index: int) -> GameRecord:
    assert _workshop is not None
    return _workshop.game(index)


def make_games(
    partial_file: Path, games: int, seed: int, workers: int, commands: Mapping[str, str]
) -> list[GameRecord]:
    """Games 0..games-1 of the seed, those of `partial_file` read from it, the rest appended."""
    done = {game.index: game for game in read_record(partial_file) if game.index < games}
    todo = [index for index in range(games) if index not in done]
    with partial_file.open("ab") as out:
        for game in track(_played(todo, seed, workers, commands), "games", total=len(todo)):
            out.write(orjson.dumps(game) + b"\n")
            out.flush()
            done[game.index] = game
    return [done[index] for index in range(games)]


def _played(
    todo: Sequence[int], seed: int, workers: int, commands: Mapping[str, str]
) -> Iterator[GameRecord]:
    if not todo:
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _open_workshop, (dict(commands), seed)) as pool:
        yield from pool.imap_unordered(_make_game, todo)


def write_pgn(path: Path, games: Sequence[GameRecord], ratings: Mapping[str, float]) -> None:
    """All games as one zstd-compressed PGN; `ratings` by player become the Elo headers."""
    text = "\n".join(to_pgn(game, _headers(game, ratings)) for game in games)
    _write(path, zstandard.ZstdCompressor(level=19).compress(text.encode()))


def _headers(game: GameRecord, ratings: Mapping[str, float]) -> dict[str, str]:
    sides = {"White": game.white, "Black": game.black}
    strengths = {f"{side}Strength": name for side, name in sides.items()}
    elo = {f"{side}Elo": f"{ratings[name]:.0f}" for side, name in sides.items() if name in ratings}
    return {"Event": "Queen engine games", **strengths, **elo}


def summary(
    games: Sequence[GameRecord], seed: int, ratings: Mapping[str, float]
) -> dict[str, object]:
    """Counts of results, endings, lengths and players, for the machine-readable summary."""
    lengths = [len(game.moves) for game in games]
    players = Counter(name for game in games for name in (game.white, game.black))
    return {
        "seed": seed,
        "games": len(games),
        "plies": sum(lengths),
        "results": dict(sorted(Counter(game.result for game in games).items())),
        "terminations": dict(sorted(Counter(game.termination for game in games).items())),
        "length": {
            "mean": round(statistics.mean(lengths), 1),
            "median": statistics.median(lengths),
            "min": min(lengths),
            "max": max(lengths),
        },
        "opening_plies": dict(sorted(Counter(str(g.opening_plies) for g in games).items())),
        "players": {
            name: {"games": count, **({"elo": ratings[name]} if name in ratings else {})}
            for name, count in sorted(players.items())
        },
    }


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.selfplay", description=__doc__)
    parser.add_argument("out", type=Path, help="folder that receives the games and their counts")
    parser.add_argument("--games", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ratings", type=Path, help="JSON of player to Elo, for the headers")
    parser.add_argument("--keep-partial", action="store_true", help="keep the working file")
    for engine in ENGINES:
        parser.add_argument(f"--{engine}", default=engine, help="its program")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Make the games, or go on making them, and write them out."""
    args = _arguments(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    name = partial(args.out.joinpath)
    working = name("engine_games.partial.jsonl")
    commands = {engine: getattr(args, engine.replace("-", "_")) for engine in ENGINES}
    ratings = json.loads(args.ratings.read_text()) if args.ratings else {}
    games = make_games(working, args.games, args.seed, args.workers, commands)
    write_pgn(name("engine_games.pgn.zst"), games, ratings)
    counts = json.dumps(summary(games, args.seed, ratings), indent=2) + "\n"
    _write(name("engine_games.json"), counts.encode())
    if not args.keep_partial:
        working.unlink()


if __name__ == "__main__":
    main()
