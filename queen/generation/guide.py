"""Guides: which tokens may follow, so that the moves a model writes are legal.

A guide watches the tokens of one text. `FirstMove` holds the first move to a tree of moves;
`LegalMoves` every move of the `best`, `line` and `candidate` lines of an explanation, and lets
the prose go free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import chess

from queen.generation.trie import MoveTrees, Node

STRUCTURE = ("best", "line", "candidate")
_SAID = re.compile(r"(?:candidate move \d\.\d\d )?line(?: move)+|candidate move \d\.\d\d")


class Guide(Protocol):
    """What may follow in one text."""

    def allowed(self) -> Sequence[int] | None:
        """The only tokens that may follow; None if others may."""

    def banned(self) -> Sequence[int]:
        """Tokens that may not follow, where `allowed` names none."""

    def advance(self, token: int) -> bool:
        """Take note of the token written; False once the guide has nothing more to say."""


class FirstMove:
    """Holds the first tokens to a tree of legal moves."""

    def __init__(self, moves: Node) -> None:
        self.node = moves

    def allowed(self) -> Sequence[int] | None:
        return list(self.node.children)

    def banned(self) -> Sequence[int]:
        return ()

    def advance(self, token: int) -> bool:
        self.node = self.node.children[token]
        return bool(self.node.children)


class LegalMoves:
    """Holds the moves of an explanation's structured lines to legal ones.

    The line begins with the best move, and so does the first candidate; no candidate comes twice.
    Where a move leaves none to follow, its row ends.

    Args:
        board: the position explained.
        vocabulary: ids of the chess tokens.
        text_of: the text of one token.
        written: text that stands already (a prefix), a whole number of moves.
        trees: of legal moves, shared with other guides of the vocabulary; its own by default.
        newline: id of the token that ends a row and is nothing else, if there is one.
    """

    def __init__(
        self,
        board: chess.Board,
        vocabulary: Mapping[str, int],
        text_of: Callable[[int], str],
        written: str = "",
        trees: MoveTrees | None = None,
        newline: int | None = None,
    ) -> None:
        self.newline = newline
        self.root, self.vocabulary, self.text_of = board.copy(stack=False), vocabulary, text_of
        self.trees = trees or MoveTrees(vocabulary)
        self.pieces = frozenset(self.trees.pieces.values())
        self.best: str | None = None
        self.candidates: list[str] = []
        self.text, self.here, self.count = "", self.root.copy(), 0
        self.node: Node | None = None
        self.opening: Node | None = None
        self._replay(written)

    def allowed(self) -> Sequence[int] | None:
        if self.node is not None:
            return list(self.node.children)
        return [self.newline] if self.newline is not None and self._ends() else None

    def banned(self) -> Sequence[int]:
        if not self._structured():
            return ()
        return sorted(self.pieces - self._moves().children.keys())

    def advance(self, token: int) -> bool:
        if self.node is not None:
            self._inside(self.node.children[token])
        elif token in self.pieces and self._structured():
            self._inside(self._moves().children[token])
        else:
            return self._plain(self.text_of(token))
        return True

    def _ends(self) -> bool:
        """Whether a row says all it can: a line, or a candidate's score, after the last move."""
        return bool(_SAID.fullmatch(self.text)) and not any(self.here.legal_moves)

    def _structured(self) -> bool:
        words = self.text.split(maxsplit=1)
        return bool(words) and words[0] in STRUCTURE and self.text[-1:] == " "

    def _moves(self) -> Node:
        """The moves that may be written here."""
        if self.opening is None:
            self.opening = self._kept(self.trees.of(self.here))
        return self.opening

    def _kept(self, moves: Node) -> Node:
        """A tree cut to what the place allows."""
        kind = self.text.split(maxsplit=1)[0]
        if kind == "best" and self.count:
            return Node()
        if kind == "candidate" and self.count == 1 and not self.text.rstrip().endswith("line"):
            return Node()
        if self.count:
            return moves
        if kind == "line" or (kind == "candidate" and not self.candidates):
            return _only(moves, {self.best}) if self.best else moves
        return _without(moves, set(self.candidates)) if kind == "candidate" else moves

    def _inside(self, node: Node) -> None:
        """One token further into a move; played once it is whole."""
        if node.move is None:
            self.node = node
            return
        self.node = self.opening = None
        if self.count == 0:
            self._first(node.move)
        self.here.push(chess.Move.from_uci(node.move))
        self.count += 1
        self.text += "move"

    def _first(self, move: str) -> None:
        kind = self.text.split(maxsplit=1)[0]
        if kind == "best":
            self.best = move
        elif kind == "candidate":
            self.candidates.append(move)

    def _plain(self, text: str) -> bool:
        """Text between moves; False once the prose has begun."""
        _, newline, tail = text.rpartition("\n")
        self.opening = None
        if newline:
            self.text, self.here, self.count = tail, self.root.copy(), 0
        else:
            self.text += tail
        words = self.text.split(maxsplit=1)
        begun = len(words) > 1 or self.text[-1:] == " "
        return not (words and begun and words[0] not in STRUCTURE)

    def _replay(self, written: str) -> None:
        """Take note of a prefix."""
        plain = written
        while (start := plain.find("<")) >= 0:
            self._plain(plain[:start])
            plain = plain[start:]
            while plain.startswith("<"):
                name, plain = plain[: plain.index(">") + 1], plain[plain.index(">") + 1 :]
                self.advance(self.vocabulary[name])
        if plain:
            self._plain(plain)


def _only(moves: Node, wanted: set[str | None]) -> Node:
    return _filtered(moves, lambda move: move in wanted)


def _without(moves: Node, unwanted: set[str]) -> Node:
    return _filtered(moves, lambda move: move not in unwanted)


def _filtered(node: Node, keep: Callable[[str], bool]) -> Node:
    """The tree without the moves that are not kept, and without empty branches."""
    children = {
        token: below
        for token, child in node.children.items()
        if (below := _filtered(child, keep)).children or below.move is not None
    }
    move = node.move if node.move is not None and keep(node.move) else None
    return Node(children, move)
