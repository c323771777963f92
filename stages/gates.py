"""Great Expectations suites: what must hold of every data artifact before it is written."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import chess
import pyarrow as pa

from queen.errors import QueenError
from queen.positions.comments import LARGEST_CP

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 5
SHA = r"^[0-9a-f]{20}$"


class GateError(QueenError):
    """A data gate that failed: which expectation, by how much, and the rows."""


@dataclass(frozen=True)
class Rule:
    """One expectation: the name of Great Expectations' class and its arguments."""

    kind: str
    arguments: Mapping[str, Any]

    def told(self) -> str:
        shown = {k: v for k, v in self.arguments.items() if k != "value_set" or len(v) < 8}
        return f"{self.kind}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


@dataclass(frozen=True)
class Suite:
    """Expectations on one table, and the columns derived for them.

    Attributes:
        rules: what must hold.
        derive: columns computed from the rows, by name.
    """

    rules: tuple[Rule, ...]
    derive: Mapping[str, Callable[[Mapping[str, Any]], Any]]


def check(name: str, table: pa.Table) -> None:
    """Validate a table against its suite.

    Raises:
        GateError: with what failed, how many rows, and the first of them.
    """
    check_suite(name, SUITES[name], table)


def check_suite(name: str, suite: Suite, table: pa.Table) -> None:
    """The same with a suite given: one that depends on what the table is made of."""
    rows = table.to_pylist()
    columns = {column: [row[column] for row in rows] for column in table.column_names}
    for column, function in suite.derive.items():
        columns[column] = [function(row) for row in rows]
    failures = _validate(name, suite, _frame(columns))
    if failures:
        raise GateError(
            f"{len(failures)} of {len(suite.rules)} expectations failed:\n" + "\n".join(failures),
            where=f"gate {name!r}, {len(rows)} rows",
            remedy="correct the data or the stage that made it; nothing was written",
        )


def _frame(columns: Mapping[str, list[Any]]) -> pd.DataFrame:
    import pandas

    return pandas.DataFrame(dict(columns))


def _validate(name: str, suite: Suite, frame: pd.DataFrame) -> list[str]:
    gx = _library()
    batch = _batch(gx, name, frame)
    expectations = [getattr(gx.expectations, r.kind)(**r.arguments) for r in suite.rules]
    result = batch.validate(
        gx.ExpectationSuite(name=name, expectations=expectations),
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": []},
    )
    return [_failure(one, frame) for one in result.results if not one.success]


def _batch(gx: Any, name: str, frame: pd.DataFrame) -> Any:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("tables").add_dataframe_asset(name)
    whole = asset.add_batch_definition_whole_dataframe("rows")
    return whole.get_batch(batch_parameters={"dataframe": frame})


def _failure(one: Any, frame: pd.DataFrame) -> str:
    """One failed expectation, with its count and its first rows."""
    config, result = one.expectation_config, one.result
    arguments = {k: v for k, v in config.kwargs.items() if k != "batch_id"}
    line = f"- {Rule(config.type, arguments).told()}"
    if one.exception_info and one.exception_info.get("raised_exception"):
        return f"{line}: {one.exception_info.get('exception_message')}"
    index = list(result.get("unexpected_index_list") or [])[:SHOWN]
    if "unexpected_count" in result:
        line += f": {result['unexpected_count']} rows"
    elif "observed_value" in result:
        line += f": observed {result['observed_value']}"
    numbers = [next(iter(i.values())) if isinstance(i, dict) else i for i in index]
    column = str(arguments.get("column", ""))
    return "\n".join([line, *(f"    row {n}: {_shown(frame.iloc[n], column)}" for n in numbers)])


def _shown(row: Any, first: str) -> str:
    """A row in one line, the column that failed first, long ones cut."""
    values = {k: v for k, v in row.to_dict().items() if v not in (None, "") or k == first}
    order = sorted(values, key=lambda name: name != first)
    text = ", ".join(f"{name}={values[name]!r}" for name in order)
    return text if len(text) <= 400 else text[:397] + "..."


