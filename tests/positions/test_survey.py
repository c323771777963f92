"""What a survey counts, against python-chess and plain loops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import chess
import numpy as np
from occurrence_rows import distinct_table, label_table, occurrences, table_of_rows

from queen.engines.score import expected_from_cp
from queen.positions.packed import pack, squares_of, unpack
from queen.positions.survey import LABEL_KINDS, Survey, label_kinds, phase_of, survey

ROWS = occurrences(30, plies=60)
TABLE = distinct_table(ROWS)
WORTH = {1: 1, 2: 3, 3: 3, 4: 5, 5: 9, 6: 0}


def balance(board: chess.Board) -> int:
    pieces = board.piece_map().values()
    return sum(WORTH[p.piece_type] * (1 if p.color == board.turn else -1) for p in pieces)


def test_material_and_men_are_counted_as_python_chess_counts() -> None:
    found = survey(TABLE.to_batches(max_chunksize=100))
    boards = [unpack(row) for row in TABLE["position"].to_pylist()]
    assert found.rows == len(boards)
    bins = found.histograms["material, side to move"]
    balances = [balance(board) for board in boards]
    assert bins["even"] == balances.count(0)
    assert bins["+5 and more"] == sum(b >= 5 for b in balances)
    assert bins["-4 to -3"] == sum(b in (-4, -3) for b in balances)
    assert bins["+1 to +2"] == sum(b in (1, 2) for b in balances)
    assert sum(bins.values()) == len(boards)
    men = found.histograms["men on the board"]
    assert men["17 to 24"] == sum(17 <= len(b.piece_map()) <= 24 for b in boards)
    assert found.histograms["side to move"]["Black"] == sum(not b.turn for b in boards)


def test_games_ratings_and_evaluations() -> None:
    found = survey(table_of_rows(ROWS).to_batches())
    results = Counter(row["result"] for row in ROWS)
    said = found.histograms["result of the game"]
    assert said == {
        "White won": results[1],
        "draw": results[0],
        "Black won": results[-1],
        "none": results[None],
    }
    assert "seen" not in found.histograms
    elo = found.histograms["higher rating"]
    assert elo["2,000 to 2,399"] == sum(row["white_elo"] == 2100 for row in ROWS)
    assert elo["1,600 to 1,999"] == len(ROWS) - elo["2,000 to 2,399"]
    there = found.histograms["the dump's evaluation"]["there"]
    assert there == sum(r["eval_cp"] is not None or r["eval_mate"] is not None for r in ROWS)
    seen = survey(TABLE.to_batches()).histograms["seen"]
    assert seen["once"] == TABLE["seen"].to_pylist().count(1)


def test_labels_by_source_and_class() -> None:
    labels = label_table(TABLE)
    found = survey(labels.to_batches(max_chunksize=77))
    rows: list[dict[str, Any]] = labels.to_pylist()
    for source in ("engine", "dump"):
        bins = found.histograms[f"labels, source {source}"]
        own = [row for row in rows if row["source"] == source]
        assert sum(bins.values()) == len(own) == found.histograms["source of labels"][source]
        tenth = [r for r in own if r["cp"] is not None and 0.4 <= expected_from_cp(r["cp"]) < 0.5]
        assert bins["40 to 50 %"] == len(tenth)
        assert bins["mates"] == sum((r["mate"] or 0) > 0 for r in own)
    assert tuple(bins) == LABEL_KINDS


def test_the_ends_of_the_scale() -> None:
    cp = np.array([-32_000, 0, 32_000, 0, 0, 0])
    mate, is_mate = np.array([0, 0, 0, 4, -4, 0]), np.array([0, 0, 0, 1, 1, 1], bool)
    kinds = [LABEL_KINDS[n] for n in label_kinds(cp, mate, is_mate)]
    assert kinds == ["0 to 10 %", "50 to 60 %", "90 to 100 %", "mates", "is mated", "is mated"]


def test_phases() -> None:
    fens = (
        chess.STARTING_FEN,
        "4k3/8/8/8/8/8/4P3/4K2R w K - 0 1",
        "4k3/pppq4/8/8/8/8/PPPQR3/4K3 w - - 0 1",
    )
    packed = np.frombuffer(b"".join(pack(chess.Board(f)) for f in fens), np.uint8).reshape(-1, 36)
    assert phase_of(squares_of(packed), np.array([2, 60, 50])).tolist() == [0, 2, 1]
    assert phase_of(squares_of(packed[:1]), np.array([30])).tolist() == [1]


def test_nothing_is_counted_of_nothing() -> None:
    assert survey(TABLE.slice(0, 0).to_batches()) == Survey()
