"""The turns of a conversation as the project's own decoders read them."""

from __future__ import annotations

import re

from queen.games.chess.position import Position

USER, ASSISTANT, END = "<user>", "<assistant>", "<end>"


def user_turn(text: str) -> str:
    """A request, up to where the model begins to answer."""
    return f"{USER}{text}{ASSISTANT}"


def answer(text: str) -> str:
    """An answer as it is trained: the text and its end."""
    return f"{text}{END}"


def question_prompt(
    position: Position, question: str, *, fen_text: bool = False, first: bool = True
) -> str:
    """A question about a position. The first says who is to move: the encoder turns boards."""
    if not first:
        return user_turn(question)
    return user_turn(f"{_setting(position, fen_text)} {question}")


def question_answer(question: str, text: str) -> str:
    """An answer as it is trained: what was asked about is named again, then the answer.

    `on <e4> ?` is answered `<e4><N>`. A small decoder reads a square's state where that square's
    token stands (tied keys, METHOD section 1), so the answer must begin there: with the bare
    answer "what stands on a square" was not learnt at all in 120 steps (occupied squares 0 %
    right), with the square named again 29 % (ours).
    """
    body = question.rpartition(" : ")[2]
    named = re.findall(r"(?:<[^<>]+>)+", body)
    return answer(f"{named[-1] if named else ''}{text}")


def explain_prompt(position: Position, *, fen_text: bool = False) -> str:
    """The request for an explanation; with `fen_text` the FEN stands in it (METHOD, ablation)."""
    return user_turn(f"{_setting(position, fen_text)} Explain.")


def _setting(position: Position, fen_text: bool) -> str:
    side = "White" if position.white_to_move else "Black"
    return f"{position.fen} {side} to move." if fen_text else f"{side} to move."
