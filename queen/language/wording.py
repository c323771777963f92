"""Plain English about a position, read as the project's own sentences; the way back of `people`.

"After 4. Nf3, the knight on f3 controls e5." becomes the tokens of the model's text and, where
the grammar knows the wording, the claim. Plain words leave open whose knight is meant, whether
"e4" is a square or a move, and from which position a move is played: each reading that the board
allows is tried, and the one that makes a true claim is taken, else one that makes a claim at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

import chess

from queen.games.chess.notation import MoveTextError
from queen.games.chess.spoken import read_move
from queen.language import grammar
from queen.language.claims import board_holds, checkable
from queen.language.explanation import Sentence
from queen.language.ground import Ground, Line
from queen.language.vocabulary import BOARD_KINDS, IMPOSSIBLE, KINDS, Slot

LONGEST = 400
READINGS = 96

_PIECE = (
    r"(?:(?P<side>[Ww]hite|[Bb]lack)(?:'s|’s)?\s+)?(?P<name>king|queen|rook|bishop|knight|pawn)"
)
_MOVE = (
    r"(?:[a-h][1-8]-?[a-h][1-8]=?[qrbnQRBN]?|[O0]-[O0](?:-[O0])?"
    r"|[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|[a-h]x[a-h][1-8](?:=?[QRBN])?|[a-h][1-8](?:=[QRBN])?)"
    r"(?![a-z0-9-])[+#!?]*"
)
_NUMBER = r"(?:\d+\.(?:\.\.)?\s?)"
_PARTS = re.compile(
    rf"(?P<piece>\b{_PIECE}\s+on\s+(?P<square>[a-h][1-8])\b)"
    rf"|(?P<run>(?<![\w<-]){_NUMBER}?{_MOVE}(?:\s+{_NUMBER}?{_MOVE})*)"
)
_SQUARE = re.compile(r"[a-h][1-8]")
_CHESS_TOKEN = re.compile(r"<(?:[a-h][1-8]|[PNBRQKpnbrqk])>")
_COMES = re.compile(
    r"\b(?:after|following|once|with|and|then|plays?|playing|by)\s*\Z", re.IGNORECASE
)


@dataclass(frozen=True)
class Understood:
    """A sentence read, or why it may not be kept.

    Attributes:
        sentence: with its claim, or with none where no skeleton fits; None if it is cut.
        reason: why it is cut: `malformed`, `impossible` (moves nobody can play), `false`, or
            `unverifiable` (only an engine could tell).
    """

    sentence: Sentence | None
    reason: str = ""


def understand(text: str, ground: Ground) -> Understood:
    """A sentence of a model that writes plain English, checked against the board.

    What the grammar recognises must be true. What it does not is kept as prose without a claim.
    """
    read = best_reading(text, ground)
    if read is None:
        return Understood(None, "malformed")
    if not read.claims:
        return Understood(read)
    claim = read.claims[0]
    if claim.kind == IMPOSSIBLE:
        return Understood(None, "impossible")
    if not checkable(claim):
        return Understood(None, "unverifiable")
    return Understood(read) if board_holds(claim, ground) else Understood(None, "false")


def best_reading(text: str, ground: Ground) -> Sentence | None:
    """The reading of a sentence that says most: a true claim, any claim, or none; None for what
    cannot stand in an explanation (several lines, control characters, no words)."""
    best, worth = None, -1
    for read in sentences(text, ground):
        if _worth(read, ground) > worth:
            best, worth = read, _worth(read, ground)
        if worth == _MOST:
            break
    return best


def sentences(text: str, ground: Ground) -> Iterator[Sentence]:
    """A sentence's readings with their claims, the likeliest first; none if it is malformed."""
    flat = " ".join(text.split())
    flat = flat if flat.endswith((".", "!", "?")) else f"{flat}."
    flat = re.sub(r"\A[A-H](?=[1-8]\b)", lambda first: first[0].lower(), flat)
    flat = re.sub(r"\A[a-z](?=[a-z]*\s)", lambda first: first[0].upper(), flat)
    if not 3 < len(flat) <= LONGEST or not flat.isprintable():
        return
    if re.search(r"[<>]", _CHESS_TOKEN.sub("", flat)):
        return
    for reading in islice(readings(flat, ground), READINGS):
        yield Sentence(reading, grammar.read(reading, ground))


_MOST = 3


