"""What can go wrong with one attempt: try again, count it against its record, or stop the run."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

from queen.errors import QueenError
from queen.language.api.settings import Endpoint

PASSING = {408, 409, 425}
PERSONAL = {401, 403, 404, 407}
SHOWN = 300


class AgainError(Exception):
    """An attempt that failed in a way that may pass.

    Attributes:
        reason: a fixed word for counting.
        after: seconds the endpoint asked to wait; None if it did not say.
        billed: whether it may have cost something all the same.
    """

    def __init__(
        self, reason: str, detail: str, *, after: float | None = None, billed: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason, self.detail, self.after, self.billed = reason, detail, after, billed


class RefusedError(Exception):
    """A request that the endpoint will not answer, however often it is asked."""


class EndpointError(QueenError):
    """An endpoint that cannot be used: no key, a wrong one, no such model, no answer at all."""


def hidden(text: str, key: str) -> str:
    """The text with the key, or anything said to be one, taken out."""
    if key:
        text = text.replace(key, "[key]")
    return re.sub(r"(?i)\bbearer\s+\S+|\bsk-[\w*-]+", "[key]", text)


def status_fault(
    endpoint: Endpoint, status: int, headers: Mapping[str, str], text: str, body: Any
) -> Exception:
    """What a response that is no success means.

    Args:
        text: what the endpoint said, its key taken out.
        body: the error's JSON, if it was some.
    """
    said = " ".join(text.split())[:SHOWN]
    if status == 429:
        if _code(body) == "insufficient_quota":
            return stopped(endpoint, f"the account has no credit left: {said}", "pay, then run")
        return AgainError("rate_limited", said, after=retry_after(headers))
    if status >= 500 or status in PASSING:
        return AgainError("server_error", f"{status}: {said}", after=retry_after(headers))
    if status in PERSONAL:
        remedy = "check base_url and model"
        if status in (401, 403):
            remedy = f"check the key in {endpoint.key_env or 'llm.key_env (it names none)'}"
        return stopped(endpoint, f"answered {status}: {said}", remedy)
    return RefusedError(f"{status}: {said}")


def stopped(endpoint: Endpoint, what: str, remedy: str) -> EndpointError:
    """The error that ends a run."""
    return EndpointError(
        what,
        where=f"{endpoint.model} at {endpoint.base_url}",
        remedy=f"{remedy}; what was answered is kept and costs nothing again",
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by the headers `retry-after-ms` or `retry-after`; None if neither says."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            return max(0.0, float(value) * unit)
        except ValueError:
            continue
    moment = email.utils.parsedate_to_datetime(value) if _is_date(value) else None
    return max(0.0, moment.timestamp() - time.time()) if moment else None


def _is_date(value: str) -> bool:
    return email.utils.parsedate_tz(value) is not None if value else False


def _code(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, Mapping) else None
    return str(error.get("code")) if isinstance(error, Mapping) else ""
