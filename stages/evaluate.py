"""Stages `evaluate` and `judge`: how a model answers and plays, and its verdict.

`evaluate` is a round's, `judge` that of the base models pawn and pawn1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from queen.engines.match import GameRecord, read_record, to_pgn
from queen.errors import QueenError
from queen.evaluation.elo import Rating
from queen.evaluation.intervals import cluster_bootstrap
from queen.evaluation.substantiation import Answer, LineScore, measure
from queen.evaluation.verdict import VerdictRules, verdict
from queen.games.chess.position import Position
from queen.generation.requests import Completion, Sampling
from queen.generation.speaker import Asked, Speaker
from queen.language.form import NO_MOVE, line_of
from queen.lineage.artifact import Artifact, Draft, Record, read_json, write_json
from queen.lineage.verdicts import Judgement
from queen.search.tree import read
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.declared import declarations
from stages.engine import JudgeParams
from stages.matches import MatchParams, ModelPlayer, Opponent, available, play_match, rate
from stages.models import load_speaker, speaker_of, write_identity
from stages.positions import position_of

POSITIONS_PER_SHARD = 800  # four runs of the decoder, for its processes to share
GAMES, PGN, SUMMARY, VERDICT = "games.jsonl", "games.pgn", "summary.json", "verdict.json"
PLIES = (1, 3, 5)
OUTCOMES = {"free": "first_ok", "guided": "guided_ok"}
Held = tuple[Completion, str]
ANSWERS = pa.schema(
    [
        ("pid", pa.string()),
        ("kind", pa.string()),
        ("split", pa.string()),
        ("game_id", pa.string()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("text", pa.string()),
        ("reason", pa.string()),
        ("best", pa.string()),
        ("line", pa.string()),
        ("whole", pa.bool_()),
        ("parseable", pa.bool_()),
        ("legal", pa.bool_()),
        ("judged", pa.bool_()),
        ("first_ok", pa.bool_()),
        *((f"line_ok_{n}", pa.bool_()) for n in PLIES),
        ("constrained", pa.string()),
        ("constrained_ok", pa.bool_()),
        ("encoder_agrees", pa.bool_()),
        ("guided_reason", pa.string()),
        ("guided_best", pa.string()),
        ("guided_ok", pa.bool_()),
    ]
)


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
    return [*parts, Shard("games", {"part": "games", "opponents": opponents})]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    speaker = load_speaker(job, job.inputs["model"], job.params.batch_size)
    write_identity(out, speaker)
    if shard.spec["part"] == "games":
        _play(job, speaker, tuple(shard.spec["opponents"]), out)
        return
    rows = _positions(job)[shard.spec["start"] : shard.spec["stop"]]
    write_rows(out / ROWS, rows_table(list(_answers(job, speaker, rows)), ANSWERS))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """Rows, games, a summary, and where there is a parent a verdict."""
    *answered, played = folders
    table = concat_shards(answered) if answered else rows_table([], ANSWERS)
    games = read_record(played / GAMES)
    write_rows(out / ROWS, table)
    (out / GAMES).write_bytes((played / GAMES).read_bytes())
    (out / PGN).write_text("\n".join(to_pgn(game) for game in games))
    rating = rate(job.params.match, games, ModelPlayer.name)
    told = declarations(job.inputs["model"].record.figures)
    summary = {**_shares(job, table), **_elo_figures(rating), **told}
    write_json(out / SUMMARY, {"figures": summary, "games": _scores(games), "elo": _plain(rating)})
    if "before" in job.inputs:
        write_json(out / VERDICT, _judgement(job, table, rating).as_dict())
    counts = {"positions": table.num_rows, "games": len(games), **_opponents(job)}
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


def _answers(
    job: Job[Params], speaker: Speaker, rows: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Each position explained freely, and its best legal move by the model's own odds."""
    positions = [position_of(row) for row in rows]
    asked = [Asked(row["pid"], p) for row, p in zip(rows, positions, strict=True)]
    said = speaker.explain(asked, Sampling(temperature=0.0, max_new_tokens=job.params.max_tokens))
    policies = speaker.policies(positions)
    found = [read(one, position) for one, position in zip(said, positions, strict=True)]
    free = [_answer(one, position) for one, position in zip(said, positions, strict=True)]
    forced = [Answer(max(sorted(p), key=p.__getitem__), ()) for p in policies]
    guided = _guided(job, speaker, asked)
    held = [_answer(one, position) for (one, _), position in zip(guided, positions, strict=False)]
    with job.searches() as cache, job.analyser(cache) as analyser:
        judge = job.params.judge.build(analyser).judge
        mistake = job.params.judge.mistake
        answers = [*free, *forced, *held]
        again = positions if held else []
        scores = measure([*positions, *positions, *again], answers, judge, mistake)
    half = len(positions)
    for i, row in enumerate(rows):
        yield {
            **{n: row[n] for n in ("pid", "kind", "split", "game_id", "start", "moves")},
            "text": said[i].text,
            "reason": found[i][1],
            "whole": not found[i][1],
            **_scored(free[i], scores[i]),
            "constrained": forced[i].first,
            "constrained_ok": scores[half + i].first == "sound",
            "encoder_agrees": forced[i].first == row["encoder_move"],
            **(_held(guided[i][1], held[i], scores[2 * half + i]) if held else {}),
        }


