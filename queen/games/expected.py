"""The one definition of expected score. Source: METHOD (Lichess's logistic)."""

from __future__ import annotations

import math

LICHESS_SLOPE = 0.00368208
FARTHEST_CP = 10_000.0  # further centipawns change nothing


def expected_from_cp(cp: float) -> float:
    """1 / (1 + exp(-0.00368208 cp)), safe for any size of cp."""
    bounded = max(-FARTHEST_CP, min(FARTHEST_CP, cp))
    return 1.0 / (1.0 + math.exp(-LICHESS_SLOPE * bounded))


def cp_from_expected(expected: float) -> float:
    """Centipawns of an expected score between 0 and 1, both excluded: the inverse."""
    return math.log(expected / (1 - expected)) / LICHESS_SLOPE
