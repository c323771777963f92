"""Fixtures for whoever asks the tiny model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from local_model.speaker import LocalSpeaker


@pytest.fixture(scope="session")
def speaker() -> LocalSpeaker:
    """A tiny random model whose pieces are those of the project's own prompts."""
    import torch

    from local_model.speaker import tiny_speaker
    from queen.games.chess.position import Position
    from queen.language import consolidate_llm, teacher_frontier
    from queen.language.teacher_hce import Style

    torch.set_num_threads(1)
    start = Position.from_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")
    asked = teacher_frontier.question("start", start, Style())
    return tiny_speaker([asked.system, asked.user, consolidate_llm.SYSTEM, consolidate_llm.USER])
