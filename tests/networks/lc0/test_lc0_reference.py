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
from queen.networks.lc0 import UnsupportedNet, build, encode_planes, load_net, policy_over_legal
from queen.networks.lc0.history import History
from queen.networks.lc0.moves import legal_indices
from queen.networks.lc0.planes import encode_histories

DATA = os.environ.get("QUEEN_TEST_DATA", "")
ROOT = Path(DATA)

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA, reason="QUEEN_TEST_DATA is not set"),
]
NETS = {
    "maia-1100": "nets/maia-1100.pb.gz",
    "maia-1900": "nets/maia-1900.pb.gz",
    "cnn_se_conv_wdl_mlh": "lc0_refs/cnn_se_conv_wdl_mlh.pb.gz",
    "cnn_se_attnpol_enc": "lc0_refs/cnn_se_attnpol_enc.pb.gz",
}


@pytest.fixture(scope="module", params=list(NETS))
def reference(request: pytest.FixtureRequest) -> tuple[Path, list[dict[str, Any]]]:
    said = json.loads(gzip.decompress((ROOT / f"lc0_refs/{request.param}.json.gz").read_bytes()))
    path = ROOT / NETS[request.param]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == said["sha256"]
    return path, said["cases"]


def board_of(case: dict[str, Any]) -> chess.Board:
    board = chess.Board(case["fen"])
    for move in case["moves"]:
        board.push_uci(move)
    return board


def planes_of(case: dict[str, Any]) -> np.ndarray:
    """One case stands the wrong side in check: no `Position`, but lc0 encodes it."""
    if chess.Board(case["fen"]).is_valid():
        return encode_planes([Position(case["fen"], tuple(case["moves"]))])[0]
    assert not case["moves"]
    return encode_histories([History.root(chess.Board(case["fen"]))])[0]


def expected_planes(case: dict[str, Any]) -> np.ndarray:
    masks = np.array([int(mask, 16) for mask in case["planes_mask_hex"]], "<u8")
    bits = np.unpackbits(masks.view(np.uint8), bitorder="little").reshape(112, 8, 8)
    return bits * np.array(case["planes_value"], np.float32)[:, None, None]


def test_outputs_are_lc0s(reference: tuple[Path, list[dict[str, Any]]]) -> None:
    path, cases = reference
    assert len(cases) == 23
    encoder = build(load_net(path))
    planes = np.stack([planes_of(case) for case in cases])
    np.testing.assert_array_equal(planes, np.stack([expected_planes(case) for case in cases]))
    output = encoder(planes)
    assert output.wdl is not None
    for i, case in enumerate(cases):
        np.testing.assert_allclose(output.policy[i], case["policy_logits"], atol=1e-3, rtol=0)
        np.testing.assert_allclose(output.wdl[i], case["wdl"], atol=1e-4, rtol=0)
        expected = (1 + case["q"]) / 2
        assert output.expected[i].item() == pytest.approx(expected, abs=1e-4)
        if output.moves_left is not None:
            assert output.moves_left[i].item() == pytest.approx(case["mlh"], abs=1e-3)
        board = board_of(case)
        moves, indices = legal_indices(board)
        assert dict(zip(moves, indices.tolist(), strict=True)) == case["legal_index"]
        logits = policy_over_legal(output.policy[i], board)
        shares = torch.tensor(list(logits.values())).softmax(0).tolist()
        assert dict(zip(logits, shares, strict=True)) == pytest.approx(case["legal_prob"], abs=1e-4)


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


def test_attention_bodies_are_named_as_not_supported() -> None:
    found = sorted((ROOT / "lc0_refs").glob("ab_*.pb.gz"))
    assert found
    for path in found:
        with pytest.raises(UnsupportedNet, match="ATTENTIONBODY"):
            load_net(path)
