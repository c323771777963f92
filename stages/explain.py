"""Stage `explain`: the model draws candidate moves for each root and explains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa

from queen.engines.judge import MoveJudge
from queen.games.chess.position import Position
from queen.generation.requests import Completion, Sampling
from queen.generation.speaker import Asked, Legal, Speaker
from queen.lineage.artifact import Draft
from queen.search.candidates import Weighed, weigh
from queen.search.tree import read
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.engine import JudgeParams
from stages.models import load_speaker, speaker_of, write_identity
from stages.positions import position_of
from stages.trees import weighed_to_json

EXPLAINED = pa.schema(
    [
        ("pid", pa.string()),
        ("source", pa.string()),
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("fen", pa.string()),
        ("seed", pa.int64()),
        ("told", pa.bool_()),
        ("failure", pa.string()),
        ("weighed", pa.string()),
        ("texts", pa.string()),
        ("own", pa.string()),
    ]
)


@dataclass(frozen=True)
class Params:
    """How the model explains its roots.

    Attributes:
        candidates: moves for each root (METHOD: 3).
        in_words: share of the roots that are explained, and their children (METHOD: 1). The others
            are weighed alone: what is learnt of them are moves, values and lines (ours).
        texts: which of them the model explains here: `all` (METHOD), or `own`, its favourite alone
            (ours). Nothing later reads the others' texts: a parent is folded from its children.
        temperature: of the draw of candidates; 0 takes the most probable.
        text_temperature: of the explanations' text; 0 is greedy.
        max_tokens: longest explanation.
        legal: constrained decoding: `none`, `first` (the first move is legal) or `moves` (all
            but those of the prose); evaluation is free of it.
        batch_size: texts decoded together.
        roots_per_shard: roots of one shard.
        judge: how the candidates are judged.
    """

    candidates: int = 3
    in_words: float = 1.0
    texts: Literal["all", "own"] = "all"
    temperature: float = 1.0
    text_temperature: float = 0.0
    max_tokens: int = 256
    legal: Legal = "moves"
    batch_size: int = 64
    roots_per_shard: int = 64
    judge: JudgeParams = field(default_factory=JudgeParams)


def shards(job: Job[Params]) -> Sequence[Shard]:
    return spans(job.table("roots").num_rows, job.params.roots_per_shard)


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Weigh a run of roots, then let the model explain each candidate of each."""
    start, stop = shard.spec["start"], shard.spec["stop"]
    roots = job.table("roots").slice(start, stop - start).to_pylist()
    positions = [position_of(row) for row in roots]
    seeds = [root_seed(job.seed, row["pid"]) for row in roots]
    params = job.params
    speaker = load_speaker(job, job.inputs["parent"], params.batch_size)
    with job.searches() as cache, job.analyser(cache) as analyser:
        judge: MoveJudge = params.judge.build(analyser)
        weighed = weigh(speaker, judge, positions, seeds, params.candidates, params.temperature)
    told = [is_told(seed, params.in_words) for seed in seeds]
    known = zip(roots, seeds, positions, weighed, strict=True)
    texts = _explain(job, speaker, list(compress(known, told)))
    rows = [
        {**row, "seed": seed, "told": said, **_judged(result, texts.get(row["pid"], {}), position)}
        for row, seed, said, result, position in zip(
            roots, seeds, told, weighed, positions, strict=True
        )
    ]
    write_rows(out / ROWS, rows_table(rows, EXPLAINED))
    write_identity(out, speaker)


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("explained", table)
    write_rows(out / ROWS, table)
    counts: Counter[str] = Counter(roots=table.num_rows)
    drops: Counter[str] = Counter()
    for row in table.to_pylist():
        if row["failure"]:
            drops[row["failure"]] += 1
            continue
        texts = orjson.loads(row["texts"])
        counts["in_words"] += row["told"]
        counts["texts"] += len(texts)
        counts["parsed"] += sum(not t["reason"] for t in texts.values())
        counts["replaced_by_engine"] += orjson.loads(row["weighed"])["replaced"] is not None
        drops.update(f"unparsed.{t['reason']}" for t in texts.values() if t["reason"])
    licences = job.inputs["roots"].record.licences
    return Draft(counts=counts, drops=drops, identities=speaker_of(folders), licences=licences)


def root_seed(seed: int, pid: str) -> int:
    """The seed of one root's random numbers: of the round's seed and the position alone."""
    words = np.random.SeedSequence([seed, int(pid, 16)]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def is_told(seed: int, share: float) -> bool:
    """Whether a root is among the share that is explained in words: by its own seed alone."""
    return bool(np.random.default_rng([seed, 1]).random() < share)


def text_seed(seed: int, move: str) -> int:
    """The seed of the text about one candidate: of its root's seed and the move alone."""
    words = np.random.SeedSequence([seed, int.from_bytes(move.encode(), "big")])
    return int(words.generate_state(1, np.uint64)[0] >> np.uint64(1))


def _explain(
    job: Job[Params],
    speaker: Speaker,
    roots: Sequence[tuple[Mapping[str, Any], int, Position, Any]],
) -> dict[str, dict[str, Completion]]:
    """A text for every candidate, or for the favourite alone, by root and move.

    Args:
        roots: row, seed, position and what was weighed of each.
    """
    asked = [
        Asked(f"{row['pid']} {move}", position, move, text_seed(seed, move))
        for row, seed, position, result in roots
        if isinstance(result, Weighed)
        for move in (result.moves if job.params.texts == "all" else _favourite(result))
    ]
    sampling = Sampling(
        temperature=job.params.text_temperature, max_new_tokens=job.params.max_tokens
    )
    texts: dict[str, dict[str, Completion]] = {}
    for said in speaker.explain(asked, sampling, job.params.legal):
        pid, move = said.id.split()
        texts.setdefault(pid, {})[move] = said
    return texts


def _favourite(result: Weighed) -> tuple[str, ...]:
    """The move the model finds likeliest of those it drew itself; the engine's if it drew none."""
    own = sorted((m for m in result.moves if m in result.logprobs), reverse=True)
    if own:
        return (max(own, key=lambda move: result.logprobs[move]),)
    return tuple(result.moves[:1])


def _judged(result: Any, texts: Mapping[str, Completion], position: Position) -> dict[str, Any]:
    """The columns that say what became of a root."""
    if not isinstance(result, Weighed):
        return {"failure": f"engine_{result.reason}", "weighed": "", "texts": "{}", "own": ""}
    told = {}
    for move, said in texts.items():
        _, reason = read(said, position)
        told[move] = {"text": said.text, "reason": reason}
    return {
        "failure": "" if result.moves else "no_legal_move",
        "weighed": orjson.dumps(weighed_to_json(result)).decode(),
        "texts": orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode(),
        "own": next(iter(_favourite(result)), ""),
    }


SPEC = StageSpec(
    name="explain",
    params=Params,
    section="explain",
    inputs={"roots": "data/sample/{key}", "parent": "models/{parent}", "encoder": "models/encoder"},
    output="data/explain/{key}",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: True,
    per="round",
    uses=("engine", "generation"),
)
