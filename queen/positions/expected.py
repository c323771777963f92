"""Expected scores of many positions at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from queen.games.expected import FARTHEST_CP, LICHESS_SLOPE


def expected_of_cp(cp: npt.NDArray[np.floating | np.integer]) -> npt.NDArray[np.float64]:
    """`queen.games.expected.expected_from_cp` of each, [n]."""
    bounded = np.clip(np.asarray(cp, np.float64), -FARTHEST_CP, FARTHEST_CP)
    return np.asarray(1.0 / (1.0 + np.exp(-LICHESS_SLOPE * bounded)))


def cp_of_expected(expected: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Centipawns of each, [n]: the inverse, as far as centipawns change anything."""
    share = np.asarray(expected, np.float64)
    with np.errstate(divide="ignore"):
        cp = np.log(share / (1 - share)) / LICHESS_SLOPE
    return np.clip(cp, -FARTHEST_CP, FARTHEST_CP)
