"""Trees grown with the real engine, the embedded teacher in the model's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import chess
import pytest
from round_project import TeacherSpeaks

from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge
from queen.engines.pool import Analyser
from queen.games.chess.position import Position
from queen.generation.decode import Completion, Sampling
from queen.generation.speaker import Asked, Speaker
from queen.search.candidates import Weighed, weigh
from queen.search.tree import Barred, Limits, Node, Tree, grow, node_seed
from stages.base import EngineParams, Machine, engine_settings

WIDE = Limits(candidates=3, depth=3, budget=40)
GREEDY = Sampling(temperature=0.0)
OPENINGS = (
    "e2e4 e7e5 g1f3 b8c6 f1c4 g8f6 f3g5",
    "d2d4 d7d5 c2c4 d5c4 e2e4 b7b5",
    "f2f3 e7e5",
    "e2e4 c7c5 g1f3 d7d6 d2d4 c5d4",
)


@pytest.fixture(scope="module")
def teacher() -> Iterator[TeacherSpeaks]:
    with Analyser(engine_settings(EngineParams(hash_mb=1), Machine(workers=1))) as analyser:
        yield TeacherSpeaks(MoveJudge(analyser, Limit(nodes=100), None, 0.1, 0.0))


def planted(teacher: TeacherSpeaks) -> list[Tree]:
    """Trees of their roots alone, three candidates each."""
    roots = [Position.from_text(chess.STARTING_FEN, line) for line in OPENINGS]
    speaker: Speaker = teacher  # type: ignore[assignment]
    found = weigh(speaker, teacher.judge, roots, list(range(len(roots))), 3, 1.0)
    trees = []
    for number, (position, weighed) in enumerate(zip(roots, found, strict=True)):
        assert isinstance(weighed, Weighed)
        trees.append(Tree(str(number), number, {(): Node((), position, weighed=weighed)}))
    return trees


def free(position: Position) -> str | None:
    return None


def grown(
    teacher: TeacherSpeaks, limits: Limits, trees: Sequence[Tree] = (), barred: Barred = free
) -> list[Tree]:
    chosen = list(trees or planted(teacher))
    speaker: Speaker = teacher  # type: ignore[assignment]
    grow(chosen, speaker, teacher.judge, limits, GREEDY, barred)
    return chosen


@pytest.fixture(scope="module")
def wide(teacher: TeacherSpeaks) -> list[Tree]:
    return grown(teacher, WIDE)


def nodes_of(trees: Sequence[Tree]) -> list[Node]:
    return [node for tree in trees for node in tree.nodes.values()]


def loss(node: Node) -> float:
    return node.verdict.loss(node.own_moves[0]) if node.verdict and node.own_moves else 1.0


def test_no_branch_is_longer_than_the_depth(wide: list[Tree]) -> None:
    deepest = [node for node in nodes_of(wide) if len(node.path) == WIDE.depth]
    assert max(len(node.path) for node in nodes_of(wide)) == WIDE.depth
    assert not any(node.weighed for node in deepest)
    assert all((node.stopped == "depth") == node.mistake for node in deepest)
    assert any(node.mistake for node in deepest)


def test_mistakes_and_unreadable_children_become_roots_and_no_others(wide: list[Tree]) -> None:
    children = [node for node in nodes_of(wide) if 0 < len(node.path) < WIDE.depth]
    for node in children:
        silent = node.text is not None and node.explanation is None
        erred = bool(node.verdict and node.own_moves and loss(node) >= 0.1 - 1e-9)
        assert node.mistake == (silent or erred)
        assert (node.weighed is not None) == node.mistake
    assert {node.reason for node in children if node.weighed} >= {"", "unfinished"}
    for tree in wide:
        for path, node in tree.nodes.items():
            assert [c.path for c in tree.children(path)] == [
                (*path, move) for move in (node.weighed.moves if node.weighed else ())
            ]


@pytest.mark.parametrize("budget", [0, 1, 3, 4, 7, 12])
def test_the_budget_is_never_exceeded(teacher: TeacherSpeaks, budget: int) -> None:
    for tree in grown(teacher, replace(WIDE, budget=budget)):
        assert tree.explained <= budget
        born = sum(len(n.weighed.moves) for n in tree.nodes.values() if n.weighed)
        assert born == tree.explained + tree.drops["budget"]
        unspent = [n for n in tree.nodes.values() if n.stopped == "budget"]
        assert not unspent or tree.explained == budget


def test_the_worst_child_is_expanded_first(teacher: TeacherSpeaks) -> None:
    """A budget of four leaves one position below the three candidates of the root."""
    differ = 0
    limits = replace(WIDE, budget=4)
    worst, plain = grown(teacher, limits), grown(teacher, replace(limits, worst_first=False))
    for tree, other in zip(worst, plain, strict=True):
        erring = [node for node in tree.children(()) if node.mistake]
        expanded = [node.path for node in tree.children(()) if node.weighed]
        if erring:
            assert expanded == [max(erring, key=loss).path]
            assert [node.path for node in other.children(()) if node.weighed] == [erring[0].path]
            differ += expanded != [erring[0].path]
    assert differ


def test_barred_positions_stay_out_and_are_counted(
    teacher: TeacherSpeaks, wide: list[Tree]
) -> None:
    keys = {node.position.key for node in nodes_of(wide) if len(node.path) == 1}
    chosen = sorted(keys)[::2]

    def barred(position: Position) -> str | None:
        return "evaluation_position" if position.key in chosen else None

    found = grown(teacher, WIDE, barred=barred)
    assert not {node.position.key for node in nodes_of(found)} & set(chosen)
    assert sum(tree.drops["evaluation_position"] for tree in found) == len(chosen)


def test_trees_do_not_depend_on_their_order_or_company(
    teacher: TeacherSpeaks, wide: list[Tree]
) -> None:
    whole = {tree.id: tree.nodes for tree in wide}
    turned = grown(teacher, WIDE, planted(teacher)[::-1])
    assert {tree.id: tree.nodes for tree in turned} == whole
    for tree in planted(teacher)[:2]:
        (alone,) = grown(teacher, WIDE, [tree])
        assert list(alone.nodes.items()) == list(whole[tree.id].items())


def test_each_node_has_its_own_seed(wide: list[Tree]) -> None:
    seeds = [node_seed(tree, path) for tree in wide for path in tree.nodes]
    assert len(set(seeds)) == len(seeds)


class Faltering(TeacherSpeaks):
    """The teacher, who can write nothing."""

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: str = "none"
    ) -> list[Completion]:
        return [Completion(one.id, "best ", error="the prompt is too long") for one in asked]


def test_where_nothing_can_be_written_nothing_more_is_asked(teacher: TeacherSpeaks) -> None:
    children = [n for n in nodes_of(grown(Faltering(teacher.judge), WIDE)) if n.path]
    assert {(n.reason, n.stopped, n.mistake) for n in children} == {("error", "error", False)}
    assert len(children) == 3 * len(OPENINGS)


def test_finished_games_are_not_explained(teacher: TeacherSpeaks) -> None:
    """After 1 f3 e5 2 g4, Black's queen mates."""
    position = Position.from_text(chess.STARTING_FEN, "f2f3 e7e5 g2g4")
    verdict = teacher.judge.judge([(position.fen, ("d8h4", "b8c6"))])[0]
    weighed = Weighed(("d8h4", "b8c6"), {}, None, verdict)  # type: ignore[arg-type]
    (tree,) = grown(teacher, WIDE, [Tree("x", 1, {(): Node((), position, weighed=weighed)})])
    over = tree.nodes[("d8h4",)]
    assert (over.text, over.reason, over.mistake, over.stopped) == (None, "", False, "")
    assert tree.nodes[("b8c6",)].text is not None
