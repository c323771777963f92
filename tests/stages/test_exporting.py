"""What is exported loads with `datasets`, says of itself what the records say, and joins right."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from occurrence_rows import (
    distinct_table,
    label_table,
    occurrences,
    table_of_rows,
    write_artifact,
)
from typer.testing import CliRunner

from queen.cli import app
from queen.errors import QueenError
from queen.positions.packed import unpack
from stages.bulk.export import EXPORTED, export_positions
from stages.bulk.survey import artifacts_of, surveyed

ROWS = occurrences(30, plies=40)
TABLE = distinct_table(ROWS)
LABELS = label_table(TABLE)
CLI = CliRunner()


def cut(folder: Path, table: pa.Table, at: list[int]) -> None:
    """A table as several files with small row groups."""
    folder.mkdir(parents=True)
    bounds = [0, *at, len(table)]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        part = table.slice(start, stop - start)
        pq.write_table(part, folder / f"{number:04d}.parquet", row_group_size=50)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the three artifacts, every seventh position without a label."""
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params").mkdir()
    monkeypatch.chdir(tmp_path)
    half = len(TABLE) // 2
    positions = TABLE["position"].to_pylist()
    unlabelled = set(positions[::7])
    kept = pa.array([p not in unlabelled for p in LABELS["position"].to_pylist()])
    cut(tmp_path / "data/extract", table_of_rows(ROWS), [])
    cut(tmp_path / "data/dedup", TABLE, [half])
    cut(tmp_path / "data/label", LABELS.filter(kept), [half])
    pq.write_table(
        pa.table({"position": [b""], "reason": [""]}), tmp_path / "data/label/rejects.parquet"
    )
    write_artifact(tmp_path / "data/extract", "extract")
    more = {"licences": {"games": "CC0-1.0"}, "drops": {"repeated": len(ROWS) - len(TABLE)}}
    write_artifact(tmp_path / "data/dedup", "dedup", counts={"rows": len(ROWS)}, **more)
    engine = {"engine": {"name": "Fish 1", "network": "abc"}}
    write_artifact(tmp_path / "data/label", "label", identities=engine)
    return tmp_path


def exported(folder: Path) -> list[dict[str, Any]]:
    return [
        r for path in sorted((folder / "data").iterdir()) for r in pq.read_table(path).to_pylist()
    ]


@pytest.mark.parametrize("source", ["engine", "dump"])
def test_each_labelled_position_once_with_its_own_label(project: Path, source: str) -> None:
    done = export_positions(project, project / "out", source)
    found = exported(project / "out")
    unlabelled = set(TABLE["position"].to_pylist()[::7])
    wanted = {
        row["position"]: row
        for row in LABELS.to_pylist()
        if (row["source"] == "dump") == (source == "dump") and row["position"] not in unlabelled
    }
    distinct = {row["position"]: row for row in TABLE.to_pylist()}
    assert done.rows == len(found) == len(wanted) > 100
    assert done.shards == 2
    order = [row for row in TABLE["position"].to_pylist() if row in wanted]
    for row, position in zip(found, order, strict=True):
        label, kept = wanted[position], distinct[position]
        board = chess.Board(row["fen"])
        assert row["fen"].rsplit(" ", 2)[0] == unpack(position).epd()
        assert board.halfmove_clock == kept["halfmove"]
        assert board.ply() == kept["ply"]
        assert [row[n] for n in ("cp", "mate", "source")] == [
            label[n] for n in ("cp", "mate", "source")
        ]
        assert (row["best"] is None) == (label["best"] == 0)
        for move in (row["best"], row["played"]):
            assert move is None or chess.Move.from_uci(move) in board.legal_moves
        assert row["seen"] == kept["seen"]


