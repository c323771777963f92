"""What an engine of ours is asked to do: the limits of a `go`, its clock, its options.

A `Thinker` answers one position at a time and looks at its `Search` to see when to stop; the
protocol around it is `queen.engines.server`'s.
Source: the UCI protocol (S. Meyer-Kahlen, 2006).
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal, Protocol, TypeVar

import chess

from queen.errors import QueenError
from queen.games.expected import cp_from_expected

MOVES_LEFT = 30  # a game is planned to go on so long
INCREMENT_SHARE = 0.8
MOST_OF_CLOCK = 0.4  # no move takes a larger share of what is left
LEAST_S = 0.005
SURE = 0.0001  # expected scores nearer to 0 and 1 are shown as this
OVERHEAD = "Move Overhead"

Value = int | bool | float
T = TypeVar("T")


class OptionError(QueenError):
    """A value that an option does not take."""


@dataclass(frozen=True)
class Option:
    """A UCI option.

    Attributes:
        kind: `number` is a decimal fraction, which UCI has as a string.
        low, high: bounds of spins and numbers.
    """

    name: str
    kind: Literal["spin", "check", "number"]
    default: Value
    low: float = 0
    high: float = 0

    def __str__(self) -> str:
        """Its declaration."""
        said = f"option name {self.name} type"
        if self.kind == "check":
            return f"{said} check default {str(self.default).lower()}"
        if self.kind == "number":
            return f"{said} string default {self.default:g}"
        return f"{said} spin default {self.default} min {int(self.low)} max {int(self.high)}"

    def read(self, text: str) -> Value:
        """A value as a user interface gives it. Raises OptionError where it is none."""
        word = text.strip().lower()
        if self.kind == "check":
            if word not in ("true", "false"):
                raise self._wrong(text, "true or false")
            return word == "true"
        try:
            value = float(word) if self.kind == "number" else int(word)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            raise self._wrong(text, f"a number from {self.low:g} to {self.high:g}")
        return value

    def _wrong(self, text: str, wanted: str) -> OptionError:
        return OptionError(f"{text!r} is no value", where=self.name, remedy=f"give {wanted}")


SHARED = (
    Option(OVERHEAD, "spin", 50, 0, 5000),
    Option("Threads", "spin", 1, 1, 256),
)
TEMPERATURE = Option("Temperature", "number", 0.0, 0.0, 10.0)
SEED = Option("Seed", "spin", 0, 0, 2**31 - 1)
SHOW_WDL = Option("UCI_ShowWDL", "check", True)
POLICY_OPTIONS = (*SHARED, TEMPERATURE, SEED, SHOW_WDL)


@dataclass(frozen=True)
class Limits:
    """What a `go` command says; times in milliseconds, None where it says nothing.

    Attributes:
        depth, nodes, mate: bounds of a search. Networks search nothing, so that players of ours
            answer as if these were not there.
        moves: the only moves to choose from, in UCI; empty for all.
        endless: `infinite` or `ponder`: no answer before it is asked for.
    """

    wtime: int | None = None
    btime: int | None = None
    winc: int | None = None
    binc: int | None = None
    movestogo: int | None = None
    movetime: int | None = None
    depth: int | None = None
    nodes: int | None = None
    mate: int | None = None
    moves: tuple[str, ...] = ()
    endless: bool = False

    @classmethod
    def parse(cls, words: Sequence[str]) -> Limits:
        """From the words after `go`; words that mean nothing are passed over."""
        numbers: dict[str, int] = {}
        moves: list[str] = []
        endless = listing = False
        for word, after in zip_longest(words, words[1:], fillvalue=""):
            if word in _NUMBERS:
                listing = False
                if _NUMBER.fullmatch(after):
                    numbers[word] = int(after)
            elif word in ("infinite", "ponder"):
                endless, listing = True, False
            elif word == "searchmoves":
                listing = True
            elif listing:
                moves.append(word)
        return cls(**numbers, moves=tuple(moves), endless=endless)

    def seconds(self, turn: chess.Color, overhead_ms: float) -> float | None:
        """How long this move may take; None where nothing limits it.

        An even share of the clock and most of the increment, the overhead taken off.
        """
        if self.movetime is not None:
            return max(LEAST_S, (self.movetime - overhead_ms) / 1000)
        left = self.wtime if turn else self.btime
        if left is None:
            return None
        gained = (self.winc if turn else self.binc) or 0
        share = left / (self.movestogo or MOVES_LEFT) + INCREMENT_SHARE * gained
        return max(LEAST_S, min(share, MOST_OF_CLOCK * left, left - overhead_ms) / 1000)


_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NUMBERS = (
    "wtime", "btime", "winc", "binc", "movestogo", "movetime", "depth", "nodes", "mate",
)  # fmt: skip


@dataclass
class Search:
    """One search under way.

    Attributes:
        limits: what was asked.
        say: takes an `info` line, the word itself left out.
        seconds: how long it may take; None for no bound.
        stopped: set when it is to end at once.
        began: on the monotonic clock.
    """

    limits: Limits
    say: Callable[[str], None]
    seconds: float | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed_ms(self) -> int:
        return round(1000 * (time.monotonic() - self.began))

    @property
    def left(self) -> float:
        """Seconds left; 0 once stopped, infinite where there is no bound."""
        if self.stopped.is_set():
            return 0.0
        if self.seconds is None or self.limits.endless:
            return math.inf
        return max(0.0, self.began + self.seconds - time.monotonic())

    def over(self) -> bool:
        """Whether it is time to answer."""
        return self.left <= 0.0

    def allowed(self, moves: Mapping[str, T]) -> Mapping[str, T]:
        """Those of the moves that may be chosen; all where none of them may."""
        kept = {move: value for move, value in moves.items() if move in self.limits.moves}
        return kept or moves

    def tell(self, text: str) -> None:
        """Words for the person who plays; each line of the text one `info string`."""
        for line in text.splitlines():
            if line.strip():
                self.say(f"string {line.strip()}")


class Thinker(Protocol):
    """What finds a move, once it is loaded."""

    def think(self, board: chess.Board, search: Search, options: Mapping[str, Value]) -> chess.Move:
        """A legal move; the board is not over, has its move stack, and is left as it was."""
        ...


def draw_move(logits: Mapping[str, float], temperature: float, rng: random.Random) -> str:
    """The likeliest move by UCI at temperature 0 (the first by name of equals), else a drawn one.

    Args:
        logits: log-probability of each move, up to a constant; not empty.
    """
    names = sorted(logits)
    if temperature <= 0:
        return max(names, key=logits.__getitem__)
    top = max(logits.values())
    weights = [math.exp((logits[name] - top) / temperature) for name in names]
    return rng.choices(names, weights)[0]


def score_words(expected: float) -> str:
    """An expected score as `score cp`: see `queen.games.expected`."""
    share = min(1 - SURE, max(SURE, expected))
    return f"score cp {round(cp_from_expected(share))}"


def wdl_words(wdl: Sequence[float]) -> str:
    """Win, draw and loss in thousandths that sum to 1000."""
    win, loss = round(1000 * wdl[0]), round(1000 * wdl[2])
    return f"wdl {win} {max(0, 1000 - win - loss)} {loss}"


def chances(options: Mapping[str, Value]) -> tuple[float, int]:
    """Temperature and seed of the options."""
    return float(options[TEMPERATURE.name]), int(options[SEED.name])


def defaults(options: Sequence[Option]) -> dict[str, Value]:
    """Each option's value before anybody sets it."""
    return {option.name: option.default for option in options}
