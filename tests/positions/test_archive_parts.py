"""Archives in parts: the same files whoever reads them and wherever a run was killed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pgn_mischief import game

from queen.errors import QueenError
from queen.positions.archive_parts import Note, Plan, work_off
from queen.positions.extraction import Filters

COMPRESS = {
    ".pgn": bytes,
    ".pgn.gz": gzip.compress,
    ".pgn.bz2": bz2.compress,
    ".pgn.zst": zstandard.ZstdCompressor().compress,
}
PLAN = Plan(Filters(), part_bytes=2000)


def text(count: int = 16, seed: int = 1) -> bytes:
    rng = random.Random(seed)
    games = []
    for number in range(count):
        fen, body = game(rng, mischief=0.2)
        head = f'[Event "{number}"]\n' + (f'[FEN "{fen}"]\n' if fen else "")
        games.append(f"{head}\n{body}\n")
    return "".join(games).encode() * 8


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def read(folder: Path, *files: Path, plan: Plan = PLAN) -> list[list[Note]]:
    return work_off(files, folder, plan, lambda end, number: None)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "games.pgn.zst"
    path.write_bytes(COMPRESS[".pgn.zst"](text()))
    return path


@pytest.fixture(scope="module")
def whole(archive: Path) -> dict[str, bytes]:
    folder = archive.parent / "whole"
    read(folder, archive)
    return files_of(folder)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_kind_of_archive_gives_the_same_rows(
    suffix: str, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    path = tmp_path / f"games{suffix}"
    path.write_bytes(COMPRESS[suffix](text()))
    (notes,) = read(tmp_path / "out", path)
    assert len(notes) > 3
    assert notes[-1].end == len(text())
    found = files_of(tmp_path / "out")
    assert {k: v for k, v in found.items() if "faults" not in k} == {
        k: v for k, v in whole.items() if "faults" not in k
    }


def test_a_file_name_that_is_no_utf8_is_told_in_escapes(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pgn.gz"))
    path.write_bytes(b"no archive")
    ((note,),) = read(tmp_path / "out", path)
    assert pq.read_table(note.faults)["source"].to_pylist() == [r"caf\xe9.pgn.gz"]


class StoppedError(Exception):
    """A run's end, as its caller brings it about."""


@pytest.mark.parametrize("after", [1, 3])
def test_a_stopped_run_goes_on_where_it_was(
    after: int, archive: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    seen = 0

    def told(end: int, number: int) -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            raise StoppedError

    with pytest.raises(StoppedError):
        work_off([archive], tmp_path, PLAN, told)
    assert 0 < len(files_of(tmp_path)) < len(whole)
    # A part whose note was not written is no part; one in a gap is not read again.
    first, gap = tmp_path / "00000" / "000000.json", tmp_path / "00000" / "000002.json"
    first.unlink()
    before = gap.stat().st_mtime_ns if gap.exists() else None
    read(tmp_path, archive)
    assert files_of(tmp_path) == whole
    assert before is None or gap.stat().st_mtime_ns == before


def test_a_killed_crew_ends_and_the_next_finishes_the_same(
    archive: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from queen.positions.archive_parts import Plan, work_off\n"
        "from queen.positions.extraction import Filters\n"
        "if __name__ == '__main__':\n"
        "    plan = Plan(Filters(), part_bytes=2000, workers=2)\n"
        "    work_off([Path(sys.argv[1])], Path(sys.argv[2]), plan,\n"
        "             lambda end, number: time.sleep(float(sys.argv[3])))\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(archive), str(out)]
    process = subprocess.Popen([*command, "0.5"], start_new_session=True)
    wanted, ends = out / "00000" / "000001.json", time.monotonic() + 200
    while not wanted.is_file() and time.monotonic() < ends:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(files_of(out)) < len(whole)
    while _alive(process.pid) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not _alive(process.pid)
    subprocess.run([*command, "0"], check=True)
    assert {k: v for k, v in files_of(out).items() if "partial" not in k} == whole


def _alive(group: int) -> bool:
    """Whether a process of a group still runs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


def test_a_truncated_archive_keeps_what_it_holds_and_says_so_once(tmp_path: Path) -> None:
    rng = random.Random(3)
    bodies = [body for fen, body in (game(rng, mischief=0.0) for _ in range(30)) if not fen]
    games = [f'[Event "{n}"]\n[Round "{n * n}"]\n\n{rng.choice(bodies)}\n' for n in range(600)]
    path = tmp_path / "games.pgn.gz"
    data = gzip.compress("".join(games).encode())
    path.write_bytes(data[: len(data) // 2])
    plan = Plan(Filters(), part_bytes=20_000)
    (notes,) = read(tmp_path / "out", path, plan=plan)
    assert notes[-1].failed
    assert [note.failed for note in notes].count(True) == 1
    faults = pa.concat_tables(pq.read_table(n.faults) for n in notes if n.faults.is_file())
    assert faults["reason"].to_pylist() == ["truncated_archive"]
    assert faults["source"].to_pylist() == ["games.pgn.gz"]
    before = files_of(tmp_path / "out")
    read(tmp_path / "out", path, plan=plan)
    assert files_of(tmp_path / "out") == before
    assert sum(note.counts["positions"] for note in notes) > 1000


def test_files_without_anything(tmp_path: Path) -> None:
    (tmp_path / "empty.pgn").write_bytes(b"")
    (tmp_path / "none.pgn.gz").write_bytes(b"no archive at all")
    notes = read(tmp_path / "out", tmp_path / "empty.pgn", tmp_path / "none.pgn.gz")
    reasons = [pq.read_table(n[0].faults)["reason"].to_pylist() for n in notes]
    assert reasons == [["empty"], ["unreadable"]]
    assert not any(note.rows.is_file() for file in notes for note in file)


def test_a_torn_note_has_its_part_read_again(
    archive: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    read(tmp_path, archive)
    (tmp_path / "00000" / "000001.json").write_bytes(b"")
    read(tmp_path, archive)
    assert files_of(tmp_path) == whole


def test_a_reader_that_is_killed_is_told_plainly(archive: Path, tmp_path: Path) -> None:
    def kill_readers(end: int, number: int) -> None:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # the pool ends the others by itself
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()

    plan = Plan(Filters(), part_bytes=2000, workers=2)
    with pytest.raises(QueenError, match="was killed"):
        work_off([archive], tmp_path, plan, kill_readers)
