"""Batched decoding: texts for many positions at once.

Slots whose text has ended take the next request in the caller's order, and when none is left the
batch shrinks to those still writing. Source of the aims: METHOD section 1; the design is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from queen.errors import QueenError
from queen.generation.batch import Batch, Job
from queen.generation.fused import FusedStepper
from queen.generation.generic import GenericStepper
from queen.generation.guide import FirstMove, Guide, LegalMoves
from queen.generation.reading import Contexts, States
from queen.generation.requests import Completion, GenerationError, Request, Sampling, runs
from queen.generation.scoring import Scored, score
from queen.generation.slots import Stepper
from queen.generation.trie import MoveTrees, Node
from queen.language.chat import Turns
from queen.networks.bridge import Context
from queen.networks.digest import weights_digest
from queen.networks.llama import supports
from queen.networks.queen import QueenModel

__all__ = ["Completion", "GenerationError", "Generator", "Request", "Sampling"]


class Generator:
    """Writes texts with a model whose weights it copies when it is made.

    Args:
        model: the model; put into evaluation mode.
        tokenizer: its tokenizer.
        expert: gives the states the bridges read; None decodes without them.
        batch_size: slots decoded at once.
        dtype: of weights and caches while decoding: bfloat16 is the faster, float32 the exact one.
        fused: False makes every step go through the model's own forward.
        digest: of the model's weights, where they have been moved or rounded since.

    Attributes:
        weights_digest: of the weights it runs.
    """

    def __init__(
        self,
        model: QueenModel,
        tokenizer: Any,
        expert: States | None,
        batch_size: int = 64,
        dtype: torch.dtype = torch.bfloat16,
        fused: bool = True,
        digest: str = "",
    ) -> None:
        _check(model, tokenizer, expert)
        self.model, self.tokenizer, self.expert = model.eval(), tokenizer, expert
        self.batch_size = batch_size
        self.turns = Turns.of(tokenizer)
        self.vocabulary: dict[str, int] = tokenizer.get_vocab()
        self.trees = MoveTrees(self.vocabulary)
        self.texts: dict[int, str] = {}
        self.longest: int = model.config.decoder().max_position_embeddings
        self.weights_digest = digest or weights_digest(model)
        self.dtype = dtype
        self.stepper: Stepper = (
            FusedStepper(model, dtype, bridged=expert is not None)
            if fused and supports(model)
            else GenericStepper(model, dtype)
        )

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion for each request, in their order; a failure is its record's own."""
        done: list[Completion] = []
        for run in runs(len(requests), self.batch_size):
            done += self._generate(requests[run.start : run.stop], sampling)
        return done

    def _generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One run: nothing in it depends on what was written before."""
        results: dict[int, Completion] = {}
        jobs: list[Job] = []
        for index, request in enumerate(requests):
            try:
                jobs.append(self._job(index, request, sampling))
            except QueenError as error:
                results[index] = Completion(request.id, request.prefix, error=str(error))
        if jobs:
            results.update(self._batch(jobs).run(jobs, sampling))
        return [results[index] for index in range(len(requests))]

    @torch.inference_mode()
    def move_logprobs(self, requests: Sequence[Request]) -> list[dict[str, float]]:
        """Log-probability of each legal move written right after prompt and prefix, by UCI.

        Computed in the model's own number type; empty where the game is over. Raises QueenError
        on a position or prompt that cannot be.
        """
        found: list[dict[str, float]] = []
        for start in range(0, len(requests), self.batch_size):
            part = requests[start : start + self.batch_size]
            scored: list[Scored] = [(self._prompt(each), self._moves(each)) for each in part]
            found += score(self.model, scored, self._contexts(part))
        return found

    @property
    def identity(self) -> dict[str, str]:
        """What writes: digests of the weights, and how they are computed with."""
        return {
            "weights": self.weights_digest,
            "encoder": "" if self.expert is None else self.expert.digest,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": self.model.device.type,
        }

    def close(self) -> None:
        """Nothing to end; see `GeneratorPool`."""

    def _batch(self, jobs: Sequence[Job]) -> Batch:
        return Batch(
            self.stepper,
            Contexts(self.model, self.expert, [job.request for job in jobs]),
            self._decode,
            self.model.config.end_id,
            self.batch_size,
            self.model.device,
        )

    def _contexts(self, requests: Sequence[Request]) -> list[Context] | None:
        if self.expert is None:
            return None
        states = self.expert.states([request.position for request in requests])
        read: list[Context] = self.model.context([part.to(self.model.device) for part in states])
        return read

    def _job(self, index: int, request: Request, sampling: Sampling) -> Job:
        moves = self._moves(request) if request.legal_first_move else None
        if moves is not None and not moves.children:
            raise GenerationError(
                "no legal move to write: the game is over",
                where=f"request {request.id}",
                remedy="ask for moves only where there are some",
            )
        ids = self._prompt(request)
        room = min(sampling.max_new_tokens, self.longest - len(ids))
        return Job(index, request, ids, room, self._guide(request, moves))

    def _guide(self, request: Request, first: Node | None) -> Guide | None:
        if request.legal_moves:
            board = request.position.board()
            return LegalMoves(
                board, self.vocabulary, self._text_of, request.prefix, self.trees, self._newline
            )
        return FirstMove(first) if first is not None else None

    @cached_property
    def _newline(self) -> int | None:
        """The token that is a line break and nothing else."""
        ids = self.tokenizer("\n", add_special_tokens=False)["input_ids"]
        return ids[0] if len(ids) == 1 and self._decode(ids) == "\n" else None

    def _text_of(self, token: int) -> str:
        """The text of one token."""
        if token not in self.texts:
            self.texts[token] = self._decode([token])
        return self.texts[token]

    def _moves(self, request: Request) -> Node:
        return self.trees.of(request.position.board())

    def _prompt(self, request: Request) -> list[int]:
        text = self.turns.prompt(request.prompt) + request.prefix
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not 0 < len(ids) < self.longest:
            raise GenerationError(
                f"prompt and prefix have {len(ids)} tokens",
                where=f"request {request.id}",
                remedy=f"this decoder takes 1 to {self.longest - 1}",
            )
        return ids

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text


def _check(model: QueenModel, tokenizer: Any, expert: States | None) -> None:
    rows = model.config.decoder().vocab_size
    if len(tokenizer) > rows:
        raise GenerationError(
            f"the tokenizer has {len(tokenizer)} tokens, the model {rows}",
            remedy="use the tokenizer saved beside the model",
        )
    wanted = model.config.encoder_digest
    if expert is not None and wanted and expert.digest != wanted:
        raise GenerationError(
            f"the model was trained on encoder {wanted}, not {expert.digest}",
            where=model.config.encoder_name,
            remedy="give the encoder that the model's config names",
        )
