"""One run of requests to one endpoint: side by side, retried, paced, within the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from queen.errors import QueenError
from queen.language.api.faults import (
    AgainError,
    EndpointError,
    RefusedError,
    hidden,
    status_fault,
    stopped,
)
from queen.language.api.ledger import Ledger
from queen.language.api.messages import (
    Answer,
    Bound,
    Failure,
    GarbledError,
    Reply,
    read_completion,
    upper_bound,
)
from queen.language.api.pace import Entry, Halt, Pace
from queen.language.api.settings import Endpoint, Limits

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from tenacity import RetryCallState

NO_KEY = "none"
Kept = Callable[[str, Reply], None]


class Request(NamedTuple):
    """What is sent, and the record it is about."""

    body: Mapping[str, Any]
    record: str


class Session:
    """Asks one endpoint within one event loop.

    Args:
        endpoint, limits: whom, and how.
        key: the secret; it goes into the request's header and nowhere else.
        ledger: the run's account.
        keep: called with each request's hash and reply as soon as it is there.
    """

    def __init__(
        self, endpoint: Endpoint, limits: Limits, key: str, ledger: Ledger, keep: Kept
    ) -> None:
        self.endpoint, self.limits, self.ledger, self.keep = endpoint, limits, ledger, keep
        self._key = key
        self._stop: QueenError | None = None
        self._failed_in_a_row = 0
        self._halt = Halt()
        self._requests = Pace(limits.requests_per_minute)
        self._tokens = Pace(limits.tokens_per_minute)
        self._settled = asyncio.Condition()

    async def ask(self, requests: Mapping[str, Request]) -> None:
        """Ask everything, by hash; each reply goes to `keep`.

        Raises:
            QueenError: the run has to stop; requests in flight were waited for and kept.
        """
        slots = asyncio.Semaphore(self.limits.concurrency)

        async def one(name: str, request: Request) -> None:
            async with slots:
                if self._stop is None:
                    await self._answer(name, request)

        async with self._client() as self._openai:
            await asyncio.gather(*(one(name, request) for name, request in requests.items()))
        if self._stop is not None:
            raise self._stop

    def _client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            api_key=self._key or NO_KEY,
            base_url=self.endpoint.base_url,
            max_retries=0,
            timeout=self.limits.timeout_s,
            # What runs on this machine is not asked through a proxy, whatever the environment says.
            http_client=DefaultAsyncHttpxClient(trust_env=False) if self.endpoint.local else None,
        )

    async def _answer(self, name: str, request: Request) -> None:
        """One request to its reply; what must end the run is noted, not raised."""
        try:
            reply: Reply = await self._with_retries(request)
        except AgainError as error:
            reply = Failure(error.reason, error.detail)
        except RefusedError as error:
            reply = Failure("refused_request", str(error))
        except QueenError as error:
            self._stop = self._stop or error
            return
        self._note(reply)
        self.keep(name, reply)

    def _note(self, reply: Reply) -> None:
        """After too many failures in a row the run stops: nobody is there."""
        if isinstance(reply, Answer):
            self._failed_in_a_row = 0
            return
        self.ledger.counts[f"failed.{reply.reason}"] += 1
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= self.limits.give_up_after:
            self._stop = self._stop or no_answers(self.endpoint, reply)

    async def _with_retries(self, request: Request) -> Answer:
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(self.limits.retries + 1),
            wait=self._pause,
            retry=retry_if_exception_type(AgainError),
            reraise=True,
        ):
            with attempt:
                self.ledger.counts["retries"] += attempt.retry_state.attempt_number > 1
                return await self._attempt(request)
        raise AssertionError("tenacity returns or raises")

    def _pause(self, state: RetryCallState) -> float:
        """Seconds before the next attempt: what the endpoint asked for, else back-off."""
        from tenacity import wait_random_exponential

        error = state.outcome.exception() if state.outcome else None
        asked = error.after if isinstance(error, AgainError) else None
        if asked is not None:
            return asked
        limits = self.limits
        backoff = wait_random_exponential(multiplier=limits.backoff_s, max=limits.longest_wait_s)
        return limits.backoff_s / 2 + backoff(state)

    async def _attempt(self, request: Request) -> Answer:
        bound = upper_bound(self.endpoint, request.body)
        await self._reserve(bound, request.record)
        used, lost = Bound(0, 0), False
        try:
            paced = await self._turn(bound)
            answer = await self._send(request.body, bound)
            used = Bound(answer.prompt_tokens, answer.answer_tokens)
            paced.amount = sum(used)
            return answer
        except AgainError as error:
            if error.billed:
                used, lost = bound, True
            self._hold(error)
            raise
        finally:
            self.ledger.settle(self.endpoint, bound, used, lost=lost)
            async with self._settled:
                self._settled.notify_all()

    async def _turn(self, bound: Bound) -> Entry:
        """Wait until the endpoint lets us and the rates allow it."""
        while self._stop is None:
            await self._halt.wait()
            await self._requests.wait()
            entry = await self._tokens.wait(sum(bound))
            if not self._halt.holds:
                return entry
        raise self._stop

    def _hold(self, error: AgainError) -> None:
        """What an endpoint asks of one request holds for all."""
        if error.after is None:
            return
        if error.after > self.limits.longest_wait_s:
            what = f"asks to come back in {error.after:.0f} s: {error.detail}"
            raise stopped(self.endpoint, what, "run again then, or raise api.longest_wait_s")
        self._halt.hold(error.after)

    async def _reserve(self, bound: Bound, record: str) -> None:
        """Set aside the most the attempt can cost; waits for open ones if that makes room."""
        async with self._settled:
            while not self.ledger.fits(self.endpoint, bound):
                if not self.ledger.open:
                    raise self.ledger.stop(self.endpoint, bound, record)
                await self._settled.wait()
            self.ledger.reserve(self.endpoint, bound)

    async def _send(self, body: Mapping[str, Any], bound: Bound) -> Answer:
        """One attempt on the wire. No exception of the client's gets out: it may hold the key."""
        import openai

        self.ledger.counts["requests"] += 1
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                raw = await self._openai.chat.completions.with_raw_response.create(
                    **_named(body), extra_body=_unnamed(body)
                )
            return _without(read_completion(raw.http_response.content, bound), self._key)
        except (TimeoutError, openai.APITimeoutError):
            what = f"no answer in {self.limits.timeout_s:g} s"
            fault: Exception = AgainError("timeout", what, billed=True)
        except openai.APIStatusError as error:
            said = hidden(error.response.text, self._key)
            headers = error.response.headers
            fault = status_fault(self.endpoint, error.status_code, headers, said, error.body)
        except openai.APIConnectionError as error:
            fault = _unreached(error, self._key)
        except (GarbledError, openai.APIError, ValueError) as error:
            fault = AgainError("garbled", hidden(str(error), self._key), billed=True)
        raise fault


