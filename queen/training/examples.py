"""Examples to learn from, and their compact tokenised form.

An example is one position and one or more turns about it. The turns form one sequence
(question, answer, question, answer ...), so that the expert's states of the position are
read once for all of them; the loss stands on the answers alone, their end token included.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.chat import Turns

TOO_LONG = "too long"
NO_TURNS = "no turns"
UNKNOWN_TOKEN = "unknown token"


class ExampleError(QueenError):
    """Examples that cannot be trained on."""


class Tokenizer(Protocol):
    """What is needed of a Hugging Face tokenizer."""

    @property
    def eos_token_id(self) -> Any: ...

    @property
    def unk_token_id(self) -> Any: ...

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Turn:
    """A prompt as the model is given it and the answer it is to write after it.

    The answer's end token may stand in the text or be left out. An `open` answer is the beginning
    of one: no end token follows, and nothing is learnt of what does.
    """

    prompt: str
    answer: str
    open: bool = False


@dataclass(frozen=True)
class Example:
    """Turns about one position.

    Attributes:
        position: what the expert looks at, with its history.
        turns: at least one.
        weight: factor on the loss of its tokens.
        source: where it comes from (a game and ply, an explanation's id), for reports.
    """

    position: Position
    turns: tuple[Turn, ...]
    weight: float = 1.0
    source: str = ""


@dataclass(frozen=True)
class Rejected:
    """An example left out: its index among those given, its source, why, and how much."""

    index: int
    source: str
    reason: str
    detail: str


@dataclass(frozen=True, eq=False)
class EncodedSet:
    """Tokenised examples end to end in flat arrays.

    Attributes:
        tokens: [total] int32 token ids.
        answers: [total] bool, True where the token belongs to an answer.
        offsets: [n + 1] int64; example i is tokens[offsets[i]:offsets[i + 1]].
        weights: [n] float32 factors on the loss.
        position_of: [n] int32 index of the example's position in `positions`.
        positions: distinct positions, in order of first use.
        rejected: examples that were left out.
    """

    tokens: NDArray[np.int32]
    answers: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32]
    position_of: NDArray[np.int32]
    positions: tuple[Position, ...]
    rejected: tuple[Rejected, ...] = ()

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """[n] tokens of each example."""
        return np.diff(self.offsets)

    def spans(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Places in `tokens` of these examples' tokens, one example after another."""
        return np.concatenate([np.arange(*self.offsets[i : i + 2]) for i in indices])

    @property
    def reject_counts(self) -> dict[str, int]:
        """How many examples were left out for each reason."""
        return dict(sorted(Counter(item.reason for item in self.rejected).items()))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything a training run reads of the set."""
        state = hashlib.sha256()
        for array in (self.tokens, self.answers, self.offsets, self.weights, self.position_of):
            state.update(np.ascontiguousarray(array).tobytes())
        for position in self.positions:
            state.update(f"{position.start} {' '.join(position.moves)}\n".encode())
        return state.hexdigest()


def encode_examples(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int
) -> EncodedSet:
    """Tokenise examples once, leaving out (and naming) those that do not fit.

    Args:
        max_length: most tokens of a sequence; a longer one is rejected whole, never cut.

    Raises:
        ExampleError: the tokenizer has no end token.
    """
    examples = _as_spoken(examples, Turns.of(tokenizer))
    ids_of = _token_table(examples, tokenizer)
    end = tokenizer.eos_token_id
    kept: list[_Sequence] = []
    rejected: list[Rejected] = []
    for index, example in enumerate(examples):
        sequence = _sequence(example, ids_of, end)
        fault = _fault(sequence, max_length, tokenizer.unk_token_id)
        if fault:
            rejected.append(Rejected(index, example.source, *fault))
        else:
            kept.append(sequence)
    return _pack(kept, tuple(rejected))


def concatenate(sets: Sequence[EncodedSet]) -> EncodedSet:
    """One set of several, in order, sharing equal positions."""
    table = _PositionTable()
    position_of = [table.indices(part.positions)[part.position_of] for part in sets if len(part)]
    starts = np.cumsum([0] + [len(part.tokens) for part in sets])
    offsets = [part.offsets[1:] + start for part, start in zip(sets, starts, strict=False)]
    return EncodedSet(
        tokens=_joined([part.tokens for part in sets], np.int32),
        answers=_joined([part.answers for part in sets], np.bool_),
        offsets=_joined([np.zeros(1, np.int64), *offsets], np.int64),
        weights=_joined([part.weights for part in sets], np.float32),
        position_of=_joined(position_of, np.int32),
        positions=table.positions,
        rejected=tuple(chain.from_iterable(part.rejected for part in sets)),
    )


def _as_spoken(examples: Sequence[Example], turns: Turns) -> Sequence[Example]:
    """The examples with their texts in the form that the model is spoken to in."""
    if turns == Turns():
        return examples
    return [
        replace(
            example,
            turns=tuple(
                replace(
                    turn,
                    prompt=turns.prompt(turn.prompt, first=number == 0),
                    answer=turns.answer(turn.answer),
                )
                for number, turn in enumerate(example.turns)
            ),
        )
        for example in examples
    ]


@dataclass(frozen=True)
class _Sequence:
    """One example's ids, piece by piece: prompt, answer, prompt, answer ..."""

    example: Example
    pieces: tuple[list[int], ...]

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces))

    def answers(self) -> Iterator[bool]:
        for number, piece in enumerate(self.pieces):
            yield from [number % 2 == 1] * len(piece)


