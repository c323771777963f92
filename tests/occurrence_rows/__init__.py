"""Rows of the bulk data set for tests: real games of random moves, by the schema."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq

from queen.lineage.artifact import RECORD, Artifact, Record, describe_files, write_json
from queen.positions.grouping import group
from queen.positions.hashing import position_hash
from queen.positions.packed import pack, unpack
from queen.positions.records import positions_of, records_of, table_of
from queen.positions.schema import DISTINCT, LABELS, OCCURRENCES, move_code

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


def write_artifact(folder: Path, stage: str, **more: Any) -> Artifact:
    """Make the files that lie in a folder an artifact, as if a stage had written it."""
    names = ("params", "counts", "drops", "figures", "identities", "licences")
    record = Record(
        name=f"data/{folder.name}",
        stage=stage,
        version=1,
        recipe="made by a test",
        seed=1,
        inputs=(),
        shards=(),
        files=describe_files(folder),
        **{name: more.get(name, {}) for name in names},
    )
    write_json(folder / RECORD, asdict(record))
    return Artifact(folder, record)


def write_evalset(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Artifact:
    """An evaluation set of these rows' positions, as far as others look at it."""
    folder.mkdir(parents=True)
    fens = [unpack(row["position"]).fen() for row in rows]
    pq.write_table(
        pa.table({"fen": fens, "ply": [row["ply"] for row in rows]}), folder / "rows.parquet"
    )
    return write_artifact(folder, "evalset")


def distinct_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """These occurrences as the stage `dedup` writes them."""
    records = records_of(table_of_rows(rows).to_batches())
    groups = group(records, position_hash(positions_of(records)))
    return table_of(groups.take(records, 0, len(groups)), DISTINCT)


def label_table(distinct: pa.Table) -> pa.Table:
    """Labels of such positions: by a rule of thumb for the engine, the dump's own beside them."""
    rows: list[Row] = []
    for row in distinct.to_pylist():
        board = unpack(row["position"])
        label = {"position": row["position"], "mate": None, "depth": 0, "nodes": 0, "best": 0}
        if board.is_game_over():
            mated = board.is_checkmate()
            score = {"cp": None, "mate": 0} if mated else {"cp": 0}
            rows.append({**label, **score, "source": "rules"})
        else:
            rows.append({**label, **_thought(board), "source": "engine", "depth": 1, "nodes": 20})
        if row["eval_cp"] is not None or row["eval_mate"] is not None:
            score = {"cp": row["eval_cp"], "mate": row["eval_mate"]}
            rows.append({**label, **score, "source": "dump"})
    return pa.Table.from_pylist(rows, schema=LABELS)


def _thought(board: chess.Board) -> Row:
    """A mate in one if there is one, else material and a little noise."""
    best = min(board.legal_moves, key=lambda move: move.uci())
    for move in board.legal_moves:
        board.push(move)
        mates = board.is_checkmate()
        board.pop()
        if mates:
            return {"cp": None, "mate": 1, "best": move_code(move)}
    worth = {1: 100, 2: 300, 3: 320, 4: 500, 5: 900, 6: 0}
    pieces = board.piece_map().values()
    men = [worth[p.piece_type] * (1 if p.color == board.turn else -1) for p in pieces]
    noise = random.Random(board.board_fen()).gauss(0, 120)
    return {"cp": int(sum(men) + noise), "best": move_code(best)}
