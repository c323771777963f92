"""What `queen explain` does: find a model, let it explain a position, show or give it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chess

from queen.errors import QueenError
from queen.games.chess.notation import san_line
from queen.games.chess.position import Position, PositionError
from queen.lineage.artifact import RECORD, content_hash, describe_files, open_artifact
from queen.lineage.verdicts import read_verdicts
from stages.release.shipped import RELEASED, encoder_for, newest

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from queen.generation.explainer import Told

MODELS = "models"
NOT_MODELS = ("encoder", "tokenizer", "released", "value")
CONFIG = "config.json"
START = "startpos"
_GLYPHS = {"k": "♚", "q": "♛", "r": "♜", "b": "♝", "n": "♞", "p": "♟"}
_OUTLINES = {"k": "♔", "q": "♕", "r": "♖", "b": "♗", "n": "♘", "p": "♙"}
_AS_TEXT = "\ufe0e"
_RICH = ("256", "truecolor")
_SQUARES = {  # (light square, of the best move) to background
    (False, False): "#8a6a45",
    (True, False): "#c9b18a",
    (False, True): "#7d8a2e",
    (True, True): "#a9b04c",
}


@dataclass(frozen=True)
class ModelChoice:
    """A model that can explain.

    Attributes:
        key: its name in the project, or its folder's.
        folder: in Hugging Face's format.
        content: content hash, of its record where it has one.
        champion: whether it was taken because it is the champion.
    """

    key: str
    folder: Path
    content: str
    champion: bool = False


def read_position(fen: str, moves: str = "") -> Position:
    """The position after moves (UCI or SAN) from a FEN, or from `startpos`.

    Raises PositionError naming the FEN or the first move that cannot be played.
    """
    start = chess.STARTING_FEN if fen.strip() == START else " ".join(fen.split())
    board = Position.from_fen(start).board()
    played: list[str] = []
    for ply, word in enumerate(moves.replace(",", " ").split()):
        move = _read_move(board, word, ply)
        played.append(move.uci())
        board.push(move)
    return Position(Position.from_fen(start).start, tuple(played))


def _read_move(board: chess.Board, word: str, ply: int) -> chess.Move:
    for read in (board.parse_uci, board.parse_san):
        try:
            move = read(word)
        except ValueError:
            continue
        if move:
            return move
    raise PositionError(
        f"{word!r} (move {ply + 1} of --moves) cannot be played",
        where=board.fen(en_passant="legal"),
        remedy="give legal moves in UCI, like e2e4 e7e5, or in SAN",
    )


def choose_model(project: Path, named: str | None) -> ModelChoice:
    """The model that a person names by key, release or folder; the champion if none is named.

    Where nothing was trained yet, the last release stands in for the champion.
    Raises QueenError if there is no such model, or none at all yet.
    """
    if named is None:
        key = read_verdicts(project).champion
        shipped = None if model_keys(project) else newest(project)
        if shipped is not None:
            return _choice(project, shipped.name, shipped)
        return _choice(project, key, project / MODELS / key, champion=True)
    folder = project / MODELS / named
    if "/" not in named and named not in NOT_MODELS and folder.is_dir():
        return _choice(project, named, folder)
    if "/" not in named and (project / RELEASED / named).is_dir():
        return _choice(project, named, project / RELEASED / named)
    path = Path(named)
    path = path if path.is_absolute() or path.is_dir() else project / path
    return _choice(project, path.name, path)


def _choice(project: Path, key: str, folder: Path, *, champion: bool = False) -> ModelChoice:
    if not (folder / CONFIG).is_file():
        raise _no_model(project, folder, champion)
    if (folder / RECORD).is_file():
        content = open_artifact(folder).content
    else:
        content = content_hash(describe_files(folder))
    return ModelChoice(key, folder, content, champion)


def _no_model(project: Path, folder: Path, champion: bool) -> QueenError:
    here = model_keys(project)
    known = f"models here: {', '.join(here)}" if here else ""
    if champion and not here:
        return QueenError(
            "there is no model yet", where=str(folder), remedy="`queen run` makes the first"
        )
    what = "the champion is not here" if champion else "no model here"
    remedy = known or "`queen run` makes the first"
    return QueenError(
        f"{what} (no {CONFIG})", where=str(folder), remedy=f"{remedy}; --model takes KEY or PATH"
    )


def model_keys(project: Path) -> list[str]:
    """The names of the models that are here."""
    folders = sorted((project / MODELS).glob(f"*/{CONFIG}"))
    return [p.parent.name for p in folders if p.parent.name not in NOT_MODELS]


def explain_with(
    project: Path, model: ModelChoice, position: Position, *, free: bool = False, tokens: int = 256
) -> Told:
    """Load the model and its encoder, and let it explain.

    Raises QueenError: no encoder, a model that does not fit it, a finished game.
    """
    encoder = encoder_for(project, model.folder)
    from queen.generation.explainer import explain
    from queen.generation.loading import Loading, load_speaker

    quiet()
    speaker = load_speaker(Loading(model.folder, encoder, batch_size=1))
    return explain(speaker, position, max_tokens=tokens, free=free)


def quiet() -> None:
    """Loading weights is no news to somebody who asked for a move."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def as_json(told: Told, model: ModelChoice) -> dict[str, Any]:
    """Plain data: moves in UCI, prose in words, scores for the side to move."""
    problem = None
    if told.problem is not None:
        faults = [fault.to_json() for fault in told.faults]
        problem = {"what": told.problem, "faults": faults}
    return {
        "fen": told.position.fen,
        "best_move": told.best,
        "line": list(told.line),
        "candidates": [
            {"move": c.move, "score": c.score, "line": list(c.line)} for c in told.candidates
        ],
        "prose": told.sentences(),
        "model": {"key": model.key, "content": model.content},
        "problem": problem,
        "text": told.text,
    }


