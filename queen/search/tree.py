"""Explanation trees: each candidate played, each child explained, bad ones made new roots."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from queen.engines.judge import MoveJudge, RootVerdict
from queen.games.chess.position import Position
from queen.generation.requests import Completion, Sampling
from queen.generation.speaker import Asked, Legal, Speaker
from queen.language.explanation import Explanation, ExplanationError, parse
from queen.search.candidates import Weighed, weigh

ERROR = "error"
Path = tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """How far a tree may grow.

    Attributes:
        candidates: moves weighed at each root (METHOD: 3).
        depth: levels of recursion (METHOD: 5).
        budget: positions explained in one tree, the root not counted (ours).
        worst_first: spend the budget on the children that lose most; else in move order.
        temperature: of the draw of candidates.
    """

    candidates: int = 3
    depth: int = 5
    budget: int = 12
    worst_first: bool = True
    temperature: float = 1.0


@dataclass(frozen=True)
class Node:
    """A position of a tree.

    Attributes:
        path: UCI moves from the tree's root; empty for the root.
        position: with its history.
        text: what the model wrote about it on its own; None for the root and finished games.
        reason: why the text is no explanation; "" if it is one.
        explanation: the parsed text.
        verdict: the engine's judgement of the position and of its own first move, if it has one.
        mistake: its own first move is a mistake, or there is none to read.
        weighed: its candidates, if it became a root.
        stopped: why it did not become a root though it should: depth, budget, engine, ...
    """

    path: Path
    position: Position
    text: str | None = None
    reason: str = ""
    explanation: Explanation | None = None
    verdict: RootVerdict | None = None
    mistake: bool = False
    weighed: Weighed | None = None
    stopped: str = ""

    @property
    def own_moves(self) -> Path:
        """Its own first move, alone; empty if there is none to read."""
        return (self.explanation.best,) if self.explanation else ()

    @property
    def seed_words(self) -> list[int]:
        return [int.from_bytes(move.encode(), "big") for move in self.path]


@dataclass
class Tree:
    """A root and everything explained below it, by path."""

    id: str
    seed: int
    nodes: dict[Path, Node] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)

    @property
    def explained(self) -> int:
        return len(self.nodes) - 1

    def children(self, path: Path) -> list[Node]:
        """The children of an expanded node, in the order of its candidates."""
        weighed = self.nodes[path].weighed
        moves = weighed.moves if weighed else ()
        return [self.nodes[(*path, m)] for m in moves if (*path, m) in self.nodes]


Barred = Callable[[Position], str | None]


def grow(
    trees: Sequence[Tree],
    speaker: Speaker,
    judge: MoveJudge,
    limits: Limits,
    sampling: Sampling,
    barred: Barred,
    legal: Legal = "none",
) -> None:
    """Grow trees whose roots are weighed, level by level and all trees together.

    Args:
        trees: changed in place.
        speaker: explains the children.
        judge: says which first moves are mistakes.
        limits: width, depth and budget.
        sampling: how the children's explanations are decoded.
        barred: why a position may not enter (an evaluation set), or None.
        legal: constrained decoding of the children's explanations.
    """
    frontier: list[Born] = [(tree, ()) for tree in trees]
    for level in range(1, limits.depth + 1):
        born = [pair for tree, path in frontier for pair in _birth(tree, path, limits, barred)]
        _explain(born, speaker, sampling, legal)
        _judge(born, judge)
        wanting = _new_roots(born, limits)
        if level == limits.depth:
            _stop(wanting, "depth")
            return
        frontier = _expand(wanting, speaker, judge, limits)
        if not frontier:
            return


def look_ahead(trees: Sequence[Tree], judge: MoveJudge, limits: Limits, barred: Barred) -> None:
    """Play the candidates of weighed roots and let the engine alone say how each goes on.

    Arguments as of `grow`. The children have a verdict and no text.
    """
    born = [pair for tree in trees for pair in _birth(tree, (), limits, barred)]
    _judge(born, judge)


Born = tuple[Tree, Path]


def _birth(tree: Tree, path: Path, limits: Limits, barred: Barred) -> Iterator[Born]:
    """Add the children of a weighed node, as many as the budget still allows."""
    parent = tree.nodes[path]
    assert parent.weighed is not None
    for move in parent.weighed.moves:
        if tree.explained >= limits.budget:
            tree.drops["budget"] += 1
            continue
        child = parent.position.child(move)
        reason = barred(child)
        if reason is not None:
            tree.drops[reason] += 1
            continue
        here = (*path, move)
        tree.nodes[here] = Node(here, child)
        yield tree, here


def _explain(born: Sequence[Born], speaker: Speaker, sampling: Sampling, legal: Legal) -> None:
    """Let the model explain every child on its own; finished games need no explanation."""
    alive = _alive(born)
    asked = [
        Asked(f"{t.id} {' '.join(p)}", t.nodes[p].position, None, node_seed(t, p)) for t, p in alive
    ]
    for (tree, path), said in zip(alive, speaker.explain(asked, sampling, legal), strict=True):
        node = tree.nodes[path]
        explanation, reason = read(said, node.position)
        tree.nodes[path] = replace(node, text=said.text, reason=reason, explanation=explanation)


def _alive(born: Sequence[Born]) -> list[Born]:
    """Those whose game goes on."""
    return [(t, p) for t, p in born if not t.nodes[p].position.is_over]


def read(said: Completion, position: Position) -> tuple[Explanation | None, str]:
    """The explanation in what was written, or the reason why there is none.

    `error` where nothing could be written at all, which is not the model's fault.
    """
    if said.error is not None:
        return None, ERROR
    return understood(said.text, position, said.finished)


def understood(text: str, position: Position, finished: bool) -> tuple[Explanation | None, str]:
    """The explanation in a text, or the reason why there is none."""
    if not finished:
        return None, "unfinished"
    try:
        return parse(text, position), ""
    except ExplanationError as error:
        return None, str(error.reason)


def _judge(born: Sequence[Born], judge: MoveJudge) -> None:
    """Judge each child and its own first move; without a readable one it counts as a mistake.

    Where nothing could be written, or nothing was asked, the child does not become a root.
    """
    alive = _alive(born)
    items = [(t.nodes[p].position.fen, t.nodes[p].own_moves) for t, p in alive]
    for (tree, path), verdict in zip(alive, judge.judge(items), strict=True):
        node = tree.nodes[path]
        if isinstance(verdict, RootVerdict) and node.reason == ERROR:
            tree.nodes[path] = replace(node, verdict=verdict, stopped=ERROR)
        elif isinstance(verdict, RootVerdict) and node.text is None:
            tree.nodes[path] = replace(node, verdict=verdict)
        elif isinstance(verdict, RootVerdict):
            mistake = not node.own_moves or verdict.is_mistake(node.own_moves[0])
            tree.nodes[path] = replace(node, verdict=verdict, mistake=mistake)
        else:
            tree.nodes[path] = replace(node, stopped=f"engine {verdict.reason}")


def _new_roots(born: Sequence[Born], limits: Limits) -> list[Born]:
    """The children that must become roots, in the order in which budgets are spent."""
    by_tree: dict[str, list[Born]] = defaultdict(list)
    for tree, path in born:
        if tree.nodes[path].mistake:
            by_tree[tree.id].append((tree, path))
    for wanting in by_tree.values():
        if limits.worst_first:
            wanting.sort(key=lambda pair: -_urgency(pair[0].nodes[pair[1]]))
    return [pair for wanting in by_tree.values() for pair in wanting]


def _urgency(node: Node) -> float:
    """What the child's own first move gives away; all, if it cannot be read."""
    return node.verdict.loss(node.own_moves[0]) if node.verdict and node.own_moves else 1.0


