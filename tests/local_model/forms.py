"""Decoding held to a JSON schema, character by character: the model chooses among what may follow.

Knows the part of JSON schema that the project's requests use: objects with all fields required,
arrays with bounds, enums, free strings, and numbers from 0 to 1 with two decimals. What may come
next is a set of stacks of expectations; a character leads from one set to the next.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

LETTERS = frozenset(map(chr, range(0x20, 0x7F))) - {'"', "\\"}


class Literal(NamedTuple):
    """These characters."""

    text: str


class Choice(NamedTuple):
    """One of these texts."""

    texts: tuple[str, ...]


class Letters(NamedTuple):
    """At most so many characters of a string, then its end."""

    room: int


class Value(NamedTuple):
    """A value of a schema."""

    schema: Mapping[str, Any]


class Items(NamedTuple):
    """The rest of an array of which so many items stand."""

    schema: Mapping[str, Any]
    count: int


Stack = tuple[Any, ...]
SCORES = tuple(f"{n / 100:.2f}" for n in range(101))


class Form:
    """Where a text stands in a schema.

    Args:
        stacks: what may follow, the next expectation first.
        letters: longest free string.
    """

    def __init__(self, stacks: Sequence[Stack], letters: int) -> None:
        self.letters = letters
        self.stacks = [found for stack in stacks for found in self._opened(stack)]

    @classmethod
    def of(cls, schema: Mapping[str, Any], letters: int = 120) -> Form:
        return cls([(Value(schema),)], letters)

    @property
    def complete(self) -> bool:
        return () in self.stacks

    def after(self, text: str) -> Form | None:
        """The form after some characters; None if they may not follow."""
        here = self
        for letter in text:
            found = [stack for stack in here.stacks for stack in _step(stack, letter)]
            if not found:
                return None
            here = Form(found, self.letters)
        return here

    def next_letters(self) -> set[str]:
        """The characters one of which must follow."""
        return {letter for stack in self.stacks if stack for letter in _first(stack[0])}

    def _opened(self, stack: Stack) -> Iterator[Stack]:
        """The stacks that a stack stands for once its head is something to read."""
        if not stack or isinstance(stack[0], Literal | Choice | Letters):
            yield stack
            return
        head, *rest = stack
        for inner in self._inside(head):
            yield from self._opened((*inner, *rest))

    def _inside(self, head: Value | Items) -> Iterator[Stack]:
        schema = head.schema
        if isinstance(head, Items):
            if head.count >= schema.get("minItems", 0):
                yield (Literal("]"),)
            if head.count < schema.get("maxItems", 8):
                comma = (Literal(", "),) if head.count else ()
                yield (*comma, Value(schema["items"]), Items(schema, head.count + 1))
        elif "enum" in schema:
            yield (Choice(tuple(map(json.dumps, schema["enum"]))),)
        elif schema["type"] == "object":
            yield tuple(_object(schema["properties"]))
        elif schema["type"] == "array":
            yield (Literal("["), Items(schema, 0))
        else:
            string = schema["type"] == "string"
            yield (Literal('"'), Letters(self.letters)) if string else (Choice(SCORES),)


def _object(properties: Mapping[str, Any]) -> Iterator[Any]:
    for number, (name, schema) in enumerate(properties.items()):
        yield Literal(f"{', ' if number else '{'}{json.dumps(name)}: ")
        yield Value(schema)
    yield Literal("}")


def _first(head: Literal | Choice | Letters) -> set[str]:
    if isinstance(head, Literal):
        return {head.text[0]}
    if isinstance(head, Choice):
        return {text[0] for text in head.texts}
    return {'"', *(LETTERS if head.room else ())}


def _step(stack: Stack, letter: str) -> Iterator[Stack]:
    if not stack:
        return
    head, *rest = stack
    if letter not in _first(head):
        return
    if isinstance(head, Literal):
        left = head.text[1:]
        yield (Literal(left), *rest) if left else tuple(rest)
    elif isinstance(head, Choice):
        texts = tuple(text[1:] for text in head.texts if text[0] == letter)
        if "" in texts:
            yield tuple(rest)
        if any(texts):
            yield (Choice(tuple(filter(None, texts))), *rest)
    else:
        yield tuple(rest) if letter == '"' else (Letters(head.room - 1), *rest)


class Vocabulary:
    """A tokenizer's tokens as text, by their first character; those of control left out."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        special = set(tokenizer.all_special_ids)
        self.texts = {
            token: text
            for token in range(len(tokenizer))
            if token not in special and (text := tokenizer.decode([token])) and "\ufffd" not in text
        }
        self.by_first: dict[str, list[int]] = defaultdict(list)
        for token, text in self.texts.items():
            self.by_first[text[0]].append(token)


class HoldToForm(LogitsProcessor):  # type: ignore[misc]
    """Leaves `generate` the likeliest token that keeps one text in its form; then its end."""

    def __init__(self, vocabulary: Vocabulary, form: Form, prompt: int, end: int) -> None:
        self.vocabulary, self.form, self.end = vocabulary, form, end
        self.read = prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for token in input_ids[0, self.read :].tolist():
            after = self.form.after(self.vocabulary.texts[token])
            assert after is not None
            self.form = after
        self.read = input_ids.shape[1]
        chosen = self.end if self.form.complete else self._likeliest(scores[0])
        held = torch.full_like(scores, float("-inf"))
        held[0, chosen] = 0.0
        return held

    def _likeliest(self, scores: torch.Tensor) -> int:
        texts, by_first = self.vocabulary.texts, self.vocabulary.by_first
        may = [token for letter in sorted(self.form.next_letters()) for token in by_first[letter]]
        order = torch.argsort(scores[may], descending=True, stable=True).tolist()
        return next(may[i] for i in order if self.form.after(texts[may[i]]) is not None)
