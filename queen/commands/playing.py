"""`queen uci`, `queen match` and `queen release`: models that play, and models that ship."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from queen.commands import common
from queen.errors import QueenError

_DEPTHS = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="a model's key, a release, a folder, an Lc0 .pb.gz file or maia-1900; "
        "the champion, or the last release, if left out",
    ),
]
ProjectFolder = Annotated[
    Path | None, typer.Option("--project", help="the project's folder; found by itself here")
]


def uci(model: ModelName = None, project: ProjectFolder = None) -> None:
    """Serve a model as a UCI engine, for any chess program; it explains in `info string` lines."""
    from queen.engines.server import UciServer, read_lines
    from stages.play.players import engine_of, find_playable

    out = _own_stdout()

    def write(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody listens: the commands end as well
            os.write(out, f"{line}\n".encode())

    playable = find_playable(_players_project(project), model)
    status = UciServer(engine_of(playable), write).serve(read_lines(sys.stdin.fileno()))
    raise typer.Exit(status)


def match(
    model: ModelName = None,
    opponent: Annotated[
        str, typer.Option(help="a UCI engine's program; stockfish is the project's own")
    ] = "stockfish",
    depths: Annotated[str, typer.Option(help="of its searches: 1-10 or 1,3,5")] = "1-10",
    games: Annotated[int, typer.Option(help="at each depth, an even number")] = 20,
    skill: Annotated[int, typer.Option(min=0, max=20, help="the engine's Skill Level")] = 20,
    seed: Annotated[int, typer.Option(help="of openings, and of draws below full skill")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="folder for table.txt, table.json, chart.svg, games.pgn")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the table as plain JSON")] = False,
    project: ProjectFolder = None,
) -> None:
    """Play a model against an engine at several depths: score and Elo difference for each.

    Each game is kept as it ends: after a kill the same command plays only what is missing.
    """
    from queen.lineage.params import read_params
    from queen.lineage.state import open_state
    from stages.base import EngineParams
    from stages.console import progress_printer
    from stages.play.players import find_playable, player_of
    from stages.play.table import MatchPlan, Side, play_table, text_of, write_table
    from stages.settings import build

    root = _players_project(project)
    plan = MatchPlan(parse_depths(depths), games, seed, opponent, skill)
    playable = find_playable(root, model)
    side = Side(playable.name, playable.content, lambda: player_of(playable))
    engine = build(EngineParams, read_params(root).get("engine", {}), "engine")
    kept = open_state(root).root / "matches"
    table, played = play_table(plan, side, engine, kept, progress_printer("games"))
    if out is not None:
        write_table(table, played, out)
    print(json.dumps(table.as_json(), indent=2) if as_json else text_of(table), end="")


def release(
    model: Annotated[str, typer.Argument(help="the key of a trained and judged model")],
    name: Annotated[str, typer.Option(help="of the release; queen-MODEL if left out")] = "",
) -> None:
    """Make models/released/NAME: weights in bfloat16, tokenizer, record, verdict and card.

    At most 10 MB in all; the encoder is named by its digests and fetched where it is needed.
    """
    from stages.release.make import release as make

    made = make(common.project(), model, name)
    size = sum(entry.size for entry in made.record.files)
    print(f"{made.path} ({size / 1e6:.1f} MB, {made.content[:12]})")


def parse_depths(text: str) -> tuple[int, ...]:
    """`1-10`, `1,3,5` or both. Raises QueenError on anything else."""
    found: set[int] = set()
    for part in text.split(","):
        read = _DEPTHS.fullmatch(part.strip())
        if read is None:
            raise QueenError(f"{part!r} is no depth", where="--depths", remedy="say 1-10 or 1,3,5")
        found.update(range(int(read[1]), int(read[2] or read[1]) + 1))
    return tuple(sorted(found))


def _own_stdout() -> int:
    """A descriptor of stdout for the protocol alone: whatever else prints goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def _players_project(named: Path | None) -> Path:
    """The project named, around the working folder, or that this code lies in.

    A chess program starts its engines wherever it likes.
    """
    import queen
    from queen.lineage.state import find_project, is_project

    if named is not None:
        return find_project(named)
    home = Path(queen.__file__).resolve().parents[1]
    try:
        return common.project()
    except QueenError:
        if is_project(home):
            return home
        raise


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (uci, match, release):
        app.command()(command)
