"""Expected scores of many positions at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from queen.games.expected import FARTHEST_CP, LICHESS_SLOPE


def expected_of_cp(cp: npt.NDArray[np.floating | np.integer]) -> npt.NDArray[np.float64]:
    """`queen.games.expected.expected_from_cp` of each, [n]."""
    bounded = np.clip(np.asarray(cp, np.float64), -FARTHEST_CP, FARTHEST_CP)
    return np.asarray(1.0 / (1.0 + np.exp(-LICHESS_SLOPE * bounded)))
