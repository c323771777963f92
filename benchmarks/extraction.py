"""Positions a second out of PGN: this project's extraction, python-chess, pgn-extract.

    python benchmarks/extraction.py FILE [FILE ...] [--games 400] [--rounds 3]
    python benchmarks/extraction.py FILE [FILE ...] --all

All read the same games, from text in memory to the same columns (`queen.positions.schema`), as
arrays and with a FEN for every position beside them. python-chess goes two ways: with this
project's visitor, which packs positions in bulk, and as its documentation reads games, board by
board, with clocks and evaluations of the nodes. Counted is CPU time of one thread; of several
rounds the median counts, the ways taking turns. pgn-extract (Debian: apt-get install pgn-extract)
goes along where it is installed: it writes every move with its FEN and reads neither clocks nor
evaluations, so it does less. `--all` compares every row and every FEN with python-chess's own.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import platform
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import numpy as np
import pyarrow as pa

from queen.engines.locate import find_program
from queen.games.chess.archives import read_chunks
from queen.positions.cutting import GameText, Part, games_of, parts
from queen.positions.extraction import Filters, extract
from queen.positions.fens import fens
from queen.positions.packed import POSITION_BYTES
from queen.positions.reading import Reader
from queen.positions.reference import ReferenceReader
from queen.positions.rust_reader import RustReader

PART_BYTES = 8 << 20
# Every move with its FEN in braces, en passant only where it can be played; nothing else.
PGN_EXTRACT = ["-s", "-C", "-N", "-V", "--fencomments", "--nofauxep", "--notags", "--noresults"]
PGN_EXTRACT += ["--nomovenumbers", "--nochecks", "-w100000"]
Way = Callable[[Part], int]


def arrays(reader: Reader) -> Way:
    """Positions of a part as the table of OCCURRENCES."""
    return lambda part: int(extract(part, Filters(), reader)[0].num_rows)


def with_fens(part: Part) -> int:
    """The table, and a FEN for each of its rows."""
    return len(fens_of(extract(part, Filters(), RustReader())[0]))


def fens_of(table: pa.Table) -> list[str]:
    """FENs of games that begin at the usual start: there the ply tells the number of the move."""
    column = table["position"].combine_chunks()
    packed = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, POSITION_BYTES)
    return fens(packed, table["halfmove"].to_numpy(), table["ply"].to_numpy() // 2 + 1)


def board_by_board(part: Part) -> int:
    """python-chess as its documentation has it: nodes with clocks, evaluations and FENs."""
    return sum(len(rows) for rows in map(_nodes, games_of(part)))


def _nodes(text: GameText) -> list[tuple[Any, ...]]:
    game = chess.pgn.read_game(io.StringIO((text.head.strip() + b"\n\n" + text.body).decode()))
    rows: list[tuple[Any, ...]] = []
    if game is None:
        return rows
    board, headers = game.board(), game.headers
    result, elos = headers.get("Result"), (headers.get("WhiteElo"), headers.get("BlackElo"))
    for node in game.mainline():
        board.push(node.move)
        fen = board.fen(en_passant="legal")
        rows.append((fen, node.move.uci(), node.clock(), node.eval(), result, *elos))
    return rows


def sample(path: Path, games: int) -> Part:
    """The first games of an archive as one part."""
    kept: list[bytes] = []
    for part in parts(read_chunks(path), PART_BYTES):
        for game in games_of(part):
            kept.append(part.data[game.offset - part.offset :][: len(game.head) + len(game.body)])
            if len(kept) == games:
                return Part(b"".join(kept), 0)
    return Part(b"".join(kept), 0)


def cpu_seconds(way: Way, part: Part) -> tuple[float, int]:
    began = time.process_time()
    count = way(part)
    return time.process_time() - began, count


def pgn_extract(program: str, part: Part) -> tuple[float, int]:
    """pgn-extract writing a FEN after every move; CPU seconds of the program."""
    with tempfile.NamedTemporaryFile(suffix=".pgn") as file:
        file.write(part.data)
        file.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([program, *PGN_EXTRACT, file.name], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stdout.count(b"{")


def measured(part: Part, rounds: int) -> dict[str, Any]:
    """Positions per CPU second by way, and ratios."""
    ways: dict[str, Callable[[Part], tuple[float, int]]] = {
        "arrays": lambda p: cpu_seconds(arrays(RustReader()), p),
        "fens": lambda p: cpu_seconds(with_fens, p),
        "python_chess_arrays": lambda p: cpu_seconds(arrays(ReferenceReader()), p),
        "python_chess_board_by_board": lambda p: cpu_seconds(board_by_board, p),
    }
    if program := find_program("pgn-extract"):
        ways["pgn_extract_fens"] = functools.partial(pgn_extract, program)
    ways["arrays"](part)  # imports and caches
    rates: dict[str, list[float]] = {name: [] for name in ways}
    counts: dict[str, int] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds, counts[name] = way(part)
            rates[name].append(counts[name] / seconds)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    return {
        "positions": counts,
        "per_cpu_second": {name: round(rate) for name, rate in middle.items()},
        "spread": {name: [round(min(r)), round(max(r))] for name, r in rates.items()},
        "ratio_arrays": round(middle["arrays"] / middle["python_chess_arrays"], 1),
        "ratio_fens": round(middle["fens"] / middle["python_chess_board_by_board"], 1),
        "ratio_pgn_extract": round(middle["fens"] / middle["pgn_extract_fens"], 1)
        if program
        else "pgn-extract is not installed: left out",
    }


def compared(path: Path) -> dict[str, Any]:
    """Every row and FEN of an archive, with python-chess's own."""
    games = rows = fens_equal = 0
    different: list[int] = []
    for part in parts(read_chunks(path), PART_BYTES):
        fast, told = extract(part, Filters(), RustReader())
        slow, same = extract(part, Filters(), ReferenceReader())
        if not fast.equals(slow) or told != same:
            different.append(part.offset)
        boards = [row[0] for game in games_of(part) for row in _nodes(game)]
        ours = fens_of(fast)
        fens_equal += sum(a == b for a, b in zip(ours, boards, strict=False))
        games, rows = games + told.counts["games"], rows + fast.num_rows
    return {
        "games": games,
        "positions": rows,
        "parts_that_differ": different,
        "fens_that_differ": rows - fens_equal,
    }


def answers(arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    yield "python", platform.python_version()
    yield "chess", chess.__version__
    for path in arguments.files:
        if arguments.all:
            yield path.name, compared(path)
        else:
            yield path.name, measured(sample(path, arguments.games), arguments.rounds)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true")
    print(json.dumps(dict(answers(parser.parse_args(argv))), indent=2))


if __name__ == "__main__":
    main()