def _stop(wanting: Sequence[Born], reason: str) -> None:
    for tree, path in wanting:
        tree.nodes[path] = replace(tree.nodes[path], stopped=reason)


def _expand(
    wanting: Sequence[Born], speaker: Speaker, judge: MoveJudge, limits: Limits
) -> list[Born]:
    """Weigh the candidates of the new roots whose trees have budget left."""
    rich: list[Born] = []
    poor: list[Born] = []
    planned = Counter[str]()
    for tree, path in wanting:
        enough = tree.explained + planned[tree.id] < limits.budget
        (rich if enough else poor).append((tree, path))
        planned[tree.id] += limits.candidates if enough else 0
    _stop(poor, "budget")
    positions = [t.nodes[p].position for t, p in rich]
    seeds = [node_seed(t, p) for t, p in rich]
    weighed = weigh(speaker, judge, positions, seeds, limits.candidates, limits.temperature)
    frontier = []
    for (tree, path), result in zip(rich, weighed, strict=True):
        if isinstance(result, Weighed):
            tree.nodes[path] = replace(tree.nodes[path], weighed=result)
            frontier.append((tree, path))
        else:
            tree.nodes[path] = replace(tree.nodes[path], stopped=f"engine {result.reason}")
    return frontier


def node_seed(tree: Tree, path: Path) -> int:
    """A seed for one node's random numbers: of the tree's seed and the path alone."""
    words = np.random.SeedSequence([tree.seed, *tree.nodes[path].seed_words])
    return int(words.generate_state(1, np.uint64)[0] >> np.uint64(1))
