import json
import math
import subprocess
import sys
from pathlib import Path

import chess
import pytest
import torch
from lc0_writer import RandomNet
from safetensors.torch import load_file, save_file

from queen.games.chess.position import Position
from queen.networks.digest import weights_digest
from queen.networks.lc0 import (
    Lc0Encoder,
    NetError,
    build,
    encode_planes,
    load_encoder,
    load_net,
    policy_over_legal,
    save_encoder,
)
from queen.networks.lc0.describe import describe, opinion_of, read_encoder

PLANES = encode_planes([Position(chess.STARTING_FEN, ("e2e4",)), Position(chess.STARTING_FEN)])


def encoder_of(folder: Path, **kind: int) -> Lc0Encoder:
    return build(load_net(RandomNet(**kind).write(folder / "net.pb.gz")))


@pytest.mark.parametrize("policy", [1, 2, 3])
def test_a_saved_encoder_comes_back_bit_for_bit(tmp_path: Path, policy: int) -> None:
    encoder = encoder_of(tmp_path, policy=policy)
    save_encoder(encoder, tmp_path / "encoder")
    again = load_encoder(tmp_path / "encoder")
    assert again.config == encoder.config
    assert weights_digest(again) == weights_digest(encoder)
    first, second = encoder(PLANES), again(PLANES)
    assert torch.equal(first.policy, second.policy)
    assert torch.equal(first.wdl, second.wdl)
    assert sorted(path.name for path in (tmp_path / "encoder").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        save_encoder(encoder_of(tmp_path), tmp_path / name)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_an_encoder_is_frozen_and_draws_no_random_numbers(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    encoder = encoder_of(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert not encoder.training
    assert not any(weight.requires_grad for weight in encoder.parameters())
    assert all(weight.device.type == "cpu" for weight in encoder.state_dict().values())


def test_two_builds_share_nothing(tmp_path: Path) -> None:
    net = load_net(RandomNet().write(tmp_path / "net.pb"))
    first, second = build(net), build(net)
    digest = weights_digest(second)
    assert weights_digest(first) == digest
    with torch.no_grad():
        first.body.input.bias[0] += 1e-7
    assert weights_digest(first) != digest
    assert weights_digest(second) == weights_digest(build(net)) == digest


def test_files_of_two_encoders_do_not_mix(tmp_path: Path) -> None:
    save_encoder(encoder_of(tmp_path), tmp_path / "a")
    save_encoder(encoder_of(tmp_path, filters=5), tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").replace(tmp_path / "a" / "model.safetensors")
    with pytest.raises(NetError, match="another shape") as fault:
        load_encoder(tmp_path / "a")
    assert "model.safetensors" in fault.value.where


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_encoder(encoder_of(tmp_path), tmp_path / "a")
    state = load_file(tmp_path / "a" / "model.safetensors")
    del state["body.input.bias"]
    save_file(state, tmp_path / "a" / "model.safetensors")
    with pytest.raises(NetError, match=r"body\.input\.bias"):
        load_encoder(tmp_path / "a")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": {"network": 4}}', "null"])
def test_a_broken_configuration_is_named(tmp_path: Path, content: str) -> None:
    save_encoder(encoder_of(tmp_path), tmp_path / "a")
    (tmp_path / "a" / "config.json").write_text(content)
    with pytest.raises(NetError) as fault:
        load_encoder(tmp_path / "a")
    assert "config.json" in fault.value.where
    assert fault.value.remedy


def test_an_unknown_size_in_the_configuration_is_an_error(tmp_path: Path) -> None:
    save_encoder(encoder_of(tmp_path), tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    config["shape"]["wings"] = 2
    path.write_text(json.dumps(config))
    with pytest.raises(NetError, match="wings"):
        load_encoder(tmp_path / "a")


def test_a_broken_weights_file_is_named(tmp_path: Path) -> None:
    save_encoder(encoder_of(tmp_path), tmp_path / "a")
    path = tmp_path / "a" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(NetError, match="cannot be read"):
        load_encoder(tmp_path / "a")
    path.unlink()
    with pytest.raises(NetError, match="cannot be read"):
        load_encoder(tmp_path / "a")


@pytest.mark.parametrize("value", [1, 2])
def test_a_description_says_what_the_file_holds(tmp_path: Path, value: int) -> None:
    path = RandomNet(value=value, moves_left=value - 1).write(tmp_path / "net.pb.gz")
    said = describe(read_encoder(path))
    assert json.loads(json.dumps(said))["sizes"]["squeeze"] == [3, 3]
    assert said["format"]["network"] == "NETWORK_SE_WITH_HEADFORMAT"
    assert (said["states"], said["blocks"], said["attention_heads"]) == (3, 2, 0)
    assert said["heads"]["value"] == [["scalar"], ["wdl"]][value - 1]
    assert said["parameters"] == sum(t.numel() for t in load_net(path).state_dict.values())
    with pytest.raises(NetError, match="this network has one head"):
        read_encoder(path)(PLANES, "vanilla")


@pytest.mark.parametrize("value", [1, 2])
def test_an_opinion_holds_every_legal_move_best_first(tmp_path: Path, value: int) -> None:
    encoder = encoder_of(tmp_path, value=value, moves_left=value - 1)
    position = Position(chess.STARTING_FEN, ("e2e4",))
    opinion = opinion_of(encoder, position)
    output = encoder(encode_planes([position]))
    assert opinion["policy"] == policy_over_legal(output.policy[0], position.board())
    logits, shares = (list(opinion[name].values()) for name in ("policy", "shares"))
    assert logits == sorted(logits, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert shares[1] / shares[0] == pytest.approx(math.exp(logits[1] - logits[0]))
    assert ("wdl" in opinion, "value" in opinion) == (value == 2, value == 1)
    assert (opinion["moves_left"] is None) == (value == 1)
    json.dumps(opinion)


def test_a_finished_game_has_no_moves_to_name(tmp_path: Path) -> None:
    mate = Position(chess.STARTING_FEN, ("f2f3", "e7e5", "g2g4", "d8h4"))
    assert opinion_of(encoder_of(tmp_path), mate)["policy"] == {}


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, queen.networks.lc0; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "chess", "numpy"} & set(done.stdout.split())
