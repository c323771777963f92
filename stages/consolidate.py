"""Stage `consolidate`: fold the children's explanations into their parent's, from the leaves up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from queen.errors import QueenError
from queen.language.api.settings import Endpoint
from queen.language.consolidate import Rules
from queen.language.consolidate_llm import prompts_digest
from queen.language.engine_facts import EngineFacts, Node, TermTable
from queen.language.explanation import Explanation, ExplanationError, parse, render
from queen.language.provenance import Child, Consolidated, Inputs
from queen.lineage.artifact import Draft
from queen.search.candidates import Weighed
from queen.search.tree import Node as TreeNode
from queen.search.tree import Tree
from stages import asking, gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.engine import classical_tables, position_after
from stages.facts import facts_to_json
from stages.folders import Folder, LinesFolder, LlmFolder, Place, RulesFolder, TeacherFolder
from stages.positions import pid_of
from stages.settings import only
from stages.trees import trees_from_rows

TREES_PER_SHARD = 512
COUNTS = "counts.json"
Line = tuple[str, ...]
CONSOLIDATED = pa.schema(
    [
        ("root", pa.string()),
        ("path", pa.string()),
        ("pid", pa.string()),
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("fen", pa.string()),
        ("told", pa.bool_()),
        ("text", pa.string()),
        ("line", pa.string()),
        ("old_text", pa.string()),
        ("old_line", pa.string()),
        ("consolidated", pa.string()),
        ("facts", pa.string()),
        ("sentences", pa.int32()),
        ("model_sentences", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Params:
    """How explanations are folded.

    Attributes:
        consolidator: `rules`, which adds nothing, or `llm`, a language model behind an API, held
            to that by the same proof; where its answer cannot be used, the rules fold. `teacher`
            is a control: the hce teacher explains the same nodes from the same searches, and no
            child is folded.
        rules: how much of the children is kept.
        teacher_candidates: moves that the teacher weighs.
        llm: that model.
    """

    consolidator: Literal["rules", "llm", "teacher"] = "rules"
    rules: Rules = field(default_factory=Rules)
    teacher_candidates: int = field(default=3, metadata=only("consolidator", "teacher"))
    llm: Endpoint = field(default_factory=Endpoint, metadata=only("consolidator", "llm"))


def shards(job: Job[Params]) -> Sequence[Shard]:
    return spans(len(_roots(job.table("trees"))), TREES_PER_SHARD)


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Fold a run of trees and prove of each explanation that it adds nothing."""
    table = job.table("trees")
    chosen = _roots(table).slice(shard.spec["start"], shard.spec["stop"] - shard.spec["start"])
    trees = trees_from_rows(_rows_of(table, "root", chosen))
    origins = {row["pid"]: row for row in _rows_of(job.table("explained"), "pid", chosen)}
    terms = _terms(job, trees)
    counts: Counter[str] = Counter()
    fold = _folder(job)
    spoken = [tree for tree in trees if origins[tree.id]["told"]]
    silent = [tree for tree in trees if not origins[tree.id]["told"]]
    rows = _folded(spoken, fold, origins, terms, counts)
    rows += _folded(silent, _lines_only(job, fold), origins, terms, counts)
    write_rows(out / ROWS, rows_table(rows, CONSOLIDATED))
    fold.finish(out)
    (out / COUNTS).write_bytes(orjson.dumps(dict(sorted(counts.items()))))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("consolidated", table)
    write_rows(out / ROWS, table)
    counts: Counter[str] = Counter()
    for folder in folders:
        counts.update(orjson.loads((folder / COUNTS).read_bytes()))
    control = job.params.consolidator == "teacher"
    if counts["children_parsed"] and not counts["model_sentences"] and not control:
        raise QueenError(
            "children were read, yet no statement of theirs was kept",
            where=f"consolidate@{job.key}",
            remedy="look at the cut statements' reasons in the shard, then at consolidate.rules",
        )
    drops = {k.removeprefix("cut."): v for k, v in counts.items() if k.startswith("cut.")}
    kept = {k: v for k, v in counts.items() if not k.startswith("cut.")}
    share = counts["model_sentences"] / max(1, counts["sentences"])
    licences = dict(job.inputs["trees"].record.licences)
    figures = {"model_share": round(share, 6)}
    if job.params.consolidator != "llm":
        return Draft(kept, drops, figures, licences=licences)
    llm = job.params.llm
    told = asking.identity(llm, prompts_digest(), folders)
    licences["consolidator"] = f"answers of {llm.model}: see the terms of {llm.base_url}"
    kept |= {f"llm.{name}": n for name, n in asking.counted(folders).items()}
    return Draft(kept, drops, figures, {"consolidator": {"kind": "llm", **told}}, licences)