def show(told: Told, model: ModelChoice, console: Console) -> None:
    """Draw the board with the explanation beside it, and what could not be read below."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    page = Table.grid(padding=(0, 3))
    page.add_column(no_wrap=True)
    page.add_column()
    page.add_row(board_text(told, colours=console.color_system in _RICH), _facts(told, model))
    console.print(Padding(page, (1, 1)))
    for sentence in told.sentences():
        console.print(Padding(Text(sentence), (0, 2)))
    for note in _notes(told):
        console.print(Padding(Text(note, style="yellow"), (1, 2, 0, 2)))


def board_text(told: Told, *, colours: bool) -> Text:
    """The board from White's side; the squares of the best move stand out."""
    from rich.text import Text

    board = told.position.board()
    move = chess.Move.from_uci(told.best) if told.best else None
    marked = {move.from_square, move.to_square} if move else set()
    text = Text()
    for rank in range(7, -1, -1):
        text.append(f"{rank + 1} ", style="dim")
        for file in range(8):
            square = chess.square(file, rank)
            text.append(*_square(board, square, square in marked, colours))
        text.append("\n")
    text.append("   " + "  ".join(chess.FILE_NAMES), style="dim")
    return text


def _square(board: chess.Board, square: int, marked: bool, colours: bool) -> tuple[str, str]:
    """What stands on a square as three cells, and their style."""
    piece = board.piece_at(square)
    if not colours:
        glyphs = _OUTLINES if piece and piece.color else _GLYPHS
        glyph = glyphs[piece.symbol().lower()] if piece else "·"
        return (f"[{glyph}]" if marked else f" {glyph} "), ""
    light = (chess.square_file(square) + chess.square_rank(square)) % 2 == 1
    ink = "#ffffff" if piece and piece.color else "#000000"
    glyph = _GLYPHS[piece.symbol().lower()] + _AS_TEXT if piece else " "
    return f" {glyph} ", f"bold {ink} on {_SQUARES[light, marked]}"


def _facts(told: Told, model: ModelChoice) -> RenderableType:
    """Side to move, best move, line, candidates and who says so."""
    from rich.console import Group
    from rich.text import Text

    side = "White" if told.position.white_to_move else "Black"
    head = Text(f"{side} to move\n", style="dim")
    if told.best is None:
        head.append("no move could be read", style="bold red")
        return Group(head, _by(model))
    board = told.position.board()
    head.append("Best move  ", style="dim not bold")
    head.append(f"{_san(board, told.best)}\n", style="bold not dim green")
    head.append("Line       ", style="dim")
    head.append(san_line(board, told.line), style="not dim")
    parts: list[RenderableType] = [head, Text("")]
    if told.candidates:
        parts += [_candidates(told, board), Text("")]
    return Group(*parts, _by(model))


def _candidates(told: Told, board: chess.Board) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Candidate")
    table.add_column("Score", justify="right")
    table.add_column("Line")
    for candidate in told.candidates:
        style = "bold" if candidate.move == told.best else ""
        after = _after(board, candidate.move)
        line = san_line(after, candidate.line) if candidate.line else ""
        table.add_row(_san(board, candidate.move), f"{candidate.score:.0%}", line, style=style)
    return table


def _by(model: ModelChoice) -> Text:
    from rich.text import Text

    who = f"{model.key}, the champion" if model.champion else model.key
    return Text(f"by {who} ({model.content[:12]})", style="dim")


def _notes(told: Told) -> Iterator[str]:
    from queen.generation.explainer import rows_of_faults

    if told.problem is None:
        return
    if told.best is None:
        yield "The model's text could not be read, not even its move:"
    else:
        yield "The model's text is no sound explanation; shown is what could be read. Not read:"
    yield "\n".join(f"  {row}" for row in rows_of_faults(told))


def _san(board: chess.Board, uci: str) -> str:
    return board.san(chess.Move.from_uci(uci))


def _after(board: chess.Board, uci: str) -> chess.Board:
    after = board.copy(stack=False)
    after.push_uci(uci)
    return after
