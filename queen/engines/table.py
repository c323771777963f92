"""The classical evaluation table that Stockfish up to 16 and Fairy-Stockfish print."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import chess

from queen.engines.uci import EngineFaultError, EngineProcess

TERMS = (
    "Material",
    "Imbalance",
    "Pawns",
    "Knights",
    "Bishops",
    "Rooks",
    "Queens",
    "Mobility",
    "King safety",
    "Threats",
    "Passed",
    "Space",
    "Winnable",
    "Total",
)
_SAME = {"Initiative": "Winnable"}  # its name up to Stockfish 11, Fairy-Stockfish's too
_IN_CHECK = "none (in check)"
_EVALUATION = re.compile(r"^(?:Classical|Total) evaluation[: ]\s*([-+]?\d+\.\d+)")

Pair = tuple[float, float]  # middlegame, endgame


@dataclass(frozen=True)
class Row:
    """One term as printed: (middlegame, endgame) of each side, and White's minus Black's.

    The sides are None where the engine prints the difference only.
    """

    white: Pair | None
    black: Pair | None
    total: Pair


@dataclass(frozen=True)
class Table:
    """The printed table, in the engine's units; `evaluation` is its one number, White's view."""

    rows: dict[str, Row]
    evaluation: float | None


def parse_table(lines: Sequence[str]) -> Table | None:
    """Read the output of `eval`; None where the engine says the side to move is in check.

    Raises ValueError if there is no complete table.
    """
    if any(_IN_CHECK in line for line in lines):
        return None
    rows = dict(row for line in lines if (row := _parse_row(line)) is not None)
    missing = [name for name in TERMS if name not in rows]
    if missing:
        raise ValueError(f"no classical table: {missing[0]!r} is not printed")
    numbers = [match[1] for line in lines if (match := _EVALUATION.match(line.strip()))]
    return Table({name: rows[name] for name in TERMS}, float(numbers[0]) if numbers else None)


def _parse_row(line: str) -> tuple[str, Row] | None:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    name = _SAME.get(cells[0], cells[0])
    if len(cells) != 4 or name not in TERMS:
        return None
    white, black, total = (_parse_pair(cell) for cell in cells[1:])
    if total is None:
        raise ValueError(f"term {name!r} has no total")
    return name, Row(white, black, total)


def _parse_pair(cell: str) -> Pair | None:
    words = cell.split()
    if len(words) != 2:
        raise ValueError(f"{cell!r} is no pair of numbers")
    if "----" in words:
        return None
    return float(words[0]), float(words[1])


def eval_request(fen: str) -> str:
    """The commands for one table; its end is `readyok`."""
    return f"position fen {fen}\neval\nisready\n"


@functools.lru_cache(maxsize=32)
def has_classical_table(command: str) -> bool:
    """Whether the engine's `eval` prints the classical table. Raises EngineStartError."""
    engine = EngineProcess(command)
    try:
        engine.send(eval_request(chess.STARTING_FEN))
        lines = engine.frame(b"readyok", 10.0)
        return parse_table([line.decode("utf-8", "replace") for line in lines]) is not None
    except (EngineFaultError, ValueError):
        return False
    finally:
        engine.close()
