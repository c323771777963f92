"""A model that explains: prompts in, explanations out, and the moves it would consider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from queen.games.chess.notation import move_text
from queen.games.chess.position import Position
from queen.generation.requests import Completion, Request, Sampling, Writer
from queen.language.prompts import explain_prompt

BEST = "best "
Legal = Literal["none", "first", "moves"]


@dataclass(frozen=True)
class Asked:
    """One explanation asked for.

    Attributes:
        id: comes back with the answer.
        position: what is explained.
        move: UCI of the first move to explain; None leaves it to the model.
        seed: of this record's random numbers.
    """

    id: str
    position: Position
    move: str | None = None
    seed: int = 0


class Speaker:
    """A QUEEN model with its tokenizer and its expert.

    Args:
        generator: decodes in batches, here or in processes of its own.
        fen_text: whether the model reads the FEN in its prompts (`QueenConfig.reads_fen`).
    """

    def __init__(self, generator: Writer, fen_text: bool = False) -> None:
        self.generator, self.fen_text = generator, fen_text

    @property
    def identity(self) -> dict[str, str]:
        """Who speaks: digests of the weights that run, their number type, the kind of device."""
        return self.generator.identity

    def close(self) -> None:
        """End the generator's processes, if it has any."""
        self.generator.close()

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: Legal = "none"
    ) -> list[Completion]:
        """An explanation text for each record, its `best` line included.

        Args:
            asked: what is to be explained.
            sampling: temperature 0 is greedy.
            legal: constrained decoding: `first` holds the first move to legal ones, `moves` all
                moves but those of the prose.
        """
        requests = [self._request(one, legal) for one in asked]
        return self.generator.generate(requests, sampling)

    def policies(self, positions: Sequence[Position]) -> list[dict[str, float]]:
        """Log-probability of each legal move as the first move of an explanation, by UCI."""
        requests = [
            Request(str(i), position, self._prompt(position), BEST, 0)
            for i, position in enumerate(positions)
        ]
        return self.generator.move_logprobs(requests)

    def _prompt(self, position: Position) -> str:
        return explain_prompt(position, fen_text=self.fen_text)

    def _request(self, one: Asked, legal: Legal) -> Request:
        prefix = "" if legal == "none" and one.move is None else BEST
        if one.move is not None:
            board = one.position.board()
            prefix += move_text(board, board.parse_uci(one.move))
        return Request(
            id=one.id,
            position=one.position,
            prompt=self._prompt(one.position),
            prefix=prefix,
            seed=one.seed,
            legal_first_move=legal == "first" and one.move is None,
            legal_moves=legal == "moves",
        )
