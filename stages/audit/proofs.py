"""Every consolidated explanation proved again, from the texts the trees hold.

The children's texts are parsed anew, the facts that stand beside an explanation are compared with
the tree's verdicts, and `queen.language.proof` leads each statement back to them. Nothing of the
consolidator is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from queen.engines.judge import RootVerdict
from queen.errors import QueenError
from queen.language.engine_facts import EngineFacts, Node
from queen.language.explanation import Explanation, render
from queen.language.proof import check, check_taught
from queen.language.provenance import Child, Consolidated, Inputs
from queen.lineage.artifact import Artifact
from queen.search.tree import ERROR, Tree, understood
from queen.search.tree import Node as TreeNode
from stages.audit.opened import Opened
from stages.facts import facts_from_json
from stages.positions import pid_of
from stages.trees import trees_from_rows

Line = tuple[str, ...]


@dataclass
class Proved:
    """How much was proved.

    Attributes:
        explanations, sentences, by_model: how many; of the sentences a model's.
        unread: (root, path) of folded texts that are no explanation; the filter must drop them.
        faults: what could not be proved.
    """

    explanations: int = 0
    sentences: int = 0
    by_model: int = 0
    unread: set[tuple[str, str]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def prove(opened: Opened, consolidated: Artifact, trees: Artifact) -> Proved:
    """Prove every row of a consolidated table from its trees."""
    grown = {tree.id: tree for tree in trees_from_rows(opened.table(trees).to_pylist())}
    proved = Proved()
    by_root: dict[str, list[dict[str, Any]]] = {}
    for row in opened.table(consolidated).to_pylist():
        by_root.setdefault(row["root"], []).append(row)
    for root, rows in by_root.items():
        if root not in grown:
            proved.faults.append(f"root {root}: there is no such tree")
            continue
        _prove_tree(grown[root], rows, proved)
    return proved


def _prove_tree(tree: Tree, rows: Sequence[Mapping[str, Any]], proved: Proved) -> None:
    """A tree's explanations, deepest first, since each may rest on those below it."""
    below: dict[Line, Consolidated] = {}
    for row in sorted(rows, key=lambda r: (-len(r["path"].split()), r["path"])):
        path = tuple(row["path"].split())
        try:
            faults = list(_prove_row(tree, path, row, below, proved))
        except (QueenError, KeyError, ValueError) as error:
            faults = [f"cannot be read: {error!r}"]
        where = f"root {tree.id}" + (f" after {' '.join(path)}" if path else "")
        proved.faults += [f"{where}: {fault}" for fault in faults]


def _prove_row(
    tree: Tree,
    path: Line,
    row: Mapping[str, Any],
    below: dict[Line, Consolidated],
    proved: Proved,
) -> Iterator[str]:
    node = tree.nodes[path]
    told = Consolidated.from_json(orjson.loads(row["consolidated"]))
    facts = facts_from_json(orjson.loads(row["facts"]))
    children = tree.children(path)
    yield from _row_faults(node, row, told, proved)
    yield from (fault for child in children for fault in _text_faults(child))
    yield from _fact_faults(node, children, facts)
    inputs = Inputs(node.position, facts.nodes[()], _children(children, facts, below))
    for violation in check_taught(told, inputs, facts) if told.taught else check(told, inputs):
        yield f"{violation.part} is traceable to nothing ({violation.reason}): {violation.detail}"
    below[path] = told
    proved.explanations += 1
    proved.sentences += len(told.sentences)
    proved.by_model += told.model_sentences


def _row_faults(
    node: TreeNode, row: Mapping[str, Any], told: Consolidated, proved: Proved
) -> Iterator[str]:
    """The row's columns against the tree's position and its own provenance record."""
    if row["fen"] != node.position.fen or row["pid"] != pid_of(node.position.key):
        yield "its position is not the tree's"
    if row["text"] != render(told.explanation):
        yield "its text is not the one whose provenance is recorded"
    read, _ = understood(row["text"], node.position, True)
    if read is None:
        proved.unread.add((row["root"], row["path"]))
    elif read != told.explanation:
        yield "its text does not read back as the explanation recorded"
    if (row["sentences"], row["model_sentences"]) != (len(told.sentences), told.model_sentences):
        yield "its counts of sentences are not those of its provenance"


def _text_faults(child: TreeNode) -> Iterator[str]:
    """A child's text, read again, must give what the tree says of it."""
    if child.text is None:
        if child.explanation is not None:
            yield f"child {child.path[-1]} has an explanation and no text"
        return
    if child.reason == ERROR:
        return  # nothing was written that could be read again
    read, reason = understood(child.text, child.position, child.reason != "unfinished")
    if read != child.explanation or reason != child.reason:
        yield f"the text of child {child.path[-1]} does not read as the tree says"


def _fact_faults(node: TreeNode, children: Sequence[TreeNode], facts: EngineFacts) -> Iterator[str]:
    """The facts beside an explanation against the verdicts in the tree."""
    verdicts: dict[Line, list[RootVerdict]] = {(): _verdicts(None, node)}
    for child in children:
        if child.verdict is not None:
            verdicts[(child.path[-1],)] = _verdicts(child.verdict, child)
    for line in sorted({*verdicts, *facts.nodes}):
        here = f"after {' '.join(line)}" if line else "at the root"
        if line not in verdicts or line not in facts.nodes:
            yield f"engine facts {here} are in the tree or beside the text, not in both"
        elif not _agrees(facts.nodes[line], verdicts[line]):
            yield f"engine facts {here} are not the tree's verdict"


def _verdicts(own: RootVerdict | None, node: TreeNode) -> list[RootVerdict]:
    weighed = node.weighed.verdict if node.weighed is not None else None
    return [verdict for verdict in (own, weighed) if verdict is not None]


def _agrees(node: Node, verdicts: Sequence[RootVerdict]) -> bool:
    values: dict[str, float] = {}
    for verdict in verdicts:
        values.update(verdict.values)
    best = max(verdict.best for verdict in verdicts)
    lines = [(v.best_move, v.best_line) for v in verdicts if v.best == best]
    return (
        dict(node.values) == values
        and node.best == best
        and (node.best_move, node.line) in lines
        and node.mistake == verdicts[0].mistake
    )


def _children(
    children: Sequence[TreeNode], facts: EngineFacts, below: Mapping[Line, Consolidated]
) -> tuple[Child, ...]:
    return tuple(
        Child(
            move=child.path[-1],
            explanation=reread(child),
            reason=child.reason,
            facts=_seen_from(facts, child.path[-1]),
            below=below.get(child.path),
        )
        for child in children
    )


def reread(child: TreeNode) -> Explanation | None:
    """A child's explanation, from its text."""
    if child.text is None or child.reason:
        return None
    return understood(child.text, child.position, True)[0]


def _seen_from(facts: EngineFacts, move: str) -> EngineFacts:
    """The facts of the lines that begin with a move, seen from after it."""
    return EngineFacts(
        {line[1:]: node for line, node in facts.nodes.items() if line[:1] == (move,)},
        {line[1:]: table for line, table in facts.terms.items() if line[:1] == (move,)},
    )
