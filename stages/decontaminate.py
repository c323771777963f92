"""Nothing that is in an evaluation set may enter training: by position and by game."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from queen.lineage.artifact import Artifact
from stages.base import ROWS


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

    def reason(self, row: Mapping[str, Any]) -> str | None:
        """Why a row may not enter, or None. A row has `pid`, and `game_id` where there is one."""
        if row["pid"] in self.pids:
            return "evaluation_position"
        if row.get("game_id") in self.games:
            return "evaluation_game"
        return None
