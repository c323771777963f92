"""The legal moves of a position as a tree of tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import chess

from queen.games.chess.notation import move_text

_TOKEN = re.compile(r"<[^<>]+>")


@dataclass
class Node:
    """A place in the tree: the tokens that may follow, or the move that is complete here.

    No move's tokens begin another's, so a node has children or a move, never both.
    """

    children: dict[int, Node] = field(default_factory=dict)
    move: str | None = None


def move_trie(board: chess.Board, vocabulary: Mapping[str, int]) -> Node:
    """The tree of all legal moves, in an order that depends on the position alone.

    Args:
        board: the position.
        vocabulary: token ids by token, the 76 chess tokens among them.
    """
    root = Node()
    for uci in sorted(move.uci() for move in board.legal_moves):
        node = root
        for token in _TOKEN.findall(move_text(board, uci)):
            node = node.children.setdefault(vocabulary[token], Node())
        node.move = uci
    return root
