"""Attention bodies against a computation by hand; heads by name; what such files can lack."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lc0_attention_by_hand import AttentionByHand
from lc0_by_hand import softmax
from lc0_writer import LINEAR16

from queen.networks.digest import weights_digest
from queen.networks.lc0 import (
    MOVES,
    NetError,
    UnsupportedNet,
    build,
    load_encoder,
    load_net,
    save_encoder,
)
from queen.networks.lc0.describe import describe
from queen.networks.lc0.load import net_of
from queen.networks.lc0.random_net import BT4, BT5, RandomShape, random_net
from queen.networks.lc0.weights import BFLOAT16, FLOAT16, FLOAT32
from queen.networks.lc0.write import write_net

PLANES = np.random.default_rng(5).random((3, 112, 8, 8), np.float32)
SINGLE = {"board": 0, "policies": ("vanilla",), "values": ("winner",)}
KINDS: dict[str, dict[str, Any]] = {
    "dense-mish-smolgen": {},
    "dense-relative": {"smolgen": (), "relative": True, "ffn_activation": 2},
    "smolgen-and-relative": {"relative": True, "activation": 0},
    "map-relu-plain": {**SINGLE, "smolgen": (), "activation": 0},
    "map-swish-policy-encoder": {**SINGLE, "policy_layers": 2, "ffn_activation": 7},
    "relu-squared-selu": {"ffn_activation": 8, "smolgen_activation": 6, "policy_layers": 1},
    "sigmoid-tanh": {"ffn_activation": 4, "smolgen_activation": 5},
    "no-activation-scalar": {"ffn_activation": 3, "wdl": False, "moves_left": ()},
    "no-biases": {"biases": False, "relative": True},
}


def made(kind: dict[str, Any], seed: int = 1, encoding: int = FLOAT32) -> dict[str, Any]:
    return random_net(RandomShape(**kind), seed, encoding)


def built(net: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build(net_of(net, "made up"))


@pytest.mark.parametrize("name", KINDS)
def test_forward_agrees_with_a_computation_by_hand(name: str) -> None:
    net = made(KINDS[name])
    encoder, hand = built(net), AttentionByHand(net)
    output = encoder(PLANES)
    for i, planes in enumerate(PLANES):
        states = hand.states(planes)
        assert len(output.states) == len(states) == encoder.n_states == 3
        for mine, theirs in zip(output.states, states, strict=True):
            np.testing.assert_allclose(mine[i], theirs, rtol=2e-5, atol=5e-5)
        last = states[-1]
        np.testing.assert_allclose(output.policy[i], hand.policy(last, MOVES), atol=1e-4)
        value = hand.value(last)
        if output.value is None:
            np.testing.assert_allclose(output.wdl[i], softmax(value), atol=2e-5)
        else:
            np.testing.assert_allclose(output.value[i], np.tanh(value), atol=2e-5)
        if output.moves_left is not None:
            left = np.maximum(hand.scalar(hand.weights, "mov", last), 0)
            np.testing.assert_allclose(output.moves_left[i], left, rtol=2e-5, atol=2e-5)
    assert (output.moves_left is None) == (name == "no-activation-scalar")


def test_heads_are_asked_for_by_name() -> None:
    net = made({"policies": ("vanilla", "soft"), "values": ("winner", "q", "st")})
    encoder, hand = built(net), AttentionByHand(net)
    last = hand.states(PLANES[0])[-1]
    assert encoder.policy_heads == ("vanilla", "soft")
    assert encoder.value_heads == ("winner", "q", "st")
    for policy, value in (("vanilla", "winner"), ("soft", "st")):
        output = encoder(PLANES[:1], policy, value)
        np.testing.assert_allclose(output.policy[0], hand.policy(last, MOVES, policy), atol=1e-4)
        np.testing.assert_allclose(output.wdl[0], softmax(hand.value(last, value)), atol=2e-5)
    usual, named = encoder(PLANES), encoder(PLANES, "vanilla", "winner")
    assert torch.equal(usual.policy, named.policy)
    assert not torch.equal(usual.policy, encoder(PLANES, "soft").policy)
    with pytest.raises(NetError, match="no head 'opponent'") as fault:
        encoder(PLANES, "opponent")
    assert fault.value.remedy == "name one of vanilla, soft"
    assert not built(made(SINGLE)).value_heads[1:]


def test_a_head_with_its_own_embedding_does_not_read_the_shared_one() -> None:
    net = made({})
    own = made({}, seed=9)["weights"]["policy_heads"]
    net["weights"]["policy_heads"]["vanilla"] |= {
        name: own[name] for name in ("ip_pol_w", "ip_pol_b")
    }
    hand = AttentionByHand(net)
    last = hand.states(PLANES[0])[-1]
    output, plain = built(net)(PLANES), built(made({}))(PLANES)
    np.testing.assert_allclose(output.policy[0], hand.policy(last, MOVES), atol=1e-4)
    assert not torch.allclose(output.policy, plain.policy, atol=1e-2)


def test_heads_of_a_map_are_heads_and_an_empty_entry_is_none() -> None:
    net = made({})
    heads = net["weights"]["policy_heads"]
    extra = made({}, seed=9)["weights"]["policy_heads"]["vanilla"]
    heads["policy_head_map"] = [{}, {"key": "human", "value": extra}]
    encoder = built(net)
    assert encoder.policy_heads == ("vanilla", "optimistic_st", "human")
    alike = made({})
    alike["weights"]["policy_heads"]["vanilla"] = extra
    assert torch.equal(encoder(PLANES, "human").policy, built(alike)(PLANES).policy)
    for name in ("", "a.b", "keys"):
        heads["policy_head_map"] = [{"key": name, "value": extra}]
        with pytest.raises(NetError, match="cannot be a head's name") as fault:
            built(net)
        assert "policy_heads.policy_head_map[0].key" in fault.value.where


@pytest.mark.parametrize("name", KINDS)
def test_a_file_a_folder_and_the_decoded_net_are_one_network(tmp_path: Path, name: str) -> None:
    net = made(KINDS[name])
    write_net(net, tmp_path / "net.pb.gz")
    first = built(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = build(load_net(tmp_path / "net.pb.gz"))
    save_encoder(read, tmp_path / "folder")
    again = load_encoder(tmp_path / "folder")
    assert weights_digest(first) == weights_digest(read) == weights_digest(again)
    assert first.config == read.config == again.config
    before, after = first(PLANES), again(PLANES)
    assert torch.equal(before.policy, after.policy)
    assert all(torch.equal(a, b) for a, b in zip(before.states, after.states, strict=True))


@pytest.mark.parametrize(
    ("encoding", "closeness"), [(LINEAR16, 2e-3), (FLOAT16, 1e-2), (BFLOAT16, 0.1)]
)
def test_every_encoding_reads_alike(encoding: int, closeness: float) -> None:
    exact, coded = built(made({})), built(made({}, encoding=encoding))
    one, other = (each(PLANES).states[-1] for each in (exact, coded))
    assert 0 < (one - other).abs().max() / one.abs().max() < closeness


def test_missing_biases_are_zero_and_warned_of(tmp_path: Path) -> None:
    net = made({"biases": False, "smolgen": ()})
    write_net(net, tmp_path / "net.pb")
    with pytest.warns(UserWarning, match="12 missing biases are taken as zero") as caught:
        encoder = build(load_net(tmp_path / "net.pb"))
    assert str(tmp_path / "net.pb") in str(caught[0].message)
    assert "weights.encoder[0].mha.q_b" in str(caught[0].message)
    assert not encoder.body.layers[0].mha.qkv.bias.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(net_of(made({}), "whole"))


def remove(part: Any, path: str) -> None:
    """The field of a dotted path."""
    *way, last = path.split(".")
    for step in way:
        part = part[int(step)] if step.isdigit() else part[step]
    del part[last]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("encoder", "weights.encoder"),
        ("headcount", "weights.headcount"),
        ("ip_emb_preproc_b", "weights.ip_emb_preproc_b"),
        ("ip_emb_ffn", "weights.ip_emb_ffn"),
        ("encoder.1.mha", "weights.encoder[1].mha"),
        ("encoder.1.mha.k_w", "weights.encoder[1].mha.k_w"),
        ("encoder.1.mha.smolgen", "weights.encoder[1].mha"),
        ("encoder.0.ffn.dense2_b", "weights.encoder[0].ffn.dense2_b"),
        ("encoder.0.ln2_gammas", "weights.encoder[0].ln2_gammas"),
        ("encoder.0.mha.smolgen.compress", "weights.encoder[0].mha.smolgen.compress"),
        ("smolgen_w", "weights.smolgen_w"),
        ("policy_heads.vanilla.ip4_pol_w", "weights.policy_heads.vanilla.ip4_pol_w"),
        ("value_heads.q.ip1_val_b", "weights.value_heads.q.ip1_val_b"),
        ("ip_mov_w", "weights.ip_mov_w"),
    ],
)
def test_a_missing_part_is_named(tmp_path: Path, path: str, place: str) -> None:
    net = made({})
    remove(net["weights"], path)
    write_net(net, tmp_path / "net.pb")
    with pytest.raises(NetError) as fault:
        load_net(tmp_path / "net.pb")
    assert fault.value.where == f"{tmp_path / 'net.pb'}, field {place}"
    assert fault.value.remedy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"policy": 2}, "an attention body with a convolution policy"),
        ({"ffn_activation": 9}, "ffn_activation format 9"),
        ({"smolgen_activation": 12}, "smolgen_activation format 12"),
        ({"input_embedding": 3}, "input_embedding format 3"),
        ({"input": 6}, "input format 6"),
        ({"moves_left": 2}, "moves_left format 2"),
    ],
)
def test_a_value_that_is_not_known_is_named(change: dict[str, int], says: str) -> None:
    net = made({})
    net["format"]["network_format"] |= change
    with pytest.raises(UnsupportedNet, match=says):
        net_of(net, "made up")


def test_residual_blocks_under_attention_are_named() -> None:
    net = made({})
    net["weights"]["residual"] = [{}]
    with pytest.raises(UnsupportedNet, match="on top of residual blocks"):
        net_of(net, "made up")


def test_the_legacy_format_134_is_a_network_of_several_heads() -> None:
    net = made({})
    net["format"]["network_format"]["network"] = 134
    assert torch.equal(built(net)(PLANES).policy, built(made({}))(PLANES).policy)


def test_relative_positions_see_where_squares_stand_to_each_other() -> None:
    """With all else of the attention silent, a square's logits depend on the offset alone."""
    encoder = built(made({"smolgen": (), "relative": True}))
    relative = encoder.body.layers[0].mha.relative
    q = torch.randn(1, 4, 1, 8).expand(1, 4, 64, 8)
    logits = relative.logits(q, torch.zeros(1, 4, 64, 8))[0, 0]
    by_offset: dict[tuple[int, int], set[float]] = {}
    for a in range(64):
        for b in range(64):
            offset = a // 8 - b // 8, a % 8 - b % 8
            by_offset.setdefault(offset, set()).add(round(logits[a, b].item(), 4))
    assert len(by_offset) == 225
    assert all(len(values) == 1 for values in by_offset.values())
    assert len(set().union(*by_offset.values())) > 200


