"""The card of a released model: data, networks, engines, licences, strength and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from queen.lineage.artifact import Artifact, read_record
from queen.lineage.verdicts import Judgement
from stages.declared import in_words
from stages.modelcard import DECLARED, FRONT_MATTER
from stages.release.history import History
from stages.release.shipped import Reference
from stages.shown import elo

TEMPLATE = (
    FRONT_MATTER
    + """# {name}

A QUEEN: a small language model bridged to a frozen Lc0 network, which plays chess and explains its
moves. Made from `{model}` ({content}), its weights rounded to bfloat16.

    queen explain startpos --model {short}
    queen uci --model {short}

{declared}## How it was made
{made}

## Data
{data}

## Networks and engines
{networks}

## Licences
{licences}

## Strength
{strength}

Verdict against its parent: {verdict}.

Measured before the weights were rounded, on positions and games set aside from training.
{tested}

## Limits
- Standard chess only, in English, in the notation of its training text.
- It is small: its first moves are far weaker than those of the network it reads, its lines and
  statements weaker still. What it says can be false: nothing checks its words when it speaks.
- Unless decoding is guided, a text can hold illegal moves (see the texts sound throughout, above).
- It does not search. Its scores are written by the model and are not an engine's.
"""
)
SHARES = {
    "fnmr": "first moves that are no mistake, free decoding",
    "fnmr_constrained": "first moves that are no mistake, legal moves only",
    "parseable": "texts of the right form, free decoding",
    "whole": "texts sound throughout, free decoding",
    "legal": "first moves that are legal, free decoding",
    "nmr5": "lines of five plies without a mistake",
    "independence": "first moves that differ from the encoder's",
}
PROSE = {
    "checkable": "of its sentences can be checked on the board",
    "truth": "of these hold",
    "truth_shuffled": "of these hold in another position",
}


@dataclass(frozen=True)
class Released:
    """What the card tells of."""

    name: str
    model: Artifact
    evaluation: Artifact
    judgement: Judgement
    encoder: Reference
    history: History


def release_card(told: Released, project: Path) -> str:
    """The card as Markdown with Hugging Face's front matter."""
    figures = {**told.evaluation.record.figures, **(told.history.test or {})}
    said = "\n".join(f"- It {words}." for words in in_words(told.evaluation.record.figures))
    return TEMPLATE.format(
        name=told.name,
        short=told.name.split("/")[-1],
        model=told.model.name,
        content=told.model.content[:12],
        declared=f"{DECLARED.strip().format(said=said)}\n\n" if said else "",
        made=_list(iter(told.history.made)),
        data=_list(_data(told, project)),
        networks=_list(_networks(told)),
        licences=_list(f"{source}: {text}" for source, text in sorted(_licences(told).items())),
        strength=_list(_strength(figures)),
        verdict=f"{told.judgement.verdict} ({told.judgement.reason})",
        tested=_tested(told.history),
    )


def _list(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- none recorded"


def _data(told: Released, project: Path) -> Iterator[str]:
    """The games it all comes from, and what each training input counted."""
    if (project / "data/games/record.json").is_file():
        record = read_record(project / "data/games")
        counts = ", ".join(f"{value} {name}" for name, value in sorted(record.counts.items()))
        yield f"games: {record.params.get('source')} ({counts})"
    for entry in told.model.record.inputs:
        if entry.name.startswith("data/"):
            yield f"{entry.role}: {entry.name} ({entry.content[:12]})"
    for name, value in sorted(told.model.record.counts.items()):
        yield f"{name} of the last training: {value}"


def _networks(told: Released) -> Iterator[str]:
    yield (
        f"encoder: {told.encoder.source} (weights {told.encoder.weights[:12]}), fetched when first "
        "needed and not part of this folder"
    )
    for role, identity in sorted(told.evaluation.record.identities.items()):
        if isinstance(identity, Mapping) and "name" in identity:
            version = str(identity.get("version", ""))
            yield f"{role}: {identity['name']} {version}".rstrip()


def _licences(told: Released) -> dict[str, str]:
    return {**told.evaluation.record.licences, **told.model.record.licences}


def _tested(known: History) -> str:
    if known.test is None:
        return "It was not scored on the test set."
    return f"On the test set it was scored {known.times} time{'s' if known.times > 1 else ''}."


def _strength(figures: Mapping[str, float]) -> Iterator[str]:
    """Figures by split and kind of position, with intervals where they have them."""
    for split in ("test", "dev"):
        for kind in ("general", "tactical", "all"):
            for name, words in SHARES.items():
                yield from _line(
                    figures, f"{split}.{kind}.{name}", f"{split} positions, {kind}", words
                )
        for way, at in {"free": split, "guided": f"{split}.guided"}.items():
            for name, words in PROSE.items():
                yield from _line(figures, f"{at}.{name}", f"{split} positions, {way} prose", words)
    if "elo" in figures:
        low, high = (figures.get(f"elo_{side}") for side in ("low", "high"))
        yield f"Elo {elo(figures['elo'], (low, high))} on the scale of the project's opponents"


def _line(figures: Mapping[str, float], name: str, where: str, words: str) -> Iterator[str]:
    value = figures.get(name)
    if value is not None:
        yield f"{where}: {value:.1%}{_bounds(figures, name)} {words}"


def _bounds(figures: Mapping[str, float], name: str) -> str:
    low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
    return "" if low is None or high is None else f" [{low:.1%}, {high:.1%}]"
