"""Log-probabilities of all legal moves in one forward, by attention along the tree of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from queen.generation.trie import Node
from queen.networks.bridge import Context
from queen.networks.queen import QueenModel

Scored = tuple[list[int], Node]  # a prompt's tokens and the tree of what may follow


@dataclass
class _Tree:
    """The nodes of a tree that have children, in one row: the root, then each below it.

    Attributes:
        nodes: the nodes; nodes[0] is the root.
        tokens: the token that leads to each but the root.
        parents: index of each node's parent; the root's own is 0.
        depths: distance of each from the root.
    """

    nodes: list[Node]
    tokens: list[int]
    parents: list[int]
    depths: list[int]

    @classmethod
    def of(cls, root: Node) -> _Tree:
        tree = cls([root], [], [0], [0])
        for index, node in enumerate(tree.nodes):
            for token, child in node.children.items():
                if child.children:
                    tree.nodes.append(child)
                    tree.tokens.append(token)
                    tree.parents.append(index)
                    tree.depths.append(tree.depths[index] + 1)
        return tree

    def sums(self, logprobs: Tensor) -> dict[str, float]:
        """Log-probability of each move, from those [nodes, V] of the next token at each node."""
        reached, moves = [0.0] * len(self.nodes), {}
        steps = [(i, token, child) for i, n in enumerate(self.nodes) for token, child in _items(n)]
        if not steps:
            return {}
        rows, tokens = [i for i, _, _ in steps], [token for _, token, _ in steps]
        gains = logprobs[rows, tokens].double().tolist()
        below = iter(range(1, len(self.nodes)))
        for (i, _, child), gain in zip(steps, gains, strict=True):
            if child.move is not None:
                moves[child.move] = reached[i] + gain
            else:
                reached[next(below)] = reached[i] + gain
        return moves


def score(
    model: QueenModel, jobs: Sequence[Scored], context: list[Context] | None
) -> list[dict[str, float]]:
    """Log-probability of every move of every tree, in the model's own number type."""
    trees = [_Tree.of(root) for _, root in jobs]
    prompt = max(len(ids) for ids, _ in jobs)
    below = max(len(tree.tokens) for tree in trees)
    rows = [_row(ids, tree, prompt, below) for (ids, _), tree in zip(jobs, trees, strict=True)]
    ids, positions, seen = (torch.stack(part) for part in zip(*rows, strict=True))
    bias = torch.zeros(seen.shape, dtype=model.dtype).masked_fill(~seen, -torch.inf)
    logits = model(
        ids.to(model.device),
        context=context,
        position_ids=positions.to(model.device),
        attention_mask=bias[:, None].to(model.device),
        logits_to_keep=below + 1,
    )
    logprobs = torch.log_softmax(logits.float(), -1).cpu()
    return [tree.sums(part) for tree, part in zip(trees, logprobs, strict=True)]


def _row(ids: list[int], tree: _Tree, prompt: int, below: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, positions and who sees whom; the prompt ends, and the tree begins, at `prompt`."""
    width, pad = prompt + below, prompt - len(ids)
    tokens, positions = torch.zeros(2, width, dtype=torch.long).unbind()
    tokens[pad:prompt] = torch.tensor(ids)
    positions[pad:prompt] = torch.arange(len(ids))
    seen = torch.eye(width, dtype=torch.bool)
    seen[pad:prompt, pad:prompt] = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    for index, token in enumerate(tree.tokens, start=1):
        here = prompt + index - 1
        tokens[here], positions[here] = token, len(ids) + tree.depths[index] - 1
        parent = tree.parents[index]
        seen[here] |= seen[prompt + parent - 1]
    return tokens, positions, seen


def _items(node: Node) -> list[tuple[int, Node]]:
    return list(node.children.items())
