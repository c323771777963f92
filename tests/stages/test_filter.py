"""The filter: where lines part, why an example goes, and which of several stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chess
import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from round_project import KEY, copy_of_round

from queen.games.chess.position import Position
from queen.lineage.artifact import open_artifact
from stages.base import ROWS
from stages.filter import Fork, Params, _first_of_each, _reason, fork_of

TEXT = """\
best <P><e2><e4>
line <P><e2><e4> <p><e7><e5>
candidate <P><e2><e4> 0.56 line <p><e7><e5>
After <P><e2><e4>, the <P> on <e4> attacks nothing yet."""


def row(**changes: Any) -> dict[str, Any]:
    plain = {"start": chess.STARTING_FEN, "moves": "", "path": "", "text": TEXT, "told": True}
    return {**plain, "line": "e2e4 e7e5", "old_line": "", **changes}


def test_lines_part_at_the_first_other_move_with_the_position_there() -> None:
    found = fork_of(row(line="e2e4 e7e5 g1f3", old_line="e2e4 c7c5"))
    start = Position(chess.STARTING_FEN)
    assert found == Fork(1, start.child("e2e4"), "c7c5", "e7e5")
    assert fork_of(row(line="d2d4", old_line="e2e4")) == Fork(0, start, "e2e4", "d2d4")


@pytest.mark.parametrize(
    ("old", "new"),
    [("", "e2e4 e7e5"), ("e2e4", "e2e4 e7e5"), ("e2e4 e7e5", "e2e4"), ("e2e4", "e2e4")],
)
def test_lines_that_do_not_part_have_no_fork(old: str, new: str) -> None:
    assert fork_of(row(line=new, old_line=old)) is None


@pytest.mark.parametrize(
    ("params", "changes", "pair", "reason"),
    [
        (Params(), {}, None, ""),
        (Params(), {}, (0.5, 0.5), ""),
        (Params(), {}, (0.5, 0.49), "line_worse"),
        (Params(max_loss=0.02), {}, (0.5, 0.49), ""),
        (Params(max_loss=0.02), {}, (0.5, 0.47), "line_worse"),
        (Params(), {}, "engine_hung", "engine_hung"),
        (Params(min_sentences=2), {}, (0.5, 0.1), "too_few_sentences"),
        (Params(min_sentences=2), {"told": False}, None, ""),
        (Params(), {"path": "e2e4"}, None, ""),
        (Params(inner=False), {"path": "e2e4"}, None, "inner"),
        (Params(), {"text": TEXT.replace("<e4>", "<e5>", 1)}, (0.1, 0.9), "unparsed."),
    ],
)
def test_an_example_goes_for_the_first_reason_there_is(
    params: Params, changes: Mapping[str, Any], pair: Any, reason: str
) -> None:
    found = _reason(params, row(**changes), pair)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["", "", "x", "y"]))))
def test_of_several_trees_the_first_that_is_kept_stays(rows: list[tuple[str, str]]) -> None:
    columns = {"pid": [p for p, _ in rows], "dropped": [d for _, d in rows]}
    columns["number"] = list(map(str, range(len(rows))))
    names = [(name, pa.string()) for name in columns]
    found = _first_of_each(pa.table(columns, schema=pa.schema(names))).to_pylist()
    assert {each["pid"] for each in found} == set(columns["pid"])
    numbers = [int(each["number"]) for each in found]
    assert numbers == sorted(numbers)
    for each in found:
        mine = [n for n, (pid, _) in enumerate(rows) if pid == each["pid"]]
        kept = [n for n in mine if not rows[n][1]]
        assert int(each["number"]) == (kept or mine)[0]


def test_rows_seen_repeated_and_uncompared_are_counted(tmp_path: Path) -> None:
    project = copy_of_round(tmp_path)
    found = open_artifact(project / f"data/filter/{KEY}")
    consolidated = open_artifact(project / f"data/consolidate/{KEY}")
    counts, table = found.record.counts, pq.read_table(found.file(ROWS))
    assert counts["seen"] == pq.read_table(consolidated.file(ROWS)).num_rows
    assert counts["seen"] == counts["repeated"] + counts["examples"]
    assert counts["uncompared"] == sum(not r["old_line"] for r in table.to_pylist()) > 0
