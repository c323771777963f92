"""The profiles of the project: each composes, and every stage reads its params."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from queen.language.questions import bank
from queen.lineage.params import compose, differences
from queen.networks.settings import DecoderSettings, PretrainedSettings
from stages.base import EngineParams, Machine
from stages.registry import NAMES, spec_of
from stages.settings import build

ROOT = Path(__file__).resolve().parents[2]
ABLATIONS = {
    "mini-blind": {"bridge.states", "bridge.layers", "tokenizer.fens", "pawn.max_length"},
    "mini-bare": {
        "pawn.lead_steps",
        "pawn.review.steps",
        "pawn1.seeds_share",
        "round.train.seeds_share",
    }
    | {f"pawn.steps.{stage}" for stage in bank.stages()},
    "mini-expert": {"questions.expert_move"},
}
PROFILES = ["smoke", "mini", "small", "paper", *ABLATIONS]


def params_of(stage: str, params: dict[str, Any]) -> Any:
    spec = spec_of(stage)
    section: Any = params["round"] if spec.per == "round" else params
    for part in spec.section.split("."):
        section = section[part]
    return spec.read_params({**section, **{name: params[name] for name in spec.also}})


@pytest.mark.parametrize("profile", PROFILES)
def test_every_stage_reads_every_profile(profile: str) -> None:
    params = compose(ROOT, [f"profile={profile}"])
    assert params["profile"] == profile
    for stage in NAMES:
        params_of(stage, params)
    build(Machine, params["machine"], "machine")
    build(EngineParams, params["engine"], "engine")


def test_the_decoder_is_frozen_throughout_in_paper_and_never_in_mini() -> None:
    for profile, frozen in (("paper", ("decoder",)), ("mini", ())):
        params = compose(ROOT, [f"profile={profile}"])
        for stage in ("pawn", "pawn1", "train"):
            assert params_of(stage, params).frozen == frozen, (profile, stage)


@pytest.mark.parametrize("profile", ABLATIONS)
def test_an_ablation_is_mini_but_for_its_switch(profile: str) -> None:
    pair = (compose(ROOT, [f"profile={name}"]) for name in ("mini", profile))
    changed = {change.key for change in differences(*pair)}
    changed = {key for key in changed if not key.startswith("plan.")}
    assert changed == {"profile", *ABLATIONS[profile]}


def test_the_switches_of_the_ablations_switch_all_of_it_off() -> None:
    blind = params_of("pawn", compose(ROOT, ["profile=mini-blind"]))
    assert (list(blind.bridge.states), list(blind.bridge.layers)) == ([], [])
    bare = compose(ROOT, ["profile=mini-bare"])
    assert params_of("pawn", bare).phases() == {}
    assert params_of("pawn1", bare).seeds_share == 1.0
    assert params_of("train", bare).new_share + params_of("train", bare).seeds_share == 1.0


def test_profiles_choose_their_decoder_and_a_choice_overrides_it() -> None:
    kinds = {name: params_of("pawn", compose(ROOT, [f"profile={name}"])) for name in PROFILES}
    assert isinstance(kinds["mini"].decoder, DecoderSettings)
    assert isinstance(kinds["small"].decoder, PretrainedSettings)
    assert kinds["small"].decoder.source == "smollm2-135m"
    own = compose(ROOT, ["profile=small", "decoder=pretrained", "decoder.source=data/nets/mine"])
    assert params_of("tokenizer", own).decoder == PretrainedSettings("data/nets/mine")


@pytest.mark.parametrize("profile", ["small", "paper"])
def test_a_decoder_taken_over_speaks_as_before_at_the_start(profile: str) -> None:
    pawn = params_of("pawn", compose(ROOT, [f"profile={profile}"]))
    assert pawn.bridge.gate_init == 0.0
    assert pawn.train.gate_lr_factor > 1.0


def test_the_papers_bridges_stand_where_method_says() -> None:
    bridge = params_of("pawn", compose(ROOT, ["profile=paper"])).bridge
    assert list(bridge.states) == list(range(16))
    assert list(bridge.layers) == list(range(0, 32, 2))
    assert (bridge.tied_keys, bridge.tied_values, bridge.side_to_move) == (False, False, False)
    assert (bridge.state_mlp, bridge.gate_init) == (0, 0.0)
    steps = params_of("pawn", compose(ROOT, ["profile=paper"])).steps
    assert list(steps.values()) == [50_000, 60_000, 30_000, 100_000]
