"""Stage `games`: game files in, one table of games with splits by game out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queen.errors import QueenError
from queen.games.chess.pgn import Game, PgnError, Reject, read_games, split_of
from queen.lineage.artifact import Draft, file_digest
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, write_rows
from stages.sources import game_files

REJECTS = "rejects.parquet"
EVENT = "Queen engine games"
GAMES = pa.schema(
    [
        ("game_id", pa.string()),
        ("split", pa.string()),
        ("kind", pa.string()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("plies", pa.int32()),
        ("result", pa.string()),
        ("white_elo", pa.int32()),
        ("black_elo", pa.int32()),
        ("time_control", pa.string()),
        ("names", pa.string()),
        ("source", pa.string()),
        ("offset", pa.int64()),
    ]
)
REJECT = pa.schema(
    [
        ("reason", pa.string()),
        ("source", pa.string()),
        ("offset", pa.int64()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True)
class Params:
    """Which games, and how they are split.

    Attributes:
        source: a .pgn, .pgn.gz, .pgn.zst, .pgn.bz2 file or a folder of them.
        limit: at most so many games, in file order; 0 takes all.
        min_plies: shorter games are dropped and counted.
        shares: shares of the games for train, dev and test.
        keep_names: keep the players' names (dropped by default).
        licence: what the games' licence is, for the model cards.
    """

    source: str
    limit: int = 0
    min_plies: int = 8
    shares: dict[str, float] = field(
        default_factory=lambda: {"train": 0.7, "dev": 0.15, "test": 0.15}
    )
    keep_names: bool = False
    licence: str = "unknown"


def shards(job: Job[Params]) -> Sequence[Shard]:
    """One shard for each file; its digest makes the key, not its path."""
    return [
        Shard(path.name, {"file": number, "sha256": file_digest(path)})
        for number, path in enumerate(_sources(job))
    ]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Read one file; what cannot be read is a row of the rejects, with its reason."""
    path = _sources(job)[shard.spec["file"]]
    rejects: list[Reject] = []
    rows: list[dict[str, Any]] = []
    try:
        for game in read_games(path, keep_names=job.params.keep_names, on_reject=rejects.append):
            rows.append(_row(game, job))
            if len(rows) == job.params.limit:
                break
            job.progress(len(rows), max(job.params.limit, len(rows) + 1), "games")
    except PgnError:
        # A file without one usable game: its faults are among the rejects; other files go on.
        if not rejects:
            raise
    write_rows(out / ROWS, rows_table(rows, GAMES))
    write_rows(out / REJECTS, rows_table([_reject(r) for r in rejects], REJECT))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """All files in order, each game once."""
    games, rejects = concat_shards(folders), concat_shards(folders, REJECTS)
    kept, drops = _unique(games, job.params)
    if kept.num_rows == 0:
        raise _no_game(job.params.source, drops, rejects.to_pylist())
    gates.check("games", kept)
    write_rows(out / ROWS, kept)
    write_rows(out / REJECTS, rejects)
    drops.update(f"rejected.{reason}" for reason in rejects["reason"].to_pylist())
    splits = Counter(kept["split"].to_pylist())
    counts = {"read": games.num_rows, "kept": kept.num_rows, **splits}
    return Draft(counts=counts, drops=drops, licences={"games": job.params.licence})


def _no_game(source: str, drops: Counter[str], rejects: list[dict[str, Any]]) -> QueenError:
    """The error where nothing is left: why, how often, and the first fault in full."""
    reasons = drops + Counter(fault["reason"] for fault in rejects)
    told = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    first = rejects[0] if rejects else None
    detail = (
        f"; first: {first['source']}, byte {first['offset']}: {first['detail']}" if first else ""
    )
    return QueenError(
        f"no game could be used ({told or 'the files hold none'}){detail}",
        where=source,
        remedy="give whole PGN files of standard chess: `queen configure games.source=FILE`",
    )


def _sources(job: Job[Params]) -> list[Path]:
    return game_files(job.params.source, job.project, "games.source")


def _row(game: Game, job: Job[Params]) -> dict[str, Any]:
    headers = dict(game.headers)
    names = " - ".join(headers.get(side, "?") for side in ("White", "Black"))
    return {
        "game_id": game.id,
        "split": split_of(game.id, job.params.shares, job.seed),
        "kind": _kind(headers),
        "start": game.start,
        "moves": " ".join(game.moves),
        "plies": len(game.moves),
        "result": game.result,
        "white_elo": game.white_elo,
        "black_elo": game.black_elo,
        "time_control": game.time_control,
        "names": names if job.params.keep_names else None,
        "source": game.source,
        "offset": game.offset,
    }


def _kind(headers: Mapping[str, str]) -> str:
    """`engine` for this project's engine games and where a side is a bot, else `human`."""
    titles = {headers.get(f"{side}Title", "") for side in ("White", "Black")}
    return "engine" if headers.get("Event") == EVENT or "BOT" in titles else "human"


def _reject(reject: Reject) -> dict[str, Any]:
    return {
        "reason": reject.reason,
        "source": Path(reject.file).name,
        "offset": reject.offset,
        "detail": reject.detail[:500],
    }


def _unique(games: pa.Table, params: Params) -> tuple[pa.Table, Counter[str]]:
    """Drop short and repeated games, keep the first `limit`."""
    drops: Counter[str] = Counter()
    long_enough = games.filter(pc.greater_equal(games["plies"], params.min_plies))
    drops["too_short"] = games.num_rows - long_enough.num_rows
    seen: set[str] = set()
    keep = []
    for index, game_id in enumerate(long_enough["game_id"].to_pylist()):
        if game_id not in seen:
            seen.add(game_id)
            keep.append(index)
    drops["duplicate"] = long_enough.num_rows - len(keep)
    keep = keep[: params.limit or None]
    return long_enough.take(pa.array(keep, pa.int64())), +drops


SPEC = StageSpec(
    name="games",
    params=Params,
    section="games",
    inputs={},
    output="data/games",
    shards=shards,
    work=work,
    assemble=assemble,
)
