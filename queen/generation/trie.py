"""The legal moves of a position as a tree of tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import chess

from queen.games.chess.notation import PIECE_LETTERS

KEPT_TREES = 8192
_Key = tuple[int, ...]


@dataclass
class Node:
    """A place in the tree: the tokens that may follow, or the move that is complete here.

    No move's tokens begin another's, so a node has children or a move, never both. Trees are
    shared (see `MoveTrees`): never change one.
    """

    children: dict[int, Node] = field(default_factory=dict)
    move: str | None = None


class MoveTrees:
    """Trees of legal moves in one vocabulary, those asked for last remembered by position.

    Args:
        vocabulary: token ids by token, the 76 chess tokens among them.
        size: how many to keep.
    """

    def __init__(self, vocabulary: Mapping[str, int], size: int = KEPT_TREES) -> None:
        self.squares = [vocabulary[f"<{name}>"] for name in chess.SQUARE_NAMES]
        self.pieces = {letter: vocabulary[f"<{letter}>"] for letter in PIECE_LETTERS}
        self.size = size
        self.kept: OrderedDict[_Key, Node] = OrderedDict()

    def of(self, board: chess.Board) -> Node:
        """The tree of all legal moves, in an order that depends on the position alone."""
        key = _key(board)
        found = self.kept.get(key)
        if found is not None:
            self.kept.move_to_end(key)
            return found
        self.kept[key] = tree = self._grown(board)
        if len(self.kept) > self.size:
            self.kept.popitem(last=False)
        return tree

    def _grown(self, board: chess.Board) -> Node:
        root, squares = Node(), self.squares
        for uci, move in sorted((move.uci(), move) for move in board.legal_moves):
            piece = board.piece_at(move.from_square)
            assert piece is not None
            node = root.children.setdefault(self.pieces[piece.symbol()], Node())
            node = node.children.setdefault(squares[move.from_square], Node())
            node = node.children.setdefault(squares[move.to_square], Node())
            if move.promotion:
                promoted = chess.Piece(move.promotion, piece.color).symbol()
                node = node.children.setdefault(self.pieces[promoted], Node())
            node.move = uci
        return root


def _key(board: chess.Board) -> _Key:
    """Everything that legal moves depend on."""
    return (
        *board.occupied_co, board.pawns, board.knights, board.bishops, board.rooks, board.queens,
        board.kings, board.turn, board.castling_rights, board.ep_square or 0,
    )  # fmt: skip
