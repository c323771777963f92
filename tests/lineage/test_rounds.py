"""The tree of rounds: a person edits it, configure fills it, history stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.errors import QueenError
from queen.lineage import params, rounds, verdicts
from queen.lineage.rounds import Round, RoundError, add_round, ordered, read_rounds, resolve
from queen.lineage.verdicts import Judgement


def write(root: Path, text: str) -> None:
    (root / "params" / "rounds.yaml").write_text(text)


def judge(root: Path, key: str, verdict: str = "better", parent: str = "pawn1") -> None:
    verdicts.record(root, key, Judgement(f"hash-{key}", verdict, "because", parent))


def test_a_round_holds_its_resolved_values(toy: Path) -> None:
    values = rounds.round_values(toy, "r1")
    assert (values["parent"], values["seed"]) == ("pawn1", 1)
    assert values["filter"] == {"max_loss": 0.0}
    assert set(params.STEPS) <= set(values)


def test_open_rounds_follow_the_defaults_and_judged_ones_do_not(toy: Path) -> None:
    add_round(toy, "r2", parent="r1", settings=["filter.max_loss=0.3"])
    judge(toy, "r1")
    before = rounds.round_values(toy, "r1")
    params.configure(toy, ["filter.max_loss=0.1", "sample.roots=9"])
    assert set(resolve(toy)) == {"r2"}
    assert rounds.round_values(toy, "r1") == before
    second = rounds.round_values(toy, "r2")
    assert (second["filter"]["max_loss"], second["sample"]["roots"]) == (0.3, 9)


def test_a_later_round_draws_the_roots_after_its_lines(toy: Path) -> None:
    roots = rounds.round_values(toy, "r1")["sample"]["roots"]
    add_round(toy, "r2", parent="r1", settings=["sample.roots=7"])
    add_round(toy, "r3", parent="r2", like="r2")
    add_round(toy, "r3b", parent="r2", like="r3", settings=["filter.max_loss=0.5"])
    add_round(toy, "r2b", parent="r1", settings=["sample.skip=1"])
    skips = {key: rounds.round_values(toy, key)["sample"]["skip"] for key in read_rounds(toy)}
    assert skips == {"r1": 0, "r2": roots, "r3": roots + 7, "r3b": roots + 7, "r2b": 1}


def test_a_circle_by_parent_and_like_is_named(toy: Path) -> None:
    write(toy, "rounds: {r1: {parent: pawn1, like: r2}, r2: {parent: r1}}\n")
    with pytest.raises(RoundError, match="circle by parent and like"):
        resolve(toy)


def test_a_reopened_round_follows_the_defaults_again(toy: Path) -> None:
    judge(toy, "r1")
    verdicts.reopen(toy, "r1")
    params.configure(toy, ["sample.roots=9"])
    assert set(resolve(toy)) == {"r1"}


def test_like_copies_values_and_seed_but_for_what_is_set(toy: Path) -> None:
    add_round(toy, "r5", parent="r1", seed=17, settings=["recurse.limits.budget=3"])
    judge(toy, "r5", "worse", "r1")
    params.configure(toy, ["recurse.limits.budget=99", "seed=2"])
    made = add_round(toy, "r5b", parent="r1", like="r5", settings=["filter.max_loss=0.02"])
    resolve(toy)
    again = rounds.round_values(toy, "r5b")
    assert (made.seed, again["seed"]) == (17, 17)
    assert again["recurse"]["limits"] == {"budget": 3, "depth": 5}
    assert again["filter"] == {"max_loss": 0.02}
    assert rounds.read_rounds(toy)["r5b"].set == {"filter": {"max_loss": 0.02}}


def test_an_edited_seed_and_set_are_taken_up(toy: Path) -> None:
    write(toy, "rounds:\n  r1: {parent: pawn1, set: {seed: 8, train: {lr: 1e-5}}}\n")
    resolve(toy)
    values = rounds.round_values(toy, "r1")
    assert (values["seed"], values["train"]["lr"]) == (8, 1e-5)


def test_resolving_twice_changes_nothing(toy: Path) -> None:
    add_round(toy, "r2", parent="r1", like="r1")
    text = (toy / "params" / "rounds.yaml").read_text()
    assert resolve(toy) == {}
    assert (toy / "params" / "rounds.yaml").read_text() == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds: {r1: {parent: r9}}", ["r1", "unknown parent 'r9'"]),
        ("rounds: {r1: {parent: pawn1}, r12: {parent: r11}}", ["'r1'"]),
        ("rounds: {r1: {parent: pawn1, like: r9}}", ["be like 'r9'"]),
        ("rounds: {r1: {parent: r2}, r2: {parent: r1}}", ["circle", "r1 -> r2 -> r1"]),
        ("rounds: {r1: {parent: r1}}", ["circle"]),
        ("rounds: {r1: {parent: pawn1, like: r2}, r2: {parent: r1, like: r1}}", ["circle by like"]),
        ("rounds: {R1: {parent: pawn1}}", ["'R1'", "small letter"]),
        ("rounds: {pawn: {parent: pawn1}}", ["taken"]),
        ("rounds: {r1: {parrent: pawn1}}", ["needs a parent"]),
        ("rounds: {r1: {parent: pawn1, sed: 3}}", ["'sed'", "'seed'"]),
        ("rounds: {r1: {parent: pawn1, seed: x}}", ["whole number"]),
        ("rounds: {r1: {parent: pawn1, set: [1]}}", ["no mapping"]),
        ("rounds: {r1: {parent: pawn1}, r1: {parent: pawn1}}", ["'r1' stands there twice"]),
        ("round: {r1: {parent: pawn1}}", ["mapping named rounds"]),
    ],
)
def test_a_tree_that_cannot_be_is_refused_by_name(toy: Path, text: str, words: list[str]) -> None:
    write(toy, text + "\n")
    with pytest.raises(QueenError) as caught:
        read_rounds(toy)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_wrong_set_is_named_when_it_is_resolved(toy: Path) -> None:
    write(toy, "rounds: {r1: {parent: pawn1, set: {filter: {max_los: 1}}}}\n")
    with pytest.raises(QueenError, match=r"'filter\.max_loss'"):
        resolve(toy)


@pytest.mark.parametrize(
    ("key", "more", "words"),
    [
        ("r1", {}, "there is a round 'r1'"),
        ("r2", {"parent": "r9"}, "unknown parent"),
        ("r2", {"like": "r9"}, "be like 'r9'"),
        ("r2", {"settings": ["filter.maxloss=1"]}, "'filter.max_loss'"),
        ("r2", {"settings": ["games.count=1"]}, "'games.count'"),
        ("r2", {"settings": ["filter.max_loss=high"]}, "expected float"),
        ("judge", {}, "taken"),
    ],
)
def test_a_round_that_cannot_be_is_not_added(
    toy: Path, key: str, more: dict[str, object], words: str
) -> None:
    before = (toy / "params" / "rounds.yaml").read_text()
    with pytest.raises(QueenError, match=words):
        add_round(toy, key, **{"parent": "pawn1", **more})  # type: ignore[arg-type]
    assert (toy / "params" / "rounds.yaml").read_text() == before


def test_an_unresolved_round_says_so(toy: Path) -> None:
    write(toy, "rounds: {r1: {parent: pawn1}}\n")
    with pytest.raises(RoundError, match="queen configure"):
        rounds.round_values(toy, "r1")
    with pytest.raises(QueenError, match="unknown round 'r11'"):
        rounds.round_values(toy, "r11")


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20), st.randoms())
def test_every_parent_comes_before_its_children(parents: list[int], random: object) -> None:
    names = [f"r{i}" for i in range(len(parents))]
    tree = {
        name: Round(name, f"r{p % i}" if i and p else "pawn1", 1, None, {}, {})
        for i, (name, p) in enumerate(zip(names, parents, strict=True))
    }
    shuffled = list(tree.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    order = ordered(dict(shuffled))
    assert sorted(order) == sorted(names)
    for key in order:
        parent = tree[key].parent
        assert parent == "pawn1" or order.index(parent) < order.index(key)


def test_rounds_added_at_once_are_all_there(toy: Path) -> None:
    keys = [f"s{n}" for n in range(6)]
    with ThreadPoolExecutor(len(keys)) as pool:
        made = list(pool.map(lambda key: add_round(toy, key, parent="pawn1"), keys))
    assert [each.key for each in made] == keys
    assert {*keys} <= set(read_rounds(toy))
