"""What counting pieces is worth: a baseline for value networks.

A logistic fit of the expected score on the differences of the five pieces' counts, then the
classes' frequencies in bands of what that fit says: the best that can be said of a position by
whoever sees its material and whose move it is, and nothing else. Ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from queen.networks.value.labels import CLASSES, worth
from queen.positions.packed import BLACK_CODE, SIDE, squares_of

KINDS = 5  # pawn to queen
BANDS = 20
STEPS = 50
RIDGE = 1e-6  # keeps the fit defined where a piece never differs

Values = NDArray[np.float64]


def piece_differences(packed: NDArray[np.uint8]) -> Values:
    """[n, 5] own pawns, knights, bishops, rooks and queens less the opponent's."""
    squares = squares_of(packed)
    counts = [
        (squares == code).sum(1).astype(np.float64) - (squares == code + BLACK_CODE).sum(1)
        for code in range(1, KINDS + 1)
    ]
    turned = np.where(packed[:, SIDE] == 0, 1.0, -1.0)
    return np.stack(counts, 1) * turned[:, None]


@dataclass(frozen=True, eq=False)
class MaterialFit:
    """A fitted baseline.

    Attributes:
        weights: [6] log-odds of the side to move: of each piece, and of having the move.
        edges: [b] upper ends of all bands but the last, in log-odds.
        shares: [b + 1, 103] how often each class was in each band.
    """

    weights: Values
    edges: Values
    shares: Values

    def logits(self, packed: NDArray[np.uint8]) -> torch.Tensor:
        """Logits [n, 103] of positions [n, 36]."""
        band = np.searchsorted(self.edges, _odds(packed, self.weights), side="left")
        return torch.from_numpy(np.log(self.shares[band])).float()


def fit_material(packed: NDArray[np.uint8], classes: NDArray[np.uint8]) -> MaterialFit:
    """The baseline of a training set.

    Args:
        packed: [n, 36] positions.
        classes: [n] their classes.
    """
    weights = _logistic(_inputs(packed), worth().numpy().astype(np.float64)[classes])
    odds = _odds(packed, weights)
    edges = np.unique(np.quantile(odds, np.arange(1, BANDS) / BANDS))
    band = np.searchsorted(edges, odds, side="left")
    overall = np.bincount(classes, minlength=CLASSES) + 1.0
    counts = np.zeros((len(edges) + 1, CLASSES))
    np.add.at(counts, (band, classes), 1.0)
    counts += overall / overall.sum()  # one observation more, of a position like any other
    return MaterialFit(weights, edges, counts / counts.sum(1, keepdims=True))


def _inputs(packed: NDArray[np.uint8]) -> Values:
    return np.concatenate((piece_differences(packed), np.ones((len(packed), 1))), 1)


def _odds(packed: NDArray[np.uint8], weights: Values) -> Values:
    return np.asarray(_inputs(packed) @ weights)


def _logistic(inputs: Values, wanted: Values) -> Values:
    """Weights of the least cross-entropy to shares [n] in [0, 1], by Newton's method."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        said = 1 / (1 + np.exp(-(inputs @ weights)))
        slope = inputs.T @ (wanted - said) - RIDGE * weights
        curve = (inputs * (said * (1 - said))[:, None]).T @ inputs + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curve, slope)
        weights = weights + step
        if np.abs(step).max() < 1e-10:
            break
    return weights
