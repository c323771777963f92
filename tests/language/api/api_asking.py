"""Questions and an endpoint for the tests of the client."""

from __future__ import annotations

from typing import Any

from queen.language.api.messages import Question
from queen.language.api.settings import Endpoint, Limits

KEY = "sk-local-6f1f0c2bd0a94d31"
ENVIRONMENT = {"LOCAL_KEY": KEY}
WORDS = {"type": "array", "items": {"enum": ["e4", "d4", "c4"]}, "minItems": 1, "maxItems": 2}
SCHEMA = {
    "type": "object",
    "properties": {"moves": WORDS},
    "required": ["moves"],
    "additionalProperties": False,
}
QUICK = Limits(concurrency=2, timeout_s=20.0, retries=2, backoff_s=0.01)


def questions(count: int) -> list[Question]:
    return [Question(f"record {n}", "Choose moves.", f"Case {n}", SCHEMA) for n in range(count)]


def endpoint(url: str, **given: Any) -> Endpoint:
    return Endpoint(url, "tiny", **{"key_env": "LOCAL_KEY", "max_tokens": 60, **given})
