"""A model that explains: prompts in, explanations out, and the moves it would consider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from queen.games.chess.notation import move_text
from queen.games.chess.position import Position
from queen.generation.requests import Completion, Request, Sampling
from queen.language.prompts import explain_prompt

if TYPE_CHECKING:
    from queen.generation.decode import Generator

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
        generator: decodes in batches.
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

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
            Request(str(i), position, explain_prompt(position), BEST, 0)
            for i, position in enumerate(positions)
        ]
        return self.generator.move_logprobs(requests)

    def _request(self, one: Asked, legal: Legal) -> Request:
        prefix = "" if legal == "none" and one.move is None else BEST
        if one.move is not None:
            board = one.position.board()
            prefix += move_text(board, board.parse_uci(one.move))
        return Request(
            id=one.id,
            position=one.position,
            prompt=explain_prompt(one.position),
            prefix=prefix,
            seed=one.seed,
            legal_first_move=legal == "first" and one.move is None,
            legal_moves=legal == "moves",
        )


def load_speaker(model: Path, encoder: Path, batch_size: int, cache_mb: int) -> Speaker:
    """A speaker from a model folder and an encoder folder, on the GPU where there is one."""
    import torch

    from queen.generation.decode import Generator
    from queen.language.tokenizer import load_tokenizer
    from queen.networks.expert import Expert
    from queen.networks.lc0.load import load_encoder
    from queen.networks.queen import QueenModel

    net = QueenModel.from_pretrained(model)
    tokenizer = load_tokenizer(model)
    expert = Expert(load_encoder(encoder), net.config.bridge_states, memory_mb=cache_mb)
    generator = Generator(net.eval(), tokenizer, expert, batch_size=batch_size, dtype=torch.float32)
    return Speaker(generator)
