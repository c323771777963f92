"""Choosing the next token of each slot of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from queen.generation.requests import Sampling

_SHORTLIST = 64


def restrict(logprobs: Tensor, allowed: Mapping[int, Sequence[int]]) -> Tensor:
    """Log-probabilities [B, V] with every token but the allowed ones of a row at -inf."""
    if not allowed:
        return logprobs
    kept = logprobs.clone()
    for row, tokens in allowed.items():
        ids = torch.tensor(list(tokens), device=kept.device)
        kept[row] = -torch.inf
        kept[row, ids] = logprobs[row, ids]
    return kept


def choose(logprobs: Tensor, sampling: Sampling, uniforms: Tensor) -> Tensor:
    """A token [B] for each row of log-probabilities [B, V].

    Args:
        logprobs: up to a constant for each row; -inf where a token is forbidden.
        sampling: temperature and top_p.
        uniforms: [B] random numbers in [0, 1), one a row.
    """
    if sampling.temperature == 0:
        return logprobs.argmax(-1)
    weights = torch.softmax(logprobs / sampling.temperature, -1)
    if sampling.top_p < 1:
        weights = weights.masked_fill(weights < _threshold(weights, sampling.top_p), 0)
    return _draw(weights, uniforms)


def _draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative weights, in the order of the vocabulary.

    Not the order of likelihood: there two near-equal tokens may change places with the batch.
    """
    cumulative = weights.double().cumsum(-1)
    goal = uniforms.double().clamp(max=1 - 1e-12)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, goal, right=True)[:, 0].clamp_(max=weights.shape[-1] - 1)


def _threshold(weights: Tensor, top_p: float) -> Tensor:
    """[B, 1] the least weight that stays in each row's nucleus."""
    best = weights.topk(min(_SHORTLIST, weights.shape[-1]), -1).values
    if bool((best.sum(-1) < top_p).any()):
        best = weights.sort(-1, descending=True).values
    before = best.cumsum(-1) - best
    kept = (before < top_p).sum(-1, keepdim=True)
    return best.gather(-1, kept - 1)
