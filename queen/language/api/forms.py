"""Answers as JSON of a given form: read, checked, and refused with a word for counting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from queen.language.api.messages import Answer, Failure, Reply

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Unusable:
    """Why an answer cannot be used: a fixed word for counting, and where it is wrong."""

    reason: str
    detail: str = ""


def read_form(reply: Reply, schema: Mapping[str, Any]) -> Any | Unusable:
    """The JSON value of a reply, valid by the schema.

    A code fence around it is forgiven, and so are lists that are too long: the reader cuts them.
    """
    if isinstance(reply, Failure):
        return Unusable(f"api.{reply.reason}", reply.detail)
    if reply.finish in ("refused", "length"):
        word = "refused" if reply.finish == "refused" else "cut_off"
        return Unusable(f"answer.{word}", reply.text[-80:])
    return _checked(reply, schema)


def _checked(answer: Answer, schema: Mapping[str, Any]) -> Any | Unusable:
    import jsonschema

    fenced = _FENCE.match(answer.text)
    try:
        value = orjson.loads(fenced[1] if fenced else answer.text)
    except ValueError as error:
        return Unusable("answer.not_json", str(error))
    errors = jsonschema.Draft202012Validator(dict(schema)).iter_errors(value)
    faults = [fault for fault in errors if fault.validator != "maxItems"]
    fault = min(faults, key=lambda fault: str(fault.json_path), default=None)
    if fault is not None:
        return Unusable("answer.wrong_form", f"{fault.json_path}: {fault.message}"[:200])
    return value
