from __future__ import annotations

import chess
import pytest
import torch
from generation_parts import positions, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.games.chess.notation import move_text
from queen.generation.choice import choose, restrict
from queen.generation.requests import Sampling
from queen.generation.trie import MoveTrees, Node

LOGPROBS = torch.tensor([0.4, 0.05, 0.25, 0.15, 0.1, 0.05]).log()


def grid(points: int) -> torch.Tensor:
    """Every pair of evenly spread numbers: [points * points, 2]."""
    line = (torch.arange(points, dtype=torch.double) + 0.5) / points
    return torch.cartesian_prod(line, line)


def frequencies(sampling: Sampling) -> torch.Tensor:
    uniforms = grid(200)
    drawn = choose(LOGPROBS.expand(len(uniforms), -1), sampling, uniforms)
    return torch.bincount(drawn, minlength=6).double() / len(uniforms)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(1.0, [0, 1, 2, 3, 4, 5]), (0.7, [0, 2, 3]), (0.39, [0]), (0.66, [0, 2, 3])]
)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_are_distributed_as_the_nucleus(
    top_p: float, kept: list[int], temperature: float
) -> None:
    weights = (LOGPROBS / temperature).softmax(0).double()
    if temperature != 1.0:
        order = weights.argsort(descending=True)
        before = weights[order].cumsum(0) - weights[order]
        kept = order[before < top_p].tolist()
    expected = torch.zeros(6, dtype=torch.double)
    expected[kept] = weights[kept] / weights[kept].sum()
    got = frequencies(Sampling(temperature, top_p))
    assert torch.allclose(got, expected, atol=0.01)
    assert (got[expected == 0] == 0).all()


@settings(max_examples=100, deadline=None)
@given(
    allowed=st.sets(st.integers(0, 5), min_size=1),
    uniform=st.sampled_from([0.0, 1e-300, 0.3, 0.999999, 1 - 2**-53]),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 9.0]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
)
def test_forbidden_tokens_are_never_chosen(
    allowed: set[int], uniform: float, temperature: float, top_p: float
) -> None:
    rows = restrict(LOGPROBS.expand(2, -1), {1: (sorted(allowed), ())})
    assert torch.equal(rows[0], LOGPROBS)
    chosen = choose(
        rows, Sampling(temperature, top_p), torch.full((2, 2), uniform, dtype=torch.double)
    )
    assert int(chosen[1]) in allowed


def leaves(node: Node, text: str, names: dict[int, str]) -> dict[str, str]:
    if node.move is not None:
        assert not node.children
        return {text: node.move}
    found: dict[str, str] = {}
    for token, child in node.children.items():
        found |= leaves(child, text + names[token], names)
    return found


@pytest.mark.parametrize("index", range(12))
def test_the_trie_holds_the_legal_moves_and_no_other(index: int) -> None:
    vocabulary = tokenizer().get_vocab()
    names = {number: name for name, number in vocabulary.items()}
    special = ["1n2k3/P7/8/8/8/8/7p/4K1N1 w - - 0 1", "r3k2r/8/8/2pP4/8/8/8/R3K2R w KQkq c6 0 1"]
    board = positions(12)[index].board() if index > 1 else chess.Board(special[index])
    expected = {move_text(board, move): move.uci() for move in board.legal_moves}
    assert leaves(MoveTrees(vocabulary).of(board), "", names) == expected


def test_the_trie_of_a_finished_game_is_empty() -> None:
    mated = chess.Board("rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3")
    assert MoveTrees(tokenizer().get_vocab()).of(mated) == Node()
