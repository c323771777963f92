"""Trees and judged candidates as rows, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from queen.engines.judge import RootVerdict
from queen.games.chess.position import Position
from queen.language.explanation import Explanation
from queen.search.candidates import Weighed
from queen.search.tree import Node, Tree

TREES = pa.schema(
    [
        ("root", pa.string()),
        ("seed", pa.int64()),
        ("path", pa.string()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("text", pa.string()),
        ("reason", pa.string()),
        ("explanation", pa.string()),
        ("verdict", pa.string()),
        ("mistake", pa.bool_()),
        ("weighed", pa.string()),
        ("stopped", pa.string()),
    ]
)


def verdict_to_json(verdict: RootVerdict) -> dict[str, Any]:
    return {
        "fen": verdict.fen,
        "best": verdict.best,
        "best_move": verdict.best_move,
        "best_line": list(verdict.best_line),
        "values": dict(sorted(verdict.values.items())),
        "nodes": verdict.nodes,
        "mistake": verdict.mistake,
        "close": sorted(verdict.close),
        "gap": verdict.gap,
    }


def verdict_from_json(raw: Mapping[str, Any]) -> RootVerdict:
    line, close = tuple(raw["best_line"]), frozenset(raw["close"])
    return RootVerdict(**{**raw, "best_line": line, "close": close})


def weighed_to_json(weighed: Weighed) -> dict[str, Any]:
    return {
        "moves": list(weighed.moves),
        "logprobs": {m: round(v, 6) for m, v in sorted(weighed.logprobs.items())},
        "replaced": weighed.replaced,
        "verdict": verdict_to_json(weighed.verdict),
    }


def weighed_from_json(raw: Mapping[str, Any]) -> Weighed:
    return Weighed(
        tuple(raw["moves"]), raw["logprobs"], raw["replaced"], verdict_from_json(raw["verdict"])
    )


def tree_rows(tree: Tree) -> Iterator[dict[str, Any]]:
    """One row for each node, the root first, in the order in which they were explained."""
    for path, node in tree.nodes.items():
        yield {
            "root": tree.id,
            "seed": tree.seed,
            "path": " ".join(path),
            "start": node.position.start,
            "moves": " ".join(node.position.moves),
            "text": node.text,
            "reason": node.reason,
            "explanation": _dumped(node.explanation.to_json() if node.explanation else None),
            "verdict": _dumped(verdict_to_json(node.verdict) if node.verdict else None),
            "mistake": node.mistake,
            "weighed": _dumped(weighed_to_json(node.weighed) if node.weighed else None),
            "stopped": node.stopped,
        }


def trees_from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Tree]:
    """The trees of a table, in its order."""
    trees: dict[str, Tree] = {}
    for row in rows:
        tree = trees.setdefault(row["root"], Tree(row["root"], row["seed"]))
        node = _node(row)
        tree.nodes[node.path] = node
    return list(trees.values())


def _node(row: Mapping[str, Any]) -> Node:
    explanation, weighed, verdict = row["explanation"], row["weighed"], row["verdict"]
    return Node(
        path=tuple(row["path"].split()),
        position=Position.from_text(row["start"], row["moves"]),
        text=row["text"],
        reason=row["reason"],
        explanation=Explanation.from_json(orjson.loads(explanation)) if explanation else None,
        verdict=verdict_from_json(orjson.loads(verdict)) if verdict else None,
        mistake=row["mistake"],
        weighed=weighed_from_json(orjson.loads(weighed)) if weighed else None,
        stopped=row["stopped"],
    )


def _dumped(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
