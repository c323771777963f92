"""The stage: the evaluation set kept out, the same bytes within any bounds, killed and gone on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from occurrence_rows import occurrences, write_artifact, write_evalset, write_parts

from queen.errors import QueenError
from queen.lineage.artifact import open_artifact
from queen.positions.packed import unpack
from queen.positions.schema import DISTINCT
from stages import dedup as stage
from stages.gates import GateError
from stages.runner import run_stage

ROWS = occurrences(40)
DEEP = next(row for row in ROWS[200:] if row["ply"] == 22)
BARRED = [ROWS[0], DEEP]  # after the first move, which many games share, and deep in a game


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose occurrences and evaluation set are there."""
    monkeypatch.setenv("QUEEN_SENDER", "none")
    write_parts(tmp_path / "data/extract", ROWS, 3)
    write_artifact(tmp_path / "data/extract", "extract", licences={"games": "CC0-1.0"})
    write_evalset(tmp_path / "data/evalset", BARRED)
    configure(tmp_path)
    return tmp_path


def configure(root: Path, **values: Any) -> None:
    section = {"evaluation": "data/evalset", "files": 4, "buckets": 16, "memory_mb": 256, **values}
    (root / "params.yaml").write_text(yaml.safe_dump({"seed": 1, "dedup": section}))


def rows_of(root: Path) -> list[dict[str, Any]]:
    artifact = open_artifact(root / "data/dedup")
    names = sorted(entry.name for entry in artifact.record.files)
    assert names == ["0000.parquet", "0001.parquet", "0002.parquet", "0003.parquet"]
    return [row for name in names for row in pq.read_table(artifact.file(name)).to_pylist()]


def test_what_is_evaluated_is_left_out_and_all_is_accounted_for(project: Path) -> None:
    record = run_stage("dedup", project).record
    barred = {row["position"] for row in BARRED}
    kept = [r for r in ROWS if r["position"] not in barred and r["game"] != DEEP["game"]]
    of_game = [r for r in ROWS if r["position"] not in barred and r["game"] == DEEP["game"]]
    found = rows_of(project)
    assert Counter(r["position"] for r in kept) == {r["position"]: r["seen"] for r in found}
    assert list(found[0]) == DISTINCT.names
    assert record.counts == {"rows": len(ROWS), "distinct": len(found)}
    assert record.drops["evaluation_position"] == sum(r["position"] in barred for r in ROWS) > 2
    assert record.drops["evaluation_game"] == len(of_game) > 20
    assert len(ROWS) == len(found) + sum(record.drops.values())
    assert record.licences == {"games": "CC0-1.0"}
    assert list((project / ".state/scratch/dedup").iterdir()) == []


def test_a_file_of_positions_may_stand_for_the_evaluation_set(project: Path) -> None:
    lines = ["# remarks", "", *(f"{unpack(r['position']).epd()} bm e4; id 1" for r in BARRED)]
    (project / "own.epd").write_text("\n".join(lines))
    configure(project, evaluation="own.epd")
    drops = run_stage("dedup", project).record.drops
    assert drops["evaluation_position"] > 2
    assert "evaluation_game" not in drops
    (project / "own.epd").write_text("# nothing\n")
    assert "evaluation_position" not in run_stage("dedup", project).record.drops
    (project / "own.epd").write_text("8/8 w - -\n")
    with pytest.raises(QueenError, match=r"own.epd, line 1: not a position"):
        run_stage("dedup", project)
    configure(project, evaluation="data/nowhere")
    with pytest.raises(QueenError, match=r"nowhere[\s\S]*queen run evalset"):
        run_stage("dedup", project)


def test_bounds_change_neither_key_nor_bytes(project: Path) -> None:
    first = run_stage("dedup", project)
    configure(project, buckets=64, memory_mb=512)
    again = run_stage("dedup", project)
    assert again.record == first.record
    for path in (project / ".state/shards/dedup").iterdir():
        assert path.is_dir()
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    (project / "data/dedup/record.json").unlink()
    assert run_stage("dedup", project).record == first.record


def test_a_run_that_was_stopped_takes_up_its_parts_and_ranges(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run_stage("dedup", project).content
    (project / "data/dedup/record.json").unlink()
    other = project / "other"
    monkeypatch.setenv("QUEEN_STATE", str(other))
    monkeypatch.setattr(stage, "PART_ROWS", 1)
    made: Counter[str] = Counter()
    for name in ("partition", "distinct"):
        monkeypatch.setattr(stage, name, stopping(getattr(stage, name), name, made))
    stops = 0
    while not (project / "data/dedup/record.json").is_file():
        try:
            run_stage("dedup", project)
        except KeyboardInterrupt:
            stops += 1
    assert stops == 2
    assert made["distinct"] == 4 + 1
    assert open_artifact(project / "data/dedup").content == wanted


def stopping(function: Any, name: str, made: Counter[str]) -> Any:
    """The function, which stops the run at its second call."""

    def call(*arguments: Any) -> Any:
        made[name] += 1
        if made[name] == 2:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def test_bad_rows_stop_at_the_gate(project: Path) -> None:
    """Two white kings: what no extraction makes."""
    bad = bytearray(ROWS[-1]["position"])
    bad[0] = 0x66
    rows = [*ROWS[:-1], {**ROWS[-1], "position": bytes(bad)}]
    write_parts(project / "data/extract", rows, 3)
    write_artifact(project / "data/extract", "extract")
    with pytest.raises(
        GateError, match=r"column='possible'[^\n]*1 rows\n    row \d+: possible=False"
    ):
        run_stage("dedup", project)
    assert not (project / "data/dedup").exists()


def test_files_must_divide_the_buckets(project: Path) -> None:
    configure(project, files=3)
    with pytest.raises(QueenError, match=r"3 files of 16 buckets"):
        run_stage("dedup", project)
