"""What is asked and what comes back: requests, answers, failures, and their forms on the wire."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from queen.language.api.settings import Endpoint

OVERHEAD = 64
"""Tokens that a chat template may add to a request (ours, generous)."""


@dataclass(frozen=True)
class Question:
    """One request.

    Attributes:
        id: the record it is about, for errors.
        system, user: the two messages.
        schema: JSON schema of the answer; `name` is what the endpoint is told it is called.
    """

    id: str
    system: str
    user: str
    schema: Mapping[str, Any]
    name: str = "answer"


@dataclass(frozen=True)
class Answer:
    """What the model said.

    Attributes:
        text: the message, the key taken out should it stand there.
        finish: why it ended: `stop`, `length`, ...
        prompt_tokens, answer_tokens: as the endpoint counts them, else an upper bound.
        model: as the endpoint names what answered.
    """

    text: str
    finish: str
    prompt_tokens: int
    answer_tokens: int
    model: str = ""

    def to_bytes(self) -> bytes:
        """For the cache."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Answer:
        """From the cache."""
        return cls(**orjson.loads(raw))


@dataclass(frozen=True)
class Failure:
    """Why a question has no answer: a fixed word for counting, and what was met."""

    reason: str
    detail: str = field(default="", compare=False)


Reply = Answer | Failure


class Bound(NamedTuple):
    """The most that one attempt can use: tokens of the request, tokens of the answer."""

    prompt: int
    answer: int


class GarbledError(ValueError):
    """A response that is no chat completion."""


def request_body(endpoint: Endpoint, question: Question) -> dict[str, Any]:
    """The request's JSON, a function of its arguments alone."""
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [
            {"role": "system", "content": question.system},
            {"role": "user", "content": question.user},
        ],
        endpoint.length_field: endpoint.max_tokens,
    }
    if endpoint.temperature is not None:
        body["temperature"] = endpoint.temperature
    if endpoint.answer == "object":
        body["response_format"] = {"type": "json_object"}
    elif endpoint.answer == "schema":
        form = {"name": question.name, "schema": dict(question.schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return {**body, **endpoint.extra}


def request_hash(endpoint: Endpoint, body: Mapping[str, Any]) -> str:
    """SHA-256 of whom is asked and what."""
    whole = {"base_url": endpoint.base_url.rstrip("/"), "body": body}
    return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()


def upper_bound(endpoint: Endpoint, body: Mapping[str, Any]) -> Bound:
    """No more tokens than these: one for each byte of the request, and the longest answer."""
    return Bound(len(orjson.dumps(body)) + OVERHEAD, endpoint.max_tokens)


def read_completion(raw: bytes, bound: Bound) -> Answer:
    """The answer in a response; one that was refused ends as `refused`. Raises GarbledError."""
    try:
        data = orjson.loads(raw)
        choice = data["choices"][0]
        message = choice["message"]
        text, refusal = message.get("content"), message.get("refusal")
        usage = data.get("usage") or {}
        prompt = int(usage.get("prompt_tokens", bound.prompt))
        tokens = int(usage.get("completion_tokens", bound.answer))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise GarbledError(f"no chat completion: {type(error).__name__}") from None
    if refusal or choice.get("finish_reason") == "content_filter":
        text, finish = "", "refused"
    else:
        finish = str(choice.get("finish_reason") or "stop")
    if not isinstance(text, str):
        raise GarbledError("the message has no text")
    return Answer(text, finish, prompt, tokens, str(data.get("model") or ""))
