"""Network files: what is broken is said with file, field and remedy; nothing else escapes."""

import gzip
import struct
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lc0_writer import BFLOAT16, FLOAT16, FLOAT32, RandomNet, field, layer, message

from queen.networks.lc0 import NetError, UnsupportedNet, load_net
from queen.networks.lc0.format import NetFormat
from queen.networks.lc0.proto import decode, read_net
from queen.networks.lc0.weights import Weights, decode_layer
from queen.networks.lc0.write import encode_layer, write_net

NET = RandomNet(filters=2, blocks=1, policy=2)
BLOB = NET.blob
FLOATS = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nets")


@settings(max_examples=60, deadline=None)
@given(end=st.integers(0, len(BLOB) - 1))
def test_a_file_cut_short_anywhere_is_an_error_with_a_remedy(folder: Path, end: int) -> None:
    path = folder / "cut.pb"
    path.write_bytes(BLOB[:end])
    with pytest.raises(NetError) as fault:
        load_net(path)
    assert str(path) in fault.value.where
    assert fault.value.remedy


@settings(max_examples=100, deadline=None)
@given(place=st.integers(5, len(BLOB) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_reads_or_is_an_error(folder: Path, place: int, byte: int) -> None:
    path = folder / "changed.pb"
    path.write_bytes(BLOB[:place] + bytes([byte]) + BLOB[place + 1 :])
    try:
        load_net(path)
    except NetError as error:
        fault = error
    else:
        return
    assert str(path) in fault.where


@settings(max_examples=60, deadline=None)
@given(rest=st.binary(max_size=200))
def test_garbage_behind_a_right_beginning_is_an_error(folder: Path, rest: bytes) -> None:
    path = folder / "garbage.pb"
    path.write_bytes(BLOB[:5] + rest)
    with pytest.raises(NetError):
        load_net(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "neither gzip nor a network"),
        (b"\x0d" + struct.pack("<I", 0x1C1) + BLOB[5:], "magic is 0x1c1, not 0x1c0"),
        (gzip.compress(BLOB, mtime=0)[:-200], "gzip stream is broken"),
        (gzip.compress(BLOB, mtime=0)[:50] + b"\x00" * 50, "gzip stream is broken"),
        (gzip.compress(b"hello, world", mtime=0), "neither gzip nor a network"),
    ],
)
def test_files_that_are_no_network(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "net.pb.gz"
    path.write_bytes(content)
    with pytest.raises(NetError, match=says) as fault:
        load_net(path)
    assert str(path) in fault.value.where
    assert fault.value.remedy


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.pb", tmp_path):
        with pytest.raises(NetError, match="cannot be read"):
            load_net(path)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({10: message({1: b""})}, "weights.input.weights"),
        ({10: message(NET.weights | {1: message({1: layer(np.zeros(113))})})}, "input.weights"),
        ({10: message({k: v for k, v in NET.weights.items() if k != 8})}, "weights.ip1_val_b"),
        ({10: message(NET.weights | {8: layer(np.zeros(6))})}, "weights.ip1_val_b"),
        ({10: message(NET.weights | {9: layer(np.full(21, np.nan))})}, "weights.ip2_val_w"),
        ({10: message(NET.weights | {9: message({3: b"abc", 4: 2})})}, "weights.ip2_val_w"),
        ({10: message(NET.weights | {9: layer(np.zeros(7)), 10: layer(np.zeros(1))})}, "ip2_val_w"),
        ({10: message(NET.weights | {2: [message({1: b""})]})}, "residual[0].conv1.weights"),
    ],
)
def test_a_layer_at_fault_is_named(tmp_path: Path, change: dict[int, bytes], place: str) -> None:
    net = RandomNet(filters=2, blocks=1)
    net.fields |= change
    path = net.write(tmp_path / "net.pb")
    with pytest.raises(NetError) as fault:
        load_net(path)
    assert fault.value.where.startswith(str(path))
    assert place in fault.value.where


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({3: 5}, "NETWORK_ONNX .* not supported"),
        ({3: 99}, "unknown network format"),
        ({1: 6}, "input format 6"),
        ({1: 0}, "input format 0"),
        ({4: 9}, "policy format 9"),
        ({5: 3}, "value format 3"),
        ({7: 5}, "default_activation format 5"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, numbers: dict[int, int], says: str) -> None:
    path = RandomNet(filters=2, blocks=1, format_fields=numbers).write(tmp_path / "net.pb")
    with pytest.raises(UnsupportedNet, match=says) as fault:
        load_net(path)
    assert fault.value.remedy.startswith("use a network ")


def test_a_file_with_an_onnx_model_alone_is_not_supported(tmp_path: Path) -> None:
    net = RandomNet(filters=2, blocks=1)
    net.fields = {4: net.fields[4], 11: b"onnx"}
    with pytest.raises(UnsupportedNet, match="ONNX"):
        load_net(net.write(tmp_path / "net.pb"))


@given(st.lists(st.sampled_from([b"\xa0\x06\x05", b"\xa1\x06" + b"8" * 8, b"\xa2\x06\x02ab",
                                 b"\xa5\x06" + b"4" * 4])))  # fmt: skip
