"""Engine facts as JSON, and back: kept beside each explanation, so that it can be checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from queen.language.engine_facts import EngineFacts, Node


def facts_to_json(facts: EngineFacts) -> dict[str, Any]:
    """Plain data; lines become space-joined keys."""
    return {
        "nodes": {" ".join(line): asdict(node) for line, node in sorted(facts.nodes.items())},
        "terms": {
            " ".join(line): {name: list(pair) for name, pair in sorted(table.items())}
            for line, table in sorted(facts.terms.items())
        },
    }


def facts_from_json(raw: Mapping[str, Any]) -> EngineFacts:
    """From `facts_to_json`'s data."""
    nodes = {
        tuple(line.split()): Node(**{**node, "line": tuple(node["line"])})
        for line, node in raw["nodes"].items()
    }
    terms = {
        tuple(line.split()): {name: (pair[0], pair[1]) for name, pair in table.items()}
        for line, table in raw["terms"].items()
    }
    return EngineFacts(nodes, terms)
