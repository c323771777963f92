"""One list of requests on its way through the slots of a decoder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from queen.generation.choice import DRAWS, choose, restrict
from queen.generation.guide import Guide
from queen.generation.reading import Contexts
from queen.generation.requests import Completion, Request, Sampling
from queen.generation.slots import Slots, Stepper
from queen.networks.bridge import Context

REFILL = 8  # a refill waits until this part of the slots is vacant: prompts are cheaper together
SHRINK = 0.75  # with no queue left, the batch is cut to the live slots once they are so few


@dataclass
class Job:
    """A request ready to be decoded.

    Attributes:
        index: its place among the requests.
        ids: tokens of prompt and prefix.
        room: most tokens that may be written.
        guide: says which tokens may follow; None where all may.
        base: its length less the number of steps done, once it has a slot.
    """

    index: int
    request: Request
    ids: list[int]
    room: int
    guide: Guide | None = None
    base: int = 0


class Batch:
    """Decodes jobs in their order, filling slots that fall vacant.

    Args:
        stepper: the decoder.
        contexts: what the bridges read of the jobs' positions.
        decode: token ids to text.
        end: the token that ends a text.
        size: number of slots.
        device: where the decoder runs.
    """

    def __init__(
        self,
        stepper: Stepper,
        contexts: Contexts,
        decode: Callable[[Sequence[int]], str],
        end: int,
        size: int,
        device: torch.device,
    ) -> None:
        self.stepper, self.contexts, self.decode = stepper, contexts, decode
        self.end, self.size, self.device = end, size, device
        self.held: dict[int, Job] = {}
        self.done: list[tuple[int, Completion]] = []
        self.steps = 0

    def run(self, jobs: Sequence[Job], sampling: Sampling) -> list[tuple[int, Completion]]:
        """Every job's index and completion, in the order in which they end."""
        self.queue, self.sampling = deque(jobs), sampling
        self.size = min(self.size, len(jobs))
        self.length = max(len(job.ids) + job.room for job in jobs)
        self.slots = Slots.empty(self.size, self.length, max(job.room for job in jobs), self.device)
        self.opened = False
        tokens = self.slots.lengths
        while self.queue or self.held:
            if not self.queue and len(self.held) <= SHRINK * self.size:
                tokens = self._shrink(tokens)
            logits = self._step(tokens) if self.held else None
            logits = self._refill(logits)
            if logits is not None:
                tokens = self._write(logits)
                self._finish(tokens)
        return self.done

    def _step(self, tokens: Tensor) -> Tensor:
        longest = self.steps + max(job.base for job in self.held.values()) - 1
        return self.stepper.step(tokens, self.slots.lengths - 1, longest)

    def _refill(self, logits: Tensor | None) -> Tensor | None:
        """Give vacant slots to the queue; logits with those after the new prompts in place."""
        vacant = [slot for slot in range(self.size) if slot not in self.held]
        if not self.queue or (self.held and len(vacant) < max(1, self.size // REFILL)):
            return logits
        jobs = [self.queue.popleft() for _ in range(min(len(vacant), len(self.queue)))]
        jobs, context = self._read(jobs)
        if not jobs:
            return logits
        if not self.opened:
            self.stepper.open(self.size, self.length, context)
            self.opened = True
        fresh = self._admit(vacant[: len(jobs)], jobs, context)
        if logits is None:
            logits = fresh.new_zeros(self.size, fresh.shape[1])
        logits[vacant[: len(jobs)]] = fresh
        return logits

    def _read(self, jobs: list[Job]) -> tuple[list[Job], list[Context] | None]:
        """The jobs whose positions can be read, and their context; the others end here."""
        kept = []
        for job in jobs:
            error = self.contexts.fault(job.request)
            if error is None:
                kept.append(job)
            else:
                self._fail(job, error)
        return kept, self.contexts.of([job.request for job in kept]) if kept else None

    def _admit(self, where: list[int], jobs: list[Job], context: list[Context] | None) -> Tensor:
        slots = torch.tensor(where, device=self.device)
        counts = torch.tensor([len(job.ids) for job in jobs], device=self.device)
        ids = pad_sequence([torch.tensor(job.ids) for job in jobs], batch_first=True)
        ids = ids.to(self.device)
        rooms = torch.tensor([job.room for job in jobs], device=self.device)
        self.slots.start(slots, ids, counts, rooms)
        for slot, job in zip(where, jobs, strict=True):
            self.held[slot] = job
            job.base = len(job.ids) - self.steps
            if self.sampling.temperature > 0:
                numbers = torch.from_numpy(job.request.uniforms(job.room, DRAWS))
                self.slots.uniforms[slot, : job.room] = numbers.to(self.device)
        return self.stepper.prefill(slots, ids, counts, context)

    def _write(self, logits: Tensor) -> Tensor:
        """Choose a token for every slot and append it to those in use."""
        logprobs = torch.log_softmax(logits, -1)
        guided = [(slot, job.guide) for slot, job in self.held.items() if job.guide is not None]
        limits = {slot: (guide.allowed(), guide.banned()) for slot, guide in guided}
        tokens = choose(restrict(logprobs, limits), self.sampling, self.slots.uniform)
        written = tokens.tolist() if guided else []
        for slot, guide in guided:
            if not guide.advance(written[slot]):
                self.held[slot].guide = None
        self.slots.append(tokens, logprobs.gather(1, tokens[:, None])[:, 0])
        self.steps += 1
        return tokens

    def _finish(self, tokens: Tensor) -> None:
        ended = self.slots.live & ((tokens == self.end) | (self.slots.lengths >= self.slots.limits))
        for slot in ended.nonzero()[:, 0].tolist():
            self._complete(slot, self.held.pop(slot))
        self.slots.live &= ~ended

    def _complete(self, slot: int, job: Job) -> None:
        length = int(self.slots.lengths[slot])
        tokens = self.slots.ids[slot, len(job.ids) : length].tolist()
        logprob = float(self.slots.scores[slot])
        if logprob != logprob or logprob == -torch.inf:
            return self._fail(job, "the model's logits are not finite")
        finished = tokens[-1] == self.end
        tokens = tokens[:-1] if finished else tokens
        text = job.request.prefix + self.decode(tokens)
        done = Completion(job.request.id, text, tuple(tokens), finished, logprob)
        self.done.append((job.index, done))

    def _fail(self, job: Job, error: str) -> None:
        request = job.request
        self.done.append((job.index, Completion(request.id, request.prefix, error=error)))

    def _shrink(self, tokens: Tensor) -> Tensor:
        """Drop the vacant slots."""
        kept = torch.tensor(sorted(self.held), device=self.device)
        self.held = {new: self.held[old] for new, old in enumerate(sorted(self.held))}
        self.size, self.slots = len(kept), self.slots.kept(kept)
        self.stepper.keep(kept)
        return tokens[kept]
