"""What the value network says: 103 logits, what they are worth, and the loss they are taught by.

Classes 0 to 100 are expected scores of 0 to 100 %, class 101 says that the side to move mates,
102 that it is mated. Source: METHOD section 2.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from queen.positions.expected import expected_of_cp

BUCKETS = 101
MATES, MATED = 101, 102
CLASSES = 103
MATE_GAP = 1.0
ORDINAL_WEIGHT = 0.5

# In the order of worth: is mated, 0 %, ..., 100 %, mates.
_LINE = (MATED, *range(BUCKETS), MATES)
_GAPS = (MATE_GAP, *([1 / (BUCKETS - 1)] * (BUCKETS - 1)), MATE_GAP)


def class_of(
    cp: NDArray[np.integer], mate: NDArray[np.integer], is_mate: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Classes [n] of scores from the side to move.

    Args:
        cp: [n] centipawns, read where there is no mate.
        mate: [n] moves to mate, read where there is one: above 0 the side to move mates, else it
            is mated.
        is_mate: [n] which of the two holds.
    """
    bucket = np.rint(expected_of_cp(cp) * (BUCKETS - 1))
    return np.where(is_mate, np.where(mate > 0, MATES, MATED), bucket).astype(np.uint8)


def worth(device: torch.device | None = None) -> Tensor:
    """Expected score [103] of each class."""
    steps = torch.linspace(0, 1, BUCKETS, device=device)
    return torch.cat((steps, torch.tensor([1.0, 0.0], device=device)))


def expected_score(logits: Tensor) -> Tensor:
    """Expected score [...] in [0, 1] of logits [..., 103]."""
    share = logits.float().softmax(-1)
    return (share * worth(logits.device)).sum(-1).clamp(0, 1)


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross-entropy [n] in nats of logits [n, 103] and right classes [n]."""
    return F.cross_entropy(logits.float(), classes.long(), reduction="none")


def ordinal_distance(logits: Tensor, classes: Tensor) -> Tensor:
    """How far [n] the distribution of logits [n, 103] lies from the right class [n].

    The earth mover's distance on a line on which 0 % and 100 % are 1 apart, the buckets evenly
    between them, and each mate class 1 beyond its end: the sum over the gaps of the line of the
    gap times the absolute difference of the two cumulative distributions. Source: METHOD section
    2, where the term is ours; "1 away from the far end of its side" is read as one whole range.
    """
    line = torch.tensor(_LINE, device=logits.device)
    share = logits.float().softmax(-1)[:, line].cumsum(1)[:, :-1]
    place = line.argsort()[classes.long()]
    reached = torch.arange(CLASSES - 1, device=logits.device) >= place[:, None]
    gaps = torch.tensor(_GAPS, device=logits.device)
    return ((share - reached.float()).abs() * gaps).sum(1)
