"""Which skeleton and frame say a claim: varied, balanced, and the same every time.

The choice comes from (seed, index of the explanation) alone. Within one explanation a kind's
skeletons follow a shuffled order before any comes again, and so do the frames; over a set of
explanations each skeleton of a kind is said equally often, up to chance. Kinds said often have
eight or ten skeletons, so that none makes up a tenth of all sentences.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from queen.language.explanation import Sentence
from queen.language.grammar import SKELETONS, Form, frames, write
from queen.language.ground import Ground
from queen.language.vocabulary import Claim

Item = TypeVar("Item")


def draw(*key: int | str) -> float:
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def shuffled(items: Sequence[Item], *key: int | str) -> list[Item]:
    """The items in an order that depends on the key alone."""
    numbered = sorted(enumerate(items), key=lambda pair: draw(pair[0], *key))
    return [item for _, item in numbered]


class Voice:
    """Says claims for one explanation.

    Args:
        seed, index: of the run and of the explanation in it.
    """

    def __init__(self, seed: int, index: int) -> None:
        self.key = (seed, index)
        self._said: Counter[str] = Counter()

    def say(self, claim: Claim, ground: Ground) -> Sentence:
        """A claim as a sentence. Raises UnplayableError where its moves are not legal."""
        skeleton = self._next(SKELETONS[claim.kind], claim.kind)
        frame = self._next(frames(claim.at), "after" if claim.at else "here")
        return Sentence(write(claim, ground, skeleton, frame), (claim,))

    def say_again(self, claim: Claim, ground: Ground, form: Form) -> Sentence:
        """A claim in a skeleton already chosen; its frame too, if it fits the claim's place."""
        fitting = frames(claim.at)
        frame = form.frame if form.frame in fitting else self._next(fitting, "after")
        return Sentence(write(claim, ground, form.skeleton, frame), (claim,))

    def _next(self, choices: Sequence[Item], name: str) -> Item:
        order = shuffled(choices, name, *self.key)
        self._said[name] += 1
        return order[(self._said[name] - 1) % len(order)]