def test_unknown_fields_are_skipped_where_they_change_nothing(strange: list[bytes]) -> None:
    data = b"".join([*strange, field(2, 32), *strange])
    assert decode(memoryview(data), "EngineVersion", "file") == {"minor": 32}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({10: message(NET.weights | {46: b"new"})}, "weights.#46"),
        ({10: message(NET.weights | {2: [message({4: b"new"})]})}, "weights.residual[0].#4"),
        ({4: message({1: 1, 2: message({1: 1, 11: 3})})}, "format.network_format.#11"),
    ],
)
def test_an_unknown_field_of_the_weights_or_the_format_is_named(
    tmp_path: Path, change: dict[int, bytes], place: str
) -> None:
    net = RandomNet(filters=2, blocks=1)
    net.fields |= change
    path = net.write(tmp_path / "net.pb")
    with pytest.raises(UnsupportedNet, match="unknown field") as fault:
        load_net(path)
    assert fault.value.where == f"{path}, field {place}"


def test_what_is_written_reads_the_same(folder: Path) -> None:
    """The package's writer against the reader, on a file of the tests' own writer."""
    path = NET.write(folder / "first.pb")
    once = read_net(path)
    for name in ("second.pb", "second.pb.gz"):
        write_net(once, folder / name)
        assert read_net(folder / name) == once
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(".")) == []


@given(FLOATS, st.sampled_from([1, FLOAT16, BFLOAT16, FLOAT32]))
def test_layers_are_written_to_the_nearest_value(values: list[float], encoding: int) -> None:
    exact = np.array(values, np.float32)
    found = decode_layer(encode_layer(exact, encoding), "here")
    unit = {FLOAT16: 2**-11, BFLOAT16: 2**-8, FLOAT32: 0.0}
    largest = float(np.abs(exact).max())
    if encoding == 1:
        step = float(np.ptp(exact.astype(np.float64))) / 65535 / 2 + 2e-7 * largest
        assert np.abs(found - exact).max() <= step
    else:
        np.testing.assert_allclose(found, exact, rtol=unit[encoding], atol=1e-7)


def test_repeated_numbers_come_packed_or_not() -> None:
    packed, plain = field(5, b"\x03\x80\x01"), field(5, 3) + field(5, 128)
    for data in (packed, plain):
        assert decode(memoryview(data), "Layer", "file") == {"dims": [3, 128]}


@given(FLOATS, st.sampled_from([None, 1, FLOAT16, BFLOAT16, FLOAT32]))
def test_layers_come_back_within_their_encoding(values: list[float], encoding: int | None) -> None:
    given_values = np.array(values, np.float32)
    raw = decode(memoryview(layer(given_values, encoding)), "Layer", "file")
    found = decode_layer(raw, "here")
    if encoding == FLOAT32:
        assert np.array_equal(found, given_values)
    elif encoding in (FLOAT16, BFLOAT16):
        step = 2**-10 if encoding == FLOAT16 else 2**-7
        np.testing.assert_allclose(found, given_values, rtol=step, atol=1e-7)
    else:
        step = float(np.ptp(given_values)) / 65535 + 1e-6 * float(np.abs(given_values).max())
        assert np.abs(found - given_values).max() <= step + 1e-12
    assert found.dtype == np.float32


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(UnsupportedNet, match="encoding 7"):
        decode_layer({"params": memoryview(b"ab"), "encoding": 7}, "here")


def test_arrays_have_the_shape_asked_for() -> None:
    raw = decode(memoryview(message({7: layer(np.arange(12))})), "Weights", "file")
    weights = Weights(raw, "file")
    assert weights.array("ip1_val_w", -1, 4).tolist()[1] == [4, 5, 6, 7]
    assert weights.array("ip1_val_w", 3, 4).shape == (3, 4)
    for shape in ((-1, 5), (4, 4)):
        with pytest.raises(NetError, match="12 values where"):
            weights.array("ip1_val_w", *shape)
    with pytest.raises(NetError, match="missing"):
        weights.array("ip2_val_w", 3)


@pytest.mark.parametrize(
    ("said", "weights", "expected"),
    [
        (None, {}, {"input": 1, "network": 3, "policy": 1, "value": 1}),
        ({"input": 1, "network": 1}, {}, {"network": 3, "policy": 1, "value": 1}),
        ({"input": 1, "network": 2}, {}, {"network": 4, "policy": 1, "value": 1}),
        ({"network": 4, "policy": 3}, {"encoder": [{}]}, {"network": 6, "input_embedding": 1}),
        (
            {"network": 4},
            {"encoder": [{}], "smolgen_w": {}},
            {"network": 6, "ffn_activation": 8, "smolgen_activation": 7},
        ),
        (
            {"network": 6},
            {"policy_heads": {}, "value_heads": {}},
            {"network": 7, "input_embedding": 2},
        ),
        ({"network": 6}, {"policy_heads": {}}, {"network": 6, "input_embedding": 1}),
        ({"network": 7}, {"policy_heads": {}}, {"network": 7, "input_embedding": 1}),
        ({"network": 134, "input_embedding": 2}, {}, {"network": 7, "input_embedding": 2}),
        ({"network": 4, "policy": 2, "value": 2}, {}, {"network": 4, "policy": 2, "value": 2}),
    ],
)
def test_older_formats_are_fixed_up(
    said: dict[str, int] | None, weights: dict[str, object], expected: dict[str, int]
) -> None:
    form = {} if said is None else {"network_format": said}
    found = asdict(NetFormat.of({"format": form, "weights": weights}))
    assert {name: found[name] for name in expected} == expected