def test_a_description_names_blocks_and_heads() -> None:
    said = describe(built(made({})))
    assert (said["blocks"], said["attention_heads"], said["width"]) == (2, 4, 32)
    assert said["heads"] == {
        "policy": ["vanilla", "optimistic_st"], "value": ["winner", "q"], "moves_left": True
    }  # fmt: skip
    assert said["format"]["input_embedding"] == "pe_dense"
    assert said["sizes"]["layer"]["heads"] == 4


def test_gradients_flow_through_a_thawed_encoder() -> None:
    encoder = built(made({"relative": True, "activation": 0})).requires_grad_(True)
    output = encoder(PLANES)
    (output.policy.square().sum() + output.wdl[:, 0].sum() + output.moves_left.sum()).backward()
    silent = [
        name
        for name, weight in encoder.named_parameters()
        if weight.grad is None and not name.startswith(("policy.heads.opt", "value.heads.q"))
    ]
    assert silent == []


def test_the_large_shapes_are_those_of_bt4_and_bt5() -> None:
    """Their sizes, from a layer of each: the whole networks are built by the benchmark."""
    for shape, millions in ((BT4, 10.03), (BT5, 13.29)):
        one = RandomShape(
            **{**vars(shape), "layers": 1, "board": 1, "policies": ("vanilla",), "policy": 8}
        )
        encoder = build(net_of(random_net(one), "one layer"))
        size = sum(weight.numel() for weight in encoder.body.layers.parameters())
        assert round(size / 1e6, 2) == millions
    assert (BT4.layers, BT4.width, BT4.heads, BT4.smolgen) == (15, 1024, 32, (32, 256, 256))


