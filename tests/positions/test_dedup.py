"""Deduplication: against a plain dictionary, and the same bytes however it is cut."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from dying import got_through
from hypothesis import given, settings
from hypothesis import strategies as st
from occurrence_rows import occurrences, table_of_rows, write_parts

from queen.errors import QueenError
from queen.positions import dedup as module
from queen.positions import grouping
from queen.positions.barred import Barred
from queen.positions.dedup import Bounds, dedup, partition, read_batches
from queen.positions.grouping import group
from queen.positions.hashing import position_hash
from queen.positions.records import OCCURRENCE, positions_of, records_of, table_of
from queen.positions.runs import open_part
from queen.positions.schema import DISTINCT, OCCURRENCES

Row = dict[str, Any]
ROWS = occurrences(60)


def rank(row: Row) -> tuple[Any, ...]:
    rest = tuple((row[n] is None, row[n] or 0) for n in OCCURRENCES.names)
    no_eval = row["eval_cp"] is None and row["eval_mate"] is None
    return no_eval, row["game"], row["ply"], rest


def expected(rows: list[Row]) -> dict[bytes, Row]:
    """The plain way: one dictionary."""
    found: dict[bytes, Row] = {}
    results = {1: "white_wins", 0: "draws", -1: "black_wins"}
    for row in sorted(rows, key=rank):
        kept = found.setdefault(
            row["position"], {**row, "seen": 0, "white_wins": 0, "draws": 0, "black_wins": 0}
        )
        kept["seen"] += 1
        if row["result"] is not None:
            kept[results[row["result"]]] += 1
    return found


def run(tmp_path: Path, rows: list[Row], parts: int = 3, name: str = "a", **more: Any) -> Path:
    inputs = write_parts(tmp_path / f"{name}-in", rows, parts)
    bounds = more.pop("bounds", Bounds(16, 256))
    dedup(inputs, tmp_path / name, bounds, tmp_path / f"{name}-scratch", files=4, **more)
    return tmp_path / name


def small_memory(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A bound of so many records, below what a person may ask for."""
    monkeypatch.setattr(module, "_FEWEST_ROWS", 0)
    monkeypatch.setattr(Bounds, "rows", rows)


