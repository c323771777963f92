"""Stages `evaluate` and `judge`: how a model answers and plays, and its verdict.

`evaluate` is a round's, `judge` that of the base models pawn and pawn1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from queen.engines.match import GameRecord, read_record, to_line, to_pgn
from queen.errors import QueenError
from queen.evaluation.elo import Rating
from queen.evaluation.sprt import SprtResult
from queen.evaluation.verdict import VerdictRules, verdict
from queen.generation.speaker import Speaker
from queen.lineage.artifact import Artifact, Draft, Record, read_json, write_json
from queen.lineage.verdicts import Judgement
from stages.answers import ANSWERS, answers, elsewhere
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.declared import declarations
from stages.duel import PARENT, DuelParams, play_duel, standing
from stages.duel import told as test_told
from stages.engine import JudgeParams
from stages.matches import MatchParams, ModelPlayer, Opponent, available, play_match, rate
from stages.models import another_speaker, load_speaker, speaker_of, write_identity
from stages.shares import shares

POSITIONS_PER_SHARD = 800  # four runs of the decoder, for its processes to share
GAMES, PGN, SUMMARY, VERDICT = "games.jsonl", "games.pgn", "summary.json", "verdict.json"
DUEL = "duel.jsonl"
OUTCOMES = {"free": "first_ok", "constrained": "constrained_ok", "guided": "guided_ok"}


@dataclass(frozen=True)
class Params:
    """What is measured, and how the verdict is reached.

    Attributes:
        splits: which evaluation positions; gates use `dev`, the test set is for reports.
        max_tokens, batch_size: of decoding (greedy).
        judge: the engine's budgets.
        games, opening_plies, max_plies, adjudicate_nodes, opponents: see `MatchParams`.
        bootstrap: samples of the bootstrap over games.
        verdict_by: decoding that the verdict rests on: `free` (METHOD), or `guided`, where the
            moves of an explanation's structured lines are held to legal ones; said in the
            verdict's reason. Models too small to write whole texts without an illegal move
            cannot be told apart by the first.
        guided: explanations are written guided too, so that both ways are told; they always are
            where the verdict rests on them.
        duel: a sequential test against the parent, which then decides for Elo (METHOD: where
            there are games enough). Base models are not put to it.
    """

    games: int
    opening_plies: tuple[int, ...]
    max_plies: int
    adjudicate_nodes: int
    opponents: dict[str, Opponent]
    splits: tuple[str, ...] = ("dev",)
    max_tokens: int = 256
    batch_size: int = 64
    judge: JudgeParams = field(default_factory=JudgeParams)
    bootstrap: int = 2000
    verdict_by: Literal["free", "guided"] = "free"
    guided: bool = False
    duel: DuelParams = field(default_factory=DuelParams)

    @property
    def guides(self) -> bool:
        """Whether explanations are written guided too."""
        return self.guided or self.verdict_by == "guided"

    @property
    def match(self) -> MatchParams:
        return MatchParams(
            self.games, self.opening_plies, self.max_plies, self.adjudicate_nodes, self.opponents
        )


def shards(job: Job[Params]) -> Sequence[Shard]:
    """Runs of positions, and the games; what cannot be compared or played is said here, first."""
    require_comparable(job)
    opponents = available(job.params.match, job.engine, _section(job))
    count = len(_positions(job))
    parts = [
        Shard(f"positions-{s.id}", {"part": "positions", **s.spec})
        for s in spans(count, POSITIONS_PER_SHARD)
    ]
    duels = [Shard("duel", {"part": "duel"})] if _duels(job) else []
    return [*parts, Shard("games", {"part": "games", "opponents": opponents}), *duels]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    speaker = load_speaker(job, job.inputs["model"], job.params.batch_size)
    write_identity(out, speaker)
    if shard.spec["part"] == "games":
        _play(job, speaker, tuple(shard.spec["opponents"]), out)
        return
    if shard.spec["part"] == "duel":
        _fight(job, speaker, out)
        return
    rows = _positions(job)
    part = rows[shard.spec["start"] : shard.spec["stop"]]
    told = list(answers(job, speaker, part, elsewhere(rows)))
    write_rows(out / ROWS, rows_table(told, ANSWERS))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """Rows, games, a summary, and where there is a parent a verdict."""
    *answered, played = folders[:-1] if _duels(job) else folders
    table = concat_shards(answered) if answered else rows_table([], ANSWERS)
    games = read_record(played / GAMES)
    write_rows(out / ROWS, table)
    (out / GAMES).write_bytes((played / GAMES).read_bytes())
    (out / PGN).write_text("\n".join(to_pgn(game) for game in games))
    rating = rate(job.params.match, games, ModelPlayer.name)
    found = shares(table.to_pylist(), job.params.splits, job.params.bootstrap)
    told = declarations(job.inputs["model"].record.figures)
    summary = {**found, **elo_figures(rating), **told}
    parts = {"figures": summary, "games": _scores(games), "elo": _plain(rating)}
    counts = {"positions": table.num_rows, "games": len(games), **_opponents(job)}
    test = None
    if _duels(job):
        duel = read_record(folders[-1] / DUEL)
        (out / DUEL).write_bytes((folders[-1] / DUEL).read_bytes())
        test, counts["duel"] = standing(job.params.duel, duel), len(duel)
        parts["duel"] = test_told(test, len(duel))
    write_json(out / SUMMARY, parts)
    if "before" in job.inputs:
        write_json(out / VERDICT, _judgement(job, table, rating, test).as_dict())
    identities = speaker_of(folders)
    return Draft(counts=counts, figures=summary, drops=_reasons(table), identities=identities)


def _section(job: Job[Params]) -> str:
    """The section of the params, for errors."""
    return f"rounds.{job.key}.evaluate" if job.stage == "evaluate" else "evaluation"


def _opponents(job: Job[Params]) -> dict[str, int]:
    """How many opponents were here, and how many were left out; none where no game is wanted."""
    if job.params.games == 0:
        return {}
    here = len(available(job.params.match, job.engine, _section(job)))
    return {"opponents": here, "opponents_missing": len(job.params.opponents) - here}


def require_comparable(job: Job[Params]) -> None:
    """Raise QueenError where the parent was evaluated by other means than this model is to be.

    The same positions, engine, budgets and opponents: only then is a difference the model's.
    """
    before = job.inputs.get("before")
    if before is None:
        return
    theirs = before.record
    evalsets = [entry.content[:12] for entry in theirs.inputs if entry.role == "evalset"]
    mine: dict[str, Any] = orjson.loads(orjson.dumps(asdict(job.params)))
    compared = {
        "the evaluation set": (evalsets, [job.inputs["evalset"].content[:12]]),
        "the engine": (theirs.identities.get("engine"), job.identities.get("engine")),
        **{n: (theirs.params.get(n), mine[n]) for n in ("judge", "opponents", "verdict_by")},
    }
    for what, (old, new) in compared.items():
        if old != new:
            raise QueenError(
                f"{before.name} and the evaluation of {job.key} differ in {what}: "
                f"{old} and {new}, so that no verdict could stand on them",
                where=_section(job),
                remedy=f"evaluate the parent again ({_again(theirs)}), or make {what} of both "
                "equal (`queen configure`)",
            )


def _again(record: Record) -> str:
    """The commands that evaluate a parent again, be it judged or not."""
    key = record.name.split("/")[-1]
    reopen = f"`queen round reopen {key}`, then " if record.stage == "evaluate" else ""
    return f"{reopen}`dvc repro --single-item --force {record.stage}@{key}`"


def _positions(job: Job[Params]) -> list[dict[str, Any]]:
    rows = job.table("evalset").to_pylist()
    return [row for row in rows if row["split"] in job.params.splits]


def _play(job: Job[Params], speaker: Speaker, opponents: Sequence[str], out: Path) -> None:
    """The games; finished ones are kept in the scratch folder until all are."""
    record = job.scratch() / GAMES
    with job.searches() as cache, job.analyser(cache) as analyser:
        player = ModelPlayer(speaker)
        play_match(job.params.match, opponents, player, analyser, job.engine, job.seed, record)
    (out / GAMES).write_bytes(record.read_bytes() if record.is_file() else b"")


def _duels(job: Job[Params]) -> bool:
    return "parent" in job.inputs and job.params.duel.games > 0


def _fight(job: Job[Params], speaker: Speaker, out: Path) -> None:
    """The games against the parent, kept as they end in the scratch folder until the test ends."""
    params, record = job.params, job.scratch() / DUEL
    with (
        another_speaker(job, job.inputs["parent"], params.batch_size) as parent,
        job.searches() as cache,
        job.analyser(cache) as analyser,
    ):
        players = ModelPlayer(speaker), ModelPlayer(parent, PARENT)
        games = play_duel(params.duel, params.match, players, analyser, job.seed, record)
    (out / DUEL).write_bytes(b"".join(map(to_line, games)))


def _judgement(
    job: Job[Params], table: pa.Table, rating: Rating | None, test: SprtResult | None
) -> Judgement:
    """The verdict on this model against the one it started from."""
    before = job.inputs["before"]
    by = job.params.verdict_by
    mine, theirs = outcomes(table, by), outcomes(pq.read_table(before.file(ROWS)), by)
    shared = sorted(mine.keys() & theirs.keys())
    if not shared:
        raise QueenError(
            "no development position was judged for both models, so there is no verdict",
            where=f"{job.inputs['model'].name} and {before.name}",
            remedy="evaluate both on the split dev (`splits`), with the same evaluation set",
        )
    found = verdict(
        [mine[pid][0] for pid in shared],
        [theirs[pid][0] for pid in shared],
        [mine[pid][1] for pid in shared],
        rating,
        rating_of(before),
        sprt=test,
        rules=VerdictRules(samples=job.params.bootstrap),
    )
    low, high = (rating.low, rating.high) if rating else (None, None)
    return Judgement(
        model=job.inputs["model"].content,
        verdict=found.kind,
        reason=found.reason if by == "free" else f"{by} decoding: {found.reason}",
        parent=before.name.split("/")[-1],
        difference=round(found.difference.estimate, 6),
        interval=(round(found.difference.low, 6), round(found.difference.high, 6)),
        elo=round(rating.elo, 1) if rating else None,
        elo_interval=(_rounded(low), _rounded(high)) if rating else None,
    )


def outcomes(table: pa.Table, way: str, split: str = "dev") -> dict[str, tuple[float, str]]:
    """Whether each position's first move is sound by a way of decoding, and its game, by pid."""
    column = OUTCOMES[way]
    return {
        row["pid"]: (float(row[column]), row["game_id"])
        for row in table.to_pylist()
        if row["split"] == split and row["judged"] and row[column] is not None
    }