def test_datasets_loads_it_offline(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_positions(project, project / "out", "engine")
    monkeypatch.setenv("HF_HOME", str(project / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(project / "cache"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import datasets

    loaded = datasets.load_dataset(str(project / "out"), cache_dir=str(project / "cache"))
    assert list(loaded) == ["train"]
    assert loaded["train"].column_names == EXPORTED.names
    assert loaded["train"].to_list() == exported(project / "out")


def test_the_card_says_what_the_records_say(project: Path) -> None:
    export_positions(project, project / "out", "engine")
    _, front, body = (project / "out/README.md").read_text().split("---\n", 2)
    said = yaml.safe_load(front)
    assert said["license"] == "cc0-1.0"
    assert said["size_categories"] == ["n<1K"] or len(TABLE) > 1100
    assert said["configs"][0]["data_files"][0] == {"split": "train", "path": "data/*.parquet"}
    assert f"{len(ROWS):,} occurrences" in body
    assert "games: CC0-1.0" in body
    assert "Fish 1" in body
    assert f"repeated: {len(ROWS) - len(TABLE):,}" in body
    for name in EXPORTED.names:
        assert name in body.split("## Columns")[1].split("## Sources")[0]
    export_positions(project, project / "dump", "dump")
    assert "Fish 1" not in (project / "dump/README.md").read_text()


def test_labels_that_cannot_be_joined_are_refused(project: Path) -> None:
    labels = LABELS.filter(pa.array([s == "engine" for s in LABELS["source"].to_pylist()]))
    turned = labels.take(pa.array(range(len(labels))[::-1]))
    twice = pa.concat_tables([labels.slice(0, 5), labels.slice(4)])
    for table, why in ((turned, "not in the order"), (twice, "two labels of engine")):
        for path in (project / "data/label").iterdir():
            path.unlink()
        pq.write_table(table, project / "data/label/0000.parquet")
        write_artifact(project / "data/label", "label")
        with pytest.raises(QueenError, match=why):
            export_positions(project, project / "out", "engine")
        assert not (project / "out").exists()
    pq.write_table(labels, project / "data/label/0000.parquet")
    write_artifact(project / "data/label", "label")
    with pytest.raises(QueenError, match="no labels of source 'dump'"):
        export_positions(project, project / "out", "dump")


@pytest.mark.parametrize("name", ["dedup", "label"])
def test_a_changed_byte_is_not_given_away(project: Path, name: str) -> None:
    path = project / "data" / name / "0000.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(QueenError, match=r"0000\.parquet has another hash") as told:
        export_positions(project, project / "out", "engine")
    assert name in told.value.where
    assert not (project / "out").exists()


def test_the_commands(project: Path) -> None:
    (project / "full").mkdir()
    (project / "full/x").touch()
    refused = CLI.invoke(app, ["positions", "export", "full"])
    assert "holds something already" in str(refused.exception)
    done = CLI.invoke(app, ["positions", "export", "out", "--label-source", "dump"])
    assert done.exit_code == 0, done.output
    assert "2 shards" in done.output
    odd = CLI.invoke(app, ["positions", "export", "other", "--label-source", "both"])
    assert "no labels of source 'both'" in str(odd.exception)
    text = CLI.invoke(app, ["positions", "stats"]).output
    for part in (
        "data/extract",
        "data/dedup",
        "data/label",
        "CC0-1.0",
        "phase",
        "labels, source engine",
    ):
        assert part in text
    said = json.loads(CLI.invoke(app, ["positions", "stats", "dedup", "--json"]).stdout)
    assert [each["artifact"] for each in said] == ["data/dedup"]
    assert said[0]["rows"] == said[0]["looked_at"] == len(TABLE)
    nowhere = CLI.invoke(app, ["positions", "stats", "nothing"])
    assert "no complete artifact here" in str(nowhere.exception)


def test_a_part_may_stand_for_the_whole(project: Path) -> None:
    (artifact,) = artifacts_of(project, "dedup")
    whole, part = surveyed(artifact), surveyed(artifact, len(TABLE) // 3)
    assert whole.whole
    assert not part.whole
    assert part.survey.rows < len(TABLE) / 2
    assert set(part.survey.histograms) == set(whole.survey.histograms)


def test_a_project_without_the_bulk_data_set(tmp_path: Path) -> None:
    with pytest.raises(QueenError, match="has not been begun"):
        artifacts_of(tmp_path, None)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "rows.parquet")
    write_artifact(tmp_path, "other")
    with pytest.raises(QueenError, match="no table of positions"):
        artifacts_of(tmp_path, str(tmp_path))
