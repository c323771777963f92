"""What `queen explain` tells: sound texts whole, broken ones as far as they go, never more."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from round_project import make_encoder
from typer.testing import CliRunner

from queen.cli import app
from queen.errors import QueenError
from queen.games.chess.position import Position, PositionError
from queen.generation.explainer import salvage
from queen.language.explanation import parse
from queen.language.prompts import explain_prompt
from queen.language.tokenizer import save_tokenizer, train_tokenizer
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.digest import weights_digest
from queen.networks.lc0.load import load_encoder
from stages.play.explaining import (
    ModelChoice,
    as_json,
    choose_model,
    explain_with,
    read_position,
    show,
)

POSITION = Position(chess.STARTING_FEN, ("e2e4", "e7e5"))
TEXT = """\
best <N><g1><f3>
line <N><g1><f3> <n><b8><c6> <B><f1><b5>
candidate <N><g1><f3> 0.56 line <n><b8><c6>
candidate <P><d2><d4> 0.52
candidate <Q><d1><h5> 0.44 line <n><b8><c6>
After <N><g1><f3>, the <N> on <f3> attacks the <p> on <e5>.
Words that fit no skeleton."""
ROWS = TEXT.split("\n")
MODEL = ModelChoice("r1", Path("models/r1"), "ab" * 32)


def without(number: int, text: str = "") -> str:
    """The text with one row (from 1) replaced, or left out."""
    return "\n".join([*ROWS[: number - 1], *([text] if text else []), *ROWS[number:]])


def test_a_sound_text_is_told_whole() -> None:
    told = salvage(TEXT, POSITION)
    sound = parse(TEXT, POSITION)
    assert (told.best, told.line) == (sound.best, sound.line)
    assert (told.candidates, told.prose) == (sound.candidates, sound.prose)
    assert told.faults == ()
    assert told.problem is None
    assert told.sentences()[0] == "After 2. Nf3, the knight on f3 attacks the pawn on e5."


@pytest.mark.parametrize(
    ("text", "reason", "row", "line", "candidates", "sentences"),
    [
        (without(1, "best <N><g1><f3> <N>"), "unknown_line", 1, 3, 3, 2),
        (without(1, "best <N><g1><f3>and so on"), "bad_move:malformed", 1, 3, 3, 2),
        (without(2), "no_line", 2, 1, 3, 2),
        (without(2, "line <P><a2><a3>"), "line_not_best", 2, 1, 3, 2),
        (without(2, "line <N><g1><f3> <N><f3><f9>"), "malformed_in_line", 2, 1, 3, 2),
        (without(3), "best_not_candidate", 5, 3, 2, 2),
        (without(3, "candidate <N><g1><f3> 1.56"), "bad_score", 3, 3, 2, 2),
        (without(4, "candidate <P><d2><d5> 0.52"), "bad_move:illegal", 4, 3, 2, 2),
        (without(4, ROWS[2]), "duplicate_candidate", 4, 3, 2, 2),
        (without(6, "best again"), "unknown_line", 6, 3, 3, 1),
        ("\n".join(ROWS[:2]), "no_candidate", 3, 3, 0, 0),
    ],
)
def test_what_is_sound_in_a_broken_text_is_told(
    text: str, reason: str, row: int, line: int, candidates: int, sentences: int
) -> None:
    told = salvage(text, POSITION)
    assert told.best == "g1f3"
    assert (len(told.line), len(told.candidates), len(told.prose)) == (line, candidates, sentences)
    assert [(fault.reason, fault.row) for fault in told.faults] == [(reason, row)]
    assert told.problem is not None
    assert reason in told.problem


def test_nothing_is_told_where_no_move_can_be_read() -> None:
    for text in ("", "hello", "best", without(1, "best <N><g1><f4>")):
        told = salvage(text, POSITION)
        assert told.best is None
        assert (told.line, told.candidates, told.prose) == ((), (), ())
        assert len(told.faults) == 1


def test_the_last_row_of_an_unfinished_text_does_not_count() -> None:
    told = salvage(TEXT, POSITION, finished=False)
    assert len(told.prose) == 1
    assert [fault.reason for fault in told.faults] == ["unfinished"]


@settings(max_examples=150, deadline=None)
@given(
    cut=st.integers(0, len(TEXT)),
    noise=st.text(alphabet="<>NPnpbestlinecandidate 0.5\ngf3", max_size=12),
    finished=st.booleans(),
)
def test_never_more_is_told_than_was_written(cut: int, noise: str, finished: bool) -> None:
    text = TEXT[:cut] + noise + TEXT[cut:]
    told = salvage(text, POSITION, finished=finished)
    for candidate in told.candidates:
        assert f"{candidate.score:.2f}" in text
    for sentence in told.prose:
        assert sentence.text in [row.rstrip() for row in text.split("\n")]
    board = POSITION.board()
    for uci in told.line:
        board.push(board.parse_uci(uci))
    whole = finished and told.faults == ()
    assert whole == (told.problem is None)
    if whole:
        assert parse(text, POSITION).candidates == told.candidates
    json.dumps(as_json(told, MODEL))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_rows_in_any_order_do_not_break_it(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.choices(ROWS, k=rng.randint(1, 9))
    told = salvage("\n".join(rows), POSITION)
    assert (told.best == "g1f3") == rows[0].startswith("best")


def test_positions_come_from_fen_and_moves() -> None:
    assert read_position("startpos", "e2e4 e7e5") == POSITION
    assert read_position(chess.STARTING_FEN, "e4, e5") == POSITION
    assert read_position("startpos").moves == ()
    with pytest.raises(PositionError, match="not a FEN"):
        read_position("nonsense")
    with pytest.raises(PositionError, match="not a legal position"):
        read_position("8/8/8/8/8/8/8/8 w - - 0 1")
    with pytest.raises(PositionError, match=r"'e2e5' \(move 1 of --moves\)"):
        read_position("startpos", "e2e5")
    with pytest.raises(PositionError, match=r"'--' \(move 1 of --moves\)"):
        read_position("startpos", "--")


@pytest.mark.parametrize("colours", [True, False])
def test_the_board_is_drawn_with_the_move_and_the_words(colours: bool) -> None:
    console = Console(
        width=110, record=True, file=io.StringIO(), force_terminal=colours,
        color_system="truecolor" if colours else None,
    )  # fmt: skip
    show(salvage(without(4, "candidate <P><d2><d5> 0.52"), POSITION), MODEL, console)
    shown = console.export_text()
    for part in ("Best move  Nf3", "2. Nf3 Nc6 3. Bb5", "Qh5", "44%", "r1 (abababababab)"):
        assert part in shown
    assert "row 4, column 11: bad_move:illegal" in shown
    assert shown.count("♞") == (4 if colours else 2)
    rows = [line.split()[0] for line in shown.split("\n")[1:9]]
    assert rows == list("87654321")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a very small, untrained model: whatever it says, it says in good form."""
    root = tmp_path_factory.mktemp("explaining")
    (root / "params").mkdir()
    (root / "dvc.yaml").write_text("stages: {}\n")
    make_encoder(root)
    encoder = load_encoder(root / "models/encoder/expert")
    tokenizer = train_tokenizer([TEXT, explain_prompt(POSITION)], 400)
    info = EncoderInfo("expert", weights_digest(encoder), encoder.n_states, encoder.width)
    decoder = DecoderSettings(width=32, layers=2, heads=2, kv_heads=2, ffn=48, max_length=128)
    bridge = BridgeSettings(states=(0, 1), layers=(0, 1), heads=2, state_mlp=0)
    for seed, key in enumerate(("pawn1", "r1")):
        model = build_queen(decoder, bridge, tokenizer, info, seed)
        model.save_pretrained(root / "models" / key)
        save_tokenizer(tokenizer, root / "models" / key)
    return root


