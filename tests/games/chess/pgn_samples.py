"""PGN texts and archives for the tests of the reader."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from collections.abc import Callable, Sequence

import chess
import chess.pgn
import zstandard

GAME = """[Event "Rated Blitz game"]
[Site "https://example.org/abcd1234"]
[Date "2022.02.01"]
[Round "-"]
[White "Ada"]
[Black "Grace"]
[Result "1-0"]
[WhiteElo "1728"]
[BlackElo "1634?"]
[TimeControl "600+0"]

1. e4 { [%eval 0.24] [%clk 0:10:00] } 1... e5 { [%eval 0.37,20] [%clk 0:09:59.5] } 2. Qh5?! (2. Nf3
Nc6 (2... d6)) 2... Ke7?? $4 { [%eval #1] a comment
with [%clk nothing] } 3. Qxe5# { [%clk 1:02:03] } 1-0
"""
OTHER = '[Event "Other"]\n[Result "0-1"]\n\n1. f3 e5 2. g4 Qh4# 0-1\n'
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".pgn": bytes,
    ".pgn.gz": gzip.compress,
    ".pgn.bz2": bz2.compress,
    ".pgn.zst": zstandard.ZstdCompressor().compress,
}


def zipped(*members: tuple[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return memory.getvalue()


def export(boards: Sequence[chess.Board]) -> str:
    """The games that led to these boards, as python-chess writes them."""
    return "\n\n".join(str(chess.pgn.Game.from_board(board)) for board in boards) + "\n"
