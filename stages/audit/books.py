"""The counts of each artifact: they add up, agree with its rows, and with what went in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from queen.lineage.artifact import Artifact, read_json
from stages.audit.opened import Opened
from stages.declared import NO_ENCODER, PREFIX
from stages.evaluate import GAMES, SUMMARY
from stages.training import TRAINING
from stages.trees import trees_from_rows

Faults = Iterator[str]
Books = Callable[[Opened, Artifact], Faults]


def count_faults(opened: Opened, artifact: Artifact) -> Faults:
    """What in an artifact's counts does not hold; nothing for stages that count nothing."""
    books = BOOKS.get(artifact.record.stage)
    if books is not None:
        yield from books(opened, artifact)


def _unequal(what: str, said: float, found: float) -> Faults:
    if said != found:
        yield f"{what}: {said} recorded, {found} found"


def _reasons(column: list[str | None]) -> tuple[int, dict[str, int]]:
    """How many rows have no reason, and the others by reason."""
    counts = Counter(column)
    return counts.pop("", 0), {str(k): n for k, n in counts.items()}


def _drops(record_drops: Mapping[str, int], prefix: str = "") -> int:
    return sum(n for reason, n in record_drops.items() if reason.startswith(prefix))


def _games(opened: Opened, artifact: Artifact) -> Faults:
    record = artifact.record
    rejected = _drops(record.drops, "rejected.")
    yield from _unequal("games kept", record.counts["kept"], opened.table(artifact).num_rows)
    rejects = opened.table(artifact, "rejects.parquet").num_rows
    yield from _unequal("faults of game files", rejected, rejects)
    left = record.counts["read"] - record.counts["kept"] - (_drops(record.drops) - rejected)
    if left < 0 or (left and not record.params["limit"]):
        yield f"games read are not those kept and dropped: {left} unaccounted for"


def _positions(opened: Opened, artifact: Artifact) -> Faults:
    record = artifact.record
    yield from _unequal("positions kept", record.counts["kept"], opened.table(artifact).num_rows)
    told = record.counts["kept"] + _drops(record.drops)
    yield from _unequal("positions seen", record.counts["seen"], told)


def _rows_by(*columns: str) -> Books:
    """Counts named after the values of columns, as `dev.general`."""

    def check(opened: Opened, artifact: Artifact) -> Faults:
        table = opened.table(artifact)
        rows = zip(*(table[c].to_pylist() for c in columns), strict=True)
        found = Counter(".".join(values) for values in rows)
        for name in sorted({*found, *artifact.record.counts}):
            yield from _unequal(f"rows of {name}", artifact.record.counts.get(name, 0), found[name])

    return check


def _seeds(opened: Opened, artifact: Artifact) -> Faults:
    yield from _kept_and_dropped(opened, artifact, "explained")


def _kept_and_dropped(opened: Opened, artifact: Artifact, total: str) -> Faults:
    """Every row is kept, or dropped for one counted reason."""
    record, table = artifact.record, opened.table(artifact)
    kept, dropped = _reasons(table["dropped"].to_pylist())
    yield from _unequal(f"rows ({total})", record.counts[total], table.num_rows)
    yield from _unequal("examples kept", record.counts["kept"], kept)
    for reason in sorted({*dropped, *record.drops}):
        said, found = record.drops.get(reason, 0), dropped.get(reason, 0)
        yield from _unequal(f"dropped for {reason}", said, found)


def _sample(opened: Opened, artifact: Artifact) -> Faults:
    table = opened.table(artifact)
    yield from _unequal("roots kept", artifact.record.counts["kept"], table.num_rows)
    for source, count in Counter(table["source"].to_pylist()).items():
        yield from _unequal(f"roots from {source}", artifact.record.counts.get(source, 0), count)


def _explain(opened: Opened, artifact: Artifact) -> Faults:
    record, rows = artifact.record, opened.table(artifact).to_pylist()
    roots = opened.input_of(artifact, "roots")
    yield from _unequal("roots", record.counts["roots"], len(rows))
    if roots is not None:
        yield from _unequal("roots sampled", opened.table(roots).num_rows, len(rows))
    alive = [row for row in rows if not row["failure"]]
    texts = [told for row in alive for told in orjson.loads(row["texts"]).values()]
    yield from _unequal("texts", record.counts.get("texts", 0), len(texts))
    told = record.counts.get("parsed", 0) + _drops(record.drops, "unparsed.")
    yield from _unequal("texts parsed and not", told, len(texts))
    failed = _drops(record.drops) - _drops(record.drops, "unparsed.")
    yield from _unequal("roots that failed", failed, len(rows) - len(alive))


def _recurse(opened: Opened, artifact: Artifact) -> Faults:
    record, counts = artifact.record, artifact.record.counts
    rows = opened.table(artifact).to_pylist()
    trees = trees_from_rows(rows)
    below = [node for tree in trees for node in tree.nodes.values() if node.path]
    explained = opened.input_of(artifact, "explained")
    if explained is not None:
        failures = opened.table(explained)["failure"].to_pylist()
        yield from _unequal("roots explained", failures.count(""), len(trees))
    yield from _unequal("trees", counts["trees"], len(trees))
    yield from _unequal("children", counts.get("children", 0), len(below))
    by_depth = sum(n for name, n in counts.items() if name.startswith("depth_"))
    yield from _unequal("children by depth", by_depth, len(below))
    spoken = counts.get("parsed", 0) + _drops(record.drops, "unparsed.")
    silent = counts.get("finished_games", 0) + counts.get("untold", 0)
    yield from _unequal(
        "children parsed, not parsed, untold and finished", spoken + silent, len(below)
    )
    for tree in trees:
        lonely = [p for p in tree.nodes if p and p[:-1] not in tree.nodes]
        if lonely:
            yield f"root {tree.id}: a child without its parent: {' '.join(lonely[0])}"