def rating_of(evaluation: Artifact) -> Rating | None:
    """The rating an evaluation holds."""
    raw = read_json(evaluation.file(SUMMARY))["elo"]
    return Rating(**raw) if raw else None


def _plain(rating: Rating | None) -> dict[str, Any] | None:
    return asdict(rating) if rating else None


def elo_figures(rating: Rating | None) -> dict[str, float]:
    if rating is None:
        return {}
    named = {"elo": rating.elo, "elo_low": rating.low, "elo_high": rating.high}
    return {k: round(v, 1) for k, v in named.items() if v is not None and math.isfinite(v)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _scores(games: Sequence[GameRecord]) -> dict[str, list[float]]:
    """Points against each opponent: won, drawn, lost as 1, 0.5, 0 in order of play."""
    points: dict[str, list[float]] = {}
    for game in games:
        other = game.black if game.white == ModelPlayer.name else game.white
        points.setdefault(other, []).append(game.score_of(ModelPlayer.name))
    return points


def _reasons(table: pa.Table) -> dict[str, int]:
    """Answers that are no explanation, by reason, and those the engine could not judge."""
    counts = Counter(f"unparsed.{reason}" for reason in table["reason"].to_pylist() if reason)
    counts["unjudged"] = table["judged"].to_pylist().count(False)
    return +counts


def _spec(name: str, section: str, per: str, rivals: Mapping[str, str]) -> StageSpec:
    return StageSpec(
        name=name,
        params=Params,
        section=section,
        inputs={
            "model": "models/{key}",
            **rivals,
            "before": "data/evaluate/{parent}",
            "evalset": "data/evalset",
            "encoder": "models/encoder",
        },
        output="data/evaluate/{key}",
        shards=shards,
        work=work,
        assemble=assemble,
        per=per,
        uses=("engine", "generation"),
    )


SPEC = _spec("evaluate", "evaluate", "round", {"parent": "models/{parent}"})
JUDGE = _spec("judge", "evaluation", "model", {})
