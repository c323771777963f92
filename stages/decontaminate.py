"""Nothing that is in an evaluation set may enter training: by position and by game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queen.games.chess.position import Position, identity
from queen.lineage.artifact import Artifact
from stages.base import ROWS
from stages.positions import pid_of


@dataclass(frozen=True)
class Guard:
    """The evaluation sets' positions and games.

    Attributes:
        pids: identities of their positions.
        games: ids of the games they come from.
    """

    pids: frozenset[str]
    games: frozenset[str]

    @classmethod
    def of(cls, evalset: Artifact) -> Guard:
        table = pq.read_table(evalset.file(ROWS), columns=["pid", "game_id"])
        return cls(frozenset(table["pid"].to_pylist()), frozenset(table["game_id"].to_pylist()))

    def clear(self, table: pa.Table) -> pa.Table:
        """The rows of a table with `pid` and `game_id` that may enter."""
        pids = pc.is_in(table["pid"], pa.array(sorted(self.pids), pa.string()))
        games = pc.is_in(table["game_id"], pa.array(sorted(self.games), pa.string()))
        return table.filter(pc.invert(pc.or_(pids, games)))

    def reason(self, row: Mapping[str, Any]) -> str | None:
        """Why a row may not enter, or None. A row has `pid`, and `game_id` where there is one."""
        if row["pid"] in self.pids:
            return "evaluation_position"
        if row.get("game_id") in self.games:
            return "evaluation_game"
        return None

    def clear_part(self, position: Position, line: Sequence[str]) -> tuple[str, ...]:
        """The line up to before the first move that reaches an evaluation set's position."""
        board = position.board(history=False)
        for ply, move in enumerate(line):
            board.push_uci(move)
            if pid_of(identity(board)) in self.pids:
                return tuple(line[:ply])
        return tuple(line)
