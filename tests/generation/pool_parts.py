"""A writer that needs no network, so that its processes start at once and can be killed freely."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from queen.games.chess.position import Position
from queen.generation.requests import Completion, GenerationError, Request, Sampling

START = Position.from_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")


class Scribe:
    """Writes numbers of the request's own; dies of what is called deadly, and once of `once`."""

    identity = {"weights": "none", "encoder": "", "dtype": "", "device": "cpu"}  # noqa: RUF012

    def __init__(self, once: Path | None = None) -> None:
        self.once = once

    def generate(self, asked: Sequence[Request], sampling: Sampling) -> list[Completion]:
        for request in asked:
            if request.id == "deadly" or (request.id == "once" and self._first()):
                os.kill(os.getpid(), signal.SIGKILL)
        return [self._one(request, sampling) for request in asked]

    def _one(self, request: Request, sampling: Sampling) -> Completion:
        numbers = request.uniforms(sampling.max_new_tokens, 1)[:, 0]
        return Completion(request.id, request.prefix + " ".join(f"{n:.6f}" for n in numbers))

    def move_logprobs(self, asked: Sequence[Request]) -> list[dict[str, float]]:
        if any(request.id == "unreadable" for request in asked):
            raise GenerationError("cannot be read", where="request unreadable", remedy="mend it")
        return [{request.id: float(request.seed)} for request in asked]

    def close(self) -> None: ...

    def _first(self) -> bool:
        if self.once is None or self.once.exists():
            return False
        self.once.touch()
        return True


def scribe(number: int, once: Path | None = None) -> Scribe:
    return Scribe(once)


def unloadable(number: int) -> Scribe:
    raise GenerationError("no weights", where="model.safetensors", remedy="train one")


def dead(number: int) -> Scribe:
    os.kill(os.getpid(), signal.SIGKILL)
    return Scribe()


def asking(count: int, **named: int) -> list[Request]:
    """Requests by number; `name=index` gives one of them a name."""
    asked = [Request(str(i), START, "?", f"{i}: ", 1000 + i) for i in range(count)]
    for name, index in named.items():
        asked[index] = Request(name, START, "?", f"{index}: ", 1000 + index)
    return asked
