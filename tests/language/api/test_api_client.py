"""The client against a server of this machine whose model generates, and which can fail."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from api_asking import ENVIRONMENT, KEY, QUICK, SCHEMA, endpoint, questions
from local_model.server import Fault, LocalServer
from local_model.speaker import LocalSpeaker
from test_api_pace import Clock

from queen.errors import QueenError
from queen.language.api import session
from queen.language.api.client import Api
from queen.language.api.faults import EndpointError, retry_after
from queen.language.api.ledger import BudgetError
from queen.language.api.messages import Answer, Failure
from queen.language.api.pace import Pace
from queen.language.api.settings import Budget, Endpoint, Limits, Price


def asked(server: LocalServer) -> list[str]:
    return [seen.body["messages"][1]["content"] for seen in server.seen]


def test_answers_come_in_order_and_a_rerun_asks_nobody(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    store = tmp_path / "answers.sqlite"
    with LocalServer(speaker) as server:
        whom = endpoint(server.url, price=Price(1.0, 10.0))
        api = Api(QUICK, store, ENVIRONMENT)
        first = api.ask(whom, [*questions(5), questions(1)[0]])
        assert len(server.seen) == 5
        assert server.most_at_once <= 2
        again = Api(QUICK, store, {**ENVIRONMENT, "LOCAL_KEY": "another"})
        assert again.ask(whom, questions(5)) == first[:5]
        assert len(server.seen) == 5
    answers = [reply for reply in first if isinstance(reply, Answer)]
    assert len(answers) == 6
    assert first[5] == first[0]
    for answer in answers:
        assert 1 <= len(json.loads(answer.text)["moves"]) <= 2
    used = answers[:5]
    cost = sum(a.prompt_tokens + 10 * a.answer_tokens for a in used) / 1e6
    assert api.figures()["api.usd"] == pytest.approx(cost, abs=1e-6)
    assert api.figures()["api.prompt_tokens"] == sum(a.prompt_tokens for a in used)
    assert again.figures() == {"api.from_cache": 5.0, "api.usd": 0.0, "api.lost_usd": 0.0}


def test_another_model_or_prompt_is_another_request(speaker: LocalSpeaker, tmp_path: Path) -> None:
    with LocalServer(speaker) as server:
        api = Api(QUICK, tmp_path / "a", ENVIRONMENT)
        api.ask(endpoint(server.url), questions(1))
        api.ask(endpoint(server.url, temperature=0.5, extra={"top_k": 3}), questions(1))
        api.ask(endpoint(server.url, length_field="max_tokens", answer="text"), questions(1))
        bodies = [seen.body for seen in server.seen]
    assert len(bodies) == 3
    assert "temperature" not in bodies[0]
    assert bodies[0]["max_completion_tokens"] == 60
    assert bodies[0]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (bodies[1]["temperature"], bodies[1]["top_k"]) == (0.5, 3)
    assert bodies[2]["max_tokens"] == 60
    assert "response_format" not in bodies[2]


def test_a_server_of_this_machine_is_asked_past_any_proxy(
    speaker: LocalSpeaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with LocalServer(speaker) as server:
        (reply,) = Api(QUICK, tmp_path / "a", ENVIRONMENT).ask(endpoint(server.url), questions(1))
    assert isinstance(reply, Answer)


def test_what_may_pass_is_tried_again(speaker: LocalSpeaker, tmp_path: Path) -> None:
    faults = [Fault(429, headers={"Retry-After": "0.05"}), Fault(503), Fault(0), None, Fault(500)]
    with LocalServer(speaker, faults) as server:
        api = Api(Limits(concurrency=1, retries=3, backoff_s=0.01), tmp_path / "a", ENVIRONMENT)
        replies = api.ask(endpoint(server.url), questions(2))
        assert all(isinstance(reply, Answer) for reply in replies)
        assert len(server.seen) == 6
    assert api.figures()["api.retries"] == 4


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(500), "server_error"),
        (Fault(429), "rate_limited"),
        (Fault(200, "<html>busy</html>"), "garbled"),
        (Fault(200, '{"choices": [{"message"'), "garbled"),
        (Fault(200, '{"choices": []}'), "garbled"),
        (Fault(200, "[1]"), "garbled"),
        (Fault(0), "connection_lost"),
        (Fault(400, '{"error": {"message": "too long"}}'), "refused_request"),
        (Fault(200, hang_s=30.0), "timeout"),
    ],
)
def test_a_record_that_fails_is_counted_and_the_others_go_on(
    speaker: LocalSpeaker, tmp_path: Path, fault: Fault, reason: str
) -> None:
    hangs = fault.hang_s > 0
    tries = 1 if hangs or reason == "refused_request" else 2
    limits = Limits(1, timeout_s=2.0 if hangs else 20.0, retries=tries - 1, backoff_s=0.01)
    with LocalServer(speaker, [None, *[fault] * tries]) as server:
        api = Api(limits, tmp_path / "a", ENVIRONMENT)
        replies = api.ask(endpoint(server.url), questions(3))
        assert replies[1] == Failure(reason)
        assert isinstance(replies[0], Answer)
        assert isinstance(replies[2], Answer)
        assert api.figures()[f"api.failed.{reason}"] == 1
        assert len(server.seen) == 2 + tries
        assert isinstance(api.ask(endpoint(server.url), questions(3))[1], Answer)
        assert len(server.seen) == 3 + tries


def test_a_server_that_only_fails_ends_the_run_early(speaker: LocalSpeaker, tmp_path: Path) -> None:
    limits = Limits(concurrency=1, retries=0, backoff_s=0.01, give_up_after=3)
    with LocalServer(speaker, [None, *[Fault(500)] * 90]) as server:
        api = Api(limits, tmp_path / "a", ENVIRONMENT)
        with pytest.raises(EndpointError, match="does not answer") as caught:
            api.ask(endpoint(server.url), questions(30))
        assert len(server.seen) == 4
        assert "out of order" in str(caught.value)
        server.faults.clear()
        assert len(Api(limits, tmp_path / "a", ENVIRONMENT).ask(endpoint(server.url), questions(1)))
        assert len(server.seen) == 4


@pytest.mark.parametrize(
    ("rates", "minutes"),
    [({"requests_per_minute": 2}, 2), ({"tokens_per_minute": 1}, 4), ({}, 0)],
)
def test_rates_hold_for_all_requests_and_retries_too(
    speaker: LocalSpeaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rates: Mapping[str, int],
    minutes: int,
) -> None:
    """Five attempts for four records, on a clock that only moves while somebody waits."""
    clock = Clock()

    class OnThatClock(Pace):
        def __init__(self, per_minute: int) -> None:
            super().__init__(per_minute, clock, clock.sleep)

    monkeypatch.setattr(session, "Pace", OnThatClock)
    limits = Limits(concurrency=3, retries=1, backoff_s=0.01, **rates)
    with LocalServer(speaker, [Fault(500)]) as server:
        Api(limits, tmp_path / "a", ENVIRONMENT).ask(endpoint(server.url), questions(4))
        assert len(server.seen) == 5
    assert 100.0 + 60 * minutes <= clock.now < 100.0 + 60 * (minutes + 1)


def test_a_server_that_refuses_such_requests_is_told_apart(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    body = '{"error": {"message": "unknown field response_format"}}'
    with LocalServer(speaker, [Fault(400, body)] * 9) as server:
        with pytest.raises(EndpointError, match="refuses every request") as caught:
            Api(QUICK, tmp_path / "a", ENVIRONMENT).ask(endpoint(server.url), questions(3))
        assert len(server.seen) == 3
    assert "unknown field response_format" in str(caught.value)
    assert "llm.answer" in str(caught.value)


def test_nobody_at_the_address_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    limits = Limits(retries=1, backoff_s=0.01)
    with pytest.raises(EndpointError, match="no_connection") as caught:
        Api(limits, tmp_path / "a", ENVIRONMENT).ask(endpoint(url), questions(2))
    assert url in str(caught.value)
    assert "see that it runs" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault(401, json.dumps({"error": {"message": f"wrong key {KEY}"}})), "LOCAL_KEY"),
        (Fault(403, f"Authorization: Bearer {KEY}"), "LOCAL_KEY"),
        (Fault(404, f"no model for {KEY}"), "check base_url and model"),
        (Fault(429, '{"error": {"code": "insufficient_quota", "message": "pay"}}'), "credit"),
        (Fault(429, KEY, {"Retry-After": "4000"}), "come back in 4000 s"),
        (Fault(500, f"debug: {KEY}"), "does not answer"),
        (Fault(200, f"Bearer {KEY}"), "does not answer"),
    ],
)
def test_a_key_never_gets_out(
    speaker: LocalSpeaker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    told: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalServer(speaker, [fault] * 20) as server:
        api = Api(Limits(1, retries=0), tmp_path / "a", ENVIRONMENT)
        with pytest.raises(QueenError) as caught:
            api.ask(endpoint(server.url), questions(1))
        assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert told in str(caught.value)
    chain: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        chain += [str(error), repr(error)]
        error = None if error.__suppress_context__ else error.__cause__ or error.__context__
    assert KEY not in "\n".join([*chain, caplog.text, str(api.figures())])


def test_an_answer_that_repeats_the_key_is_kept_without_it(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    body = {"choices": [{"message": {"content": f"I know {KEY}"}, "finish_reason": "stop"}]}
    with LocalServer(speaker, [Fault(200, json.dumps(body))]) as server:
        api = Api(QUICK, tmp_path / "a", ENVIRONMENT)
        reply = api.ask(endpoint(server.url), questions(1))[0]
    assert isinstance(reply, Answer)
    assert reply.text == "I know [key]"
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "environment", "told"),
    [
        ({}, {}, "LOCAL_KEY is not set"),
        ({}, {"LOCAL_KEY": "two words"}, "cannot be a key"),
        ({"model": ""}, ENVIRONMENT, "has no model"),
        ({"key_env": "sk-secret"}, ENVIRONMENT, "names no environment variable"),
        ({"base_url": "ftp://x/v1"}, ENVIRONMENT, "no http"),
        ({"base_url": "https://me:secret@x.example/v1"}, ENVIRONMENT, "carries a user"),
        ({"base_url": "https://x.example/v1"}, ENVIRONMENT, "price of 'tiny' is not known"),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_told_before_anything_is_sent(
    tmp_path: Path, given: Mapping[str, Any], environment: Mapping[str, str], told: str
) -> None:
    whole = {"base_url": "http://127.0.0.1:9/v1", "model": "tiny", "key_env": "LOCAL_KEY", **given}
    api = Api(Limits(budget=Budget(usd=1.0)), tmp_path / "a", environment)
    with pytest.raises(QueenError, match=told) as caught:
        api.ask(Endpoint(**whole), questions(1))
    assert "secret" not in str(caught.value)
    assert api.figures().get("api.requests", 0) == 0


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_budget_stops_the_run_before_it_is_passed(
    speaker: LocalSpeaker, tmp_path: Path, concurrency: int
) -> None:
    with LocalServer(speaker) as server:
        whom = endpoint(server.url, price=Price(1000.0, 1000.0))
        budget = Budget(usd=1.0)
        api = Api(Limits(concurrency, budget=budget), tmp_path / "a", ENVIRONMENT)
        with pytest.raises(BudgetError, match="the budget ends here") as caught:
            api.ask(whom, questions(24))
        assert "kept" in str(caught.value)
        paid = len(server.seen)
        assert 2 <= paid < 24
        assert 0 < api.ledger.usd <= 1.0
        assert api.ledger.reserved_tokens == api.ledger.open == 0
        rich = Api(Limits(4), tmp_path / "a", ENVIRONMENT)
        assert all(isinstance(reply, Answer) for reply in rich.ask(whom, questions(24)))
        assert len(server.seen) == 24
        assert len(set(asked(server))) == 24


def test_an_attempt_without_answer_counts_against_the_budget(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    """It may have been billed all the same."""
    with LocalServer(speaker, [Fault(200, "{")] * 50) as server:
        limits = Limits(1, retries=30, backoff_s=0.001, budget=Budget(tokens=3000))
        api = Api(limits, tmp_path / "a", ENVIRONMENT)
        with pytest.raises(BudgetError):
            api.ask(endpoint(server.url), questions(1))
    assert 0 < api.ledger.tokens <= 3000
    assert api.ledger.tokens == api.figures()["api.lost_tokens"]


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from api_asking import ENVIRONMENT, endpoint, questions
from queen.language.api.client import Api
from queen.language.api.settings import Limits
Api(Limits(1), Path({store!r}), ENVIRONMENT).ask(endpoint({url!r}), questions(25))
"""


def test_killed_at_any_point_nothing_answered_is_asked_again(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    store = tmp_path / "answers.sqlite"
    paths = [str(Path(__file__).parent)]
    with LocalServer(speaker) as server:
        text = CHILD.format(paths=paths, store=str(store), url=server.url)
        child = subprocess.Popen([sys.executable, "-c", text])
        deadline = time.monotonic() + 120
        while len(server.seen) < 5 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        before = len(server.seen)
        assert 5 <= before < 25
        replies = Api(QUICK, store, ENVIRONMENT).ask(endpoint(server.url), questions(25))
        assert all(isinstance(reply, Answer) for reply in replies)
        assert len(server.seen) <= 26  # the one in flight is asked again


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for_is_understood(
    headers: Mapping[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds
