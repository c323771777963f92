"""Gates of tables that do not fit into memory: no row at fault gets through, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from occurrence_rows import distinct_table, label_table, occurrences

from queen.positions.barred import Barred
from queen.positions.packed import pack
from queen.positions.schema import DISTINCT, LABELS, OCCURRENCES, move_code
from stages.bulk import gates as bulk_gates
from stages.bulk.gates import check_distinct, check_labels, check_occurrences, divergence
from stages.gates import GateError

Row = dict[str, Any]
OCCURRENCE_ROWS = occurrences(40, plies=40)
DISTINCT_ROWS = distinct_table(occurrences(40, plies=40)).to_pylist()
LABEL_ROWS = label_table(distinct_table(occurrences(40, plies=40))).to_pylist()
NONE = Barred()


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few are sampled that a fault must be found by the scan of all."""
    monkeypatch.setattr(bulk_gates, "SAMPLE", 30)


def files(folder: Path, rows: list[Row], schema: pa.Schema) -> list[Path]:
    """Two files of small row groups."""
    half = len(rows) // 2
    paths = []
    for number, part in enumerate((rows[:half], rows[half:])):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(pa.Table.from_pylist(part, schema=schema), path, row_group_size=70)
        paths.append(path)
    return paths


def put(column: str, value: Any) -> Callable[[list[Row]], None]:
    def spoil(rows: list[Row]) -> None:
        rows[-20][column] = value

    return spoil


def repeated(rows: list[Row]) -> None:
    rows.insert(len(rows) - 20, dict(rows[-20]))


