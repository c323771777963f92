"""An explanation as people read it: moves in SAN, squares and pieces in plain words."""

from __future__ import annotations

import chess

from queen.games.chess.notation import humanize, san_line
from queen.games.chess.position import Position
from queen.language import grammar
from queen.language.explanation import Candidate, Explanation, Sentence
from queen.language.ground import Ground, Line


def for_people(explanation: Explanation, position: Position) -> str:
    """Best move, line, candidates and prose of a position's explanation as plain text."""
    board = position.board()
    head = [
        f"Best move: {san_line(board, (explanation.best,))}",
        f"Line: {san_line(board, explanation.line)}",
        "Candidates:",
        *(f"  {_weighed(board, candidate)}" for candidate in explanation.candidates),
    ]
    prose = prose_for_people(explanation, position)
    return "\n".join([*head, "", prose] if prose else head)


def prose_for_people(explanation: Explanation, position: Position) -> str:
    """The prose alone, as one paragraph."""
    ground = Ground(position)
    return " ".join(sentence_for_people(sentence, ground) for sentence in explanation.prose)


def sentence_for_people(sentence: Sentence, ground: Ground) -> str:
    """One sentence: "After 1. Nf3, the knight on f3 controls e5."."""
    found = grammar.recognise(sentence.text)
    if found is not None and found[1] in sentence.claims:
        form, claim, _ = found
        return grammar.write(claim, ground, form.skeleton, form.frame, IN_WORDS)
    return humanize(ground.root, sentence.text)


def _piece_name(letter: str) -> str:
    return chess.piece_name(chess.PIECE_SYMBOLS.index(letter.lower()))


def _san(ground: Ground, at: Line, moves: Line) -> str:
    board = ground.after(at)
    assert board is not None
    return san_line(board, moves)


IN_WORDS = grammar.Spelling(_san, _piece_name, str)


def _weighed(board: chess.Board, candidate: Candidate) -> str:
    moves = san_line(board, (candidate.move, *candidate.line))
    return f"{candidate.score:.0%} {moves}"
