"""One example led back: from its text to the children, the engine and the game it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import chess
import orjson

from queen.errors import QueenError
from queen.games.chess.notation import san_line
from queen.language.ground import Ground
from queen.language.people import sentence_for_people
from queen.language.provenance import CHILD_ORIGINS, Consolidated, Origin, Source
from queen.lineage.artifact import Artifact
from queen.lineage.verdicts import BASES
from queen.search.candidates import Weighed
from queen.search.tree import Node, Tree
from stages.audit.opened import Opened, open_round
from stages.audit.trail import Branch, Choice, Hop, Line, Origins, Statement, Trail
from stages.trees import trees_from_rows

SHOWN = 5


def trace(project: Path, key: str, example: str) -> Trail:
    """Lead one example of a round back to its game.

    Args:
        example: the id of its position, or how that begins.

    Raises:
        QueenError: the round has no such example, or more than one begins so.
    """
    opened = open_round(project, key)
    if key in BASES:
        raise QueenError(
            f"{key} learnt from no round, so it has no examples to lead back",
            where="queen audit",
            remedy=f"name a round; `queen audit {key}` checks all that the model was made from",
        )
    consolidated = opened.own("consolidate")
    if consolidated is None:
        raise QueenError(
            "there are no consolidated examples to lead back",
            where=f"data/consolidate/{key}",
            remedy=f"run `queen run consolidate@{key}`",
        )
    filtered = opened.own("filter")
    row = _find(opened, filtered or consolidated, example)
    trees = _needed(opened, consolidated, "trees")
    tree = _tree(opened, trees, row["root"])
    folded = _folded(opened, consolidated, row["root"])
    explained = _needed(opened, consolidated, "explained")
    return _trail(opened, row, tree, folded, (consolidated, trees, explained, filtered))


Used = tuple[Artifact, Artifact, Artifact, Artifact | None]


def _trail(
    opened: Opened,
    row: Mapping[str, Any],
    tree: Tree,
    folded: Mapping[Line, Consolidated],
    used: Used,
) -> Trail:
    path = tuple(row["path"].split())
    consolidated, trees, explained, filtered = used
    told = folded[path]
    parents = [entry.name for entry in trees.record.inputs if entry.role == "parent"]
    return Trail(
        key=opened.key,
        pid=row["pid"],
        root=tree.id,
        path=path,
        fen=row["fen"],
        kept=filtered is not None and row["dropped"] == "",
        dropped=row.get("dropped", "not filtered yet"),
        text=row["text"],
        old_text=row["old_text"],
        compared={
            name: row.get(name)
            for name in ("old_line", "line", "differs_at", "old_value", "new_value")
        },
        statements=tuple(_statements(tree, path, folded)),
        cut=told.cut,
        tree=_branch(tree, path, folded),
        ancestors=tuple(_branch(tree, path[:n], folded, below=False) for n in range(len(path))),
        game=_game(opened, explained, row["root"]),
        model=parents[0] if parents else "",
        thresholds=_thresholds(explained, trees, consolidated, filtered),
        engine=trees.record.identities.get("engine", {}),
        artifacts={a.name: a.content for a in used if a is not None},
    )


def _find(opened: Opened, artifact: Artifact, example: str) -> dict[str, Any]:
    rows = opened.table(artifact).to_pylist()
    found = [row for row in rows if row["pid"].startswith(example)]
    exact = [row for row in found if row["pid"] == example]
    if exact or len({row["pid"] for row in found}) == 1:
        return dict((exact or found)[0])
    if found:
        names = ", ".join(row["pid"] for row in found[:SHOWN])
        raise QueenError(
            f"{len(found)} examples begin with {example!r}: {names}{' ...' * (len(found) > SHOWN)}",
            where=artifact.name,
            remedy="give more of its id",
        )
    some = ", ".join(row["pid"] for row in rows[:SHOWN])
    raise QueenError(
        f"no example {example!r} among {len(rows)}",
        where=artifact.name,
        remedy=f"ids are the column pid of its rows: {some} ...",
    )


def _needed(opened: Opened, artifact: Artifact, role: str) -> Artifact:
    found = opened.input_of(artifact, role)
    if found is None:
        raise QueenError(
            f"its input {role!r} is not here",
            where=artifact.name,
            remedy=f"dvc checkout, or `queen audit {opened.key}` for all that is amiss",
        )
    return found


def _tree(opened: Opened, trees: Artifact, root: str) -> Tree:
    rows = [row for row in opened.table(trees).to_pylist() if row["root"] == root]
    if not rows:
        raise QueenError(
            f"no tree of root {root}", where=trees.name, remedy=f"`queen audit {opened.key}`"
        )
    return trees_from_rows(rows)[0]


def _folded(opened: Opened, consolidated: Artifact, root: str) -> dict[Line, Consolidated]:
    rows = opened.table(consolidated).to_pylist()
    return {
        tuple(row["path"].split()): Consolidated.from_json(orjson.loads(row["consolidated"]))
        for row in rows
        if row["root"] == root
    }


def _statements(tree: Tree, path: Line, folded: Mapping[Line, Consolidated]) -> Iterator[Statement]:
    told = folded[path]
    ground = Ground(tree.nodes[path].position)
    for sentence, source in zip(told.explanation.prose, told.sentences, strict=True):
        yield Statement(
            text=sentence.text,
            told=sentence_for_people(sentence, ground),
            origin=source.origin.value,
            move=source.move,
            model=source.model,
            hops=tuple(_hops(tree, path, source, folded)),
        )


def _hops(
    tree: Tree, path: Line, source: Source, folded: Mapping[Line, Consolidated]
) -> Iterator[Hop]:
    """The way back: through what was folded for children, to a child's own words."""
    here = (*path, source.move)
    if source.origin not in CHILD_ORIGINS:
        return
    below = folded[here] if source.origin is Origin.BELOW else None
    explanation = below.explanation if below else tree.nodes[here].explanation
    if explanation is None:
        return
    ground = Ground(tree.nodes[here].position)
    said = explanation.prose[source.index] if source.index >= 0 else None
    first = f"its first move, {_san(ground, explanation.best)}"
    words = sentence_for_people(said, ground) if said else first
    yield Hop(source.origin.value, here, source.index, words)
    if below is not None and source.index >= 0:
        yield from _hops(tree, here, below.sentences[source.index], folded)