def _consolidate(opened: Opened, artifact: Artifact) -> Faults:
    record, table = artifact.record, opened.table(artifact)
    counts = record.counts
    yield from _unequal("explanations folded", counts["folded"], table.num_rows)
    for name in ("sentences", "model_sentences"):
        found = sum(table[name].to_pylist())
        yield from _unequal(name.replace("_", " "), counts.get(name, 0), found)
    trees = opened.input_of(artifact, "trees")
    if trees is not None:
        weighed = [row for row in opened.table(trees).to_pylist() if row["weighed"]]
        told = counts["folded"] + record.drops.get("no_candidate_valued", 0)
        yield from _unequal("roots and new roots of the trees", told, len(weighed))
    share = counts.get("model_sentences", 0) / max(1, counts.get("sentences", 0))
    said = record.figures.get("model_share", 0.0)
    yield from _unequal("share of model-written statements", said, round(share, 6))


def _filter(opened: Opened, artifact: Artifact) -> Faults:
    yield from _kept_and_dropped(opened, artifact, "examples")
    consolidated = opened.input_of(artifact, "consolidated")
    if consolidated is None:
        return
    before, after = opened.table(consolidated), opened.table(artifact)
    distinct = len(set(before["pid"].to_pylist()))
    yield from _unequal("distinct positions consolidated", distinct, after.num_rows)
    texts = {(r["root"], r["path"]): r["text"] for r in before.to_pylist()}
    for row in after.to_pylist():
        if texts.get((row["root"], row["path"])) != row["text"]:
            yield f"example {row['pid']}: its text is not the consolidated one"


def _trained_on(**roles: str) -> Books:
    """Examples trained on and left out are those kept upstream; the encoder is the project's."""

    def check(opened: Opened, artifact: Artifact) -> Faults:
        told = read_json(artifact.file(TRAINING))
        for part, role in roles.items():
            source = opened.input_of(artifact, role)
            if source is not None and any(part in p["examples"] for p in told["phases"]):
                kept = source.record.counts["kept"]
                found = sum(_met(phase, part) for phase in told["phases"])
                yield from _unequal(f"examples of {part} kept, and met or left out", kept, found)
        encoder = opened.input_of(artifact, "encoder")
        if encoder is not None:
            blind = PREFIX + NO_ENCODER in artifact.record.figures
            digest = "" if blind else encoder.record.identities["expert"]["weights"]
            if told["encoder"] != digest:
                mine, wanted = (each[:12] or "none" for each in (told["encoder"], digest))
                yield f"was trained on encoder {mine}, not {wanted}"

    return check


def _met(phase: Mapping[str, Any], part: str) -> int:
    """Examples of a part in one phase, those left out as too long among them."""
    rejected: Mapping[str, int] = phase["rejected"].get(part, {})
    return int(phase["examples"].get(part, 0)) + sum(rejected.values())


def _evaluate(opened: Opened, artifact: Artifact) -> Faults:
    record, table = artifact.record, opened.table(artifact)
    yield from _unequal("positions", record.counts["positions"], table.num_rows)
    evalset = opened.input_of(artifact, "evalset")
    if evalset is not None:
        splits = opened.table(evalset)["split"].to_pylist()
        asked = sum(split in record.params["splits"] for split in splits)
        yield from _unequal("positions asked for", asked, table.num_rows)
    games = [line for line in artifact.file(GAMES).read_bytes().splitlines() if line.strip()]
    yield from _unequal("games", record.counts["games"], len(games))
    summary = read_json(artifact.file(SUMMARY))["figures"]
    if summary != dict(record.figures):
        yield f"{SUMMARY} and the record give other figures"
    yield from _figures(record.figures, table.to_pylist())


def _figures(figures: Mapping[str, float], rows: list[dict[str, Any]]) -> Faults:
    """The shares, counted again from the rows."""
    columns = {"fnmr": "first_ok", "fnmr_constrained": "constrained_ok"}
    columns |= {f"nmr{n}": f"line_ok_{n}" for n in (1, 3, 5)}
    for split in sorted({row["split"] for row in rows}):
        for kind in ("general", "tactical", "all"):
            part = [r for r in rows if r["judged"] and r["split"] == split]
            part = [r for r in part if kind in (r["kind"], "all")]
            for name, column in columns.items() if part else ():
                share = round(sum(bool(r[column]) for r in part) / len(part), 6)
                full = f"{split}.{kind}.{name}"
                yield from _unequal(full, figures.get(full, -1.0), share)


BOOKS: dict[str, Books] = {
    "games": _games,
    "positions": _positions,
    "evalset": _rows_by("split", "kind"),
    "questions": _rows_by("split", "stage"),
    "seeds": _seeds,
    "sample": _sample,
    "explain": _explain,
    "recurse": _recurse,
    "consolidate": _consolidate,
    "filter": _filter,
    "pawn": _trained_on(),
    "pawn1": _trained_on(seeds="seeds"),
    "train": _trained_on(new="filtered", seeds="seeds"),
    "evaluate": _evaluate,
    "judge": _evaluate,
}
