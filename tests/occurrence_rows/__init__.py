"""Rows of the bulk data set for tests: real games of random moves, by the schema."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq

from queen.positions.packed import pack
from queen.positions.schema import OCCURRENCES, move_code

Row = dict[str, Any]
RESULTS = (1, 0, -1, None)


def game_rows(seed: int, plies: int = 24) -> list[Row]:
    """A game of random moves; few choices at the start, so that games meet again and again."""
    rng = random.Random(seed)
    board = chess.Board()
    game = rng.randbytes(16)
    result, with_eval = rng.choice(RESULTS), rng.random() < 0.4
    rows: list[Row] = []
    for ply in range(1, plies + 1):
        moves = sorted(board.legal_moves, key=lambda move: move.uci())
        if not moves:
            break
        move = rng.choice(moves[: 2 if ply < 10 else 40])
        board.push(move)
        if rows:
            rows[-1]["played"] = move_code(move)
        mate = with_eval and rng.random() < 0.1
        rows.append(
            {
                "position": pack(board),
                "game": game,
                "ply": ply,
                "halfmove": board.halfmove_clock,
                "move": move_code(move),
                "played": 0,
                "white_elo": rng.choice([None, 1500, 2100]),
                "black_elo": 1700,
                "clock": rng.choice([None, 61.5]),
                "eval_cp": rng.randint(-400, 400) if with_eval and not mate else None,
                "eval_mate": rng.choice([-3, 2]) if mate else None,
                "result": result,
            }
        )
    return rows


def occurrences(games: int, plies: int = 24, seed: int = 0) -> list[Row]:
    """Rows of several games, one after the other."""
    return [row for n in range(games) for row in game_rows(1000 * seed + n, plies)]


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=OCCURRENCES)


def write_parts(folder: Path, rows: Sequence[Mapping[str, Any]], parts: int) -> list[Path]:
    """Rows as so many parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // parts)
    paths = []
    for number in range(parts):
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table_of_rows(rows[number * size : (number + 1) * size]), path)
        paths.append(path)
    return paths
