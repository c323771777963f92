"""Choosing the next token of each slot of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from queen.generation.requests import Sampling

DRAWS = 2  # random numbers for each token


Limits = tuple[Sequence[int] | None, Sequence[int]]
"""The only tokens a row may take (None for any), and those it may not."""


def restrict(logprobs: Tensor, limits: Mapping[int, Limits]) -> Tensor:
    """Log-probabilities [B, V] with the tokens a row may not take at -inf."""
    if not any(allowed is not None or banned for allowed, banned in limits.values()):
        return logprobs
    kept = logprobs.clone()
    only = {row: allowed for row, (allowed, _) in limits.items() if allowed is not None}
    if only:
        kept[list(only)] = -torch.inf
        held = _places(only)
        kept[held] = logprobs[held]
    kept[
        _places({row: banned for row, (allowed, banned) in limits.items() if allowed is None})
    ] = -torch.inf
    return kept


def _places(tokens: Mapping[int, Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Row and column of each token of each row, for indexing: a few calls for all rows."""
    rows = [row for row, ids in tokens.items() for _ in ids]
    columns = [token for ids in tokens.values() for token in ids]
    return torch.tensor(rows, dtype=torch.long), torch.tensor(columns, dtype=torch.long)


def choose(logprobs: Tensor, sampling: Sampling, uniforms: Tensor) -> Tensor:
    """A token [B] for each row of log-probabilities [B, V].

    Of a nucleus a first draw is made from the whole distribution and kept if it falls inside;
    only rows where it does not are sorted, and drawn again. The outcome is distributed as if all
    had been sorted, which costs far more.

    Args:
        logprobs: up to a constant for each row; -inf where a token is forbidden.
        sampling: temperature and top_p.
        uniforms: [B, 2] random numbers in [0, 1).
    """
    if sampling.temperature == 0:
        return logprobs.argmax(-1)
    weights = torch.softmax(logprobs / sampling.temperature, -1)
    tokens = _draw(weights, uniforms[:, 0])
    if sampling.top_p == 1:
        return tokens
    own = weights.gather(1, tokens[:, None])
    likelier = torch.where(weights > own, weights, 0).sum(-1)
    outside = (likelier >= sampling.top_p).nonzero()[:, 0]
    if len(outside):
        rows = weights[outside]
        nucleus = rows.masked_fill(rows < _threshold(rows, sampling.top_p), 0)
        tokens[outside] = _draw(nucleus, uniforms[outside, 1])
    return tokens


def _draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative weights, in the order of the vocabulary.

    Not the order of likelihood: there two near-equal tokens may change places with the batch.
    """
    cumulative = weights.double().cumsum(-1)
    goal = uniforms.clamp(max=1 - 1e-12)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, goal, right=True)[:, 0].clamp_(max=weights.shape[-1] - 1)


def _threshold(weights: Tensor, top_p: float) -> Tensor:
    """[B, 1] the least weight in each row's nucleus: the likeliest that together reach top_p."""
    best = weights.sort(-1, descending=True).values
    before = best.cumsum(-1) - best
    kept = (before < top_p).sum(-1, keepdim=True)
    return best.gather(-1, kept - 1)
