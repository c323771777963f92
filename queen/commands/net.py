"""`queen net`: what an Lc0 network is, and what it thinks of a position."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from queen.games.chess.position import Position

START = "startpos"


def net(
    file: Annotated[Path, typer.Argument(help="a .pb or .pb.gz of lc0, or an encoder's folder")],
    fen: Annotated[str, typer.Option(help="a FEN, or startpos")] = START,
    moves: Annotated[str, typer.Option(help='UCI moves played from there, "e2e4 e7e5"')] = "",
    top: Annotated[int, typer.Option(min=1, help="how many moves to show")] = 8,
    policy_head: Annotated[str, typer.Option(help="of a net with several policy heads")] = "",
    value_head: Annotated[str, typer.Option(help="of a net with several value heads")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="plain JSON, every legal move")] = False,
) -> None:
    """Describe a network and show its best moves and value for a position with its history."""
    from queen.networks.lc0.describe import describe, opinion_of, read_encoder

    position = _position(fen, moves)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder = read_encoder(file)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    said = {"file": str(file), **describe(encoder)}
    said |= {"fen": position.start, "moves": list(position.moves)}
    said |= opinion_of(encoder, position, policy_head, value_head)
    if as_json:
        print(json.dumps(said, indent=2))
        return
    from rich.console import Console

    _show(said, top, Console())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(net)


def _position(fen: str, moves: str) -> Position:
    """As given: an en-passant square that nobody can use is part of what the network sees.

    Raises PositionError on the FEN or the first move at fault.
    """
    import chess

    from queen.games.chess.position import Position

    start = chess.STARTING_FEN if fen.strip() == START else " ".join(fen.split())
    position = Position(start, tuple(moves.replace(",", " ").split()))
    position.board()
    return position


def _show(said: dict[str, Any], top: int, console: Console) -> None:
    from rich.table import Table

    form, heads = said["format"], said["heads"]
    kinds = [name for name in ("policy", "value") if form[name] not in heads[name]]
    lines = {
        "file": said["file"],
        "network": f"{form['network']}, {form['input']}",
        "blocks": _blocks(said),
        "heads": "; ".join(
            [f"{name} {', '.join(heads[name])}" for name in ("policy", "value")]
            + (["moves left"] if heads["moves_left"] else [])
        ),
        "formats": ", ".join(f"{name} {form[name]}" for name in kinds),
        "activations": ", ".join(
            f"{name.removesuffix('_activation')} {form[name]}"
            for name in form
            if name.endswith("_activation")
        ),
        "parameters": f"{said['parameters']:,} (digest {said['digest'][:12]})",
        "position": " ".join([said["fen"], *said["moves"]]),
        "value": _value(said),
    }
    for name, text in lines.items():
        if text:
            console.print(f"{name:>12}  {text}", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, header_style="bold")
    for column in ("move", "share", "logit"):
        table.add_column(column, justify="left" if column == "move" else "right")
    for move, logit in list(said["policy"].items())[:top]:
        table.add_row(move, f"{100 * said['shares'][move]:.1f} %", f"{logit:.3f}")
    console.print(table if said["policy"] else "the game is over: no legal move")


def _blocks(said: dict[str, Any]) -> str:
    heads = said["attention_heads"]
    kind = f"encoder layers of {heads} heads" if heads else "residual blocks"
    return f"{said['blocks']} {kind}, width {said['width']}: states e_0 ... e_{said['blocks']}"


def _value(said: dict[str, Any]) -> str:
    left = said["moves_left"]
    parts = [f"score {100 * said['expected']:.1f} %"]
    if "wdl" in said:
        win, draw, loss = (100 * share for share in said["wdl"])
        parts.append(f"win {win:.1f} %, draw {draw:.1f} %, loss {loss:.1f} %")
    else:
        parts.append(f"value {said['value']:+.3f}")
    if left is not None:
        parts.append(f"{left:.0f} moves left")
    return "; ".join(parts) + ", for the side to move"
