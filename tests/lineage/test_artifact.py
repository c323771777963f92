"""Artifacts are whole or nothing, and say which byte is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from queen.lineage.artifact import (
    ArtifactError,
    Record,
    describe_files,
    fresh_partial,
    hash_problems,
    open_artifact,
    partial_folder,
    publish,
)


def make(folder: Path, text: str = "hello", name: str = "data/games") -> Path:
    final = folder / name
    partial = fresh_partial(final)
    (partial / "rows.txt").write_text(text)
    (partial / "deep").mkdir()
    (partial / "deep" / "more.txt").write_text(text * 2)
    publish(partial, final, record(name, partial))
    return final


def record(name: str, partial: Path) -> Record:
    return Record(
        name=name, stage="games", version=1, recipe="r", seed=1, params={"a": 1}, inputs=(),
        shards=("k",), files=describe_files(partial), counts={}, drops={}, figures={},
        identities={}, licences={},
    )  # fmt: skip


def test_a_published_artifact_opens_with_its_record(tmp_path: Path) -> None:
    artifact = open_artifact(make(tmp_path))
    assert artifact.file("deep/more.txt").read_text() == "hellohello"
    assert artifact.record.shards == ("k",)
    assert not list(hash_problems(artifact.path, artifact.record))


def test_content_is_of_data_alone_and_records_are_deterministic(tmp_path: Path) -> None:
    one = open_artifact(make(tmp_path / "a"))
    other = open_artifact(make(tmp_path / "b", name="data/sample/r1"))
    assert one.content == other.content
    again = make(tmp_path / "c")
    assert (again / "record.json").read_bytes() == (one.path / "record.json").read_bytes()
    assert open_artifact(make(tmp_path / "d", "other")).content != one.content


def test_one_byte_changed_is_found_and_named(tmp_path: Path) -> None:
    final = make(tmp_path)
    (final / "deep" / "more.txt").write_text("hellohellO")
    artifact = open_artifact(final)  # sizes still agree
    assert list(hash_problems(final, artifact.record)) == [
        "file deep/more.txt has another hash than recorded"
    ]


def test_missing_short_and_foreign_files_are_named(tmp_path: Path) -> None:
    final = make(tmp_path)
    (final / "rows.txt").write_text("hell")
    with pytest.raises(ArtifactError, match=r"rows\.txt has 4 bytes, recorded 5"):
        open_artifact(final)
    (final / "rows.txt").unlink()
    with pytest.raises(ArtifactError, match=r"rows\.txt is missing"):
        open_artifact(final)
    (final / "rows.txt").write_text("hello")
    (final / "extra").write_text("")
    artifact = open_artifact(final)
    assert list(hash_problems(final, artifact.record)) == ["file extra is not in the record"]


def test_without_a_record_a_folder_is_no_artifact(tmp_path: Path) -> None:
    partial = fresh_partial(tmp_path / "x")
    (partial / "rows.txt").write_text("half")
    with pytest.raises(ArtifactError, match="no complete artifact"):
        open_artifact(partial)


def test_what_a_killed_run_left_is_swept_away(tmp_path: Path) -> None:
    rubble = partial_folder(tmp_path / "data" / "games")
    rubble.mkdir(parents=True)
    (rubble / "half").write_text("x")
    assert [e.name for e in open_artifact(make(tmp_path)).record.files] == [
        "deep/more.txt",
        "rows.txt",
    ]


def test_a_new_artifact_replaces_the_old_one(tmp_path: Path) -> None:
    make(tmp_path, "old")
    final = make(tmp_path, "new")
    assert (final / "rows.txt").read_text() == "new"
    assert sorted(p.name for p in final.parent.iterdir()) == ["games"]
