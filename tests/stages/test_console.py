"""The progress line says done, rate and time left, for each piece of work by itself."""

from __future__ import annotations

import pytest

from stages.console import progress_line, progress_printer


def test_rate_and_time_left() -> None:
    assert progress_line("filter@r1", 3, 10, 2.0) == "filter@r1 3/10, 1.5/s, 5 s left"
    assert progress_line("games", 0, 10, 2.0) == "games 0/10"
    assert progress_line("games", 10, 10, 2.0, "assembling") == "games 10/10, 5/s, assembling"


def test_a_new_piece_starts_its_own_count(capsys: pytest.CaptureFixture[str]) -> None:
    show = progress_printer("pawn")
    show(60, 60, "static")
    show(30, 30, "dynamic")
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "pawn 60/60",
        "pawn 30/30",
    ]
