"""An SE-ResNet's forward pass in plain float64 numpy, written from the file format's page.

It keeps batch normalisation apart and shares no code with the package: the tests compare both.
"""

from __future__ import annotations

import numpy as np
from lc0_writer import RandomNet

_DIRECTIONS = {
    "N": (0, 1), "NE": (1, 1), "E": (1, 0), "SE": (1, -1),
    "S": (0, -1), "SW": (-1, -1), "W": (-1, 0), "NW": (-1, 1),
}  # fmt: skip
_KNIGHT = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]


def square(file: int, rank: int) -> str | None:
    inside = 0 <= file < 8 and 0 <= rank < 8
    return "abcdefgh"[file] + str(rank + 1) if inside else None


def convolution_places() -> dict[str, tuple[int, int]]:
    """Each move of the convolution policy with its plane and square, walked plane by plane."""
    steps = [
        (dx * distance, dy * distance)
        for dx, dy in _DIRECTIONS.values()
        for distance in range(1, 8)
    ] + _KNIGHT
    places = {}
    for origin in range(64):
        file, rank = origin % 8, origin // 8
        for plane, (dx, dy) in enumerate(steps):
            target = square(file + dx, rank + dy)
            if target:
                places[f"{square(file, rank)}{target}"] = (plane, origin)
        for side, dx in enumerate((-1, 0, 1)):
            target = square(file + dx, 7) if rank == 6 else None
            for piece, letter in enumerate("rbq"):
                if target:
                    move = f"{square(file, rank)}{target}{letter}"
                    places[move] = (64 + 3 * side + piece, origin)
    return places


class ByHand:
    """The forward pass of one position."""

    def __init__(self, net: RandomNet) -> None:
        self.net = net
        self.arrays = {name: value.astype(np.float64) for name, value in net.arrays.items()}

    def act(self, x: np.ndarray) -> np.ndarray:
        if self.net.activation == 1:
            return x * np.tanh(np.log1p(np.exp(x)))
        return np.maximum(x, 0)

    def conv(self, name: str, x: np.ndarray) -> np.ndarray:
        """[C, 8, 8] to [out, 8, 8] by shifting the board under the kernel."""
        kernel = self.arrays[f"{name}.weights"]
        half = kernel.shape[-1] // 2
        padded = np.pad(x, ((0, 0), (half, half), (half, half)))
        out = np.zeros((len(kernel), 8, 8)) + self.arrays[f"{name}.biases"][:, None, None]
        for dy in range(kernel.shape[2]):
            for dx in range(kernel.shape[3]):
                seen = padded[:, dy : dy + 8, dx : dx + 8]
                out += np.tensordot(kernel[:, :, dy, dx], seen, 1)
        if f"{name}.mean" not in self.arrays:
            return out
        mean, variance, gamma, beta = (
            self.arrays[f"{name}.{part}"][:, None, None]
            for part in ("mean", "variance", "gamma", "beta")
        )
        return gamma * (out - mean) / np.sqrt(variance + 1e-5) + beta

    def dense(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.arrays[f"{name}.w"].T + self.arrays[f"{name}.b"]

    def states(self, planes: np.ndarray) -> list[np.ndarray]:
        """Each [C, 8, 8]."""
        states = [self.act(self.conv("input", planes))]
        for i in range(self.net.blocks):
            x = states[-1]
            y = self.conv(f"block{i}.conv2", self.act(self.conv(f"block{i}.conv1", x)))
            if self.net.squeeze:
                pooled = y.mean((1, 2))
                both = self.dense(f"block{i}.se2", self.act(self.dense(f"block{i}.se1", pooled)))
                gate, bias = both[: len(y)], both[len(y) :]
                y = y / (1 + np.exp(-gate[:, None, None])) + bias[:, None, None]
            states.append(self.act(y + x))
        return states

    def scalar(self, name: str, x: np.ndarray) -> np.ndarray:
        flat = self.act(self.conv(name, x)).ravel()
        return self.dense(f"{name}2", self.act(self.dense(f"{name}1", flat)))

    def policy(self, x: np.ndarray, moves: list[str]) -> np.ndarray:
        if self.net.policy == 1:
            return self.dense("dense", self.act(self.conv("policy", x)).ravel())
        if self.net.policy == 2:
            planes = self.conv("policy", self.act(self.conv("policy1", x))).reshape(80, 64)
            places = convolution_places()
            return np.array([planes[places[move]] for move in moves])
        return self.attention(x.reshape(len(x), 64).T, moves)

    def attention(self, tokens: np.ndarray, moves: list[str]) -> np.ndarray:
        h = self.encoder(selu(self.dense("embed", tokens)))
        q, k = self.dense("q", h), self.dense("k", h)
        scores = q @ k.T / np.sqrt(q.shape[1])
        offsets = self.arrays["ppo"] @ k[56:].T
        pieces = offsets[:3] + offsets[3]
        out = []
        for move in moves:
            origin, target = (
                8 * (int(move[i + 1]) - 1) + "abcdefgh".index(move[i]) for i in (0, 2)
            )
            extra = pieces["qrb".index(move[4]), target - 56] if len(move) == 5 else 0.0
            out.append(scores[origin, target] + extra)
        return np.array(out)

    def encoder(self, x: np.ndarray) -> np.ndarray:
        q, k, v = (self.dense(f"mha.{name}", x) for name in "qkv")
        half = q.shape[1] // 2
        mixed = []
        for part in (slice(0, half), slice(half, None)):
            logits = q[:, part] @ k[:, part].T / np.sqrt(half)
            weights = np.exp(logits - logits.max(1, keepdims=True))
            mixed.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        x = self.norm("ln1", x + self.dense("mha.out", np.concatenate(mixed, 1)))
        return self.norm("ln2", x + self.dense("ffn2", selu(self.dense("ffn1", x))))

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(1, keepdims=True)
        scale = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6)
        return centred / scale * self.arrays[f"{name}.g"] + self.arrays[f"{name}.b"]


def selu(x: np.ndarray) -> np.ndarray:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return scale * np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1))


def softmax(x: np.ndarray) -> np.ndarray:
    grown = np.exp(x - x.max())
    return grown / grown.sum()
