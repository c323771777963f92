"""`queen plan` with choices: sizes of a profile, with nothing built and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from queen.cli import app
from queen.commands.sizing import make_sizes
from queen.errors import QueenError
from queen.lineage.params import ParamsError
from queen.lineage.state import State

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> Any:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("QUEEN_STATE", str(tmp_path))
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_paper_is_sized_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = (ROOT / "params.yaml").read_bytes()
    done = run(monkeypatch, tmp_path, "profile=paper", "--json")
    told = json.loads(done.stdout)
    assert told["profile"] == "paper"
    assert told["parameters"]["bridge"] == pytest.approx(469.8e6, abs=0.05e6)
    assert told["parameters"]["trained"]["train"] == told["parameters"]["bridge"] + 76 * 2048
    assert told["assumptions"]["devices"] == 8
    sums = [told["memory"][str(zero)]["total"] for zero in range(4)]
    assert sorted(sums, reverse=True) == sums
    stages = {(each["stage"], each["kind"]): each for each in told["stages"]}
    assert stages["pawn", "train"]["sequences"] == 240_000 * 128
    assert stages["explain", "write"]["sequences"] == 3 * 400_000
    each = [stage["device_hours"] * (1 if stage["stage"].startswith("pawn") else 7)
            for stage in told["stages"]]  # fmt: skip
    assert told["total_device_hours"] == pytest.approx(sum(each))
    assert not told["encoder"]["measured"]
    assert (ROOT / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("profile", ["small", "mini", "smoke"])
def test_every_profile_is_shown_with_what_it_stands_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str
) -> None:
    done = run(monkeypatch, tmp_path, f"profile={profile}")
    assert done.exit_code == 0
    words = ("bridge, plain", "tied keys (ours)", "ZeRO", "pawn1", "estimates", "as stated")
    shown = " ".join(done.stdout.split())
    assert all(word in shown for word in words)


def test_params_choose_what_is_sized(state: State) -> None:
    plain = make_sizes(ROOT, state, ["profile=paper"])
    more = make_sizes(
        ROOT, state, ["profile=paper", "bridge.tied_keys=true", "bridge.state_mlp=1024"]
    )
    assert more.counts.bridge == plain.counts.bridge
    assert more.counts.tied_keys == pytest.approx(67e6, rel=0.04)
    assert more.counts.state_mlp == pytest.approx(34e6, rel=0.02)
    thawed = make_sizes(ROOT, state, ["profile=paper", "train.frozen=[]"])
    assert thawed.counts.trained["train"] == plain.counts.total
    assert thawed.counts.trained["pawn"] == plain.counts.trained["pawn"]
    assert thawed.memory[0].optimizer == 12 * plain.counts.total
    faster = make_sizes(ROOT, state, ["profile=paper", "plan.mfu=0.7"])
    assert faster.hours[0] == pytest.approx(plain.hours[0] / 2)


def test_ablations_are_sized_without_what_they_lack(state: State) -> None:
    whole, blind, bare = (
        make_sizes(ROOT, state, [f"profile={name}"]) for name in ("mini", "mini-blind", "mini-bare")
    )
    assert (blind.counts.bridges, blind.counts.total) == (0, whole.counts.decoder)
    assert blind.encoder.parameters == 0
    assert blind.memory[0].weights == 2 * blind.counts.total
    assert bare.counts == whole.counts
    hours = {work.stage: hours for work, hours in zip(bare.works, bare.hours, strict=True)}
    assert hours["pawn"] == 0.0
    assert hours["pawn1"] > 0.0


def test_a_decoder_of_unknown_shape_and_a_wrong_choice_are_named(state: State) -> None:
    with pytest.raises(QueenError, match="the shape of decoder 'data/nets/decoder' is not known"):
        make_sizes(ROOT, state, ["profile=small", "decoder=pretrained"])
    with pytest.raises(ParamsError, match=r"plan\.mfv"):
        make_sizes(ROOT, state, ["profile=paper", "plan.mfv=0.2"])


def test_a_target_and_choices_do_not_go_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mixed = run(monkeypatch, tmp_path, "pawn", "profile=paper")
    assert "a target and choices together" in str(mixed.exception)
    two = run(monkeypatch, tmp_path, "pawn", "train@r1")
    assert "2 targets" in str(two.exception)