def _answer(said: Completion, position: Position) -> Answer:
    """What a text answers. Its form must be right; an illegal move fails where it stands."""
    if said.error is not None:
        return Answer(None, (), False)
    line = line_of(said.text, position, finished=said.finished)
    return Answer(line[0], line) if line else Answer(None, (), False)


def _guided(job: Job[Params], speaker: Speaker, asked: Sequence[Asked]) -> list[Held]:
    """The explanations once more with their moves held to legal ones, if the verdict asks."""
    if job.params.verdict_by == "free":
        return []
    sampling = Sampling(temperature=0.0, max_new_tokens=job.params.max_tokens)
    said = speaker.explain(asked, sampling, "moves")
    return [(one, read(one, about.position)[1]) for one, about in zip(said, asked, strict=True)]


def _held(reason: str, answer: Answer, score: LineScore) -> dict[str, Any]:
    """The columns of the guided answer; no outcome where the engine failed."""
    sound = score.first_sound if score.judged else None
    return {"guided_reason": reason, "guided_best": _uci(answer.first), "guided_ok": sound}


def _scored(answer: Answer, score: LineScore) -> dict[str, Any]:
    return {
        "best": _uci(answer.first),
        "line": " ".join(answer.line),
        "parseable": score.parseable,
        "legal": score.parseable and score.legal,
        "judged": score.judged,
        "first_ok": score.first_sound,
        **{f"line_ok_{n}": score.sound_to(n) for n in PLIES},
    }


def _uci(move: str | None) -> str:
    """A move for a column; empty for one that is none."""
    return "" if move in (None, NO_MOVE) else str(move)


def _play(job: Job[Params], speaker: Speaker, opponents: Sequence[str], out: Path) -> None:
    """The games; finished ones are kept in the scratch folder until all are."""
    record = job.scratch() / GAMES
    with job.searches() as cache, job.analyser(cache) as analyser:
        player = ModelPlayer(speaker)
        play_match(job.params.match, opponents, player, analyser, job.engine, job.seed, record)
    (out / GAMES).write_bytes(record.read_bytes() if record.is_file() else b"")


def _shares(job: Job[Params], table: pa.Table) -> dict[str, float]:
    """FNMR, NMR and the rest by split and kind, with intervals by bootstrap over games."""
    figures: dict[str, float] = {}
    rows = [row for row in table.to_pylist() if row["judged"]]
    for split in job.params.splits:
        for kind in ("general", "tactical", "all"):
            part = [r for r in rows if r["split"] == split and kind in (r["kind"], "all")]
            if part:
                name = f"{split}.{kind}"
                figures.update({f"{name}.{k}": v for k, v in _part(job, part).items()})
    return figures


def _part(job: Job[Params], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    columns = {
        "fnmr": "first_ok",
        "fnmr_constrained": "constrained_ok",
        "parseable": "parseable",
        "whole": "whole",
        "legal": "legal",
        "independence": "encoder_agrees",
        **{f"nmr{n}": f"line_ok_{n}" for n in PLIES},
    }
    shares = {
        name: sum(bool(row[column]) for row in rows) / len(rows) for name, column in columns.items()
    }
    held = [row["guided_ok"] for row in rows if row["guided_ok"] is not None]
    if held:
        shares["fnmr_guided"] = sum(held) / len(held)
        parsed = sum(row["guided_reason"] == "" for row in rows)
        shares["parseable_guided"] = parsed / len(rows)
    shares["independence"] = 1.0 - shares["independence"]
    for name in ("fnmr", "fnmr_constrained"):
        values = [float(row[columns[name]]) for row in rows]
        bound = cluster_bootstrap(
            values, [row["game_id"] for row in rows], seed=0, samples=job.params.bootstrap
        )
        shares[f"{name}_low"], shares[f"{name}_high"] = bound.low, bound.high
    return {name: round(value, 6) for name, value in shares.items()}


def _judgement(job: Job[Params], table: pa.Table, rating: Rating | None) -> Judgement:
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


def outcomes(table: pa.Table, verdict_by: str) -> dict[str, tuple[float, str]]:
    """Whether each development position's first move is sound, and its game, by position."""
    column = OUTCOMES[verdict_by]
    return {
        row["pid"]: (float(row[column]), row["game_id"])
        for row in table.to_pylist()
        if row["split"] == "dev" and row["judged"] and row[column] is not None
    }


def rating_of(evaluation: Artifact) -> Rating | None:
    """The rating an evaluation holds."""
    raw = read_json(evaluation.file(SUMMARY))["elo"]
    return Rating(**raw) if raw else None


def _plain(rating: Rating | None) -> dict[str, Any] | None:
    return asdict(rating) if rating else None


def _elo_figures(rating: Rating | None) -> dict[str, float]:
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


def _spec(name: str, section: str, per: str) -> StageSpec:
    return StageSpec(
        name=name,
        params=Params,
        section=section,
        inputs={
            "model": "models/{key}",
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


SPEC = _spec("evaluate", "evaluate", "round")
JUDGE = _spec("judge", "evaluation", "model")
