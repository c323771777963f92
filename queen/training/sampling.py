"""The order in which examples are met: a pure function of (seed, step).

Nothing here depends on workers, on restarts or on what was drawn before, so a run that is
killed goes on with the same batches. Parts of a mixture are met in their shares, each part
in seeded permutations of its own. A *megabatch* is a run of consecutive steps whose examples
are drawn together, sorted by length and cut into batches in a seeded order, so that a batch
holds sequences of like length and little padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from queen.errors import QueenError

Indices = NDArray[np.int64]


class MixtureError(QueenError):
    """A mixture that cannot be drawn from."""


@dataclass(frozen=True, eq=False)
class Share:
    """A part of a mixture: its name, the length of each of its examples, its share.

    Shares are relative; they need not sum to one.
    """

    name: str
    lengths: NDArray[np.int64]
    share: float


def steps_for(epochs: float, count: int, share: float, batch_size: int) -> int:
    """Steps after which a part of `count` examples at `share` (0..1] is met `epochs` times."""
    return math.ceil(Fraction(epochs) * count / Fraction(share) / batch_size)


class BatchPlan:
    """Which examples form the batch of a step.

    Args:
        parts: the mixture; its examples are numbered end to end, part after part.
        batch_size: examples of a step.
        steps: steps of the run (the last megabatch may be shorter).
        seed: of every permutation.
        megabatch: steps whose examples are sorted by length together; 1 keeps every batch a
            plain random draw (still sorted inside, so that micro-batches pad little).

    Raises:
        MixtureError: a share is not positive, or a part holds no example.
    """

    def __init__(
        self, parts: Sequence[Share], batch_size: int, steps: int, seed: int, megabatch: int = 1
    ) -> None:
        _check(parts, batch_size, megabatch)
        self.parts = tuple(parts)
        self.batch_size, self.steps, self.seed, self.megabatch = batch_size, steps, seed, megabatch
        total = sum(Fraction(part.share) for part in parts)
        self._shares = tuple(Fraction(part.share) / total for part in parts)
        self._starts = np.cumsum([0] + [len(part.lengths) for part in parts])
        self._lengths = np.concatenate([part.lengths for part in parts])
        self._group = lru_cache(maxsize=2)(self._draw_group)
        self._permutation = lru_cache(maxsize=2 * len(parts))(self._draw_permutation)

    def batch_indices(self, step: int) -> Indices:
        """[batch_size] indices of the examples of a step (from 0), shortest first."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of {self.steps}")
        group: list[Indices] = self._group(step // self.megabatch)
        return group[step % self.megabatch]

    def drawn(self, steps: int) -> list[int]:
        """How many examples of each part the first `steps` steps draw.

        Highest averages (Sainte-Lague): within a draw or so of the share at every length, and
        no part's count ever falls as steps grow, so draws of a part can be numbered.
        """
        examples, parts = steps * self.batch_size, len(self.parts)
        counts = [max(0, math.floor(share * examples) - parts) for share in self._shares]
        for _ in range(examples - sum(counts)):
            averages = [
                share / (2 * count + 1) for share, count in zip(self._shares, counts, strict=True)
            ]
            counts[averages.index(max(averages))] += 1
        return counts

    def _draw_group(self, group: int) -> list[Indices]:
        first = group * self.megabatch
        last = min(first + self.megabatch, self.steps)
        before, after = self.drawn(first), self.drawn(last)
        pool = np.concatenate(
            [self._range(part, *span) for part, span in enumerate(zip(before, after, strict=True))]
        )
        rng = self._rng(0, group)
        pool = rng.permutation(pool)
        batches = pool[np.argsort(self._lengths[pool], kind="stable")].reshape(
            last - first, self.batch_size
        )
        return list(batches[rng.permutation(last - first)])

    def _range(self, part: int, start: int, stop: int) -> Indices:
        """Draws start..stop of a part: its epochs end to end, each a permutation."""
        count = len(self.parts[part].lengths)
        draws = np.arange(start, stop)
        found: Indices = np.empty(len(draws), np.int64)
        for epoch in np.unique(draws // count):
            here = draws // count == epoch
            found[here] = self._permutation(part, int(epoch))[draws[here] % count]
        found += self._starts[part]
        return found

    def _draw_permutation(self, part: int, epoch: int) -> Indices:
        return self._rng(part + 1, epoch).permutation(len(self.parts[part].lengths))

    def _rng(self, stream: int, index: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, stream, index]))


def _check(parts: Sequence[Share], batch_size: int, megabatch: int) -> None:
    if not parts or batch_size < 1 or megabatch < 1:
        raise MixtureError(
            f"{len(parts)} parts, batch size {batch_size}, megabatch {megabatch}",
            where="mixture",
            remedy="give at least one part and sizes of at least 1",
        )
    for part in parts:
        if not part.share > 0 or not math.isfinite(part.share):
            raise MixtureError(
                f"share {part.share} is not positive", where=part.name, remedy="leave the part out"
            )
        if not len(part.lengths):
            raise MixtureError(
                "no example in this part of the mixture",
                where=part.name,
                remedy="see why its examples were rejected, or leave the part out",
            )