@functools.cache
def _library() -> Any:
    """Great Expectations, quiet and offline; its import takes seconds, so it waits for a gate."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return great_expectations


def _legal_fen(row: Mapping[str, Any]) -> bool:
    try:
        return chess.Board(row["fen"]).is_valid()
    except ValueError:
        return False


def _legal_anywhere(row: Mapping[str, Any]) -> bool:
    """The same, by the rules of Chess960 where castling needs them."""
    try:
        board = chess.Board(row["fen"])
    except ValueError:
        return False
    board.chess960 = board.has_chess960_castling_rights()
    return board.is_valid()


def _sound(row: Mapping[str, Any]) -> bool:
    """A node is explained, or says why not, or is the root or a finished game."""
    silent = row["text"] is None or bool(row["reason"])
    return (row["explanation"] is None) == silent


def _clean(row: Mapping[str, Any]) -> bool:
    """Nothing barred by decontamination is kept."""
    return row["dropped"] != "" or not row["barred"]


def _rule(kind: str, **arguments: Any) -> Rule:
    return Rule(kind, arguments)


def _present(*columns: str) -> tuple[Rule, ...]:
    return tuple(_rule("ExpectColumnValuesToNotBeNull", column=c) for c in columns)


def _within(column: str, low: float, high: float) -> Rule:
    return _rule("ExpectColumnValuesToBeBetween", column=column, min_value=low, max_value=high)


def _among(column: str, *values: Any) -> Rule:
    return _rule("ExpectColumnValuesToBeInSet", column=column, value_set=list(values))


def _some_rows() -> Rule:
    return _rule("ExpectTableRowCountToBeBetween", min_value=1)


def _distinct(*columns: str) -> Rule:
    if len(columns) == 1:
        return _rule("ExpectColumnValuesToBeUnique", column=columns[0])
    return _rule("ExpectCompoundColumnsToBeUnique", column_list=list(columns))


def _sound_label(row: Mapping[str, Any]) -> bool:
    """Centipawns or a mate; the rules end games, an engine names its move, a dump knows none."""
    one = (row["cp"] is None) != (row["mate"] is None)
    over = row["source"] == "rules"
    score = row["cp"] == 0 or row["mate"] == 0 if over else row["mate"] != 0
    return one and score and (row["best"] > 0) == (row["source"] == "engine")


LEGAL = {"legal": _legal_fen}
# Of the rows that `stages.bulk.gates` brings: all that its scan finds odd, and a sample.
BULK = (
    _some_rows(),
    *_present("position", "fen"),
    _among("in_order", True),
    _among("possible", True),
    _among("legal", True),
    _among("barred", False),
)
SUITES: dict[str, Suite] = {
    "games": Suite(
        (
            _some_rows(),
            _distinct("game_id"),
            *_present("start", "moves"),
            _among("split", "train", "dev", "test"),
            _among("result", "1-0", "0-1", "1/2-1/2", "*"),
            _within("plies", 1, 2000),
        ),
        {},
    ),
    "roots": Suite(
        (
            _some_rows(),
            _distinct("pid"),
            *_present("source", "start", "fen"),
            _among("legal", True),
        ),
        LEGAL,
    ),
    "explained": Suite(
        (
            _some_rows(),
            _distinct("pid"),
            *_present("weighed", "texts"),
            _among("legal", True),
        ),
        LEGAL,
    ),
    "consolidated": Suite(
        (
            _some_rows(),
            _distinct("root", "path"),
            *_present("pid", "text", "line", "consolidated", "facts"),
            _among("legal", True),
            _among("counted", True),
        ),
        {**LEGAL, "counted": lambda row: row["model_sentences"] <= row["sentences"]},
    ),
    "positions": Suite(
        (
            _some_rows(),
            *_present("pid", "game_id", "start", "fen", "played"),
            _distinct("pid"),
            _among("split", "train", "dev", "test"),
            _among("result", "1-0", "0-1", "1/2-1/2", "*"),
            _among("legal", True),
            _rule("ExpectColumnValuesToMatchRegex", column="pid", regex=SHA),
        ),
        LEGAL,
    ),
    "evalset": Suite(
        (
            _some_rows(),
            _distinct("pid"),
            _among("kind", "general", "tactical"),
            _among("split", "dev", "test"),
            _within("best", 0.0, 1.0),
            _within("gap", 0.0, 1.0),
            *_present("best_move", "uniform_move", "encoder_move"),
            _among("legal", True),
        ),
        LEGAL,
    ),
    "questions": Suite(
        (
            _some_rows(),
            *_present("pid", "prompt", "answer"),
            _among("split", "train", "heldout"),
            _rule("ExpectColumnValueLengthsToBeBetween", column="answer", min_value=1),
            _rule("ExpectColumnDistinctValuesToContainSet", column="split", value_set=["train"]),
            _rule("ExpectColumnUniqueValueCountToBeBetween", column="type", min_value=24),
        ),
        {},
    ),
    "seeds": Suite(
        (
            _some_rows(),
            _distinct("pid"),
            _among("legal", True),
            _within("sentences", 1, 40),
            _rule("ExpectColumnDistinctValuesToContainSet", column="dropped", value_set=[""]),
        ),
        LEGAL,
    ),
    "extract": Suite(
        (
            *BULK,
            *_present("game", "ply", "halfmove", "move", "played"),
            _within("ply", 1, 2**15 - 1),
            _within("clock", 0, 2**31),
            _within("white_elo", 1, 4000),
            _within("black_elo", 1, 4000),
            _within("eval_cp", -LARGEST_CP, LARGEST_CP),
            _within("eval_mate", -500, 500),
            _among("result", 1, 0, -1),
            _among("one_eval", True),
            _among("mate_sign", True),
            _among("plausible", True),
        ),
        {"legal": _legal_anywhere},
    ),
    "dedup": Suite(
        (
            *BULK,
            _distinct("position"),
            *_present("game", "ply", "seen"),
            _within("ply", 1, 2000),
            _within("seen", 1, 2**32 - 1),
            _within("eval_cp", -LARGEST_CP, LARGEST_CP),
            _within("eval_mate", -500, 500),
            _among("one_eval", True),
            _among("counted", True),
        ),
        {"legal": _legal_anywhere},
    ),
    "label": Suite(
        (
            *BULK,
            _distinct("position", "source"),
            _among("source", "engine", "rules", "dump"),
            _within("cp", -LARGEST_CP, LARGEST_CP),
            _within("mate", -500, 500),
            _among("sound", True),
            _among("mate_sign", True),
            _among("rules", True),
        ),
        {"legal": _legal_anywhere, "sound": _sound_label},
    ),
    "trees": Suite(
        (
            _some_rows(),
            _distinct("root", "path"),
            _among("sound", True),
        ),
        {"sound": _sound},
    ),
    "training": Suite(
        (
            _some_rows(),
            _distinct("pid"),
            *_present("text", "start"),
            _rule("ExpectColumnDistinctValuesToContainSet", column="dropped", value_set=[""]),
            _among("clean", True),
        ),
        {"clean": _clean},
    ),
}
