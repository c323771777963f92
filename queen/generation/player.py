"""A QUEEN at a clock: it plays the move its explanation is about, and says the explanation.

The move comes first, from one look at all legal moves; the words follow as far as the time
allows, and end where it does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import chess
import torch
import xxhash
from torch import Tensor

from queen.engines.players import game_rng
from queen.engines.thinking import Search, Value, chances, draw_move, score_words
from queen.games.chess.notation import san_line
from queen.games.chess.position import Position
from queen.generation.explainer import Told, salvage
from queen.generation.loading import Loading, load_generator
from queen.generation.options import EXPLAIN, GUIDED, LONGEST
from queen.generation.requests import Sampling
from queen.generation.slots import Stepper
from queen.generation.speaker import Asked, Legal, Speaker
from queen.networks.bridge import Context
from queen.networks.players import position_of

LEAST_S = 0.05  # with less time than this left, nothing is written
FORCED = 1.0e4  # added to the end's logit: beyond all others, and finite


class Halting:
    """A stepper whose texts end as soon as it is told to.

    The end token is then far likelier than any other; a guide that is in the middle of a move
    still gets it finished.

    Args:
        stepper: decodes.
        end: the token that ends a text.

    Attributes:
        halted: whether texts are to end now.
        cut: whether any text was ended so since `watching` began.
    """

    def __init__(self, stepper: Stepper, end: int) -> None:
        self.stepper, self.end = stepper, end
        self.halted: Callable[[], bool] = lambda: False
        self.cut = False

    @contextlib.contextmanager
    def watching(self, halted: Callable[[], bool]) -> Iterator[None]:
        """Ask `halted` at each token while this lasts."""
        self.halted, self.cut = halted, False
        try:
            yield
        finally:
            self.halted = lambda: False

    def open(self, slots: int, length: int, context: list[Context] | None) -> None:
        self.stepper.open(slots, length, context)

    def keep(self, slots: Tensor) -> None:
        self.stepper.keep(slots)

    def prefill(
        self, slots: Tensor, ids: Tensor, lengths: Tensor, context: list[Context] | None
    ) -> Tensor:
        return self._ended(self.stepper.prefill(slots, ids, lengths, context))

    def step(self, tokens: Tensor, lengths: Tensor, longest: int) -> Tensor:
        return self._ended(self.stepper.step(tokens, lengths, longest))

    def _ended(self, logits: Tensor) -> Tensor:
        if self.halted():
            self.cut = True
            logits = logits.clone()
            logits[:, self.end] += FORCED
        return logits


@dataclass(frozen=True)
class Said:
    """An explanation as far as it went, and whether the clock cut it."""

    told: Told
    tokens: int
    cut: bool


class ExplainingPlayer:
    """A model that plays and explains; see the options for how.

    Args:
        speaker: the model.
        halting: between the speaker's generator and its decoder, to keep the clock.
    """

    def __init__(self, speaker: Speaker, halting: Halting) -> None:
        self.speaker, self.halting = speaker, halting

    def think(self, board: chess.Board, search: Search, options: Mapping[str, Value]) -> chess.Move:
        """See `queen.engines.thinking.Thinker`."""
        torch.set_num_threads(int(options["Threads"]))
        position = position_of(board)
        explains = bool(options[EXPLAIN.name])
        if explains and not options[GUIDED.name] and search.left > LEAST_S:
            said = self._explain(position, None, search, options)
            if said is not None and said.told.best is not None and _may(said.told.best, search):
                return self._tell(said, said.told.best, search)
            search.tell(_unreadable(said))
            explains = False
        move = self._favourite(position, search, options)
        search.say(f"depth 1 nodes 1 time {search.elapsed_ms} pv {move}")
        if explains and search.left > LEAST_S:
            said = self._explain(position, move, search, options)
            if said is not None:
                self._tell(said, move, search)
        return chess.Move.from_uci(move)

    def _favourite(self, position: Position, search: Search, options: Mapping[str, Value]) -> str:
        """The legal move that an explanation would most probably begin with, or a drawn one."""
        policy = self.speaker.policies([position])[0]
        temperature, seed = chances(options)
        return draw_move(search.allowed(policy), temperature, game_rng(seed, position.board()))

    def _explain(
        self, position: Position, move: str | None, search: Search, options: Mapping[str, Value]
    ) -> Said | None:
        """An explanation of the move, or of whichever the model names, guided by the options.

        None, and why is told, where none could be written.
        """
        temperature, seed = chances(options)
        sampling = Sampling(temperature=temperature, max_new_tokens=int(options[LONGEST.name]))
        asked = Asked("go", position, move, _text_seed(seed, position))
        legal: Legal = "moves" if options[GUIDED.name] else "none"
        with self.halting.watching(search.over):
            said = self.speaker.explain([asked], sampling, legal)[0]
        if said.error is not None:
            search.tell(f"error: {said.error}")
            return None
        cut = self.halting.cut
        told = salvage(said.text, position, finished=said.finished and not cut)
        return Said(told, len(said.tokens), cut)

    def _tell(self, said: Said, best: str, search: Search) -> chess.Move:
        """Send what was explained; the move."""
        told = said.told
        line = told.line if told.line[:1] == (best,) else (best,)
        scores = {candidate.move: candidate.score for candidate in told.candidates}
        score = f" {score_words(scores[best])}" if best in scores else ""
        search.say(f"depth {len(line)}{score} nodes 1 time {search.elapsed_ms} pv {' '.join(line)}")
        for words in explanation_words(told):
            search.tell(words)
        if said.cut:
            search.tell(f"cut short by the clock after {said.tokens} tokens")
        elif told.problem is not None:
            search.tell(told.problem)
        return chess.Move.from_uci(best)


def explanation_words(told: Told) -> Iterator[str]:
    """Candidates and prose for people, a line each."""
    board = told.position.board()
    for candidate in told.candidates:
        line = san_line(board, (candidate.move, *candidate.line))
        yield f"candidate {candidate.score:.0%} {line}"
    yield from told.sentences()


def load_player(loading: Loading) -> ExplainingPlayer:
    """A model with its encoder and tokenizer, in this process.

    Raises QueenError where the parts do not fit.
    """
    generator = load_generator(loading)
    halting = Halting(generator.stepper, generator.model.config.end_id)
    generator.stepper = halting
    return ExplainingPlayer(Speaker(generator), halting)


def _text_seed(seed: int, position: Position) -> int:
    played = " ".join((position.start, *position.moves))
    return xxhash.xxh64_intdigest(f"{seed}|text|{played}".encode())


def _may(move: str, search: Search) -> bool:
    return not search.limits.moves or move in search.limits.moves


def _unreadable(said: Said | None) -> str:
    """Why the move is not the text's own."""
    if said is None:
        why = "there is no text"
    elif said.cut:
        why = f"cut short by the clock after {said.tokens} tokens"
    else:
        why = said.told.problem or "its move is none of those asked for"
    return f"{why}; the likeliest legal move is played"