def no_answers(endpoint: Endpoint, last: Failure) -> EndpointError:
    """The error for an endpoint of which nothing comes back."""
    if last.reason == "refused_request":
        what = f"refuses every request ({last.detail})"
    else:
        what = f"does not answer ({last.reason}: {last.detail})"
    return stopped(endpoint, what, _REMEDIES.get(last.reason, "see that it runs, then run again"))


_REMEDIES = {
    "refused_request": "look at llm.answer, llm.length_field and llm.extra: it may not know a "
    "field (answer: text asks for the least)",
    "timeout": "raise api.timeout_s, or lower api.concurrency or llm.max_tokens",
    "rate_limited": "lower api.concurrency, or set api.requests_per_minute and tokens_per_minute",
}


def _unreached(error: Any, key: str) -> AgainError:
    """A connection that was refused cost nothing; one that broke may have."""
    cause = error.__cause__
    refused = type(cause).__name__ in ("ConnectError", "ConnectTimeout")
    kind = type(cause).__name__ if cause is not None else "no connection"
    reason = "no_connection" if refused else "connection_lost"
    return AgainError(reason, hidden(f"{kind}: {cause}", key)[:200], billed=not refused)


def _without(answer: Answer, key: str) -> Answer:
    """An answer that does not repeat the key."""
    if not key or key not in answer.text:
        return answer
    text = answer.text.replace(key, "[key]")
    return Answer(text, answer.finish, answer.prompt_tokens, answer.answer_tokens, answer.model)


_NAMED = (
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "response_format",
)


def _named(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in _NAMED if name in body}


def _unnamed(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Fields the client has no argument for."""
    return {name: value for name, value in body.items() if name not in _NAMED} or None