def test_files_older_than_the_numbers_of_attention_are_fixed_up() -> None:
    """Format 4 with encoder layers: relu squared and swish if there is smolgen."""
    modern = made({**SINGLE, "ffn_activation": 8, "smolgen_activation": 7})
    older = made({**SINGLE, "ffn_activation": 8, "smolgen_activation": 7})
    form = older["format"]["network_format"]
    form["network"] = 4
    for name in ("ffn_activation", "smolgen_activation", "input_embedding"):
        del form[name]
    assert torch.equal(built(older)(PLANES).policy, built(modern)(PLANES).policy)
    plain = made({**SINGLE, "smolgen": (), "ffn_activation": 0})
    older = made({**SINGLE, "smolgen": (), "ffn_activation": 0})
    older["format"]["network_format"]["network"] = 4
    assert torch.equal(built(older)(PLANES).policy, built(plain)(PLANES).policy)


def test_format_6_with_several_heads_is_format_7() -> None:
    net = made({})
    net["format"]["network_format"] |= {"network": 6, "input_embedding": 0}
    assert torch.equal(built(net)(PLANES).policy, built(made({}))(PLANES).policy)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A file of every part, and its bytes."""
    path = tmp_path_factory.mktemp("nets") / "net.pb"
    shape = {"width": 8, "heads": 2, "hidden": 8, "board": 1, "smolgen": (1, 4, 2), "policy": 8}
    write_net(made({**shape, "relative": True, "policy_layers": 1}), path)
    return path, path.read_bytes()


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_is_an_error(small: tuple[Path, bytes], share: float) -> None:
    path, blob = small
    path.write_bytes(blob[: int(share * len(blob))])
    with pytest.raises(NetError) as fault:
        load_net(path)
    assert fault.value.where.startswith(str(path))
    assert fault.value.remedy


@settings(max_examples=60, deadline=None)
@given(place=st.integers(5, 120), byte=st.integers(0, 255))
def test_a_changed_byte_of_the_format_reads_or_is_an_error(
    small: tuple[Path, bytes], place: int, byte: int
) -> None:
    path, blob = small
    path.write_bytes(blob[:place] + bytes([byte]) + blob[place + 1 :])
    try:
        net = load_net(path)
    except NetError as error:
        where = error.where
    else:
        assert build(net)(PLANES).policy.shape == (3, 1858)
        return
    assert where.startswith(str(path))
