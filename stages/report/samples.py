"""Sampled explanations with their boards: what was said before, what after, and by whom."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import chess
import orjson
from markupsafe import Markup

from queen.games.chess.notation import humanize, san_line
from queen.games.chess.position import Position
from queen.generation.explainer import salvage
from queen.language.claims import board_holds, checkable
from queen.language.explanation import Explanation, ExplanationError, Sentence, parse
from queen.language.ground import Ground
from queen.language.people import sentence_for_people
from queen.language.provenance import Consolidated, Origin, Source
from queen.language.vocabulary import IMPOSSIBLE
from stages.answers import FREE, GUIDED
from stages.positions import position_of
from stages.report.boards import board_svg
from stages.report.project import Project

EACH = 3
PAIRS = 2
RAW = 360


@dataclass(frozen=True)
class Said:
    """One sentence for people, who said it first, and in which words it is told."""

    text: str
    who: str = ""
    told: str = ""


@dataclass(frozen=True)
class Weighed:
    """A candidate: its move and line, its score, who gave the line."""

    san: str
    score: str
    line: str
    who: str = ""


@dataclass(frozen=True)
class Panel:
    """One explanation of a position; `raw` and `reason` where it could not be read."""

    title: str
    best: str = ""
    line: str = ""
    candidates: tuple[Weighed, ...] = ()
    prose: tuple[Said, ...] = ()
    raw: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Sample:
    """A position and what is said of it."""

    pid: str
    board: Markup
    title: str
    badge: str
    kind: str
    panels: tuple[Panel, ...]
    note: str = ""


@dataclass(frozen=True)
class Samples:
    """A heading, a sentence about it, and the samples; in two columns, or each across the page."""

    title: str
    about: str
    samples: tuple[Sample, ...] = field(default_factory=tuple)
    columns: bool = False


def sampled(project: Project) -> list[Samples]:
    """What is worth showing: the champion's own words, the newest round's, the teacher's."""
    found = [_answers(project), *(_round(project, key) for key in project.rounds[-1:])]
    found.append(_seeds(project))
    return [group for group in found if group.samples]


def _order(rows: Sequence[Mapping[str, Any]], salt: str) -> list[Mapping[str, Any]]:
    """An order that hangs on the positions alone."""
    return sorted(rows, key=lambda r: hashlib.sha256(f"{salt}{r['pid']}".encode()).digest())


def _round(project: Project, key: str) -> Samples:
    name = f"data/filter/{key}" if f"data/filter/{key}" in project.artifacts else ""
    rows = project.table(name) if name else project.table(f"data/consolidate/{key}")
    ranked = _order(rows, key)
    kept = [r for r in ranked if not r.get("dropped")]
    kept.sort(key=lambda r: (bool(r["path"]), not r["old_text"], not r["model_sentences"]))
    chosen = [*kept[:EACH], *_one_of_each([r for r in ranked if r.get("dropped")])]
    about = (
        "Left what the model said of the position, right what was folded from its explanations of "
        "the positions after each candidate. Evaluations are the engine's; every sentence carries "
        "who said it first. Green: the new best move; orange: the old one."
    )
    samples = tuple(_example(row) for row in chosen)
    return Samples(f"Examples of round {key}, before and after", about, samples)