def repeated_across_files(rows: list[Row]) -> None:
    rows.insert(len(rows) // 2, dict(rows[len(rows) // 2]))


def swapped(rows: list[Row]) -> None:
    rows[-20], rows[-25] = rows[-25], rows[-20]


DISTINCT_FAULTS = {
    "in_order": [repeated, repeated_across_files, swapped],
    "possible": [put("position", bytes(36))],
    "one_eval": [lambda rows: rows[-20].update(eval_cp=1, eval_mate=1)],
    "counted": [put("white_wins", 10**6), put("seen", 0)],
}


def test_good_rows_pass(tmp_path: Path) -> None:
    check_distinct(files(tmp_path, DISTINCT_ROWS, DISTINCT), NONE)
    paths = files(tmp_path, LABEL_ROWS, LABELS)
    check_labels(paths)
    assert len(bulk_gates.label_rows(paths)) < len(LABEL_ROWS) / 5
    assert {row["source"] for row in LABEL_ROWS} == {"engine", "dump"}


@pytest.mark.parametrize(
    ("told", "spoil"), [(t, s) for t, each in DISTINCT_FAULTS.items() for s in each]
)
def test_one_odd_position_is_found(
    tmp_path: Path, told: str, spoil: Callable[[list[Row]], None]
) -> None:
    rows = [dict(row) for row in DISTINCT_ROWS]
    spoil(rows)
    with pytest.raises(
        GateError, match=rf"column='{told}'[^\n]*[12] rows\n    row \d+: {told}=False"
    ):
        check_distinct(files(tmp_path, rows, DISTINCT), NONE)


def test_overlap_with_the_evaluation_set_is_found(tmp_path: Path) -> None:
    barred = Barred(frozenset({DISTINCT_ROWS[-7]["position"]}))
    fault = r"column='barred'[^\n]*1 rows\n    row \d+: barred=True"
    with pytest.raises(GateError, match=fault):
        check_distinct(files(tmp_path, DISTINCT_ROWS, DISTINCT), barred)


def test_a_position_that_cannot_arise_is_found_in_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """White has moved and stands in check: bytes as such are possible."""
    monkeypatch.setattr(bulk_gates, "SAMPLE", 10**6)
    rows = [{**DISTINCT_ROWS[0], "position": pack(chess.Board("4k3/8/8/8/8/8/4r3/4K3 b - - 0 1"))}]
    with pytest.raises(GateError, match=r"column='legal'[^\n]*1 rows"):
        check_distinct(files(tmp_path, rows, DISTINCT), NONE)


def early(rows: list[Row]) -> None:
    rows[-20]["ply"] = rows[-21]["ply"]


def repeated_across_groups(rows: list[Row]) -> None:
    rows.insert(70, dict(rows[69]))


def bare(rows: list[Row]) -> None:
    rows[-20].update(position=BARE, eval_mate=3, eval_cp=None)


OCCURRENCE_FAULTS = {
    "in_order": [repeated, repeated_across_groups, swapped, early],
    "possible": [put("position", bytes(36))],
    "one_eval": [lambda rows: rows[-20].update(eval_cp=1, eval_mate=-1)],
    "mate_sign": [bare],
}


def test_good_occurrences_pass_twice_over(tmp_path: Path) -> None:
    """A game that an archive holds twice is no fault: `dedup` counts it twice."""
    check_occurrences(files(tmp_path, OCCURRENCE_ROWS, OCCURRENCES))
    last = [row for row in OCCURRENCE_ROWS if row["game"] == OCCURRENCE_ROWS[-1]["game"]]
    paths = files(tmp_path, [*OCCURRENCE_ROWS, *last, *last], OCCURRENCES)
    check_occurrences(paths)
    assert len(bulk_gates.occurrence_rows(paths)) < len(OCCURRENCE_ROWS) / 5


@pytest.mark.parametrize(
    ("told", "spoil"), [(t, s) for t, each in OCCURRENCE_FAULTS.items() for s in each]
)
def test_one_odd_occurrence_is_found(
    tmp_path: Path, told: str, spoil: Callable[[list[Row]], None]
) -> None:
    rows = [dict(row) for row in OCCURRENCE_ROWS]
    spoil(rows)
    with pytest.raises(
        GateError, match=rf"column='{told}'[^\n]*[12] rows\n    row \d+: {told}=False"
    ):
        check_occurrences(files(tmp_path, rows, OCCURRENCES))


def test_the_sample_of_occurrences_does_not_grow_with_a_position_that_all_games_share(
    tmp_path: Path,
) -> None:
    first = [row for row in OCCURRENCE_ROWS if row["ply"] == 1]
    rows = [{**row, "game": n.to_bytes(16, "little")} for n, row in enumerate(50 * first)]
    taken = len(bulk_gates.occurrence_rows(files(tmp_path, rows, OCCURRENCES)))
    assert 10 <= taken <= 60


MATE_IN_ONE = chess.Board("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1")


@pytest.mark.parametrize(
    ("told", "values"),
    [
        ("legal", {"position": pack(chess.Board("4k3/8/8/8/8/8/4r3/4K3 b - - 0 1")), "played": 0}),
        ("plausible", {"played": move_code(chess.Move.from_uci("a1b3"))}),
        ("plausible", {"position": pack(chess.Board()), "eval_mate": 1, "played": 0}),
        ("eval_cp", {"eval_mate": None, "eval_cp": 32_500}),
        ("eval_mate", {"eval_mate": 700}),
        ("ply", {"ply": 0}),
        ("result", {"result": 2}),
        ("clock", {"clock": -3.0}),
        ("white_elo", {"white_elo": -7}),
    ],
)
def test_odd_occurrences_are_found_in_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, values: Row
) -> None:
    monkeypatch.setattr(bulk_gates, "SAMPLE", 10**6)
    good = {
        **OCCURRENCE_ROWS[0],
        "position": pack(MATE_IN_ONE),
        "played": move_code(chess.Move.from_uci("a1a7")),
        "eval_cp": None,
        "eval_mate": 1,
    }
    check_occurrences(files(tmp_path, [good], OCCURRENCES))
    with pytest.raises(GateError, match=rf"column='{told}'[^\n]*1 rows\n    row 0: {told}="):
        check_occurrences(files(tmp_path, [{**good, **values}], OCCURRENCES))


