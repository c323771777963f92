"""Reading Lc0's protobuf files: a proto2 wire decoder and the names of the fields.

Bytes stay views on the file's memory, so that a large network is held only once until its
layers are decoded. A field that the schema does not know is skipped where it cannot change what a
network computes; among the weights and in the format it is an error. Field numbers:
`proto/net.proto` of LeelaChessZero/lc0.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.networks.lc0.errors import NetError, UnsupportedNet

MAGIC = 0x1C0
Message = dict[str, Any]

_GZIP = b"\x1f\x8b"
_MAGIC_TAG = b"\x0d"  # field 1, four bytes: how every file begins
_WHOLE = "get the file again: it must be a network of lc0, .pb or .pb.gz"


@dataclass(frozen=True)
class Field:
    """A field of a message: its name and its kind (a scalar's, or a message's name)."""

    name: str
    kind: str
    repeated: bool = False


def _fields(table: str) -> dict[int, Field]:
    """From lines of `number name kind`, a star after the kind of a repeated field."""
    rows = (row.split() for row in table.replace(",", "\n").splitlines() if row.strip())
    return {int(n): Field(name, kind.rstrip("*"), kind.endswith("*")) for n, name, kind in rows}


SCHEMA: dict[str, dict[int, Field]] = {
    "Net": _fields("""
        1 magic fixed32, 2 license string, 3 min_version EngineVersion, 4 format Format
        5 training_params TrainingParams, 10 weights Weights, 11 onnx_model bytes
    """),
    "EngineVersion": _fields("1 major uint32, 2 minor uint32, 3 patch uint32"),
    "Format": _fields("1 weights_encoding uint32, 2 network_format NetworkFormat"),
    "NetworkFormat": _fields("""
        1 input uint32, 2 output uint32, 3 network uint32, 4 policy uint32, 5 value uint32
        6 moves_left uint32, 7 default_activation uint32, 8 smolgen_activation uint32
        9 ffn_activation uint32, 10 input_embedding uint32
    """),
    "TrainingParams": _fields("""
        1 training_steps uint32, 2 learning_rate float, 3 mse_loss float, 4 policy_loss float
        5 accuracy float, 6 lc0_params string
    """),
    "Layer": _fields("""
        1 min_val float, 2 max_val float, 3 params bytes, 4 encoding uint32, 5 dims uint32*
    """),
    "ConvBlock": _fields("""
        1 weights Layer, 2 biases Layer, 3 bn_means Layer, 4 bn_stddivs Layer
        5 bn_gammas Layer, 6 bn_betas Layer
    """),
    "SEunit": _fields("1 w1 Layer, 2 b1 Layer, 3 w2 Layer, 4 b2 Layer"),
    "Residual": _fields("1 conv1 ConvBlock, 2 conv2 ConvBlock, 3 se SEunit"),
    "Smolgen": _fields("""
        1 compress Layer, 2 dense1_w Layer, 3 dense1_b Layer, 4 ln1_gammas Layer
        5 ln1_betas Layer, 6 dense2_w Layer, 7 dense2_b Layer, 8 ln2_gammas Layer
        9 ln2_betas Layer
    """),
    "MHA": _fields("""
        1 q_w Layer, 2 q_b Layer, 3 k_w Layer, 4 k_b Layer, 5 v_w Layer, 6 v_b Layer
        7 dense_w Layer, 8 dense_b Layer, 9 smolgen Smolgen
        10 rpe_q Layer, 11 rpe_k Layer, 12 rpe_v Layer
    """),
    "FFN": _fields("1 dense1_w Layer, 2 dense1_b Layer, 3 dense2_w Layer, 4 dense2_b Layer"),
    "EncoderLayer": _fields("""
        1 mha MHA, 2 ln1_gammas Layer, 3 ln1_betas Layer, 4 ffn FFN
        5 ln2_gammas Layer, 6 ln2_betas Layer
    """),
    "PolicyHead": _fields("""
        1 ip_pol_w Layer, 2 ip_pol_b Layer, 3 ip2_pol_w Layer, 4 ip2_pol_b Layer
        5 ip3_pol_w Layer, 6 ip3_pol_b Layer, 7 ip4_pol_w Layer, 8 pol_encoder EncoderLayer*
        9 pol_headcount uint32, 10 policy1 ConvBlock, 11 policy ConvBlock
    """),
    "ValueHead": _fields("""
        1 ip_val_w Layer, 2 ip_val_b Layer, 3 ip1_val_w Layer, 4 ip1_val_b Layer
        5 ip2_val_w Layer, 6 ip2_val_b Layer, 7 ip_val_err_w Layer, 8 ip_val_err_b Layer
        9 ip_val_cat_w Layer, 10 ip_val_cat_b Layer, 11 value ConvBlock
    """),
    "PolicyHeads": _fields("""
        1 ip_pol_w Layer, 2 ip_pol_b Layer, 3 vanilla PolicyHead, 4 optimistic_st PolicyHead
        5 soft PolicyHead, 6 opponent PolicyHead, 7 policy_head_map PolicyHeadMap*
    """),
    "PolicyHeadMap": _fields("1 key string, 2 value PolicyHead"),
    "ValueHeads": _fields("""
        1 winner ValueHead, 2 q ValueHead, 3 st ValueHead, 4 value_head_map ValueHeadMap*
    """),
    "ValueHeadMap": _fields("1 key string, 2 value ValueHead"),
    "Weights": _fields("""
        1 input ConvBlock, 2 residual Residual*, 11 policy1 ConvBlock, 3 policy ConvBlock
        4 ip_pol_w Layer, 5 ip_pol_b Layer
        17 ip2_pol_w Layer, 18 ip2_pol_b Layer, 19 ip3_pol_w Layer, 20 ip3_pol_b Layer
        22 ip4_pol_w Layer, 21 pol_encoder EncoderLayer*, 24 pol_headcount uint32
        6 value ConvBlock, 7 ip1_val_w Layer, 8 ip1_val_b Layer, 9 ip2_val_w Layer
        10 ip2_val_b Layer, 12 moves_left ConvBlock, 13 ip1_mov_w Layer, 14 ip1_mov_b Layer
        15 ip2_mov_w Layer, 16 ip2_mov_b Layer, 25 ip_emb_w Layer, 26 ip_emb_b Layer
        27 encoder EncoderLayer*, 28 headcount uint32, 29 ip_val_w Layer, 30 ip_val_b Layer
        31 ip_mov_w Layer, 32 ip_mov_b Layer, 33 ip_mult_gate Layer, 34 ip_add_gate Layer
        35 smolgen_w Layer, 36 smolgen_b Layer, 37 ip_emb_preproc_w Layer
        38 ip_emb_preproc_b Layer, 39 ip_emb_ln_gammas Layer, 40 ip_emb_ln_betas Layer
        41 ip_emb_ffn FFN, 42 ip_emb_ffn_ln_gammas Layer, 43 ip_emb_ffn_ln_betas Layer
        44 value_heads ValueHeads, 45 policy_heads PolicyHeads
    """),
}

LENIENT = {"Net", "EngineVersion", "TrainingParams"}  # their unknown fields change no output

_WIRE = {"uint32": 0, "float": 5, "fixed32": 5}  # every other kind is length-delimited: 2


def wire_type(kind: str) -> int:
    """How a kind of field is written: 0 a varint, 2 with its length, 5 four bytes."""
    return _WIRE.get(kind, 2)


class _BrokenError(Exception):
    """A fault in the bytes; `decode` adds the file and the field."""


def read_net(path: Path) -> Message:
    """The decoded `Net` of a file, gzipped or plain (told by content, not by name).

    Raises NetError naming the file, the field where the bytes go wrong, and the remedy.
    """
    data = _inflated(_contents(path), path)
    _check_magic(data, path)
    return decode(memoryview(data), "Net", str(path))


def decode(data: memoryview, message: str, file: str, at: str = "") -> Message:
    """Decode one message. Raises UnsupportedNet on a field unknown to a message not `LENIENT`.

    Args:
        data: the message's bytes; `bytes` fields of the result are views on them.
        message: its name in `SCHEMA`.
        file: the file's name, for errors.
        at: dotted path of the message within the file, for errors.
    """
    fields, offset = SCHEMA[message], 0
    result: Message = {}
    while offset < len(data):
        here = at or message
        try:
            key, start = _varint(data, offset)
            field = fields.get(key >> 3)
            here = _place(at, field, result) if field else f"{here}.#{key >> 3}"
            raw, offset = _payload(data, start, key & 7)
            if field is not None:
                _store(result, field, key & 7, raw, file, here)
            elif message not in LENIENT:
                raise _unknown(message, key >> 3, f"{file}, field {here}")
        except _BrokenError as fault:
            raise NetError(str(fault), where=f"{file}, field {here}", remedy=_WHOLE) from None
    return result


def _unknown(message: str, number: int, where: str) -> UnsupportedNet:
    return UnsupportedNet(
        f"{message} has an unknown field {number}: a network of a newer or another kind",
        where=where,
        remedy="convert the network to a kind that lc0 0.32 reads, or get a whole file",
    )


def _place(at: str, field: Field, result: Message) -> str:
    index = f"[{len(result.get(field.name, ()))}]" if field.repeated else ""
    return f"{at}{'.' if at else ''}{field.name}{index}"


def _store(
    result: Message, field: Field, wire: int, raw: int | memoryview, file: str, at: str
) -> None:
    if field.kind == "uint32" and field.repeated and isinstance(raw, memoryview):
        result.setdefault(field.name, []).extend(_packed(raw))
        return
    if wire != wire_type(field.kind):
        raise _BrokenError(f"wire type {wire} where a {field.kind} is expected")
    value = _value(field.kind, raw, file, at)
    if field.repeated:
        result.setdefault(field.name, []).append(value)
    else:
        result[field.name] = value


def _value(kind: str, raw: int | memoryview, file: str, at: str) -> Any:
    if isinstance(raw, int):
        return raw
    if kind == "float":
        return struct.unpack("<f", raw)[0]
    if kind == "fixed32":
        return struct.unpack("<I", raw)[0]
    if kind == "string":
        return bytes(raw).decode("utf-8", "replace")
    return raw if kind == "bytes" else decode(raw, kind, file, at)


def _payload(data: memoryview, offset: int, wire: int) -> tuple[int | memoryview, int]:
    if wire == 0:
        return _varint(data, offset)
    if wire == 2:
        length, offset = _varint(data, offset)
    elif wire in (1, 5):
        length = 8 if wire == 1 else 4
    else:
        raise _BrokenError(f"unknown wire type {wire}")
    if offset + length > len(data):
        raise _BrokenError(
            f"{length} bytes announced, {len(data) - offset} left: the file is cut short"
        )
    return data[offset : offset + length], offset + length


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            raise _BrokenError("the file is cut short inside a number")
        byte = data[offset]
        offset += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, offset
    raise _BrokenError("a number longer than ten bytes")


def _packed(raw: memoryview) -> list[int]:
    numbers, offset = [], 0
    while offset < len(raw):
        number, offset = _varint(raw, offset)
        numbers.append(number)
    return numbers


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            remedy="give the path of a network file (.pb or .pb.gz)",
        ) from error


def _inflated(raw: bytes, path: Path) -> bytes:
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise NetError(
            f"the gzip stream is broken or cut short: {error}", where=str(path), remedy=_WHOLE
        ) from error


def _check_magic(data: bytes, path: Path) -> None:
    if len(data) < 5 or not data.startswith(_MAGIC_TAG):
        begins = repr(data[:8]) if data else "nothing: it is empty"
        raise NetError(
            f"neither gzip nor a network of lc0: it begins with {begins}",
            where=str(path),
            remedy=_WHOLE,
        )
    magic = int.from_bytes(data[1:5], "little")
    if magic != MAGIC:
        raise NetError(
            f"magic is {magic:#x}, not {MAGIC:#x}", where=f"{path}, field magic", remedy=_WHOLE
        )
