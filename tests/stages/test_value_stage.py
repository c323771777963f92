"""Stage `value` on tables made here: joined, split by game, trained, measured, recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from queen.engines.score import Score
from queen.errors import QueenError
from queen.lineage.artifact import (
    Artifact,
    Record,
    describe_files,
    fresh_partial,
    publish,
    read_json,
)
from queen.lineage.state import open_state
from queen.lineage.yamlio import dump_yaml
from queen.networks.value import load_value
from queen.networks.value.labels import MATED, MATES
from queen.positions.packed import pack, unpack
from queen.positions.schema import DISTINCT, LABELS
from stages.bulk.value_rows import Prepared, Split, prepare
from stages.registry import spec_of
from stages.runner import run_stage

PARAMS: dict[str, Any] = {
    "labels": "engine",
    "samples": 960,
    "heldout": {"share": 0.25, "most": 500, "bootstrap": 100},
    "network": {"width": 16, "residual_blocks": 1, "transformer_blocks": 1, "heads": 2},
    "train": {"batch_size": 32, "lr": 0.005, "warmup_samples": 64, "precision": "fp32"},
}
FILES, GAMES = 3, 16
HALF = Split(0.5, 10_000, 1)


def some_positions() -> list[dict[str, Any]]:
    """Distinct positions of random games, in the order of their hashes."""
    rng, rows = random.Random(6), {}
    for number in range(GAMES):
        game, board = xxhash.xxh3_128_digest(bytes([number])), chess.Board()
        while not board.is_game_over(claim_draw=False) and board.ply() < 40:
            board.push(rng.choice(list(board.legal_moves)))
            row = {"position": pack(board), "game": game, "ply": board.ply()}
            rows.setdefault(row["position"], {**row, "halfmove": board.halfmove_clock})
    mated = chess.Board("R5k1/5ppp/8/8/8/8/8/6K1 b - - 0 1")
    rows[pack(mated)] = {"position": pack(mated), "game": bytes(16), "ply": 60, "halfmove": 3}
    return sorted(rows.values(), key=lambda row: xxhash.xxh3_64_digest(row["position"]))


def labels_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """One or two labels: material by the engine, the same and 7 by the dump; some are mates."""
    board, own = unpack(row["position"]), {"position": row["position"], "nodes": 1}
    if board.is_game_over():
        return [{**own, "source": "rules", **({"mate": 0} if board.is_checkmate() else {"cp": 0})}]
    worth = (0, 100, 300, 300, 500, 900, 0)
    cp = sum(
        worth[p.piece_type] * (1 if p.color == board.turn else -1)
        for p in board.piece_map().values()
    )
    said: dict[str, Any] = {"mate": 5 if cp > 0 else -4} if row["ply"] % 10 == 0 else {"cp": cp}
    found = [{**own, "source": "engine", **said}]
    if row["ply"] % 3 == 0:
        found.append({**own, "source": "dump", "cp": cp + 7})
    return found


def artifact(root: Path, name: str, tables: Sequence[pa.Table], **more: Any) -> Artifact:
    final = root / name
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh_partial(final)
    for number, table in enumerate(tables):
        pq.write_table(table, partial / f"{number:04d}.parquet", store_schema=False)
    pq.write_table(pa.table({"reason": pa.array([], pa.string())}), partial / "rejects.parquet")
    record = Record(
        name=name, stage=name, version=1, recipe="", seed=1, params={}, inputs=(), shards=(),
        files=describe_files(partial), counts={}, drops={}, figures={}, identities=more,
        licences={"games": "CC0-1.0"},
    )  # fmt: skip
    return publish(partial, final, record)


@pytest.fixture(scope="module")
def positions() -> list[dict[str, Any]]:
    return some_positions()


@pytest.fixture
def inputs(tmp_path: Path, positions: list[dict[str, Any]]) -> tuple[Artifact, Artifact]:
    """Artifacts as the stages `dedup` and `label` leave them."""
    spans = [positions[n * len(positions) // FILES :][: len(positions) // FILES] for n in range(3)]
    distinct = [pa.Table.from_pylist(span, schema=DISTINCT) for span in spans]
    labels = [
        pa.Table.from_pylist([x for row in span for x in labels_of(row)], schema=LABELS)
        for span in spans
    ]
    return artifact(tmp_path, "data/dedup", distinct), artifact(
        tmp_path, "data/label", labels, engine={"name": "material"}
    )


def by_hand(inputs: tuple[Artifact, Artifact], source: str) -> dict[bytes, tuple[bytes, Score]]:
    """Game and score of every position that has a label of the source or the rules."""
    games, found = {}, {}
    for name in (f"{n:04d}.parquet" for n in range(FILES)):
        for row in pq.read_table(inputs[0].file(name)).to_pylist():
            games[row["position"]] = row["game"]
        for row in pq.read_table(inputs[1].file(name)).to_pylist():
            if row["source"] in (source, "rules"):
                score = Score(cp=row["cp"], mate=row["mate"])
                found[row["position"]] = games[row["position"]], score
    return found


def taken(data: Prepared) -> dict[bytes, tuple[int, int]]:
    rows = np.concatenate([data.train.read(), data.heldout])
    return {bytes(r["position"]): (int(r["label"]), int(r["cp"])) for r in rows}


@pytest.mark.parametrize("source", ["engine", "dump"])
def test_rows_are_the_labelled_positions_split_by_game(inputs, tmp_path, source: str) -> None:
    data = prepare(*inputs, (source, "rules"), HALF, tmp_path)
    wanted, found = by_hand(inputs, source), taken(data)
    assert set(found) == set(wanted)
    assert data.counts["train"] + data.counts["heldout"] == len(wanted)
    assert data.counts["rules"] == sum(unpack(p).is_game_over() for p in wanted)
    for position, (label, cp) in found.items():
        score = wanted[position][1]
        if score.mate is not None:
            assert (label, cp) == (MATES if score.mate > 0 else MATED, 0)
        else:
            assert (cp, abs(label / 100 - score.expected) <= 0.00501) == (score.cp, True)
    held = {wanted[bytes(row["position"])][0] for row in data.heldout}
    assert [wanted[bytes(row["position"])][0] for row in data.heldout] == data.games
    train = {wanted[bytes(row["position"])][0] for row in data.train.read()}
    assert not held & train
    assert 3 <= len(held) <= GAMES - 3


def test_a_prepared_folder_is_taken_and_the_bytes_are_the_same_anew(inputs, tmp_path) -> None:
    first = prepare(*inputs, ("engine", "rules"), HALF, tmp_path)
    again = prepare(inputs[0], inputs[0], ("engine",), HALF, tmp_path)
    assert again.train == first.train
    (other := tmp_path / "other").mkdir()
    anew = prepare(*inputs, ("engine", "rules"), HALF, other)
    assert anew.train.digest == first.train.digest
    assert np.array_equal(anew.heldout, first.heldout)


def test_held_out_positions_beyond_the_most_are_used_for_nothing(inputs, tmp_path) -> None:
    (few := tmp_path / "few").mkdir()
    whole = prepare(*inputs, ("engine", "rules"), HALF, tmp_path)
    cut = prepare(*inputs, ("engine", "rules"), Split(0.5, 40, 1), few)
    assert cut.train.digest == whole.train.digest
    assert np.array_equal(cut.heldout, whole.heldout[:40])
    assert cut.counts["heldout_spared"] == len(whole.heldout) - 40


def test_other_seeds_hold_out_other_games_in_their_share() -> None:
    games = np.random.default_rng(3).bytes(16 * 20_000)
    ids = np.frombuffer(games, "S16")
    one, other = (Split(0.2, 1, seed).holds_out(ids) for seed in (1, 2))
    assert abs(one.mean() - 0.2) < 0.02
    assert abs((one & other).mean() - 0.04) < 0.01


def test_labels_in_another_order_or_of_other_positions_are_refused(
    inputs, tmp_path, positions
) -> None:
    name = "0000.parquet"
    table = pq.read_table(inputs[1].file(name))
    rows = list(range(table.num_rows))
    pq.write_table(table.take([*rows[1:], 0]), inputs[1].path / name, store_schema=False)
    moved = prepare(*inputs, ("engine", "rules"), HALF, tmp_path)  # within one batch all is found
    assert moved.counts["train"] > 0
    strange = {"position": pack(chess.Board()), "source": "engine", "cp": 1, "nodes": 1}
    table = pa.concat_tables([pa.Table.from_pylist([strange], schema=LABELS), table])
    pq.write_table(table, inputs[1].path / name, store_schema=False)
    (other := tmp_path / "other").mkdir()
    with pytest.raises(QueenError, match="not there"):
        prepare(*inputs, ("engine", "rules"), HALF, other)


def test_nobody_held_out_and_nothing_labelled_are_told(inputs, tmp_path) -> None:
    with pytest.raises(QueenError, match="held out"):
        prepare(*inputs, ("engine", "rules"), Split(0.0, 10, 1), tmp_path)
    with pytest.raises(QueenError, match="no labelled position"):
        prepare(*inputs, ("nobody",), HALF, tmp_path)


@pytest.fixture
def project(inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUEEN_STATE", str(tmp_path / ".state"))
    monkeypatch.setenv("QUEEN_SENDER", "none")
    machine = {"threads": 1, "workers": 1}
    params = {"seed": 4, "machine": machine, "value": PARAMS}
    (tmp_path / "params.yaml").write_text(dump_yaml(params))
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path


def test_the_stage_leaves_a_network_with_its_card_curve_and_measures(project: Path, inputs) -> None:
    made = run_stage("value", project)
    record, told = made.record, read_json(made.file("training.json"))
    assert record.counts["positions"] == record.counts["steps"] * 32 == 960
    assert len(told["losses"]) == 30
    assert told["losses"][-1] < told["losses"][0] - 0.5
    assert set(told["heldout"]) <= set(told["intervals"])
    for name in ("cross_entropy", "ordinal", "side", "score_error", "cp_error", "mated_recall"):
        assert record.figures[f"heldout.{name}"] == told["heldout"][name]
    assert record.figures["constant.cross_entropy"] > 0
    assert record.identities["labels"] == {"engine": {"name": "material"}}
    card = made.file("README.md").read_text()
    assert "games: CC0-1.0" in card
    assert f"{told['parameters']:,} parameters" in card
    net = load_value(made.path)
    start = np.frombuffer(pack(chess.Board()), np.uint8)[None]
    assert 0 <= float(net.expected(start, np.zeros(1))[0]) <= 1
    state = open_state(project)
    assert not list(state.scratch.rglob("train.npy"))
    assert run_stage("value", project).record == record


def test_the_registry_knows_it() -> None:
    spec = spec_of("value")
    assert spec.inputs == {"dedup": "data/dedup", "label": "data/label"}
    params = spec.read_params(PARAMS)
    settings = params.train.settings(1000, 2, _Machine())
    assert (settings.steps, settings.warmup_steps, settings.seed) == (32, 2, 2)


class _Machine:
    threads, peak_tflops = 1, 0.0
