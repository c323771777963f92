"""How good a value network is on held-out positions, position by position and in the mean.

Source of the measures: METHOD section 2 (cross-entropy, ordinal term, right side preferred, mean
error in expected score and in centipawns of non-mates). Every mean comes with an interval by
bootstrap over games, and beside it stands what always saying the training set's frequencies gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from queen.evaluation.intervals import Interval, cluster_bootstrap
from queen.networks.value.labels import (
    CLASSES,
    MATED,
    MATES,
    ORDINAL_WEIGHT,
    cross_entropy,
    expected_score,
    ordinal_distance,
)
from queen.positions.expected import cp_of_expected, expected_of_cp

CP_LIMIT = 1000.0
BOOTSTRAP = 1000

Values = NDArray[np.float64]


def judged(
    logits: torch.Tensor,
    classes: NDArray[np.uint8],
    cp: NDArray[np.integer],
    ordinal: float = ORDINAL_WEIGHT,
) -> dict[str, Values]:
    """Each measure for each of n positions; NaN where it says nothing of a position.

    | measure | mean over | is |
    |---|---|---|
    | cross_entropy, ordinal, loss | all | the training loss and its terms |
    | side | labels that are not even | 1 where the right side is preferred |
    | score_error | all | distance of the expected scores, in [0, 1] |
    | cp_error | non-mates | distance in centipawns, both within +-1,000 (ours) |
    | mates_recall, mated_recall | positions of the class | 1 where it is the likeliest class |
    | mates_precision, mated_precision | positions where it is | 1 where it is right |

    Args:
        logits: [n, 103] of the network.
        classes: [n] right classes.
        cp: [n] centipawns of the labels, read where there is no mate.
        ordinal: weight of the ordinal term in `loss`.
    """
    right = torch.from_numpy(classes.astype(np.int64))
    surprise = cross_entropy(logits, right).numpy().astype(np.float64)
    distance = ordinal_distance(logits, right).numpy().astype(np.float64)
    mate = classes >= MATES
    wanted = np.where(mate, (classes == MATES).astype(np.float64), expected_of_cp(cp))
    said = expected_score(logits).numpy().astype(np.float64)
    found = {
        "cross_entropy": surprise,
        "ordinal": distance,
        "loss": surprise + ordinal * distance,
        "side": _where(wanted != 0.5, (said > 0.5) == (wanted > 0.5)),
        "score_error": np.abs(said - wanted),
        "cp_error": _where(~mate, np.abs(_bounded(cp_of_expected(said)) - _bounded(cp))),
    }
    likeliest = logits.argmax(1).numpy()
    for name, number in (("mates", MATES), ("mated", MATED)):
        both = (likeliest == number) & (classes == number)
        found[f"{name}_recall"] = _where(classes == number, both)
        found[f"{name}_precision"] = _where(likeliest == number, both)
    return found


def means(found: Mapping[str, Values]) -> dict[str, float]:
    """The mean of each measure where it says something; those that say nothing are left out."""
    told = {name: values[~np.isnan(values)] for name, values in found.items()}
    return {name: float(values.mean()) for name, values in told.items() if len(values)}


def intervals(
    found: Mapping[str, Values], games: Sequence[bytes], *, seed: int, samples: int = BOOTSTRAP
) -> dict[str, Interval]:
    """Each mean with its interval, games drawn again.

    Args:
        games: [n] the game of each position.
    """
    told = {}
    for name, values in found.items():
        kept = np.flatnonzero(~np.isnan(values))
        if len(kept):
            own = [games[row] for row in kept.tolist()]
            told[name] = cluster_bootstrap(values[kept], own, seed=seed, samples=samples)
    return told


def constant_logits(classes: NDArray[np.uint8], count: int) -> torch.Tensor:
    """Logits [count, 103] of whoever always says how often each class was in training.

    Args:
        classes: [m] of the training set; one is added to each class's count.
    """
    counts = np.bincount(classes, minlength=CLASSES).astype(np.float32) + 1
    return torch.from_numpy(np.log(counts / counts.sum())).repeat(count, 1)


def _bounded(cp: NDArray[np.generic]) -> Values:
    return np.clip(np.asarray(cp, np.float64), -CP_LIMIT, CP_LIMIT)


def _where(told: NDArray[np.bool_], values: NDArray[np.generic]) -> Values:
    return np.where(told, np.asarray(values, np.float64), np.nan)
