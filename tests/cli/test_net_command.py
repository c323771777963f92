"""`queen net` on made-up networks: what it says, as JSON and for people, and how it fails."""

import json
from pathlib import Path
from typing import Any

import chess
import pytest
from click.testing import Result
from typer.testing import CliRunner

from queen.cli import app
from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.networks.lc0 import build, encode_planes, load_net, policy_over_legal, save_encoder
from queen.networks.lc0.random_net import RandomShape, random_net
from queen.networks.lc0.write import write_net

KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.pb.gz"
    write_net(random_net(RandomShape(), 3), path)
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["net", *words])


def said(*words: str) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_holds_the_logit_of_every_legal_move(file: Path) -> None:
    found = said(str(file), "--moves", "e2e4 e7e5")
    position = Position(chess.STARTING_FEN, ("e2e4", "e7e5"))
    output = build(load_net(file))(encode_planes([position]))
    assert found["policy"] == pytest.approx(policy_over_legal(output.policy[0], position.board()))
    assert found["wdl"] == pytest.approx(output.wdl[0].tolist())
    assert found["moves_left"] == pytest.approx(output.moves_left.item())
    assert "value" not in found
    assert (found["blocks"], found["width"], found["moves"]) == (2, 32, ["e2e4", "e7e5"])
    assert found["heads"]["policy"] == ["vanilla", "optimistic_st"]
    assert found["parameters"] == sum(w.numel() for w in build(load_net(file)).parameters())


def test_history_and_position_change_what_is_said(file: Path) -> None:
    after = chess.Board()
    for move in ("e2e4", "e7e5"):
        after.push_uci(move)
    with_moves = said(str(file), "--moves", "e2e4,e7e5")["policy"]
    fen_alone = said(str(file), "--fen", after.fen())["policy"]
    assert with_moves.keys() == fen_alone.keys()
    assert with_moves != fen_alone
    castling = said(str(file), "--fen", KIWIPETE)["policy"]
    assert {"e1g1", "e1c1"} <= castling.keys()
    assert said(str(file))["policy"].keys() == said(str(file), "--fen", "startpos")["policy"].keys()


def test_scalar_nets_say_value_and_heads_can_be_named(tmp_path: Path, file: Path) -> None:
    scalar = tmp_path / "scalar.pb"
    write_net(random_net(RandomShape(wdl=False, moves_left=()), 3), scalar)
    found = said(str(scalar))
    assert -1 <= found["value"] <= 1
    assert "wdl" not in found
    assert found["moves_left"] is None
    usual = said(str(file))
    assert said(str(file), "--policy-head", "vanilla")["policy"] == usual["policy"]
    assert said(str(file), "--policy-head", "optimistic_st")["policy"] != usual["policy"]
    assert said(str(file), "--value-head", "q")["wdl"] != usual["wdl"]


def test_people_see_the_best_moves(file: Path) -> None:
    best = list(said(str(file))["policy"])
    shown = run(str(file), "--top", "3").stdout
    assert all(move in shown for move in best[:3])
    assert best[4] not in shown
    for text in ("2 encoder layers of 4 heads", "vanilla, optimistic_st", "win ", "moves left"):
        assert text in shown
    mated = run(str(file), "--moves", "f2f3 e7e5 g2g4 d8h4")
    assert "no legal move" in mated.stdout


def test_a_saved_folder_is_a_network_too(tmp_path: Path, file: Path) -> None:
    save_encoder(build(load_net(file)), tmp_path / "folder")
    from_file, from_folder = said(str(file)), said(str(tmp_path / "folder"))
    assert {**from_folder, "file": ""} == {**from_file, "file": ""}


def test_missing_biases_are_told(tmp_path: Path) -> None:
    path = tmp_path / "net.pb"
    write_net(random_net(RandomShape(biases=False), 3), path)
    result = run(str(path), "--json")
    assert "missing biases are taken as zero" in result.stderr
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--moves", "e2e4 e2e4"], "ply 1 is not legal"),
        (["--fen", "no fen"], "not a FEN"),
        (["--policy-head", "soft"], "no head 'soft'"),
    ],
)
def test_what_is_wrong_is_said(file: Path, words: list[str], says: str) -> None:
    fault = run(str(file), *words).exception
    assert isinstance(fault, QueenError)
    assert says in str(fault)
    assert fault.remedy


def test_a_file_that_is_no_network_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<html>")
    fault = run(str(path)).exception
    assert isinstance(fault, QueenError)
    assert fault.where == str(path)
