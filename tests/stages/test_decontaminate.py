"""What may not enter training is told alike of a row and of a table."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stages.decontaminate import Guard

NAMES = st.frozensets(st.sampled_from("abcd"))
ROWS = st.lists(
    st.fixed_dictionaries({"pid": st.sampled_from("abcdef"), "game_id": st.sampled_from("abcdef")})
)
SCHEMA = pa.schema([("pid", pa.string()), ("game_id", pa.string())])


@given(NAMES, NAMES, ROWS)
def test_a_table_is_cleared_of_the_rows_that_have_a_reason(
    pids: frozenset[str], games: frozenset[str], rows: list[dict[str, str]]
) -> None:
    guard = Guard(pids, games)
    kept = [row for row in rows if guard.reason(row) is None]
    assert guard.clear(pa.Table.from_pylist(rows, schema=SCHEMA)).to_pylist() == kept
