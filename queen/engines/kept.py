"""Answers asked of engines once and kept: the loop between a pool and a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Generic, TypeVar

from queen.engines.analysis import EngineFailure
from queen.engines.cache import SearchCache
from queen.engines.workers import EnginePool, Job

T = TypeVar("T")
WRITE_EVERY = 100


class KeptAnswers(Generic[T]):
    """Answers of one kind, from a cache where there are any.

    Args:
        pool: the engines.
        cache: None keeps nothing.
        encode, decode: an answer as bytes, and back with the FEN it belongs to.
    """

    def __init__(
        self,
        pool: EnginePool,
        cache: SearchCache | None,
        encode: Callable[[T], bytes],
        decode: Callable[[str, bytes], T],
    ) -> None:
        self._pool, self._cache, self._encode, self._decode = pool, cache, encode, decode

    def recall(self, key: str, fens: Sequence[str]) -> dict[str, T]:
        """What the cache holds, by FEN."""
        if self._cache is None or not fens:
            return {}
        kept = self._cache.get_many(key, fens)
        return {fen: self._decode(fen, data) for fen, data in kept.items()}

    def ask(
        self, key: str, jobs: Sequence[Job[T]], setup: str = ""
    ) -> dict[str, T | EngineFailure]:
        """Ask the engines, writing through as answers come: a kill loses a hundred at most."""
        answers: dict[str, T | EngineFailure] = {}
        unsaved: dict[str, bytes] = {}
        if not jobs:
            return answers
        with closing(self._pool.run(jobs, setup)) as stream:
            try:
                for number, answer in stream:
                    fen = jobs[number].fen
                    answers[fen] = answer
                    if not isinstance(answer, EngineFailure):
                        unsaved[fen] = self._encode(answer)
                    if len(unsaved) >= WRITE_EVERY:
                        self._save(key, unsaved)
            finally:
                self._save(key, unsaved)
        return answers

    def _save(self, key: str, answers: dict[str, bytes]) -> None:
        if self._cache is not None:
            kept = dict(answers)
            answers.clear()
            self._cache.put_many(key, kept)