def test_the_champion_explains_unless_another_is_named(project: Path, tmp_path: Path) -> None:
    champion = choose_model(project, None)
    assert (champion.key, champion.champion) == ("pawn1", True)
    named = choose_model(project, "r1")
    assert (named.key, named.champion) == ("r1", False)
    assert named.content != champion.content
    assert choose_model(project, str(project / "models/r1")).content == named.content
    for wrong in ("r7", "encoder", str(tmp_path)):
        with pytest.raises(QueenError, match="models here: pawn1, r1"):
            choose_model(project, wrong)
    with pytest.raises(QueenError, match="there is no model yet") as caught:
        choose_model(tmp_path, None)
    assert "queen run" in caught.value.remedy


def test_a_real_model_plays_a_legal_move_and_its_rubbish_is_owned_up_to(project: Path) -> None:
    told = explain_with(project, choose_model(project, None), POSITION, tokens=24)
    assert told.best is not None
    assert chess.Move.from_uci(told.best) in POSITION.board().legal_moves
    assert told.text.startswith("best <")
    assert told.problem is not None
    free = explain_with(project, choose_model(project, None), POSITION, free=True, tokens=24)
    assert free.best is None
    assert not free.text.startswith("best <")


def test_a_finished_game_is_no_position_to_explain(project: Path) -> None:
    mated = read_position("startpos", "f3 e5 g4 Qh4#")
    with pytest.raises(QueenError, match=r"the game is over here \(checkmate\)"):
        explain_with(project, choose_model(project, None), mated)


def run(project: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.chdir(project)
    return CliRunner().invoke(app, ["explain", "--max-tokens", "16", *arguments])


def test_the_command_gives_json(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(project, monkeypatch, "startpos", "--moves", "e4 e5", "--json", "--model", "r1")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["line"][0] == told["best_move"]
    assert told["model"]["key"] == "r1"
    assert len(told["model"]["content"]) == 64
    assert told["problem"]["faults"]
    assert {"candidates", "prose", "fen"} <= set(told)
    nothing = run(project, monkeypatch, "startpos", "--free")
    assert nothing.exit_code == 3
    assert "no move could be read" in nothing.stdout
    assert isinstance(run(project, monkeypatch, "rubbish").exception, PositionError)
