"""Scores of engines, as expected scores too."""

from __future__ import annotations

from dataclasses import dataclass

from queen.games.expected import LICHESS_SLOPE, expected_from_cp

__all__ = ["LICHESS_SLOPE", "Score", "expected_from_cp"]


@dataclass(frozen=True)
class Score:
    """An engine's score from the side to move: centipawns, or moves to mate.

    Exactly one of `cp` and `mate` is set. `mate` > 0 mates, < 0 is mated; `mate` = 0 means the
    side to move is checkmated.
    """

    cp: int | None = None
    mate: int | None = None

    def __post_init__(self) -> None:
        if (self.cp is None) == (self.mate is None):
            raise ValueError("a score is either centipawns or mate")

    @property
    def expected(self) -> float:
        """Expected score in [0, 1]: Lichess's logistic, mates 1 and 0. Source: METHOD."""
        if self.mate is not None:
            return 1.0 if self.mate > 0 else 0.0
        assert self.cp is not None
        return expected_from_cp(self.cp)

    def reversed(self) -> Score:
        """The same score seen by the other side."""
        if self.mate is not None:
            return Score(mate=-self.mate)
        assert self.cp is not None
        return Score(cp=-self.cp)