def test_the_dumps_evaluations_are_compared_with_what_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_gates, "SAMPLE", 10**6)
    lost = [{**row, "eval_cp": -900, "eval_mate": None} for row in OCCURRENCE_ROWS]
    with pytest.raises(GateError, match=r"divergence[^\n]*observed 2\.\d"):
        check_occurrences(files(tmp_path, lost, OCCURRENCES))
    without = [{**row, "eval_cp": None, "eval_mate": None} for row in OCCURRENCE_ROWS]
    check_occurrences(files(tmp_path, without, OCCURRENCES))


def label(**values: Any) -> list[Row]:
    plain = {"cp": None, "mate": None, "best": 0, "depth": 1, "nodes": 1, "source": "engine"}
    return [{**plain, **values}]


def mate_in_one(move: str, mate: int = 1) -> list[Row]:
    board = chess.Board("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1")
    found = chess.Move.from_uci(move)
    return label(position=pack(board), mate=mate, best=found.from_square | found.to_square << 6)


STALEMATE = pack(chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"))
BARE = pack(chess.Board("7k/8/8/8/8/8/7P/K7 b - - 0 1"))
LABEL_FAULTS: list[tuple[str, list[Row]]] = [
    ("rules", mate_in_one("a1a7")),
    ("rules", label(position=STALEMATE, source="rules", mate=0)),
    ("mate_sign", label(position=BARE, mate=3, best=1)),
    ("sound", label(position=BARE, cp=3, mate=-3, best=1)),
    ("sound", label(position=BARE, best=1)),
    ("sound", label(position=BARE, mate=0, best=1)),
    ("sound", label(position=BARE, cp=3, best=0)),
    ("sound", label(position=STALEMATE, source="rules", cp=30)),
    ("source", label(position=BARE, source="mixed", cp=3)),
    ("cp", label(position=BARE, cp=32_500, best=1)),
    ("mate", label(position=BARE, mate=-600, best=1)),
]


@pytest.mark.parametrize(("told", "rows"), LABEL_FAULTS)
def test_odd_labels_are_shown(tmp_path: Path, told: str, rows: list[Row]) -> None:
    with pytest.raises(GateError, match=rf"column='{told}'[^\n]*1 rows\n    row 0: {told}="):
        check_labels(files(tmp_path, rows, LABELS))


def test_right_ends_of_games_pass(tmp_path: Path) -> None:
    check_labels(files(tmp_path, mate_in_one("a1a8"), LABELS))
    check_labels(files(tmp_path, label(position=STALEMATE, source="rules", cp=0), LABELS))
    check_labels(files(tmp_path, label(position=BARE, mate=-3, best=1), LABELS))


def test_a_label_stands_once_for_each_source(tmp_path: Path) -> None:
    rows = [dict(row) for row in LABEL_ROWS]
    repeated(rows)
    with pytest.raises(GateError, match=r"column='in_order'"):
        check_labels(files(tmp_path, rows, LABELS))


def test_labels_are_compared_with_what_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_gates, "SAMPLE", 10**6)
    check_labels(files(tmp_path, LABEL_ROWS, LABELS))
    lost = [{**row, "cp": -900, "mate": None} for row in LABEL_ROWS if row["cp"] is not None]
    with pytest.raises(GateError, match=r"divergence[^\n]*observed 2\.\d"):
        check_labels(files(tmp_path, lost, LABELS))


def test_the_expected_shares_are_no_distance_from_themselves() -> None:
    centres = {
        str(n): cp for n, cp in enumerate([-800, -470, -300, -170, -60, 60, 170, 300, 470, 800])
    }
    rows: list[Row] = []
    for name, share in bulk_gates.EXPECTED_SHARES.items():
        score = {"mates": (None, 4), "mated": (None, -4)}.get(name) or (centres[name], None)
        rows += [{"cp": score[0], "mate": score[1]}] * round(1000 * share)
    assert divergence(pa.Table.from_pylist(rows)) == pytest.approx(0, abs=1e-3)
