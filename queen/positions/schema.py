"""The columns of the bulk data set, the same from extraction to export.

Scores are from the side to move. A game's result is White's: 1, 0, -1. Names are nowhere.
"""

from __future__ import annotations

import chess
import pyarrow as pa

from queen.positions.packed import POSITION_BYTES

GAME_BYTES = 16

# One row for each position after a move of a game, in the order of the games.
OCCURRENCES = pa.schema(
    [
        ("position", pa.binary(POSITION_BYTES)),
        ("game", pa.binary(GAME_BYTES)),  # hash of the game: moves and headers without names
        ("ply", pa.int16()),  # half-moves made; 1 after the first
        ("halfmove", pa.uint8()),  # clock of the fifty-move rule
        ("move", pa.uint16()),  # that led here
        ("played", pa.uint16()),  # made here; 0 where the game ends
        ("white_elo", pa.int16()),  # null where the headers have none
        ("black_elo", pa.int16()),
        ("clock", pa.float32()),  # seconds left to who made `move`; null if not told
        ("eval_cp", pa.int16()),  # the dump's [%eval]; null if none or a mate
        ("eval_mate", pa.int16()),  # moves to mate, negative if the side to move is mated
        ("result", pa.int8()),  # null for a game without one
    ]
)

# One row for each distinct position: the surviving occurrence and what all of them counted.
# The survivor is the least (has no eval, game, ply).
DISTINCT = pa.schema(
    [
        *OCCURRENCES,
        ("seen", pa.uint32()),
        ("white_wins", pa.uint32()),
        ("draws", pa.uint32()),
        ("black_wins", pa.uint32()),
    ]
)

# One row for each label. `source` is `engine`, `rules` (the game is over) or `dump`.
LABELS = pa.schema(
    [
        ("position", pa.binary(POSITION_BYTES)),
        ("source", pa.string()),
        ("cp", pa.int16()),  # null for a mate
        ("mate", pa.int16()),  # null for no mate; 0: the side to move is mated
        ("best", pa.uint16()),  # the engine's move; 0 if none
        ("depth", pa.int16()),
        ("nodes", pa.int64()),
    ]
)


def move_code(move: chess.Move) -> int:
    """A move in 15 bits: from, to << 6, promotion's piece type << 12. Castling is the king's step,
    in Chess960 the king onto its rook."""
    return move.from_square | move.to_square << 6 | (move.promotion or 0) << 12


def move_of(code: int) -> chess.Move | None:
    """The move of a code; None for 0."""
    if not code:
        return None
    return chess.Move(code & 63, code >> 6 & 63, code >> 12 or None)