def _folder(job: Job[Params]) -> Folder:
    if job.params.consolidator == "llm":
        return LlmFolder(job, job.params.llm)
    return TeacherFolder(job) if job.params.consolidator == "teacher" else RulesFolder(job)


def _lines_only(job: Job[Params], fold: Folder) -> Folder:
    """Who folds trees that nobody put in words; there a language model has nothing to fold."""
    return LinesFolder(RulesFolder(job) if isinstance(fold, LlmFolder) else fold)


def _roots(table: pa.Table) -> pa.Array:
    """The trees' names in table order."""
    return pc.unique(table["root"])


def _rows_of(table: pa.Table, column: str, names: pa.Array) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table[column], names)).to_pylist()
    return rows


def _folded(
    trees: Sequence[Tree],
    fold: Folder,
    origins: Mapping[str, Mapping[str, Any]],
    terms: Mapping[str, TermTable],
    counts: Counter[str],
) -> list[dict[str, Any]]:
    """The rows of every expanded node, tree by tree and deepest first.

    The trees are folded together, one depth after another: a node may draw on those below it.
    """
    below: dict[str, dict[Line, Consolidated]] = {tree.id: {} for tree in trees}
    rows: dict[tuple[int, int, Line], dict[str, Any]] = {}
    for level in _levels(trees):
        places = [
            Place(number, trees[number], path, _inputs(trees[number], path, below, terms))
            for number, path in level
        ]
        for place, folded in zip(places, fold(places), strict=True):
            if folded is None:
                counts["cut.no_candidate_valued"] += 1
                continue
            _require_proof(fold, place, folded)
            below[place.tree.id][place.path] = folded
            _count(counts, place.inputs, folded)
            order = (place.number, -len(place.path), place.path)
            rows[order] = _row(place, origins[place.tree.id], fold.facts(place), folded)
    return [rows[order] for order in sorted(rows)]


def _levels(trees: Sequence[Tree]) -> Iterator[list[tuple[int, Line]]]:
    """The expanded nodes as (tree's number, path), the deepest level first."""
    places = [
        (number, path)
        for number, tree in enumerate(trees)
        for path, node in tree.nodes.items()
        if node.weighed
    ]
    for depth in sorted({len(path) for _, path in places}, reverse=True):
        yield sorted(place for place in places if len(place[1]) == depth)


def _require_proof(fold: Folder, place: Place, folded: Consolidated) -> None:
    violations = fold.violations(place, folded)
    if violations:
        raise QueenError(
            f"a statement is traceable to nothing: {violations[0]}",
            where=f"root {place.tree.id}, after {' '.join(place.path) or 'no move'}",
            remedy="the consolidator added content: mend it, nothing was written",
        )


def _inputs(
    tree: Tree,
    path: Line,
    below: Mapping[str, Mapping[Line, Consolidated]],
    terms: Mapping[str, TermTable],
) -> Inputs:
    node = tree.nodes[path]
    assert node.weighed is not None
    children = tuple(
        Child(
            move=child.path[-1],
            explanation=child.explanation,
            reason=child.reason,
            facts=_facts(child, terms),
            below=below[tree.id].get(child.path),
        )
        for child in tree.children(path)
    )
    return Inputs(node.position, Node.from_verdict(node.weighed.verdict), children)


