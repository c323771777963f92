"""Which model is asked and within which limits.

`Endpoint` says who answers, so it belongs to the keys and records of what the answers make;
`Limits` says how this machine may ask, and belongs to none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from queen.errors import QueenError

ASIDE = {"aside": True}
"""Metadata of a field that is part of no key and no record."""


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens; None where nobody has said."""

    input: float | None = None
    output: float | None = None


@dataclass(frozen=True)
class Endpoint:
    """A language model behind an OpenAI-compatible `POST {base_url}/chat/completions`.

    Attributes:
        base_url: up to and with the version, as `https://api.openai.com/v1`; no key in it.
        model: as the endpoint calls it.
        key_env: environment variable that holds the key; None or "" where none is needed.
        temperature: None leaves it to the endpoint (some models refuse the field).
        max_tokens: longest answer; what the budget reserves for each request.
        length_field: the field that carries `max_tokens`; older servers want `max_tokens`.
        answer: how the form of the answer is asked for: a JSON `schema` that the endpoint
            enforces, a JSON `object`, or plain `text`. It is checked here in each case.
        closed: the schema itself lists what may be said where that can be listed (legal moves,
            the statements there are), for endpoints that decode by it; each request then has a
            schema of its own, which some endpoints take long to compile.
        extra: further fields of the request, as `{reasoning_effort: low}`.
        price: of its tokens.
    """

    base_url: str = "https://api.openai.com/v1"
    model: str = ""
    key_env: str | None = field(default="OPENAI_API_KEY", metadata=ASIDE)
    temperature: float | None = None
    max_tokens: int = 1500
    length_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    answer: Literal["schema", "object", "text"] = "schema"
    closed: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    price: Price = field(default_factory=Price, metadata=ASIDE)

    @property
    def local(self) -> bool:
        """Whether the endpoint is on this machine."""
        host = urlsplit(self.base_url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def require_sound(self) -> None:
        """Raise QueenError unless the endpoint can be asked at all."""
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise self._error("is no http or https address", "give it as https://host/v1")
        if parts.username or parts.password or parts.query:
            raise QueenError(
                "base_url carries a user, a password or a query",
                where=f"endpoint at {parts.hostname}",
                remedy="it would stand in records: put the key in the variable key_env names",
            )
        if self.key_env and not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.key_env):
            raise self._error(
                "names no environment variable in key_env",
                "give the variable's name in capitals, as OPENAI_API_KEY, never the key itself",
            )
        if not self.model:
            raise self._error(
                "has no model", "say which: teacher.llm.model, or consolidate.llm.model"
            )
        if self.max_tokens < 1:
            raise self._error("allows no answer", "give max_tokens of 1 or more")

    def _error(self, what: str, remedy: str) -> QueenError:
        return QueenError(f"the endpoint {what}", where=f"base_url {self.base_url}", remedy=remedy)


@dataclass(frozen=True)
class Budget:
    """What one run of a stage may spend; 0 for no limit. What was paid before is free."""

    usd: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class Limits:
    """How an endpoint may be asked.

    Attributes:
        concurrency: requests in flight.
        requests_per_minute, tokens_per_minute: in any 60 seconds; 0 for no limit.
        timeout_s: for one attempt, from its sending to its whole answer.
        retries: further attempts after one that failed in a way that may pass.
        backoff_s: wait before the first retry; doubled each time, with jitter.
        longest_wait_s: longest wait for a retry; an endpoint that asks for more stops the run.
        give_up_after: requests in a row, each with all its retries, that may fail before the
            run stops.
        budget: what one run may spend.
    """

    concurrency: int = 8
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    timeout_s: float = 120.0
    retries: int = 4
    backoff_s: float = 1.0
    longest_wait_s: float = 120.0
    give_up_after: int = 8
    budget: Budget = field(default_factory=Budget)