def rows_of(folder: Path) -> list[Row]:
    return [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_rows_come_back_as_they_were() -> None:
    table = table_of_rows(ROWS)
    assert table_of(records_of(table.to_batches()), OCCURRENCES).to_pylist() == ROWS
    part = table.slice(7, 30).combine_chunks()
    assert table_of(records_of(part.to_batches()), OCCURRENCES).equals(part)


def test_like_a_dictionary(tmp_path: Path) -> None:
    found = rows_of(run(tmp_path, ROWS))
    wanted = expected(ROWS)
    assert {row["position"]: row for row in found} == wanted
    assert len(found) == len(wanted) < len(ROWS)
    assert max(row["seen"] for row in found) > 10
    assert pq.read_schema(tmp_path / "a" / "0000.parquet").equals(DISTINCT)


def test_rows_stand_in_order_of_their_hashes_and_files_cut_the_range(tmp_path: Path) -> None:
    run(tmp_path, ROWS)
    hashes = [
        position_hash(np.frombuffer(r["position"], "u1")[None])[0] for r in rows_of(tmp_path / "a")
    ]
    assert hashes == sorted(hashes)
    for number, path in enumerate(sorted((tmp_path / "a").iterdir())):
        packed = b"".join(pq.read_table(path)["position"].to_pylist())
        part = position_hash(np.frombuffer(packed, np.uint8).reshape(-1, 36)) >> np.uint64(62)
        assert set(part.tolist()) == {number}


@pytest.mark.parametrize("seed", [1, 2])
def test_no_bytes_depend_on_order_parts_buckets_or_memory(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = contents(run(tmp_path, ROWS))
    mixed = random.Random(seed).sample(ROWS, len(ROWS))
    assert contents(run(tmp_path, mixed, 1, "b", bounds=Bounds(4, 256))) == first
    small_memory(monkeypatch, 40 * seed)
    monkeypatch.setattr(module, "BATCH", 30)
    monkeypatch.setattr(module, "ROW_GROUP", 7)
    small = run(tmp_path, mixed, 5, "c", bounds=Bounds(4 * seed, 256))
    monkeypatch.setattr(Bounds, "rows", 100_000)
    assert contents(run(tmp_path, ROWS, 2, "d", bounds=Bounds(64, 256))) == contents(small)
    assert rows_of(tmp_path / "a") == rows_of(small)


def test_a_bucket_beyond_the_bound_is_cut_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bucket, a bound of 50 rows, and one position that makes up most of them."""
    often = [{**ROWS[0], "game": bytes([n % 256]) * 16, "ply": n} for n in range(400)]
    rows = [*ROWS, *often]
    cut = Counter[int]()
    real = module._cut_again

    def counting(parts: Any, bucket: int, at: Any, most: int, scratch: Path) -> Any:
        cut[at.skipped] += 1
        return real(parts, bucket, at, most, scratch)

    monkeypatch.setattr(module, "_cut_again", counting)
    monkeypatch.setattr(module, "BATCH", 25)
    small_memory(monkeypatch, 50)
    found = rows_of(run(tmp_path, rows, bounds=Bounds(4, 256)))
    assert {row["position"]: row for row in found} == expected(rows)
    assert cut[0] == 4
    assert not (tmp_path / "a-scratch").exists()


def test_positions_that_share_a_hash_are_told_apart() -> None:
    records = records_of(table_of_rows(ROWS).to_batches())
    for hashes in (np.zeros(len(records), np.uint64), np.full(len(records), 2**64 - 1, np.uint64)):
        groups = group(records, hashes)
        rows = table_of(groups.take(records, 0, len(groups)), DISTINCT).to_pylist()
        assert {row["position"]: row for row in rows} == expected(ROWS)
        assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_survivor_is_the_least_whatever_differs(data: st.DataObject) -> None:
    """Few values for everything, so that rows tie in game, in ply, and in all but a clock."""
    row = st.fixed_dictionaries(
        {
            "position": st.sampled_from([ROWS[0]["position"], ROWS[1]["position"]]),
            "game": st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15)]),
            "ply": st.integers(1, 2),
            "eval_cp": st.sampled_from([None, 0, 5]),
            "result": st.sampled_from([1, 0, -1, None]),
        }
    )
    rows = [{**ROWS[0], **r} for r in data.draw(st.lists(row, min_size=1, max_size=12))]
    records = records_of(table_of_rows(rows).to_batches())
    one = groups_of(records)
    assert len(one) == len(expected(rows))
    for found in one:
        wanted = expected(rows)[found["position"]]
        keys = ("game", "ply", "seen", "white_wins", "draws", "black_wins")
        assert [found[key] for key in keys] == [wanted[key] for key in keys]
        assert (found["eval_cp"] is None) == (wanted["eval_cp"] is None)
    again = records[np.array(data.draw(st.permutations(range(len(rows)))))]
    assert groups_of(again) == one


def groups_of(records: np.ndarray[Any, Any]) -> list[Row]:
    groups = group(records, position_hash(positions_of(records)))
    rows: list[Row] = table_of(groups.take(records, 0, len(groups)), DISTINCT).to_pylist()
    return rows


def test_large_inputs_are_ordered_as_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = np.random.default_rng(0).integers(0, 2**63, 9000).astype(np.uint64) * np.uint64(2)
    ranked = hashes[grouping._order_by(hashes)]
    assert (ranked[1:] >= ranked[:-1]).all()


def test_evaluation_positions_and_games_are_left_out_and_counted(tmp_path: Path) -> None:
    barred = Barred(
        positions=frozenset({ROWS[0]["position"], ROWS[50]["position"]}),
        games=frozenset({ROWS[100]["game"]}),
    )
    inputs = write_parts(tmp_path / "in", ROWS, 2)
    counts = dedup(inputs, tmp_path / "out", Bounds(16, 256), tmp_path / "s", barred=barred)
    kept = [
        row
        for row in ROWS
        if row["position"] not in barred.positions and row["game"] not in barred.games
    ]
    at = sum(row["position"] in barred.positions for row in ROWS)
    assert counts["evaluation_position"] == at > 1
    assert counts["evaluation_game"] == len(ROWS) - at - len(kept) > 1
    assert counts["rows"] == len(ROWS)
    assert {row["position"]: row for row in rows_of(tmp_path / "out")} == expected(kept)
    assert counts["distinct"] == len(expected(kept))


def test_a_part_cut_short_is_made_again(tmp_path: Path) -> None:
    (path,) = write_parts(tmp_path / "in", ROWS, 1)
    stem, bounds = tmp_path / "parts" / "0", Bounds(16, 256)
    partition(read_batches(path), stem, bounds, Barred())
    whole = stem.with_suffix(".rows").read_bytes()
    assert len(whole) == len(ROWS) * OCCURRENCE.itemsize
    assert partition(iter(()), stem, bounds, Barred()).sizes().sum() == len(ROWS)
    stem.with_suffix(".rows").write_bytes(whole[:-5])
    assert open_part(stem) is None
    partition(read_batches(path), stem, bounds, Barred())
    assert stem.with_suffix(".rows").read_bytes() == whole


def attempt(inputs: Path, out: Path, scratch: Path, seconds: float) -> bool:
    """Dedup in a process of its own that the kernel ends after so many processor seconds; whether
    it got through."""
    return got_through(
        lambda: dedup(sorted(inputs.iterdir()), out, Bounds(16, 256), scratch, files=4), seconds
    )


def test_killed_at_random_points_it_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = contents(run(tmp_path, ROWS, 6, "whole"))
    monkeypatch.setattr(module, "BATCH", 40)
    small_memory(monkeypatch, 200)
    rng, killed = random.Random(5), 0
    while not attempt(
        tmp_path / "whole-in",
        tmp_path / "out",
        tmp_path / "scratch",
        rng.uniform(0.004, 0.02) * (1 + killed / 50),
    ):
        killed += 1
        assert killed < 500, "nothing is kept"
    assert killed
    assert contents(tmp_path / "out") == wanted


def test_bounds_and_columns_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(QueenError, match="no power of two"):
        Bounds(100, 512)
    with pytest.raises(QueenError, match=r"20 MiB are too few[\s\S]*at least"):
        Bounds(256, 20)
    other = table_of_rows(ROWS[:3]).drop(["clock"])
    with pytest.raises(QueenError, match="'clock' should be float"):
        records_of(other.to_batches())
    missing = table_of_rows([{**ROWS[0], "position": None}])
    with pytest.raises(QueenError, match="1 of 1 values are null"):
        records_of(missing.to_batches())


def test_the_hash_mixes_every_byte_into_every_bit() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 256, (2000, 36), np.uint8)
    plain = position_hash(rows)
    assert len(set(plain.tolist())) == len(rows)
    for byte in range(36):
        changed = rows.copy()
        changed[:, byte] ^= np.uint8(1) << rng.integers(0, 8, len(rows)).astype(np.uint8)
        flipped = np.unpackbits(
            (plain ^ position_hash(changed)).view(np.uint8).reshape(-1, 8), axis=1
        )
        assert flipped.mean(axis=0).min() > 0.3
        assert flipped.mean(axis=0).max() < 0.7
