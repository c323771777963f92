"""An attention body's forward pass in plain float64 numpy, written from the file format's page.

It reads a decoded network file, one position at a time, head by head and square by square, and
shares with the package only the decoding of a layer's numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from lc0_by_hand import selu, softmax

from queen.networks.lc0.weights import decode_layer

Part = dict[str, Any]


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.log1p(np.exp(x)))


FUNCTIONS = {
    1: mish,
    2: lambda x: np.maximum(x, 0),
    3: lambda x: x,
    4: np.tanh,
    5: lambda x: 1 / (1 + np.exp(-x)),
    6: selu,
    7: lambda x: x / (1 + np.exp(-x)),
    8: lambda x: np.maximum(x, 0) ** 2,
}


def numbers(part: Part, name: str) -> np.ndarray:
    return decode_layer(part[name], name).astype(np.float64)


def dense(part: Part, stem: str, x: np.ndarray) -> np.ndarray:
    """x W^T + b; a missing bias is zero."""
    weight = numbers(part, f"{stem}_w").reshape(-1, x.shape[-1])
    return x @ weight.T + (numbers(part, f"{stem}_b") if f"{stem}_b" in part else 0)


def norm(part: Part, stem: str, x: np.ndarray, eps: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    betas = numbers(part, f"{stem}_betas") if f"{stem}_betas" in part else 0
    return scaled * numbers(part, f"{stem}_gammas") + betas


def reach() -> np.ndarray:
    """Queen or knight from square to square of an empty board."""
    table = -np.eye(64)
    for a in range(64):
        for b in range(64):
            dx, dy = abs(a % 8 - b % 8), abs(a // 8 - b // 8)
            if a != b and (dx == dy or not dx or not dy or dx * dy == 2):
                table[a, b] = 1
    return table


class AttentionByHand:
    """The forward pass of a decoded network on planes [112, 8, 8]."""

    def __init__(self, net: Part) -> None:
        self.form, self.weights = net["format"]["network_format"], net["weights"]
        default = FUNCTIONS[1 if self.form["default_activation"] else 2]
        self.act = default
        self.ffn_act = FUNCTIONS.get(self.form["ffn_activation"], default)
        self.smolgen_act = FUNCTIONS.get(self.form["smolgen_activation"], default)
        self.is_dense = self.form["input_embedding"] == 2
        self.alpha = (2 * len(self.weights["encoder"])) ** -0.25

    def states(self, planes: np.ndarray) -> list[np.ndarray]:
        """Each [64, C]."""
        states = [self.embedding(planes.reshape(112, 64).T.astype(np.float64))]
        heads, eps = self.weights["headcount"], 1e-3 if self.is_dense else 1e-6
        for layer in self.weights["encoder"]:
            states.append(self.layer(layer, states[-1], heads, self.alpha, eps))
        return states

    def embedding(self, tokens: np.ndarray) -> np.ndarray:
        weights = self.weights
        if self.is_dense:
            board = dense(weights, "ip_emb_preproc", tokens[:, :12].reshape(-1)).reshape(64, -1)
        else:
            board = reach()
        x = self.act(dense(weights, "ip_emb", np.concatenate((tokens, board), 1)))
        if self.is_dense:
            x = norm(weights, "ip_emb_ln", x, 1e-3)
        for square in range(64):
            for name, apply in (("ip_mult_gate", np.multiply), ("ip_add_gate", np.add)):
                gate = numbers(weights, name).reshape(-1, 64)[:, square]
                x[square] = apply(x[square], gate)
        if not self.is_dense:
            return x
        grown = self.feed_forward(weights["ip_emb_ffn"], x, self.ffn_act)
        return norm(weights, "ip_emb_ffn_ln", x + self.alpha * grown, 1e-3)

    def feed_forward(self, part: Part, x: np.ndarray, act: Any) -> np.ndarray:
        return dense(part, "dense2", act(dense(part, "dense1", x)))

    def layer(self, part: Part, x: np.ndarray, heads: int, alpha: float, eps: float) -> np.ndarray:
        x = norm(part, "ln1", x + alpha * self.attention(part["mha"], x, heads), eps)
        grown = self.feed_forward(part["ffn"], x, self.ffn_act)
        return norm(part, "ln2", x + alpha * grown, eps)

    def attention(self, mha: Part, x: np.ndarray, heads: int) -> np.ndarray:
        q, k, v = (dense(mha, name, x) for name in "qkv")
        depth = q.shape[1] // heads
        bias = self.smolgen(mha["smolgen"], x, heads) if "smolgen" in mha else None
        mixed = []
        for head in range(heads):
            chunk = slice(head * depth, (head + 1) * depth)
            one = q[:, chunk], k[:, chunk], v[:, chunk]
            mixed.append(self.head(mha, head, heads, one, None if bias is None else bias[head]))
        return dense(mha, "dense", np.concatenate(mixed, 1))

    def head(
        self, mha: Part, head: int, heads: int, qkv: tuple[np.ndarray, ...], bias: Any
    ) -> np.ndarray:
        q, k, v = qkv
        out = np.zeros_like(v)
        tables = {
            name: numbers(mha, f"rpe_{name}").reshape(225, -1)[:, head::heads]
            for name in "qkv"
            if f"rpe_{name}" in mha
        }
        for a in range(64):
            rows = [15 * (a // 8 - b // 8 + 7) + a % 8 - b % 8 + 7 for b in range(64)]
            logits = k @ q[a]
            if tables:
                logits = logits + tables["q"][rows] @ q[a] + (tables["k"][rows] * k).sum(1)
            logits = logits / np.sqrt(q.shape[1]) + (0 if bias is None else bias[a])
            share = softmax(logits)
            out[a] = share @ v + (share @ tables["v"][rows] if tables else 0)
        return out

    def smolgen(self, part: Part, x: np.ndarray, heads: int) -> np.ndarray:
        board = (x @ numbers(part, "compress").reshape(-1, x.shape[1]).T).reshape(-1)
        board = norm(part, "ln1", self.smolgen_act(dense(part, "dense1", board)), 1e-3)
        made = norm(part, "ln2", self.smolgen_act(dense(part, "dense2", board)), 1e-3)
        made = made.reshape(heads, -1)
        shared = numbers(self.weights, "smolgen_w").reshape(4096, -1)
        return (made @ shared.T).reshape(heads, 64, 64)

    def policy(self, x: np.ndarray, moves: list[str], name: str = "vanilla") -> np.ndarray:
        within = self.weights.get("policy_heads", self.weights)
        head = within[name] if "policy_heads" in self.weights else within
        h = self.act(dense(head if "ip_pol_w" in head else within, "ip_pol", x))
        for layer in head.get("pol_encoder", []):
            h = self.layer(layer, h, head["pol_headcount"], 1.0, 1e-6)
        q, k = dense(head, "ip2_pol", h), dense(head, "ip3_pol", h)
        scores = q @ k.T / np.sqrt(q.shape[1])
        offsets = numbers(head, "ip4_pol_w").reshape(4, -1) @ k[56:].T
        out = []
        for move in moves:
            origin, target = (
                8 * (int(move[i + 1]) - 1) + "abcdefgh".index(move[i]) for i in (0, 2)
            )
            extra = 0.0
            if len(move) == 5:
                extra = offsets["qrb".index(move[4]), target - 56] + offsets[3, target - 56]
            out.append(scores[origin, target] + extra)
        return np.array(out)

    def scalar(self, part: Part, stem: str, x: np.ndarray) -> np.ndarray:
        flat = self.act(dense(part, f"ip_{stem}", x)).reshape(-1)
        return dense(part, f"ip2_{stem}", self.act(dense(part, f"ip1_{stem}", flat)))

    def value(self, x: np.ndarray, name: str = "winner") -> np.ndarray:
        part = self.weights["value_heads"][name] if "value_heads" in self.weights else self.weights
        return self.scalar(part, "val", x)
