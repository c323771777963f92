"""What is asked of the generator and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from queen.errors import QueenError
from queen.games.chess.position import Position

RUN = 200


class GenerationError(QueenError):
    """A request that cannot be answered, or a generator whose parts do not fit."""


@dataclass(frozen=True)
class Request:
    """A text to be written about a position.

    Attributes:
        id: names the record in results and errors.
        position: what the expert looks at.
        prompt: the turn the model answers, control tokens included.
        prefix: how the answer begins; the model goes on from there.
        seed: its random numbers come from this alone, so that its text does not depend on the
            requests beside it.
        legal_first_move: whether what is written right after prompt and prefix must be a legal
            move of the position.
        legal_moves: whether every move of an explanation's structured lines must be legal, not
            the first alone; the prose stays free.
    """

    id: str
    position: Position
    prompt: str
    prefix: str = ""
    seed: int = 0
    legal_first_move: bool = False
    legal_moves: bool = False

    def uniforms(self, tokens: int, draws: int) -> NDArray[np.float64]:
        """Random numbers in [0, 1) of this request alone: [tokens, draws]."""
        generator = np.random.Generator(np.random.Philox(key=self.seed % 2**64))
        return generator.random((tokens, draws))


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: 0 for the likeliest token each time.
        top_p: keep the likeliest tokens that together reach this probability.
        max_new_tokens: an answer is cut there, unfinished.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.max_new_tokens < 1:
            raise GenerationError(
                f"no such sampling: {self}",
                remedy="temperature at least 0, top_p in (0, 1], max_new_tokens at least 1",
            )


def runs(count: int, slots: int) -> list[range]:
    """How a list of requests is cut into runs, each decoded on its own: near-equal ones.

    Of the list's length and the number of slots alone, never of the number of processes, so that
    the text does not depend on it. A run fills the slots about three times: long enough that few
    stand empty towards its end.
    """
    parts = max(1, -(-count // max(RUN, 3 * slots)))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


@dataclass(frozen=True)
class Completion:
    """What was written for one request.

    Attributes:
        id: the request's.
        text: prefix and continuation, without the end token.
        tokens: the continuation's token ids, without the end token.
        finished: whether the model ended the text itself.
        logprob: log-probability of the continuation, its end token included, under the model at
            temperature 1 and without constraints.
        error: why there is no text, if there is none.
    """

    id: str
    text: str
    tokens: tuple[int, ...] = ()
    finished: bool = False
    logprob: float = 0.0
    error: str | None = None


class Writer(Protocol):
    """What answers requests: a `Generator`, or several of them in processes of their own."""

    @property
    def identity(self) -> dict[str, str]:
        """What writes: digests of the weights, number type, kind of device."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion for each request, in their order."""

    def move_logprobs(self, requests: Sequence[Request]) -> list[dict[str, float]]:
        """Log-probability of each legal move after each request's prompt and prefix, by UCI."""

    def close(self) -> None:
        """End what was started for it."""