def _san(ground: Ground, uci: str) -> str:
    return ground.root.san(chess.Move.from_uci(uci))


def _branch(
    tree: Tree, path: Line, folded: Mapping[Line, Consolidated], *, below: bool = True
) -> Branch:
    node = tree.nodes[path]
    verdict = node.weighed.verdict if node.weighed else node.verdict
    ground = Ground(node.position)
    parent = Ground(tree.nodes[path[:-1]].position) if path else None
    return Branch(
        after=path,
        san=_san(parent, path[-1]) if parent else "",
        fen=node.position.fen,
        best=verdict.best if verdict else None,
        best_move=_san(ground, verdict.best_move) if verdict and verdict.best_move else "",
        said=_san(ground, node.explanation.best) if node.explanation else "",
        reason=node.reason,
        mistake=node.mistake,
        stopped=node.stopped,
        text=node.text,
        choices=tuple(_choices(node, folded.get(path))),
        replaced=_replaced(node, ground),
        children=tuple(_branch(tree, child.path, folded) for child in tree.children(path) if below),
    )


def _replaced(node: Node, ground: Ground) -> str | None:
    replaced = node.weighed.replaced if node.weighed else None
    return _san(ground, replaced) if replaced else None


def _choices(node: Node, told: Consolidated | None) -> Iterator[Choice]:
    weighed = node.weighed
    if weighed is None:
        return
    board = node.position.board()
    lines = {}
    if told is not None:
        pairs = zip(told.explanation.candidates, told.lines, strict=True)
        lines = {c.move: (c.line, source.origin.value) for c, source in pairs}
    for move in weighed.moves:
        line, origin = lines.get(move, ((), ""))
        yield Choice(
            move=move,
            san=board.san(chess.Move.from_uci(move)),
            value=_value(weighed, move),
            mistake=weighed.verdict.is_mistake(move) if move in weighed.verdict.values else None,
            logprob=weighed.logprobs.get(move),
            line=san_line(board, (move, *line)),
            line_from=origin,
        )


def _value(weighed: Weighed, move: str) -> float | None:
    if move == weighed.verdict.best_move:
        return weighed.verdict.best
    return weighed.verdict.values.get(move)


def _game(opened: Opened, explained: Artifact, root: str) -> Origins:
    """The root's row, and the game's own if the games are here."""
    rows = [row for row in opened.table(explained).to_pylist() if row["pid"] == root]
    if not rows:
        raise QueenError(f"no root {root}", where=explained.name, remedy="queen audit the round")
    row = rows[0]
    here = {name: row[name] for name in ("source", "game_id", "ply", "start", "moves")}
    games = opened.artifacts.get("data/games")
    table = opened.table(games).to_pylist() if games else []
    game = next((g for g in table if g["game_id"] == row["game_id"]), None)
    if game is None:
        return Origins(**here)
    return Origins(
        **{**here, "moves": game["moves"], "start": game["start"]},
        **{name: game[name] for name in ("result", "white_elo", "black_elo", "split", "offset")},
        file=game["source"],
    )


def _thresholds(*artifacts: Artifact | None) -> dict[str, Mapping[str, Any]]:
    """The params of the steps that made the example."""
    return {a.record.stage: a.record.params for a in artifacts if a is not None}
