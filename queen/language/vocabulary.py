"""The kinds of claim an explanation can make, and the arguments each takes.

An argument is a short string, its form given by its slot:

| slot | form | in text |
|---|---|---|
| unit | `Nf3`, a piece and its square | the <N> on <f3> |
| units | two or more units, space apart | the <q> on <d7> and the <r> on <f7> |
| square | `e5` | <e5> |
| side | `White` or `Black` | White |
| count | a whole number | 3 |
| amount | a positive number with 2 decimals | 0.35 |
| move | UCI | <N><g1><f3> |
| line | UCI moves, space apart | <N><g1><f3> <p><d7><d5> |
| file | `e` | e-file |
| wing | `kingside` or `queenside` | kingside |
| term | a term of the classical evaluation | king safety |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from queen.language.ground import Line


class Slot(StrEnum):
    """The form of one argument (see the module's table)."""

    UNIT = "unit"
    UNITS = "units"
    SQUARE = "square"
    SIDE = "side"
    COUNT = "count"
    AMOUNT = "amount"
    MOVE = "move"
    LINE = "line"
    FILE = "file"
    WING = "wing"
    TERM = "term"


@dataclass(frozen=True)
class Claim:
    """One statement that can be checked.

    Attributes:
        kind: a key of `BOARD_KINDS` or `ENGINE_KINDS`, or `IMPOSSIBLE`.
        at: UCI moves from the root after which it is said.
        args: by the kind's slots.
    """

    kind: str
    at: Line = ()
    args: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"kind": self.kind, "at": list(self.at), "args": list(self.args)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Claim:
        """From `to_json`'s data."""
        return cls(data["kind"], tuple(data["at"]), tuple(data["args"]))

    def lifted(self, move: str) -> Claim:
        """The same claim said one move earlier: from the position before `move`."""
        return Claim(self.kind, (move, *self.at), self.args)


IMPOSSIBLE = "impossible"
"""A sentence that speaks of a move nobody can play there; never true. args: the move's text."""

BOARD_KINDS: dict[str, tuple[Slot, ...]] = {
    # what stands where
    "piece": (Slot.UNIT,),
    "level": (),
    "ahead": (Slot.SIDE, Slot.COUNT),
    "passed": (Slot.UNIT,),
    "isolated": (Slot.UNIT,),
    "doubled": (Slot.UNIT,),
    "outpost": (Slot.UNIT,),
    "open_file": (Slot.FILE,),
    "half_open": (Slot.SIDE, Slot.FILE),
    "on_open_file": (Slot.UNIT,),
    "undeveloped": (Slot.SIDE, Slot.COUNT),
    "can_castle": (Slot.SIDE, Slot.WING),
    # what acts on what
    "attacks": (Slot.UNIT, Slot.UNIT),
    "defends": (Slot.UNIT, Slot.UNIT),
    "controls": (Slot.UNIT, Slot.SQUARE),
    "hanging": (Slot.UNIT,),
    "loose": (Slot.UNIT,),
    "pin": (Slot.UNIT, Slot.UNIT),
    "fork": (Slot.UNIT, Slot.UNITS),
    "check": (Slot.UNIT,),
    "checkmate": (Slot.SIDE,),
    "stalemate": (Slot.SIDE,),
    "reach": (Slot.UNIT, Slot.COUNT),
    # what a move or line from there does
    "takes": (Slot.MOVE, Slot.UNIT),
    "wins": (Slot.LINE, Slot.SIDE, Slot.COUNT),
    "mates": (Slot.LINE,),
    "castles": (Slot.MOVE, Slot.WING),
    "develops": (Slot.MOVE,),
    "promotes": (Slot.MOVE,),
    "forced": (Slot.MOVE,),
}

ENGINE_KINDS: dict[str, tuple[Slot, ...]] = {
    "score": (Slot.MOVE, Slot.SIDE, Slot.AMOUNT),
    "loss": (Slot.MOVE, Slot.MOVE, Slot.AMOUNT),
    "reply": (Slot.LINE,),
    "sound": (Slot.MOVE,),
    "mistake": (Slot.MOVE,),
    "term_up": (Slot.LINE, Slot.TERM, Slot.SIDE, Slot.AMOUNT),
    "term_down": (Slot.LINE, Slot.TERM, Slot.SIDE, Slot.AMOUNT),
    "edge": (Slot.TERM, Slot.SIDE, Slot.AMOUNT),
}

KINDS = BOARD_KINDS | ENGINE_KINDS

TERMS = {
    "Pawns": "pawn structure",
    "Knights": "knight placement",
    "Bishops": "bishop placement",
    "Rooks": "rook placement",
    "Queens": "queen placement",
    "Mobility": "mobility",
    "King safety": "king safety",
    "Threats": "threat potential",
    "Passed": "passed-pawn play",
    "Space": "space control",
}
"""The classical terms that the engine gives for each side, and the words used for them."""
