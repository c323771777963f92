"""Game files as a user may have them: empty, broken, of a variant, in a folder, with names."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from queen.errors import QueenError
from stages.runner import run_stage

ROOT = Path(__file__).resolve().parents[2]
GAME = """[Event "Open"]
[White "Ada Lovelace"]
[Black "Charles Babbage"]
[Result "1-0"]

1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 1-0
"""
VARIANT = GAME.replace('[Event "Open"]', '[Event "Fun"]\n[Variant "Atomic"]')
BROKEN = GAME.replace("4. Ba4", "4. Qh7")


def project(folder: Path, **games: object) -> Path:
    """A project of params alone, whose games are read from a folder or file."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["games"].update(games)
    (folder / "params").mkdir()
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "dvc.yaml").write_text("stages: {}\n")
    return folder


def test_a_folder_is_read_whole_and_faults_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "pgn"
    (source / "a").mkdir(parents=True)
    (source / "a" / "one.pgn").write_text(GAME + "\n" + VARIANT)
    (source / "one.pgn").write_text(BROKEN)
    (source / "empty.pgn").write_text("")
    done = run_stage("games", project(tmp_path, source=str(source), min_plies=2))
    counts = done.record.counts
    assert (counts["read"], counts["kept"]) == (2, 2)
    assert done.record.drops["rejected.variant"] == 1
    assert done.record.drops["rejected.illegal_move"] == 1
    rows = pq.read_table(done.file("rows.parquet"))
    assert sorted(rows["plies"].to_pylist()) == [6, 10]
    rejects = pq.read_table(done.file("rejects.parquet"))
    assert set(rejects["source"].to_pylist()) == {"one.pgn", "empty.pgn"}


def test_names_are_dropped_and_no_path_stands_in_the_record(tmp_path: Path) -> None:
    source = tmp_path / "games.pgn"
    source.write_text(GAME)
    done = run_stage("games", project(tmp_path, source=str(source)))
    everything = b"".join(p.read_bytes() for p in done.path.iterdir())
    for word in (b"Lovelace", b"Babbage", str(tmp_path).encode()):
        assert word not in everything


def test_names_are_kept_where_a_param_says_so(tmp_path: Path) -> None:
    source = tmp_path / "games.pgn"
    source.write_text(GAME)
    done = run_stage("games", project(tmp_path, source=str(source), keep_names=True))
    rows = pq.read_table(done.file("rows.parquet"))
    assert rows["names"].to_pylist() == ["Ada Lovelace - Charles Babbage"]


@pytest.mark.parametrize("text", ["", "no game here\n", VARIANT])
def test_no_usable_game_is_an_error_with_a_remedy(tmp_path: Path, text: str) -> None:
    source = tmp_path / "games.pgn"
    source.write_text(text)
    with pytest.raises(QueenError) as caught:
        run_stage("games", project(tmp_path, source=str(source)))
    assert "games.pgn" in str(caught.value)
    assert "remedy" in str(caught.value)


def test_another_file_at_the_same_path_is_other_work(tmp_path: Path) -> None:
    source = tmp_path / "games.pgn"
    source.write_text(GAME)
    root = project(tmp_path, source=str(source))
    first = run_stage("games", root)
    source.write_text(GAME.replace("Be7 1-0", "Be7 6. Re1 1-0"))
    assert run_stage("games", root).content != first.content


@pytest.mark.parametrize("name", ["cut.pgn.zst", "plain.pgn.zst"])
def test_an_archive_that_is_none_or_cut_says_so(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    whole = zstandard.ZstdCompressor().compress(GAME.encode())
    source.write_bytes(whole[:20] if name.startswith("cut") else GAME.encode())
    with pytest.raises(QueenError) as caught:
        run_stage("games", project(tmp_path, source=str(source)))
    reason = "truncated_archive" if name.startswith("cut") else "unreadable"
    assert f"({reason} 1)" in str(caught.value)
    assert f"first: {name}, byte" in str(caught.value)


def test_too_few_of_the_machine_are_refused_before_anything_runs(tmp_path: Path) -> None:
    source = tmp_path / "games.pgn"
    source.write_text(GAME)
    where = project(tmp_path, source=str(source))
    params = yaml.safe_load((where / "params.yaml").read_text())
    params["machine"]["ranks"] = 0
    (where / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.raises(QueenError, match=r"machine\.ranks"):
        run_stage("games", where)