def _worth(sentence: Sentence, ground: Ground) -> int:
    if not sentence.claims:
        return 0
    claim = sentence.claims[0]
    if claim.kind == IMPOSSIBLE:
        return 1
    return _MOST if checkable(claim) and board_holds(claim, ground) else 2


def readings(text: str, ground: Ground) -> Iterator[str]:
    """The sentence in tokens, the likeliest reading first."""
    parts = list(_PARTS.finditer(text))
    runs = [_words(part["run"]) for part in parts if part["run"]]
    lines = [line for words in runs if (line := _line(ground, (), words))]
    starts: list[Line] = list(dict.fromkeys([(), *lines]))
    options = [_options(text, part, ground, starts) for part in parts]
    for chosen in product(*options):
        yield _filled(text, parts, chosen)


def _filled(text: str, parts: Sequence[re.Match[str]], chosen: Sequence[str]) -> str:
    pieces, at = [], 0
    for part, token_text in zip(parts, chosen, strict=True):
        pieces += [text[at : part.start()], token_text]
        at = part.end()
    return "".join([*pieces, text[at:]])


def _options(
    text: str, part: re.Match[str], ground: Ground, starts: Sequence[Line]
) -> tuple[str, ...]:
    """What a part of the sentence may stand for, as tokens; its own words if nothing fits."""
    if part["piece"]:
        return _piece_options(part, ground, starts)
    words = _words(part["run"])
    moves = []
    for start in starts:
        line = _line(ground, start, words)
        if line:
            moves.append(ground.text(start, line))
    found = list(dict.fromkeys(moves))
    if _SQUARE.fullmatch(part["run"]):
        square = [f"<{part['run']}>"]
        comes = _COMES.search(text[: part.start()])
        found = [*found, *square] if comes else [*square, *found]
    return tuple(found) or (part["run"],)


def _piece_options(part: re.Match[str], ground: Ground, starts: Sequence[Line]) -> tuple[str, ...]:
    """The piece's two colours, one that stands there first; one alone if its side is said."""
    square = chess.parse_square(part["square"])
    kind = chess.PIECE_NAMES.index(part["name"])
    boards = [board for start in starts if (board := ground.after(start)) is not None]
    seen = [piece for board in boards if (piece := board.piece_at(square)) is not None]
    sides = [piece.color for piece in seen if piece.piece_type == kind]
    sides += [boards[0].turn, not boards[0].turn]
    if part["side"]:
        sides = [part["side"].lower() == "white"]
    letters = [chess.Piece(kind, side).symbol() for side in dict.fromkeys(sides)]
    return tuple(f"<{letter}> on <{part['square']}>" for letter in letters)


def _words(run: str) -> list[str]:
    """The moves of a run, its numbers left out."""
    return re.findall(_MOVE, re.sub(r"\d+\.(?:\.\.)?\s?", " ", run))


def _line(ground: Ground, start: Line, words: Sequence[str]) -> Line:
    """The moves of a run played after a line, as UCI; () if one cannot be."""
    line = start
    for word in words:
        board = ground.after(line)
        if board is None:
            return ()
        try:
            line = (*line, read_move(board, word).uci())
        except MoveTextError:
            return ()
    return line[len(start) :]


def patterns() -> list[str]:
    """How to word what can be checked: one sentence body for each kind of claim about the board,
    its slots in capitals."""
    return [_pattern(kind) for kind in BOARD_KINDS if kind != "piece"]


_PLACE = {
    Slot.UNIT: "the PIECE on SQUARE",
    Slot.UNITS: "the PIECE on SQUARE and the PIECE on SQUARE",
    Slot.SQUARE: "SQUARE",
    Slot.SIDE: "SIDE",
    Slot.COUNT: "NUMBER",
    Slot.AMOUNT: "AMOUNT",
    Slot.MOVE: "MOVE",
    Slot.LINE: "MOVES",
    Slot.FILE: "LETTER-file",
    Slot.WING: "WING",
    Slot.TERM: "TERM",
}


def _pattern(kind: str) -> str:
    body = grammar.SKELETONS[kind][0].body
    for number, slot in enumerate(KINDS[kind]):
        body = body.replace(f"{{{number}}}", _PLACE[slot])
        body = re.sub(rf"\{{{number}:([^|}}]*)\|([^}}]*)\}}", r"\2", body)
    return body
