"""The client that stages use: every answer is paid for once and remembered on disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from queen.engines.cache import SearchCache
from queen.language.api.faults import EndpointError
from queen.language.api.ledger import Ledger, require_price
from queen.language.api.messages import (
    Answer,
    Failure,
    Question,
    Reply,
    request_body,
    request_hash,
)
from queen.language.api.session import Kept, Request, Session, no_answers
from queen.language.api.settings import Endpoint, Limits

KIND = "chat"
Told = Callable[[int, int, str], None]


class Api:
    """Asks language models within the limits of one run.

    Answers are kept by the hash of their request in one SQLite file, each as soon as it is
    there: a run that was killed, stopped or repeated pays for nothing twice. Failures are not
    kept. Nothing is opened before the first question.

    Args:
        limits: how endpoints may be asked; the budget counts from here on.
        answers: the file.
        environ: where keys are looked up.
    """

    def __init__(
        self, limits: Limits, answers: Path, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.limits, self.answers, self.environ = limits, answers, environ
        self.ledger = Ledger(limits.budget)

    def ask(
        self, endpoint: Endpoint, questions: Sequence[Question], told: Told | None = None
    ) -> list[Reply]:
        """A reply to each question, in their order.

        Args:
            told: called after each answer with how many are done, of how many, and a note.

        Raises:
            QueenError: no key, an endpoint that cannot be used or never answers, the budget's
                end. What was answered before is kept.
        """
        endpoint.require_sound()
        bodies = [request_body(endpoint, question) for question in questions]
        names = [request_hash(endpoint, body) for body in bodies]
        replies: dict[str, Reply] = {}
        with SearchCache(self.answers) as cache:
            found = cache.get_many(KIND, names)
            replies.update({name: Answer.from_bytes(raw) for name, raw in found.items()})
            self.ledger.counts["from_cache"] += len(replies)

            def keep(name: str, reply: Reply) -> None:
                if isinstance(reply, Answer):
                    cache.put_many(KIND, {name: reply.to_bytes()})
                replies[name] = reply
                if told is not None:
                    told(len(replies), len(set(names)), self.ledger.told())

            open_ = {
                name: Request(body, question.id)
                for name, body, question in zip(names, bodies, questions, strict=True)
                if name not in replies
            }
            if open_:
                self._fetch(endpoint, open_, keep)
        _require_some(endpoint, list(replies.values()))
        return [replies[name] for name in names]

    def _fetch(self, endpoint: Endpoint, requests: Mapping[str, Request], keep: Kept) -> None:
        """Ask what the cache does not know; replies go to `keep`."""
        require_price(endpoint, self.limits.budget)
        key = find_key(endpoint, self.environ)
        asyncio.run(Session(endpoint, self.limits, key, self.ledger, keep).ask(requests))

    def figures(self) -> dict[str, float]:
        """What this run asked, spent and found in the cache; empty if it asked nothing."""
        return self.ledger.figures()


def find_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """The key from the environment; "" where the endpoint needs none. Never part of an error."""
    if not endpoint.key_env:
        return ""
    key = environ.get(endpoint.key_env, "").strip()
    if not key:
        raise EndpointError(
            f"the environment variable {endpoint.key_env} is not set",
            where=f"{endpoint.model} at {endpoint.base_url}",
            remedy=f"export {endpoint.key_env}=… with your key, or name another variable in "
            "llm.key_env (null if the endpoint needs none)",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise EndpointError(
            f"what {endpoint.key_env} holds cannot be a key: it has blanks or odd characters",
            where=f"{endpoint.model} at {endpoint.base_url}",
            remedy="set the variable to the key alone",
        )
    return key


def _require_some(endpoint: Endpoint, replies: Sequence[Reply]) -> None:
    """Where nothing at all was answered, the endpoint is at fault and not the records."""
    if replies and all(isinstance(reply, Failure) for reply in replies):
        last = replies[-1]
        assert isinstance(last, Failure)
        raise no_answers(endpoint, last)
