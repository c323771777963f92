"""Gates: every suite lets good rows pass, and shows the rows that are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from occurrence_rows import distinct_table, label_table, occurrences, table_of_rows
from round_project import KEY, copy_of_round

from queen.language.questions.bank import BANK
from queen.lineage.artifact import open_artifact
from queen.positions.barred import Barred
from stages.base import ROWS, rows_table
from stages.bulk import gates as bulk_gates
from stages.gates import SUITES, GateError, check
from stages.questions import QUESTIONS
from stages.seeds import SEEDS

Row = dict[str, Any]
ARTIFACTS = {
    "games": "data/games",
    "positions": "data/positions",
    "evalset": "data/evalset",
    "roots": f"data/sample/{KEY}",
    "explained": f"data/explain/{KEY}",
    "trees": f"data/recurse/{KEY}",
    "consolidated": f"data/consolidate/{KEY}",
    "training": f"data/filter/{KEY}",
}
NOT_LEGAL = "8/8/8/8/8/8/8/8 w - - 0 1"


def questions() -> list[Row]:
    plain = {"pid": "p", "prompt": "what ?", "answer": "this", "split": "train"}
    return [{**plain, "type": kind.name} for kind in BANK] + [
        {**plain, "split": "heldout", "type": BANK[0].name}
    ]


def seeds() -> list[Row]:
    plain = {"fen": chess.STARTING_FEN, "sentences": 2}
    return [{**plain, "pid": str(n), "dropped": d} for n, d in enumerate(["", "", "why"])]


def bulk(folder: Path) -> dict[str, pa.Table]:
    """What the gates of the bulk data set see of small tables."""
    plies = occurrences(6)
    distinct = distinct_table(plies)
    made = {"extract": table_of_rows(plies), "dedup": distinct, "label": label_table(distinct)}
    for name, table in made.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return {
        "extract": bulk_gates.occurrence_rows([folder / "extract.parquet"]),
        "dedup": bulk_gates.distinct_rows([folder / "dedup.parquet"], Barred()),
        "label": bulk_gates.label_rows([folder / "label.parquet"]),
    }


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """A table of each suite as the stages make it."""
    project = copy_of_round(tmp_path_factory.mktemp("gates"))
    found = {
        name: pq.read_table(open_artifact(project / path).file(ROWS))
        for name, path in ARTIFACTS.items()
    }
    found |= bulk(project)
    made = {"questions": (questions(), QUESTIONS), "seeds": (seeds(), SEEDS)}
    return found | {name: rows_table(rows, schema) for name, (rows, schema) in made.items()}


def set_to(column: str, value: Any) -> Callable[[list[Row]], None]:
    """A fault: one value in the second row."""

    def spoil(rows: list[Row]) -> None:
        rows[1][column] = value

    return spoil


def repeat(rows: list[Row]) -> None:
    rows.append(dict(rows[1]))


def drop_all(rows: list[Row]) -> None:
    for row in rows:
        row["dropped"] = "why"


def all_heldout(rows: list[Row]) -> None:
    for row in rows:
        row["split"] = "heldout"


def few_types(rows: list[Row]) -> None:
    for row in rows:
        row["type"] = rows[0]["type"]


def bar(rows: list[Row]) -> None:
    for row in rows:
        row["barred"] = True


BAD: list[tuple[str, Callable[[list[Row]], None], str]] = [
    ("games", repeat, "row 1: "),
    ("games", set_to("split", "other"), "row 1: .*split='other'"),
    ("games", set_to("result", "2-0"), "row 1: .*result='2-0'"),
    ("games", set_to("plies", 0), "row 1: .*plies=0"),
    ("roots", set_to("fen", NOT_LEGAL), f"row 1: .*fen='{NOT_LEGAL}'"),
    ("roots", repeat, "row 1: "),
    ("explained", set_to("weighed", None), "row 1: "),
    ("explained", set_to("fen", "no FEN"), "row 1: .*fen='no FEN'"),
    ("consolidated", set_to("model_sentences", 99), r"counted.*1 rows\n    row 1: "),
    ("consolidated", repeat, "row 1: "),
    ("positions", set_to("pid", "XYZ"), "row 1: .*pid='XYZ'"),
    ("positions", set_to("played", None), "row 1: "),
    ("positions", set_to("fen", NOT_LEGAL), "row 1: .*legal=False"),
    ("evalset", set_to("best", 1.5), "row 1: .*best=1.5"),
    ("evalset", set_to("kind", "odd"), "row 1: .*kind='odd'"),
    ("evalset", set_to("encoder_move", None), "row 1: "),
    ("questions", set_to("answer", ""), "row 1: "),
    ("questions", all_heldout, "observed"),
    ("questions", few_types, "observed 1"),
    ("seeds", set_to("sentences", 0), "row 1: .*sentences=0"),
    ("seeds", drop_all, "observed"),
    ("extract", set_to("ply", 0), "row 1: .*ply=0"),
    ("extract", set_to("result", 2), "row 1: .*result=2"),
    ("extract", set_to("fen", NOT_LEGAL), "row 1: .*legal=False"),
    ("dedup", set_to("barred", True), "row 1: .*barred=True"),
    ("dedup", set_to("position", None), "row 1: "),
    ("dedup", set_to("seen", 0), "row 1: .*seen=0"),
    ("dedup", set_to("fen", NOT_LEGAL), "row 1: .*legal=False"),
    ("dedup", repeat, "row 1: "),
    ("label", set_to("source", "other"), "row 1: .*source='other'"),
    ("label", set_to("best", 0), "row 1: .*sound=False"),
    ("label", set_to("cp", 32_001), "row 1: .*cp=32001"),
    ("label", repeat, "row 1: "),
    ("trees", repeat, "row 1: "),
    ("trees", set_to("text", None), r"sound.*1 rows\n    row 1: "),
    ("training", bar, r"clean.*rows\n    row 0: "),
    ("training", drop_all, "observed"),
    ("training", repeat, "row 1: "),
]


@pytest.mark.parametrize("name", sorted(SUITES))
def test_good_rows_pass_and_none_at_all_do_not(name: str, tables: dict[str, pa.Table]) -> None:
    check(name, tables[name])
    with pytest.raises(GateError, match="observed 0") as caught:
        check(name, tables[name].slice(0, 0))
    assert f"gate {name!r}, 0 rows" in str(caught.value)


@pytest.mark.parametrize(("name", "spoil", "told"), BAD)
def test_bad_rows_are_shown(
    name: str, spoil: Callable[[list[Row]], None], told: str, tables: dict[str, pa.Table]
) -> None:
    rows = tables[name].to_pylist()
    if name == "trees":
        rows.sort(key=lambda row: row["explanation"] is None)
    spoil(rows)
    with pytest.raises(GateError, match=told) as caught:
        check(name, rows_table(rows, tables[name].schema))
    assert f"of {len(SUITES[name].rules)} expectations failed" in caught.value.what


def test_every_suite_is_spoiled_twice_at_least() -> None:
    spoiled = [name for name, _, _ in BAD]
    assert all(spoiled.count(name) >= 2 for name in SUITES)


def test_no_more_than_a_few_rows_are_shown(tables: dict[str, pa.Table]) -> None:
    rows = [{**row, "split": "other"} for row in tables["games"].to_pylist()]
    with pytest.raises(GateError, match=f"{len(rows)} rows") as caught:
        check("games", rows_table(rows, tables["games"].schema))
    assert str(caught.value).count("    row ") == 5