def _one_of_each(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first rows of different reasons, then more of the same."""
    seen: set[str] = set()
    first: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    for row in rows:
        (others if row["dropped"] in seen else first).append(row)
        seen.add(row["dropped"])
    return [*first, *others][:EACH]


def _example(row: Mapping[str, Any]) -> Sample:
    position = position_of(row)
    told = Consolidated.from_json(orjson.loads(row["consolidated"]))
    after = _panel("After", told.explanation, position, told.sentences, told.lines)
    before = _read("Before", row["old_text"], position)
    old = row["old_line"].split()
    kept = not row.get("dropped")
    return Sample(
        pid=row["pid"],
        board=board_svg(position, told.explanation.best, old[0] if old else None),
        title=_title(position, row),
        badge="kept" if kept else f"dropped: {_words(row['dropped'])}",
        kind="good" if kept else "bad",
        panels=(before, after),
        note=_comparison(row),
    )


def _comparison(row: Mapping[str, Any]) -> str:
    at, old, new = (row.get(name) for name in ("differs_at", "old_value", "new_value"))
    if at is None or old is None or new is None:
        return ""
    return (
        f"The lines part at ply {at + 1}: there the old move is worth {old:.2f}, "
        f"the new one {new:.2f}."
    )


def _title(position: Position, row: Mapping[str, Any]) -> str:
    side = "White" if position.white_to_move else "Black"
    game = f"game {row['game_id'][:8]}" if row.get("game_id") else "no game"
    ply = f", ply {row['ply']}" if row.get("ply") is not None else ""
    below = row.get("path")
    after = f", {len(below.split())} below the root" if below else ""
    return f"{side} to move · {game}{ply}{after}"


def _read(title: str, text: str | None, position: Position) -> Panel:
    """A text of the model's as a panel: read where that goes, else raw with the reason."""
    if not text:
        return Panel(title, reason="nothing was said")
    try:
        explanation = parse(text, position)
    except ExplanationError as error:
        return _unread(title, text, position, error.reason.value)
    return _panel(title, explanation, position)


def _unread(title: str, text: str, position: Position, reason: str) -> Panel:
    raw = humanize(position.board(), text)
    raw = raw if len(raw) <= RAW else raw[:RAW] + " …"
    return Panel(title, raw=raw, reason=_words(reason))


def _words(reason: str) -> str:
    return reason.replace("_", " ").replace(".", ": ")


def _panel(
    title: str,
    explanation: Explanation,
    position: Position,
    sentences: Sequence[Source] = (),
    lines: Sequence[Source] = (),
) -> Panel:
    board, ground = position.board(), Ground(position)
    sources: list[Source | None] = list(sentences) or [None] * len(explanation.prose)
    origins: list[Source | None] = list(lines) or [None] * len(explanation.candidates)
    return Panel(
        title=title,
        best=board.san(chess.Move.from_uci(explanation.best)),
        line=san_line(board, explanation.line),
        candidates=tuple(
            Weighed(
                san=board.san(chess.Move.from_uci(c.move)),
                score=f"{c.score:.0%}",
                line=san_line(board, (c.move, *c.line)),
                who=_who(source, board)[0],
            )
            for c, source in zip(explanation.candidates, origins, strict=True)
        ),
        prose=tuple(
            Said(sentence_for_people(sentence, ground), *_who(source, board))
            for sentence, source in zip(explanation.prose, sources, strict=True)
        ),
    )


def _who(source: Source | None, board: chess.Board) -> tuple[str, str]:
    """The badge of a source (`model`, `engine` or `rules`) and what it says when pointed at."""
    if source is None:
        return "", ""
    move = board.san(chess.Move.from_uci(source.move))
    words = {
        Origin.ENGINE: f"an engine fact about {move}",
        Origin.RULES: f"{move} ends the game",
        Origin.CHILD: f"from the model's text about the position after {move}",
        Origin.BELOW: f"folded for the position after {move}, and from there",
    }
    author = source.origin.value if source.origin in (Origin.ENGINE, Origin.RULES) else "engine"
    return ("model" if source.model else author), words[source.origin]


def _answers(project: Project) -> Samples:
    """The champion's own explanations of development positions, good ones beside bad ones."""
    champion = project.champion
    key = champion.key if champion else ""
    rows = _order(project.table(f"data/evaluate/{key}") if key else [], key)
    dev = [r for r in rows if r["split"] == "dev" and r["judged"] and r["text"]]
    good = [r for r in dev if r["first_ok"]]
    read = [r for r in dev if not r["first_ok"] and r.get("parseable")]
    unread = [r for r in dev if not r["first_ok"] and not r.get("parseable")]
    bad = [*read[:1], *unread[:1], *read[1:]]
    pairs = zip(sorted(good, key=lambda r: bool(r["reason"])), bad, strict=False)
    chosen = [row for pair in pairs for row in pair][: 2 * PAIRS] or dev[:PAIRS]
    best = {r["pid"]: r["best_move"] for r in project.table("data/evalset", ["pid", "best_move"])}
    about = (
        "Positions of games it never trained on, word for word: left the first move is sound, "
        "right it is not, or cannot be read. Where texts were also written with their moves held "
        "to legal ones, those stand beside. What the board decides says whether it holds."
    )
    title = f"What the champion says now ({key}), good and bad"
    return Samples(title, about, tuple(_answer(row, best.get(row["pid"])) for row in chosen), True)


def _answer(row: Mapping[str, Any], best: str | None) -> Sample:
    position = position_of(row)
    panels = [_answered("Free", row, FREE, position)]
    if row.get("guided_text"):
        panels.append(_answered("Moves held to legal ones", row, GUIDED, position))
    sound = "first move sound" if row["first_ok"] else "first move a mistake"
    badge = sound if row.get("parseable") else f"not read: {_words(row['reason'])}"
    wrong = best is not None and not row["first_ok"]
    return Sample(
        pid=row["pid"],
        board=board_svg(position, row["best"] if row["legal"] and row["best"] else None),
        title=f"{_title(position, row)} · {row['kind']}",
        badge=badge,
        kind="good" if row["first_ok"] else "bad",
        panels=tuple(panels),
        note=f"The engine prefers {san_line(position.board(), (str(best),))}." if wrong else "",
    )


def _answered(title: str, row: Mapping[str, Any], way: str, position: Position) -> Panel:
    """A text as far as it can be read, its claims checked; raw where not even a move can be."""
    text, reason = row[f"{way}text"], row[f"{way}reason"]
    finished = row.get(f"{way}finished") is not False
    told = salvage(text, position, finished=finished)
    if told.best is None:
        return _unread(title, text, position, reason)
    explanation = Explanation(position.fen, told.best, told.line, told.candidates, told.prose)
    panel = _panel(title, explanation, position)
    ground = Ground(position)
    checked = zip(panel.prose, told.prose, strict=True)
    prose = tuple(Said(said.text, *_checked(sentence, ground)) for said, sentence in checked)
    return replace(panel, prose=prose, reason=_words(reason))


def _checked(sentence: Sentence, ground: Ground) -> tuple[str, str]:
    """The badge of a sentence whose claims the board decides: `holds` or `false`."""
    claims = [claim for claim in sentence.claims if checkable(claim)]
    if not claims:
        return "", ""
    if any(claim.kind == IMPOSSIBLE for claim in claims):
        return "false", "speaks of a move that nobody can play there"
    held = all(board_holds(claim, ground) for claim in claims)
    return ("holds" if held else "false"), "checked on the board"


def _seeds(project: Project) -> Samples:
    """The teacher's explanations, kept and dropped."""
    rows = [row for row in _order(project.table("data/seeds"), "seeds") if row["text"]]
    kept = [row for row in rows if not row["dropped"]]
    dropped = [row for row in rows if row["dropped"]]
    chosen = [*kept[: EACH - 1], *dropped[:1]]
    about = f"Written by {_teacher(project)}, checked by search."
    return Samples("What the teacher wrote", about, tuple(map(_seed, chosen)))


def _teacher(project: Project) -> str:
    """Who wrote the seeds, by their record."""
    seeds = project.artifacts.get("data/seeds")
    named = seeds.record.identities.get("teacher") if seeds is not None else None
    if named is None:
        return "the embedded teacher from engine facts and the rules"
    return f"the language model {named['model']}, which saw the position alone"


def _seed(row: Mapping[str, Any]) -> Sample:
    position = position_of(row)
    explanation = Explanation.from_json(orjson.loads(row["explanation"]))
    kept = not row["dropped"]
    return Sample(
        pid=row["pid"],
        board=board_svg(position, explanation.best),
        title=_title(position, row),
        badge="kept" if kept else f"dropped: {_words(row['dropped'])}",
        kind="good" if kept else "bad",
        panels=(_panel("Teacher", explanation, position),),
    )


def boards_of(groups: Sequence[Samples]) -> Iterator[Sample]:
    """Every sample of all groups."""
    for group in groups:
        yield from group.samples
