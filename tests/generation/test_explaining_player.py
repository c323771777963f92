"""A model at a clock: always a legal move, as many words as there is time for, all of them told."""

from __future__ import annotations

import chess
import pytest
from generation_parts import RandomExpert, generator, model, positions

from queen.engines.score import expected_from_cp
from queen.engines.thinking import Limits, Search, Value, defaults
from queen.games.chess.position import Position
from queen.generation.explainer import explain, salvage
from queen.generation.options import EXPLAINING_OPTIONS
from queen.generation.player import ExplainingPlayer, Halting, Said, explanation_words
from queen.generation.speaker import Speaker

POSITION = Position(chess.STARTING_FEN, ("e2e4", "e7e5"))
TEXT = """\
best <N><g1><f3>
line <N><g1><f3> <n><b8><c6> <B><f1><b5>
candidate <N><g1><f3> 0.56 line <n><b8><c6>
candidate <P><d2><d4> 0.52
After <N><g1><f3>, the <N> on <f3> attacks the <p> on <e5>."""


@pytest.fixture(scope="module")
def player() -> ExplainingPlayer:
    made = generator(1)
    halting = Halting(made.stepper, model().config.end_id)
    made.stepper = halting
    return ExplainingPlayer(Speaker(made), halting)


def options(**changes: Value) -> dict[str, Value]:
    return {**defaults(EXPLAINING_OPTIONS), "MaxTokens": 24, **changes}


def thought(
    player: ExplainingPlayer, position: Position, search: Search | None = None, **changes: Value
) -> tuple[chess.Move, list[str]]:
    """The move, and all that was said."""
    said: list[str] = []
    search = search or Search(Limits(), said.append)
    search.say = said.append
    return player.think(position.board(), search, options(**changes)), said


def test_it_plays_what_its_guided_explanation_is_about(player: ExplainingPlayer) -> None:
    for position in positions(6):
        move, said = thought(player, position)
        told = explain(player.speaker, position, max_tokens=24)
        assert move.uci() == told.best
        assert said[0].endswith(f" pv {move.uci()}")
        assert f" pv {' '.join(told.line)}" in said[1]
        assert any(told.problem in line for line in said if told.problem)


def test_without_explain_it_only_plays(player: ExplainingPlayer) -> None:
    move, said = thought(player, POSITION, Explain=False)
    assert len(said) == 1
    assert move == thought(player, POSITION)[0]


@pytest.mark.parametrize("guided", [True, False])
def test_with_no_time_left_it_still_plays(player: ExplainingPlayer, guided: bool) -> None:
    late = Search(Limits(), print, 0.01)
    late.began -= 1
    move, said = thought(player, POSITION, late, Guided=guided)
    assert move in POSITION.board().legal_moves
    assert len(said) == 1


def test_the_clock_cuts_the_words_and_never_a_move(player: ExplainingPlayer) -> None:
    """Whatever token it is told to end at, the text so far is whole moves."""
    whole = thought_text(player, None)
    cuts = {thought_text(player, after) for after in range(1, 12)}
    assert len(cuts) > 3
    for text in cuts:
        assert len(text) < len(whole)
        assert text.count("<") % 3 == 0
        moves = salvage(text, POSITION, finished=False)
        assert moves.best is not None


def thought_text(player: ExplainingPlayer, after: int | None) -> str:
    """The text where it is told to end after so many tokens."""
    asked: list[int] = []

    def halted() -> bool:
        asked.append(1)
        return after is not None and len(asked) > after

    search = Search(Limits(), lambda text: None)
    search.over = halted  # type: ignore[method-assign]
    move = max(sorted(player.speaker.policies([POSITION])[0]), key=str)
    said = player._explain(POSITION, move, search, options(MaxTokens=40))
    assert said is not None
    assert said.cut == (after is not None)
    return said.told.text


def test_stop_in_the_middle_ends_it_soon(player: ExplainingPlayer) -> None:
    search = Search(Limits(endless=True), print)
    count = 0

    def say(text: str) -> None:
        nonlocal count
        count += 1
        search.stopped.set()

    search.say = say
    move = player.think(POSITION.board(), search, options())
    assert move in POSITION.board().legal_moves
    assert count == 1


def test_free_text_that_names_no_move_is_owned_up_to(player: ExplainingPlayer) -> None:
    move, said = thought(player, POSITION, Guided=False)
    free = explain(player.speaker, POSITION, max_tokens=24, free=True)
    assert free.best is None
    assert "the likeliest legal move is played" in said[0]
    assert move == thought(player, POSITION)[0]


def test_a_position_it_cannot_write_about_is_still_played(player: ExplainingPlayer) -> None:
    expert = RandomExpert(broken=POSITION.fen)
    made = generator(1, expert=expert)
    halting = Halting(made.stepper, model().config.end_id)
    made.stepper = halting
    move, said = thought(ExplainingPlayer(Speaker(made), halting), POSITION)
    assert move in POSITION.board().legal_moves
    assert any("error: " in line for line in said)


def test_warm_games_repeat_by_the_seed(player: ExplainingPlayer) -> None:
    warm = {"Temperature": 3.0, "MaxTokens": 16}
    first = [thought(player, POSITION, Seed=seed, **warm) for seed in range(6)]
    again = [thought(player, POSITION, Seed=seed, **warm) for seed in range(6)]
    assert [untimed(said) for _, said in first] == [untimed(said) for _, said in again]
    assert len({move for move, _ in first}) > 2
    assert all(move in POSITION.board().legal_moves for move, _ in first)


def untimed(said: list[str]) -> list[str]:
    return [line for line in said if " time " not in line]


@pytest.mark.parametrize("share", [1, 3, 7, 20])
def test_only_the_moves_asked_for_are_played(player: ExplainingPlayer, share: int) -> None:
    position = positions(21)[share]
    legal = sorted(move.uci() for move in position.board().legal_moves)
    wanted = tuple(legal[::share])
    move, _ = thought(player, position, Search(Limits(moves=wanted), print), Explain=False)
    assert move.uci() in wanted


def test_a_sound_explanation_is_told_with_score_line_and_words(player: ExplainingPlayer) -> None:
    told = salvage(TEXT, POSITION)
    said: list[str] = []
    move = player._tell(Said(told, 80, False), "g1f3", Search(Limits(), said.append))
    assert move.uci() == "g1f3"
    words = said[0].split()
    assert words[:3] == ["depth", "3", "score"]
    assert expected_from_cp(int(words[4])) == pytest.approx(0.56, abs=0.001)
    assert said[0].endswith("pv g1f3 b8c6 f1b5")
    assert said[1:] == [
        "string candidate 56% 2. Nf3 Nc6",
        "string candidate 52% 2. d4",
        "string After 2. Nf3, the knight on f3 attacks the pawn on e5.",
    ]
    assert list(explanation_words(told)) == [line.removeprefix("string ") for line in said[1:]]
