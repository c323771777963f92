"""The stage `extract`: folders of archives in, parts of rows and a count of everything out."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from queen.errors import QueenError
from queen.lineage.artifact import Artifact
from queen.positions.extraction import Rating
from queen.positions.schema import OCCURRENCES
from stages import extract
from stages.gates import GateError
from stages.runner import run_stage

ROOT = Path(__file__).resolve().parents[2]
GAME = """[Event "Rated game {n}"]
[White "Ada Lovelace"]
[Black "Charles Babbage"]
[Result "1-0"]
[Round "{n}"]
[TimeControl "300+0"]

1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 1-0

"""
PARTS = {"part_mb": 0.004}


def games(first: int, count: int) -> str:
    return "".join(GAME.format(n=n) for n in range(first, first + count))


def project(folder: Path, machine: dict[str, int] | None = None, **params: Any) -> Path:
    """A project of params alone."""
    told = yaml.safe_load((ROOT / "params.yaml").read_text())
    told["extract"].update(params)
    told["machine"].update(machine or {"workers": 1})
    (folder / "params").mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(told))
    (folder / "dvc.yaml").write_text("stages: {}\n")
    return folder


def rows(done: Artifact) -> pa.Table:
    return pa.concat_tables(pq.read_table(p) for p in sorted(done.path.glob("part-*.parquet")))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "pgn"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.pgn").write_text(games(0, 30))
    (folder / "deep" / "b.pgn.gz").write_bytes(gzip.compress(games(30, 5).encode()))
    broken = games(35, 1).replace("4. Ba4", "4. Qh7")
    variant = games(36, 1).replace("[Round", '[Variant "Atomic"]\n[Round')
    data = zstandard.ZstdCompressor().compress((broken + variant).encode())
    (folder / "c.pgn.zst").write_bytes(data)
    return folder


def test_a_folder_becomes_parts_and_everything_is_counted(tmp_path: Path, source: Path) -> None:
    done = run_stage("extract", project(tmp_path / "project", source=str(source), **PARTS))
    table, record = rows(done), done.record
    assert table.schema.equals(OCCURRENCES)
    assert table.num_rows == 35 * 10 + 6
    assert record.counts == {
        "parts": 4, "games": 37, "taken": 36, "broken": 1, "positions": 356,
    }  # fmt: skip
    assert record.drops == {"games.variant": 1, "fault.illegal_move": 1}
    (fault,) = pq.read_table(done.file("faults.parquet")).to_pylist()
    assert (fault["reason"], fault["source"], fault["offset"]) == ("illegal_move", "c.pgn.zst", 0)
    everything = b"".join(p.read_bytes() for p in done.path.iterdir())
    for word in (b"Lovelace", b"Babbage", str(tmp_path).encode()):
        assert word not in everything


def test_neither_workers_nor_reader_nor_shards_change_a_byte(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"source": str(source), **PARTS}
    usual = run_stage("extract", project(tmp_path / "one", **told))
    slow = project(tmp_path / "two", machine={"workers": 2}, reader="python-chess", **told)
    assert run_stage("extract", slow).content == usual.content
    monkeypatch.setattr(extract, "SHARD_BYTES", 1)
    split = run_stage("extract", project(tmp_path / "three", **told))
    assert len(usual.record.shards) == 1
    assert len(split.record.shards) == 3
    assert rows(split).equals(rows(usual))


def test_bad_rows_stop_at_the_gate(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part on the disk in which a position has lost its kings."""
    monkeypatch.setattr(extract, "_take", spoilt)
    place = project(tmp_path / "project", source=str(source), **PARTS)
    with pytest.raises(GateError, match=r"column='possible'[^\n]* 4 rows\n    row \d+: possible="):
        run_stage("extract", place)
    assert not (place / "data/extract").exists()


def spoilt(part: Path, target: Path) -> None:
    table = pq.read_table(part)
    positions = [bytes(36), *table["position"].to_pylist()[1:]]
    column = pa.array(positions, table.schema.field("position").type)
    pq.write_table(table.set_column(0, table.schema.field("position"), column), target)


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path, source: Path) -> None:
    place = project(tmp_path / "project", source=str(source), time_control=["bullet"])
    with pytest.raises(QueenError, match=r"no position could be taken .*games.time_control 36"):
        run_stage("extract", place)
    with pytest.raises(QueenError, match="no game file here"):
        run_stage("extract", project(tmp_path / "other", source="nowhere"))
    with pytest.raises(QueenError, match="blits: no such value"):
        run_stage("extract", project(tmp_path / "typo", time_control=["blits"]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share", 0.0), ("share", 1.5), ("share", -1.0), ("share", math.nan), ("skip_plies", -1),
        ("part_mb", 0.0), ("part_mb", math.nan), ("rating", Rating(-1, 0)),
        ("rating", Rating(2000, 1000)),
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(QueenError, match=rf"extract\.{name}: .*out of range"):
        extract.Params("games.pgn", **{name: value})
