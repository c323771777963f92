"""Sentences to claims and back: templates that can be inverted.

A sentence is a *frame* ("After <moves>, ...") around the *body* of a skeleton, the slots of both
filled. Blanking every move, piece, square and number of a sentence gives its *shape*. Each pair
of frame and skeleton has its own shape, so a look-up leads from text to claim; then the claim is
written again and must give the very same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from queen.language.ground import Ground, Line
from queen.language.skeletons import BOARD_SKELETONS
from queen.language.skeletons_engine import ENGINE_SKELETONS
from queen.language.vocabulary import IMPOSSIBLE, KINDS, TERMS, Claim, Slot

HERE_FRAMES = ("{body}.", "Here {body}.", "In this position {body}.", "At this point {body}.")
AFTER_FRAMES = (
    "After {at}, {body}.",
    "Following {at}, {body}.",
    "Once {at} {at:is|are} played, {body}.",
    "With {at} on the board, {body}.",
    "{body} after {at}.",
)

_UNIT = r"[Tt]he <[PNBRQKpnbrqk]> on <[a-h][1-8]>"
_MOVE = r"<[PNBRQKpnbrqk]><[a-h][1-8]><[a-h][1-8]>(?:<[NBRQnbrq]>)?"
_LEXER = re.compile(
    rf"(?P<units>{_UNIT}(?:, {_UNIT})* and {_UNIT})|(?P<unit>{_UNIT})"
    rf"|(?P<line>{_MOVE}(?: {_MOVE})*)|(?P<square><[a-h][1-8]>)"
    r"|(?P<amount>\b\d+\.\d\d\b)|(?P<count>\b\d+\b)|(?P<side>\b(?:White|Black)\b)"
    rf"|(?P<file>\b[a-h]-file\b)|(?P<wing>\b(?:kingside|queenside)\b)"
    rf"|(?P<term>\b(?:{'|'.join(map(re.escape, TERMS.values()))})\b)"
)
_FIELD = re.compile(r"\{(\w+)(?::([^|}]*)\|([^}]*))?\}")
_TAGS = re.compile(r"[<>]")
_EXAMPLES: dict[Slot, str] = {
    Slot.UNIT: "the <N> on <f3>",
    Slot.UNITS: "the <q> on <d7> and the <r> on <f7>",
    Slot.SQUARE: "<e5>",
    Slot.SIDE: "White",
    Slot.COUNT: "2",
    Slot.AMOUNT: "0.35",
    Slot.MOVE: "<N><g1><f3>",
    Slot.LINE: "<N><g1><f3>",
    Slot.FILE: "e-file",
    Slot.WING: "kingside",
    Slot.TERM: "mobility",
}


class UnplayableError(ValueError):
    """A claim about moves that are not legal where it says them."""


class Spelling(NamedTuple):
    """How moves after a line, piece letters and squares are written."""

    line: Callable[[Ground, Line, Line], str]
    piece: Callable[[str], str]
    square: Callable[[str], str]


class Words(NamedTuple):
    """An argument as it stands in the text, and whether it is one thing or many."""

    text: str
    one: bool


TOKENS = Spelling(Ground.text, "<{}>".format, "<{}>".format)


@dataclass(frozen=True)
class Skeleton:
    """A body's template, known by the kind of its claim and its number there."""

    kind: str
    number: int
    body: str

    @property
    def name(self) -> str:
        """For counts: `attacks.3`."""
        return f"{self.kind}.{self.number}"


@dataclass(frozen=True)
class Form:
    """A frame around a skeleton; `order` says which field each slot of its text fills."""

    frame: str
    skeleton: Skeleton
    order: tuple[str, ...]


SKELETONS: dict[str, tuple[Skeleton, ...]] = {
    kind: tuple(Skeleton(kind, number, body) for number, body in enumerate(bodies))
    for kind, bodies in (BOARD_SKELETONS | ENGINE_SKELETONS).items()
}


def frames(at: Line) -> tuple[str, ...]:
    """The frames for something said after a line; with no line, about the position itself."""
    return AFTER_FRAMES if at else HERE_FRAMES


def write(
    claim: Claim, ground: Ground, skeleton: Skeleton, frame: str, spelling: Spelling = TOKENS
) -> str:
    """The claim as a sentence. Raises UnplayableError where its moves are not legal."""
    if ground.after(claim.at) is None:
        raise UnplayableError(f"{claim.at} is not legal from {ground.root.fen()}")
    words = {
        str(i): _spoken(slot, arg, ground, claim.at, spelling)
        for i, (slot, arg) in enumerate(zip(KINDS[claim.kind], claim.args, strict=True))
    }
    if claim.at:
        words["at"] = Words(spelling.line(ground, (), claim.at), len(claim.at) == 1)
    return _capital(_fill(_template(frame, skeleton), words))


def read(text: str, ground: Ground) -> tuple[Claim, ...]:
    """The claims of a sentence; none if it fits no skeleton.

    A sentence that fits but speaks of moves that cannot be played makes the claim `IMPOSSIBLE`.
    """
    found = recognise(text)
    if found is None:
        return ()
    form, claim, spoken = found
    try:
        again = write(claim, ground, form.skeleton, form.frame)
    except UnplayableError:
        return (Claim(IMPOSSIBLE, (), tuple(spoken)),)
    if again == text:
        return (claim,)
    wrong_piece = [raw for tag, raw in lex(again)[1] if tag == "line"] != spoken
    return (Claim(IMPOSSIBLE, (), tuple(spoken)),) if wrong_piece else ()


