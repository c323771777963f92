"""What a model answers to evaluation positions, each answer judged and its prose checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import chess
import pyarrow as pa

from queen.evaluation.substantiation import Answer, LineScore, measure
from queen.evaluation.truth import ProseCount, count_prose, partners
from queen.games.chess.position import Position
from queen.generation.requests import Completion, Sampling
from queen.generation.speaker import Asked, Legal, Speaker
from queen.language.form import NO_MOVE, line_of
from queen.language.ground import Ground
from queen.search.tree import read
from stages.base import Job
from stages.positions import position_of

Row = Mapping[str, Any]
PLIES = (1, 3, 5)
SHUFFLE = 0  # the same for every model and round, so that their shuffled prose compares
PROSE = tuple(entry.name for entry in fields(ProseCount))
FREE, GUIDED = "", "guided_"


def _columns(way: str, sound: str) -> list[tuple[str, pa.DataType]]:
    """The columns of one way of decoding."""
    return [
        (f"{way}text", pa.string()),
        (f"{way}finished", pa.bool_()),
        (f"{way}reason", pa.string()),
        (f"{way}best", pa.string()),
        (f"{way}line", pa.string()),
        *((f"{way}{name}", pa.bool_()) for name in ("whole", "parseable", "legal", "judged")),
        (f"{way}{sound}", pa.bool_()),
        *((f"{way}line_ok_{n}", pa.bool_()) for n in PLIES),
        *((f"{way}prose_{name}", pa.int32()) for name in PROSE),
    ]


ANSWERS = pa.schema(
    [
        ("pid", pa.string()),
        ("kind", pa.string()),
        ("split", pa.string()),
        ("game_id", pa.string()),
        ("start", pa.string()),
        ("moves", pa.string()),
        *_columns(FREE, "first_ok"),
        ("constrained", pa.string()),
        ("constrained_ok", pa.bool_()),
        ("encoder_agrees", pa.bool_()),
        *_columns(GUIDED, "ok"),
        ("elsewhere", pa.string()),
        ("elsewhere_fen", pa.string()),
    ]
)


@dataclass(frozen=True)
class Said:
    """One text: as it was written, why it is no sound explanation, what it answers."""

    written: Completion
    reason: str
    answer: Answer


def elsewhere(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """For each position of the evaluation set (pid) another one of its split: pid and FEN."""
    found: dict[str, tuple[str, str]] = {}
    for split in sorted({row["split"] for row in rows}):
        part = sorted((r for r in rows if r["split"] == split), key=lambda row: str(row["pid"]))
        white = [row["fen"].split()[1] == "w" for row in part]
        for row, other in zip(part, partners(white, SHUFFLE), strict=True):
            found[row["pid"]] = (part[other]["pid"], part[other]["fen"])
    return found


def answers(
    job: Job[Any], speaker: Speaker, rows: Sequence[Row], others: Mapping[str, tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    """A row of ANSWERS for each position: what was said freely and, where asked for, guided.

    Args:
        job: its params are those of `stages.evaluate`.
        others: of `elsewhere`.
    """
    positions = [position_of(row) for row in rows]
    free = _explained(job, speaker, rows, positions, "none")
    policies = speaker.policies(positions)
    forced = [Answer(max(sorted(p), key=p.__getitem__), ()) for p in policies]
    guided = _explained(job, speaker, rows, positions, "moves") if job.params.guides else []
    asked = [*(s.answer for s in free), *forced, *(s.answer for s in guided)]
    scores = _judged(job, [*positions, *positions, *(positions if guided else [])], asked)
    count = len(positions)
    for i, row in enumerate(rows):
        pid, fen = others[row["pid"]]
        grounds = Ground(positions[i]), Ground(chess.Board(fen))
        yield {
            **{n: row[n] for n in ("pid", "kind", "split", "game_id", "start", "moves")},
            **_told(FREE, free[i], scores[i], grounds),
            "first_ok": scores[i].first_sound,
            "constrained": forced[i].first,
            "constrained_ok": scores[count + i].first == "sound",
            "encoder_agrees": forced[i].first == row["encoder_move"],
            **(_guided(guided[i], scores[2 * count + i], grounds) if guided else {}),
            "elsewhere": pid,
            "elsewhere_fen": fen,
        }


def _explained(
    job: Job[Any],
    speaker: Speaker,
    rows: Sequence[Row],
    positions: Sequence[Position],
    legal: Legal,
) -> list[Said]:
    asked = [Asked(row["pid"], p) for row, p in zip(rows, positions, strict=True)]
    sampling = Sampling(temperature=0.0, max_new_tokens=job.params.max_tokens)
    said = speaker.explain(asked, sampling, legal)
    return [
        Said(one, read(one, position)[1], answer_of(one, position))
        for one, position in zip(said, positions, strict=True)
    ]


def answer_of(said: Completion, position: Position) -> Answer:
    """What a text answers. Its form must be right; an illegal move fails where it stands."""
    if said.error is not None:
        return Answer(None, (), False)
    line = line_of(said.text, position, finished=said.finished)
    return Answer(line[0], line) if line else Answer(None, (), False)


def _judged(
    job: Job[Any], positions: Sequence[Position], said: Sequence[Answer]
) -> list[LineScore]:
    with job.searches() as cache, job.analyser(cache) as analyser:
        judge = job.params.judge.build(analyser).judge
        return measure(positions, said, judge, job.params.judge.mistake)


def _told(way: str, said: Said, score: LineScore, grounds: tuple[Ground, Ground]) -> dict[str, Any]:
    """The columns of one way of decoding, but for whether the first move is sound."""
    text, finished = said.written.text, said.written.finished
    columns = {
        "text": text,
        "finished": finished,
        "reason": said.reason,
        "best": _uci(said.answer.first),
        "line": " ".join(said.answer.line),
        "whole": not said.reason,
        "parseable": score.parseable,
        "legal": score.parseable and score.legal,
        "judged": score.judged,
        **{f"line_ok_{n}": score.sound_to(n) for n in PLIES},
        **{f"prose_{k}": v for k, v in _prose(said.written, grounds).items()},
    }
    return {f"{way}{name}": value for name, value in columns.items()}


def _prose(written: Completion, grounds: tuple[Ground, Ground]) -> dict[str, int]:
    if written.error is not None:
        return asdict(ProseCount())
    return asdict(count_prose(written.text, *grounds, finished=written.finished))


def _guided(said: Said, score: LineScore, grounds: tuple[Ground, Ground]) -> dict[str, Any]:
    """The columns of the guided text; no outcome where the engine failed."""
    sound = score.first_sound if score.judged else None
    return {**_told(GUIDED, said, score, grounds), "guided_ok": sound}


def _uci(move: str | None) -> str:
    """A move for a column; empty for one that is none."""
    return "" if move in (None, NO_MOVE) else str(move)