def _token_table(examples: Sequence[Example], tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Ids of every distinct text, tokenised in one call: questions repeat a great deal."""
    if tokenizer.eos_token_id is None:
        raise ExampleError(
            "the tokenizer has no end token",
            where="tokenizer.eos_token",
            remedy="set eos_token in the tokenizer's folder",
        )
    turns = [turn for example in examples for turn in example.turns]
    texts = list(dict.fromkeys(text for turn in turns for text in (turn.prompt, turn.answer)))
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    return dict(zip(texts, ids, strict=True)).__getitem__


def _sequence(example: Example, ids_of: Callable[[str], list[int]], end: int) -> _Sequence:
    pieces: list[list[int]] = []
    for turn in example.turns:
        answer = ids_of(turn.answer)
        pieces.append(ids_of(turn.prompt))
        ended = turn.open or answer[-1:] == [end]
        pieces.append(answer if ended else [*answer, end])
    return _Sequence(example, tuple(pieces))


def _fault(sequence: _Sequence, max_length: int, unknown: int | None) -> tuple[str, str] | None:
    """(reason, detail) if the sequence cannot be used."""
    if not sequence.pieces:
        return NO_TURNS, "the example has no turn"
    if sequence.length > max_length:
        return TOO_LONG, f"{sequence.length} tokens, at most {max_length}"
    if unknown is not None and any(unknown in piece for piece in sequence.pieces):
        return UNKNOWN_TOKEN, "a text holds a character the tokenizer does not know"
    return None


class _PositionTable:
    """Numbers distinct positions in order of first use."""

    def __init__(self) -> None:
        self._index: dict[Position, int] = {}

    def indices(self, positions: Sequence[Position]) -> NDArray[np.int32]:
        found = [self._index.setdefault(each, len(self._index)) for each in positions]
        return np.array(found, np.int32)

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(self._index)


def _pack(kept: Sequence[_Sequence], rejected: tuple[Rejected, ...]) -> EncodedSet:
    table = _PositionTable()
    pieces = chain.from_iterable(each.pieces for each in kept)
    return EncodedSet(
        tokens=np.fromiter(chain.from_iterable(pieces), np.int32),
        answers=np.fromiter(chain.from_iterable(each.answers() for each in kept), np.bool_),
        offsets=np.cumsum([0] + [each.length for each in kept], dtype=np.int64),
        weights=np.array([each.example.weight for each in kept], np.float32),
        position_of=table.indices([each.example.position for each in kept]),
        positions=table.positions,
        rejected=rejected,
    )


def _joined(arrays: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