def recognise(text: str) -> tuple[Form, Claim, list[str]] | None:
    """A sentence's form, its claim before any check against a board, and its moves as text."""
    shape, tokens = lex(text)
    form = forms().get(shape)
    if form is None:
        return None
    raw = {field: token for field, (_, token) in zip(form.order, tokens, strict=True)}
    slots = KINDS[form.skeleton.kind]
    args = tuple(_unspoken(slot, raw[str(i)]) for i, slot in enumerate(slots))
    if any(slot is Slot.MOVE and " " in arg for slot, arg in zip(slots, args, strict=True)):
        return None
    at = tuple(_unspoken(Slot.LINE, raw["at"]).split()) if "at" in raw else ()
    return form, Claim(form.skeleton.kind, at, args), [t for tag, t in tokens if tag == "line"]


def stated(text: str) -> Claim | None:
    """What a sentence says, whatever the position; None if it fits no skeleton.

    No board is asked: the moves may be legal nowhere. `read` gives this very claim wherever they
    can be played.
    """
    found = recognise(text)
    if found is None:
        return None
    form, claim, _ = found
    _, tokens = lex(text)
    words = {
        field: Words(_lowered(tag, raw), _is_one(tag, raw))
        for field, (tag, raw) in zip(form.order, tokens, strict=True)
    }
    again = _capital(_fill(_template(form.frame, form.skeleton), words))
    return claim if again == text else None


def _lowered(tag: str, raw: str) -> str:
    return raw[:1].lower() + raw[1:] if tag in (Slot.UNIT, Slot.UNITS) else raw


def _is_one(tag: str, raw: str) -> bool:
    """Whether a blanked token stands for one thing, for words that agree with it."""
    if tag == Slot.COUNT:
        return raw == "1"
    return not (tag == Slot.UNITS or (tag == Slot.LINE and " " in raw))


def lex(text: str) -> tuple[str, list[tuple[str, str]]]:
    """A sentence's shape, and the (kind, text) of what was blanked, in reading order."""
    tokens: list[tuple[str, str]] = []

    def blank(match: re.Match[str]) -> str:
        assert match.lastgroup is not None
        tokens.append((match.lastgroup, match.group()))
        return "{" + match.lastgroup + "}"

    return _LEXER.sub(blank, text), tokens


@cache
def forms() -> dict[str, Form]:
    """Every form by its shape. Raises ValueError if two read alike."""
    found: dict[str, Form] = {}
    for skeletons in SKELETONS.values():
        for skeleton in skeletons:
            for frame in (*HERE_FRAMES, *AFTER_FRAMES):
                _register(found, frame, skeleton)
    return found


def _register(found: dict[str, Form], frame: str, skeleton: Skeleton) -> None:
    template = _template(frame, skeleton)
    order = tuple(m[1] for m in _FIELD.finditer(template) if m[2] is None)
    form = Form(frame, skeleton, order)
    for numbers in product((True, False), repeat=2):
        shape = _shape(template, skeleton.kind, *numbers)
        if found.setdefault(shape, form) != form:
            raise ValueError(f"{form} reads like {found[shape]}")


def _shape(template: str, kind: str, one: bool, one_ply: bool) -> str:
    words = {str(i): Words(_EXAMPLES[slot], one) for i, slot in enumerate(KINDS[kind])}
    words["at"] = Words(_EXAMPLES[Slot.LINE], one_ply)
    shape, tokens = lex(_capital(_fill(template, words)))
    if len(tokens) != sum(1 for m in _FIELD.finditer(template) if m[2] is None):
        raise ValueError(f"the words of {template!r} read like slots: {shape!r}")
    return shape


def _template(frame: str, skeleton: Skeleton) -> str:
    return frame.replace("{body}", skeleton.body)


def _fill(template: str, words: dict[str, Words]) -> str:
    def value(match: re.Match[str]) -> str:
        text, one = words[match[1]]
        if match[2] is None:
            return text
        return match[2] if one else match[3]

    return _FIELD.sub(value, template)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _spoken(slot: Slot, arg: str, ground: Ground, at: Line, spelling: Spelling) -> Words:
    """An argument as it stands in the text."""
    if slot in (Slot.MOVE, Slot.LINE):
        moves = tuple(arg.split())
        if not moves or ground.after(at + moves) is None:
            raise UnplayableError(f"{arg} is not legal after {at} from {ground.root.fen()}")
        return Words(spelling.line(ground, at, moves), len(moves) == 1)
    if slot in (Slot.UNIT, Slot.UNITS):
        units = [
            f"the {spelling.piece(unit[0])} on {spelling.square(unit[1:])}" for unit in arg.split()
        ]
        return Words(listed(units), len(units) == 1)
    if slot is Slot.SQUARE:
        return Words(spelling.square(arg), True)
    return Words(f"{arg}-file" if slot is Slot.FILE else arg, arg == "1")


def _unspoken(slot: Slot, text: str) -> str:
    """The argument that a slot's text stands for; the inverse of `_spoken`."""
    if slot in (Slot.MOVE, Slot.LINE):
        return " ".join(_uci(move) for move in text.split())
    if slot in (Slot.UNIT, Slot.UNITS):
        return " ".join(a + b for a, b in re.findall(r"<(\w)> on <(\w\d)>", text))
    if slot is Slot.SQUARE:
        return text[1:-1]
    return text[0] if slot is Slot.FILE else text


def _uci(move: str) -> str:
    """`<P><e7><e8><Q>` to `e7e8q`."""
    parts = _TAGS.sub(" ", move).split()
    return "".join(parts[1:3]) + "".join(parts[3:]).lower()


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