def _facts(child: TreeNode, terms: Mapping[str, TermTable]) -> EngineFacts:
    """What engines know of a child: its verdict, and the classical terms its claims rest on."""
    nodes: dict[Line, Node] = {}
    if child.verdict is not None:
        known = Node.from_verdict(child.verdict)
        if child.weighed is not None:
            known = _joined(known, child.weighed)
        nodes[()] = known
    tables: dict[Line, TermTable] = {}
    for line in _term_lines(child.explanation):
        fen = position_after(child.position, line).fen
        if fen in terms:
            tables[line] = terms[fen]
    return EngineFacts(nodes, tables)


def _joined(known: Node, weighed: Weighed) -> Node:
    """A child's node with what became known when it was a root itself."""
    later = Node.from_verdict(weighed.verdict)
    values = {**known.values, **later.values}
    best = later if later.best >= known.best else known
    return Node(best.best, best.best_move, best.line, values, known.mistake)


def _term_lines(explanation: Explanation | None) -> list[Line]:
    """The lines whose classical terms the claims of an explanation speak of."""
    lines: dict[Line, None] = {}
    claims = (c for s in (explanation.prose if explanation else ()) for c in s.claims)
    for claim in claims:
        if claim.kind in ("term_up", "term_down"):
            lines[claim.at] = None
            lines[claim.at + tuple(claim.args[0].split())] = None
        elif claim.kind == "edge":
            lines[claim.at] = None
    return list(lines)


def _terms(job: Job[Params], trees: Sequence[Tree]) -> dict[str, TermTable]:
    """The classical tables that any child's claims need, by FEN."""
    fens: dict[str, None] = {}
    for tree in trees:
        for node in tree.nodes.values():
            for line in _term_lines(node.explanation):
                after = _legal_after(node, line)
                if after is not None:
                    fens[after] = None
    if not fens:
        return {}
    with job.searches() as cache:
        return classical_tables(job, cache, list(fens))


def _legal_after(node: TreeNode, line: Line) -> str | None:
    """The FEN after a line that a model wrote; None if it cannot be played."""
    try:
        return position_after(node.position, line).fen
    except QueenError:
        return None


def _count(counts: Counter[str], inputs: Inputs, folded: Consolidated) -> None:
    counts["folded"] += 1
    counts["children"] += len(inputs.children)
    counts["children_parsed"] += sum(child.explanation is not None for child in inputs.children)
    counts["sentences"] += len(folded.sentences)
    counts["model_sentences"] += folded.model_sentences
    counts.update({f"cut.{reason}": n for reason, n in folded.cut.items()})


def _row(
    place: Place, origin: Mapping[str, Any], facts: EngineFacts, folded: Consolidated
) -> dict[str, Any]:
    tree, path = place.tree, place.path
    node = tree.nodes[path]
    old_text, old = _old(node, origin)
    return {
        "root": tree.id,
        "path": " ".join(path),
        "pid": pid_of(node.position.key),
        "game_id": origin["game_id"],
        "ply": origin["ply"],
        "start": node.position.start,
        "moves": " ".join(node.position.moves),
        "fen": node.position.fen,
        "told": origin["told"],
        "text": render(folded.explanation),
        "line": " ".join(folded.explanation.line),
        "old_text": old_text,
        "old_line": " ".join(old.line) if old else "",
        "consolidated": orjson.dumps(folded.to_json()).decode(),
        "facts": orjson.dumps(facts_to_json(facts)).decode(),
        "sentences": len(folded.sentences),
        "model_sentences": folded.model_sentences,
    }


def _old(node: TreeNode, origin: Mapping[str, Any]) -> tuple[str, Explanation | None]:
    """What the model said of the position before: for a root, of its favourite move."""
    if node.path:
        return node.text or "", node.explanation
    told = orjson.loads(origin["texts"]).get(origin["own"])
    if told is None or told["reason"]:
        return (told or {}).get("text", ""), None
    try:
        return told["text"], parse(told["text"], node.position)
    except ExplanationError:
        return told["text"], None


SPEC = StageSpec(
    name="consolidate",
    params=Params,
    section="consolidate",
    inputs={"trees": "data/recurse/{key}", "explained": "data/explain/{key}"},
    output="data/consolidate/{key}",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: params.consolidator != "llm",
    per="round",
    uses=("engine", "classical"),
)
