"""18 planes of a position from the side to move, on whatever device its 36 bytes lie.

The board is turned to the side to move: its pieces stand at the bottom, ranks upside down where
Black moves, files as they are. METHOD section 2 names six planes of own pieces, six of the
opponent's and six of "castling rights, en passant, clocks"; which six the last are is ours.

| plane | holds |
|---|---|
| 0..5 | own pawns, knights, bishops, rooks, queens, king |
| 6..11 | the opponent's |
| 12, 13 | own castling towards the h-file and the a-file: ones on the file of the rook that may |
| 14, 15 | the opponent's |
| 16 | a one on the en-passant square, if a capture there is legal |
| 17 | half-moves since a capture or pawn move, the same on all squares, at most 100 |

With the rook's file, Chess960 loses nothing. The network divides plane 17 by 100.
"""

from __future__ import annotations

import torch
from torch import Tensor

from queen.positions.packed import BLACK_CODE, BLACK_ROOKS, EN_PASSANT, SIDE, WHITE_ROOKS

PLANES = 18
KING, CASTLING, PASSANT, CLOCK = 5, 12, 16, 17
CLOCK_LIMIT = 100
_CODES = (*range(1, 7), *range(BLACK_CODE + 1, BLACK_CODE + 7))


def planes_of(packed: Tensor, halfmove: Tensor) -> Tensor:
    """The planes [n, 18, 8, 8] in uint8: a1 of the turned board first, then b1.

    Args:
        packed: [n, 36] uint8, as `queen.positions.packed` lays out.
        halfmove: [n] integers, clock of the fifty-move rule.
    """
    count, device = len(packed), packed.device
    black = packed[:, SIDE]
    squares = torch.stack((packed[:, :SIDE] & 15, packed[:, :SIDE] >> 4), 2).view(count, 8, 8)
    squares = torch.where(black.bool()[:, None, None], squares.flip(1), squares)
    codes = torch.tensor(_CODES, dtype=torch.uint8, device=device) ^ (BLACK_CODE * black)[:, None]
    planes = torch.empty(count, PLANES, 8, 8, dtype=torch.uint8, device=device)
    planes[:, :CASTLING] = squares[:, None] == codes[:, :, None, None]
    _castling(packed, black, planes)
    passant = packed[:, EN_PASSANT] ^ (56 * black)  # 255 stays beyond the board
    board = torch.arange(64, dtype=torch.uint8, device=device)
    planes[:, PASSANT] = (board == passant[:, None]).view(count, 8, 8)
    planes[:, CLOCK] = halfmove.clamp(max=CLOCK_LIMIT).to(torch.uint8)[:, None, None]
    return planes


def _castling(packed: Tensor, black: Tensor, planes: Tensor) -> None:
    """Fill planes 12 to 15; which way a rook castles is told by its king's file."""
    files = torch.arange(8, device=packed.device)
    rooks = packed[:, WHITE_ROOKS : BLACK_ROOKS + 1]
    rooks = torch.where(black.bool()[:, None], rooks.flip(1), rooks)
    for mine in (0, 1):
        king = planes[:, KING + 6 * mine].flatten(1).argmax(1) & 7
        may = (rooks[:, mine, None] >> files.to(torch.uint8) & 1).bool()
        for towards, side in enumerate((files > king[:, None], files < king[:, None])):
            planes[:, CASTLING + 2 * mine + towards] = (may & side)[:, None, :]
