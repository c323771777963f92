"""Answers by schema, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

import pytest
from api_asking import SCHEMA, endpoint, questions

from queen.language.api.forms import Unusable, read_form
from queen.language.api.messages import (
    Answer,
    Failure,
    read_completion,
    request_body,
    request_hash,
    upper_bound,
)


def said(text: str, finish: str = "stop") -> Answer:
    return Answer(text, finish, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"moves": ["e4"]}',
        ' {"moves":["e4"]}\n',
        '```json\n{"moves": ["e4"]}\n```',
        '```\n{"moves": ["e4"]}```',
    ],
)
def test_an_answer_is_read(text: str) -> None:
    assert read_form(said(text), SCHEMA) == {"moves": ["e4"]}


def test_a_list_that_is_too_long_is_left_to_the_reader() -> None:
    text = '{"moves": ["e4", "d4", "c4", "e4"]}'
    assert read_form(said(text), SCHEMA) == {"moves": ["e4", "d4", "c4", "e4"]}


@pytest.mark.parametrize(
    ("reply", "reason", "detail"),
    [
        (Failure("timeout", "no answer in 2 s"), "api.timeout", "no answer"),
        (said("", "refused"), "answer.refused", ""),
        (said('{"moves": ["e4"', "length"), "answer.cut_off", "e4"),
        (said("The best move is e4."), "answer.not_json", ""),
        (said('Sure! {"moves": ["e4"]}'), "answer.not_json", ""),
        (said("[]"), "answer.wrong_form", "$"),
        (said('{"moves": ["e5"]}'), "answer.wrong_form", "$.moves[0]"),
        (said('{"moves": [], "more": 1}'), "answer.wrong_form", ""),
        (said('{"moves": NaN}'), "answer.not_json", ""),
    ],
)
def test_an_answer_that_cannot_be_used_has_a_reason(reply: Any, reason: str, detail: str) -> None:
    found = read_form(reply, SCHEMA)
    assert isinstance(found, Unusable)
    assert found.reason == reason
    assert detail in found.detail


def test_a_request_is_known_by_whom_and_what() -> None:
    (one, other) = questions(2)
    whom = endpoint("http://127.0.0.1:1/v1")
    body = request_body(whom, one)
    known = request_hash(whom, body)
    assert known == request_hash(endpoint("http://127.0.0.1:1/v1/"), dict(reversed(body.items())))
    others = [
        request_hash(whom, request_body(whom, other)),
        request_hash(endpoint("http://127.0.0.1:2/v1"), body),
        request_hash(whom, request_body(endpoint(whom.base_url, max_tokens=61), one)),
    ]
    assert len({known, *others}) == 4


def test_usage_that_is_not_told_counts_in_full() -> None:
    whom = endpoint("http://127.0.0.1:1/v1")
    bound = upper_bound(whom, request_body(whom, questions(1)[0]))
    raw = b'{"choices": [{"message": {"content": "x"}, "finish_reason": null}]}'
    assert read_completion(raw, bound) == Answer("x", "stop", bound.prompt, 60)
    refused = b'{"choices": [{"message": {"content": null, "refusal": "no"}}], "model": "m"}'
    assert read_completion(refused, bound).finish == "refused"
