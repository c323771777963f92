"""What tokenizer, pawn and pawn1 stand on: a few questions and seeds, and how to train."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chess
from round_project import write_artifact

from queen.games.chess.position import Position
from queen.language.questions import bank
from queen.lineage.artifact import Draft
from stages.base import ROWS, rows_table, write_rows
from stages.questions import QUESTIONS
from stages.seeds import SEEDS

TRAIN: dict[str, Any] = {
    "batch_size": 4,
    "micro_batch": 2,
    "lr": 1e-3,
    "warmup_steps": 1,
    "precision": "fp32",
    "checkpoint_every_s": 0.0,
}


def positions() -> list[Position]:
    position, found = Position(chess.STARTING_FEN), []
    for move in ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6"):
        position = position.child(move)
        found.append(position)
    return found


def write_texts(root: Path, figures: Mapping[str, float] | None = None) -> None:
    """The artifacts `data/questions`, with these figures, and `data/seeds`."""

    def fill(out: Path) -> Draft:
        _fill_questions(out)
        return Draft(figures=figures or {})

    write_artifact(root, "data/questions", "questions", {}, fill)
    write_artifact(root, "data/seeds", "seeds", {}, _fill_seeds)


def _fill_questions(out: Path) -> None:
    rows, rng = [], random.Random(0)
    for number, position in enumerate(positions()):
        where = {"pid": str(number), "game_id": "g", "ply": number, **_text(position)}
        for stage, kind, line in (
            ("static-current", "piece_on", ()),
            ("dynamic-current", "in_check", ()),
            ("static-future", "after_piece_on", _line(position)),
            ("dynamic-future", "after_in_check", _line(position)),
        ):
            asked = bank.ask(position, line, kind, rng)
            assert asked is not None, kind
            said = {"type": kind, "subset": asked.subset, "line": " ".join(line)}
            split = "heldout" if number == 5 else "train"
            told = {"prompt": asked.prompt, "answer": asked.answer}
            rows.append({"split": split, "stage": stage, **where, **said, **told})
    write_rows(out / ROWS, rows_table(rows, QUESTIONS))


def _fill_seeds(out: Path) -> Draft:
    rows = [
        {"pid": str(i), "text": "best <N><g1><f3>\nIt attacks <e5>.", "dropped": "", **_text(each)}
        for i, each in enumerate(positions())
    ]
    write_rows(out / ROWS, rows_table(rows, SEEDS))
    return Draft()


def _line(position: Position) -> tuple[str, ...]:
    return (min(move.uci() for move in position.board().legal_moves),)


def _text(position: Position) -> dict[str, str]:
    return {"start": position.start, "moves": " ".join(position.moves), "fen": position.fen}
