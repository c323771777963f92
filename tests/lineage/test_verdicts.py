"""Verdicts: history, the champion, going back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queen.errors import QueenError
from queen.lineage import verdicts
from queen.lineage.artifact import Record, describe_files, write_json
from queen.lineage.verdicts import (
    JudgedError,
    Judgement,
    VerdictError,
    mend,
    read_verdicts,
    record,
    record_artifact,
    reopen,
    require_open,
    rollback,
)


def judge(root: Path, key: str, verdict: str, parent: str = "pawn1", model: str = "") -> str:
    found = Judgement(model or f"hash-{key}", verdict, "because", parent)
    return record(root, key, found).champion


def test_the_first_model_is_champion_until_a_round_is_better(tmp_path: Path) -> None:
    assert read_verdicts(tmp_path).champion == "pawn1"
    assert judge(tmp_path, "r1", "no evidence") == "pawn1"
    assert judge(tmp_path, "r2", "worse", "r1") == "pawn1"
    assert judge(tmp_path, "r3", "better", "r1") == "r3"


def test_better_than_a_parent_behind_the_champion_is_not_enough(tmp_path: Path) -> None:
    judge(tmp_path, "r1", "better")
    judge(tmp_path, "r2", "worse", "r1")
    assert judge(tmp_path, "r3", "better", "r2") == "r1"
    assert judge(tmp_path, "other", "better", "pawn1") == "r1"
    assert judge(tmp_path, "r4", "better", "r1") == "r4"


def test_the_base_models_verdict_promotes_nobody(tmp_path: Path) -> None:
    assert judge(tmp_path, "pawn1", "worse", "pawn") == "pawn1"
    assert judge(tmp_path, "pawn1", "better", "pawn", "other") == "pawn1"
    require_open(tmp_path, stage="pawn1", key="pawn1")


def test_a_judged_round_is_refused_until_it_is_reopened(tmp_path: Path) -> None:
    require_open(tmp_path, stage="filter", key="r1")
    require_open(tmp_path, stage="games", key=None)
    judge(tmp_path, "r1", "no evidence")
    with pytest.raises(JudgedError, match=r"filter@r1.*no evidence.*\n.*round reopen r1"):
        require_open(tmp_path, stage="filter", key="r1")
    reopen(tmp_path, "r1")
    require_open(tmp_path, stage="filter", key="r1")
    judge(tmp_path, "r1", "no evidence")
    with pytest.raises(JudgedError):
        require_open(tmp_path, stage="filter", key="r1")


def test_a_reopened_champion_that_turns_out_worse_steps_down(tmp_path: Path) -> None:
    judge(tmp_path, "r1", "better")
    judge(tmp_path, "r2", "better", "r1")
    reopen(tmp_path, "r2")
    assert read_verdicts(tmp_path).champion == "r2"
    assert judge(tmp_path, "r2", "worse", "r1", "new weights") == "r1"


def test_rollback_sets_the_last_worse_round_aside(tmp_path: Path) -> None:
    judge(tmp_path, "r4", "better")
    judge(tmp_path, "r5", "worse", "r4")
    assert read_verdicts(tmp_path).halted_by() == "r5"
    moved = rollback(tmp_path)
    assert (moved.before, moved.after, moved.set_aside) == ("r4", "r4", "r5")
    after = read_verdicts(tmp_path)
    assert after.halted_by() is None
    assert after.models["r5"].verdict == "worse"
    assert after.judged("r5")


def test_rollback_moves_the_champion_up_its_line_and_deletes_nothing(tmp_path: Path) -> None:
    for key, parent in (("r1", "pawn1"), ("r2", "r1"), ("r3", "r2")):
        judge(tmp_path, key, "better", parent)
    assert rollback(tmp_path).after == "r2"
    assert rollback(tmp_path, "r3").after == "r3"
    assert rollback(tmp_path, "pawn1").after == "pawn1"
    assert set(read_verdicts(tmp_path).models) == {"r1", "r2", "r3"}
    with pytest.raises(VerdictError, match="nothing to roll back"):
        rollback(tmp_path)
    with pytest.raises(VerdictError, match="'r9' has no verdict"):
        rollback(tmp_path, "r9")


def test_recording_what_is_known_does_not_undo_a_rollback(tmp_path: Path) -> None:
    judge(tmp_path, "r1", "better")
    rollback(tmp_path)
    assert judge(tmp_path, "r1", "better") == "pawn1"
    judge(tmp_path, "r2", "worse", "r1")
    rollback(tmp_path)
    judge(tmp_path, "r2", "worse", "r1")
    assert read_verdicts(tmp_path).halted_by() is None


def test_reopening_what_was_never_judged_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VerdictError, match="'r1' has no verdict"):
        reopen(tmp_path, "r1")


def evaluation(root: Path, key: str, judgement: Judgement) -> None:
    """A complete evaluation that holds a verdict."""
    folder = root / "data" / "evaluate" / key
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text(json.dumps(judgement.as_dict()))
    empty: dict[str, object] = {}
    values = Record(
        name=f"data/evaluate/{key}", stage="evaluate", version=1, recipe="", seed=0, params=empty,
        inputs=(), shards=(), files=describe_files(folder), counts={}, drops={}, figures={},
        identities={}, licences={},
    )  # fmt: skip
    import dataclasses

    write_json(folder / "record.json", dataclasses.asdict(values))


def test_mending_takes_up_what_evaluations_hold(tmp_path: Path) -> None:
    full = Judgement(
        "h1", "better", "x", "pawn1", 0.05, (0.01, 0.09), elo=700.0, elo_interval=(650.0, None)
    )
    evaluation(tmp_path, "r1", full)
    evaluation(tmp_path, "r2", Judgement("h2", "better", "x", "r1"))
    assert mend(tmp_path, ["pawn", "pawn1", "r1", "r2", "r3"]) == ["r1", "r2"]
    found = read_verdicts(tmp_path)
    assert found.champion == "r2"
    assert found.models["r1"].interval == (0.01, 0.09)
    assert found.models["r1"].elo_interval == (650.0, None)
    assert mend(tmp_path, ["r1", "r2"]) == []


def test_mending_does_not_close_what_a_person_reopened(tmp_path: Path) -> None:
    evaluation(tmp_path, "r1", Judgement("h1", "better", "x", "pawn1"))
    mend(tmp_path, ["r1"])
    reopen(tmp_path, "r1")
    assert mend(tmp_path, ["r1"]) == []
    assert not read_verdicts(tmp_path).judged("r1")
    record_artifact(tmp_path, "r1")
    assert read_verdicts(tmp_path).judged("r1")


def test_an_incomplete_evaluation_gives_no_verdict(tmp_path: Path) -> None:
    evaluation(tmp_path, "r1", Judgement("h1", "better", "x", "pawn1"))
    (tmp_path / "data" / "evaluate" / "r1" / "record.json").unlink()
    assert mend(tmp_path, ["r1"]) == []
    with pytest.raises(QueenError, match="evaluate@r1"):
        record_artifact(tmp_path, "r1")


@pytest.mark.parametrize(
    "text",
    ['{"champion": "r1"', '{"models": {}}', "[]", '{"champion": "r1", "models": {"r1": {"x": 1}}}'],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "verdicts.json").write_text(text)
    with pytest.raises(QueenError, match=r"verdicts\.json"):
        read_verdicts(tmp_path)


def test_an_unknown_verdict_is_named(tmp_path: Path) -> None:
    judge(tmp_path, "r1", "better")
    path = tmp_path / "verdicts.json"
    path.write_text(path.read_text().replace('"better"', '"great"'))
    with pytest.raises(VerdictError, match="'great'"):
        read_verdicts(tmp_path)


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: judge(tmp_path, f"r{i}", "no evidence"), range(40)))
    found = read_verdicts(tmp_path)
    assert len(found.models) == 40
    assert sorted(j.number for j in found.models.values()) == list(range(1, 41))


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.lists(
        st.tuples(st.sampled_from(verdicts.VERDICTS), st.integers(0, 5), st.booleans()), max_size=8
    )
)
def test_the_champion_is_always_a_better_round_or_the_first_model(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int, bool]]
) -> None:
    root = tmp_path_factory.mktemp("history")
    for number, (verdict, back, roll) in enumerate(history):
        parent = f"r{number - 1 - back}" if number > back else "pawn1"
        judge(root, f"r{number}", verdict, parent)
        if roll:
            try:
                rollback(root)
            except VerdictError:
                assert read_verdicts(root).champion == "pawn1"
        found = read_verdicts(root)
        assert found.champion == "pawn1" or found.models[found.champion].verdict == "better"
        assert len(found.models) == number + 1
