"""Agreement with lc0's own outputs (see the test data's lc0_refs)."""

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
import torch

from queen.games.chess.position import Position
from queen.networks.lc0 import build, encode_planes, load_net, policy_over_legal
from queen.networks.lc0.history import History
from queen.networks.lc0.moves import legal_indices
from queen.networks.lc0.planes import encode_histories
from queen.networks.lc0.transform import transform_of

DATA = os.environ.get("QUEEN_TEST_DATA", "")
ROOT = Path(DATA)

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA, reason="QUEEN_TEST_DATA is not set"),
]
NETS = ("maia-1100", "maia-1900")  # those whose file stands apart
NAMES = [
    "maia-1100", "maia-1900", "cnn_se_conv_wdl_mlh", "cnn_se_attnpol_enc",
    "ab_bt1like_nosmolgen", "ab_t82like", "ab_pemap_relu2_fmt4", "ab_bt4like",
    "ab_bt4like_bf16", "ab_bt5like_rpe",
]  # fmt: skip
SILENT = 4  # nets without reference states


@pytest.fixture(scope="module", params=NAMES)
def reference(request: pytest.FixtureRequest) -> tuple[Path, list[dict[str, Any]]]:
    said = json.loads(gzip.decompress((ROOT / f"lc0_refs/{request.param}.json.gz").read_bytes()))
    path = ROOT / ("nets" if request.param in NETS else "lc0_refs") / f"{request.param}.pb.gz"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == said["sha256"]
    return path, said["cases"]


def test_every_reference_is_compared_with() -> None:
    found = {path.name.split(".")[0] for path in (ROOT / "lc0_refs").glob("*.json.gz")}
    assert found == set(NAMES)


def board_of(case: dict[str, Any]) -> chess.Board:
    board = chess.Board(case["fen"])
    for move in case["moves"]:
        board.push_uci(move)
    return board


def planes_of(case: dict[str, Any]) -> np.ndarray:
    """One case stands the wrong side in check: no `Position`, but lc0 encodes it."""
    form = case.get("input_format", 1)
    if chess.Board(case["fen"]).is_valid():
        return encode_planes([Position(case["fen"], tuple(case["moves"]))], form)[0]
    assert not case["moves"]
    return encode_histories([History.root(chess.Board(case["fen"]))], form)[0]


def expected_planes(case: dict[str, Any]) -> np.ndarray:
    masks = np.array([int(mask, 16) for mask in case["planes_mask_hex"]], "<u8")
    bits = np.unpackbits(masks.view(np.uint8), bitorder="little").reshape(112, 8, 8)
    return bits * np.array(case["planes_value"], np.float32)[:, None, None]


def test_outputs_are_lc0s(reference: tuple[Path, list[dict[str, Any]]]) -> None:
    path, cases = reference
    assert len(cases) == 23
    encoder = build(load_net(path))
    form = encoder.input_format
    assert {case.get("input_format", 1) for case in cases} == {form}
    planes = np.stack([planes_of(case) for case in cases])
    np.testing.assert_array_equal(planes, np.stack([expected_planes(case) for case in cases]))
    output = encoder(planes)
    assert output.wdl is not None
    for i, case in enumerate(cases):
        np.testing.assert_allclose(output.policy[i], case["policy_logits"], atol=1e-3, rtol=0)
        np.testing.assert_allclose(output.wdl[i], case["wdl"], atol=1e-4, rtol=0)
        expected = case["wdl"][0] + case["wdl"][1] / 2
        assert output.expected[i].item() == pytest.approx(expected, abs=1e-4)
        assert transform_of(board_of(case), form) == case.get("transform", 0)
        if output.moves_left is not None:
            assert output.moves_left[i].item() == pytest.approx(case["mlh"], abs=1e-3)
        board = board_of(case)
        moves, indices = legal_indices(board, form)
        assert dict(zip(moves, indices.tolist(), strict=True)) == case["legal_index"]
        logits = policy_over_legal(output.policy[i], board, form)
        shares = torch.tensor(list(logits.values())).softmax(0).tolist()
        if "legal_prob" in case:
            told = pytest.approx(case["legal_prob"], abs=1e-4)
            assert dict(zip(logits, shares, strict=True)) == told
    _check_states(output.states, cases)


def _check_states(states: list[torch.Tensor], cases: list[dict[str, Any]]) -> None:
    """Norms to 1e-4 of themselves, single channels to 1e-3."""
    for i, case in enumerate(cases):
        told = case.get("hidden_onnx") or case.get("hidden") or []
        assert len(told) in (0, len(states))
        for state, one in zip(states, told, strict=False):
            tokens = state[i].double()
            assert tokens.norm().item() == pytest.approx(one["norm"], rel=1e-4)
            for name, square in (("first8_a1", 0), ("first8_h8", 63)):
                np.testing.assert_allclose(tokens[square, :8], one[name], atol=1e-3, rtol=0)


def test_most_references_tell_of_states() -> None:
    silent = 0
    for name in NAMES:
        said = json.loads(gzip.decompress((ROOT / f"lc0_refs/{name}.json.gz").read_bytes()))
        told = [bool(case.get("hidden_onnx") or case.get("hidden")) for case in said["cases"]]
        assert len(set(told)) == 1
        silent += not told[0]
    assert silent == SILENT


@pytest.mark.parametrize(("name", "blocks", "width"), [("tinygyal", 2, 16), ("meangyal", 4, 32)])
def test_small_nets_with_a_scalar_value_load_uncompressed(
    name: str, blocks: int, width: int
) -> None:
    encoder = build(load_net(ROOT / f"nets/{name}-8.pb"))
    assert (encoder.n_states, encoder.width) == (blocks + 1, width)
    winning = Position("6k1/5ppp/8/8/8/8/5PPP/3QR1K1 w - - 0 1")
    losing = Position("6k1/5ppp/8/8/8/8/5PPP/3QR1K1 b - - 0 1")
    output = encoder(encode_planes([winning, losing]))
    assert output.wdl is None
    assert output.value is not None
    assert output.value[0] > 0.5 > -0.5 > output.value[1]
