"""The card of an exported data set: what it holds, from where, under which licences, how made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from queen.lineage.artifact import Artifact, Record
from stages.modelcard import listed

SIZES = (
    *((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M")),
    *((10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B")),
)
LARGEST = "n>1T"
SPDX = {"CC0-1.0": "cc0-1.0", "GPL-3.0": "gpl-3.0", "MIT": "mit", "CC-BY-4.0": "cc-by-4.0"}
WHO = {
    "engine": "an engine searched each position (source `engine`); games that are over have the"
    " rules' own label (source `rules`)",
    "dump": "evaluations that stood in the game files, of whichever engine and depth their"
    " maker used (source `dump`)",
}
TEMPLATE = """---
pretty_name: Chess positions with state values
{licence}size_categories: ["{size}"]
tags: [chess, state-value, queen]
configs:
  - config_name: default
    data_files:
      - split: train
        path: data/*.parquet
---
# Chess positions with state values

{rows:,} distinct positions of {occurrences} in games, each with a score. Two positions are the same
if pieces, side to move, castling rights and a capturable en-passant square are the same. Labels:
{who}.

```python
from datasets import load_dataset

positions = load_dataset("parquet", data_files="data/*.parquet", split="train")
```

## Columns
| column | what |
|---|---|
| fen | the position; clocks and move number are those of the occurrence kept for it |
| cp | score in centipawns from the side to move; null for a mate |
| mate | moves to mate, negative if the side to move is mated, 0 if it is mated already; else null |
| source | who gave the score: `engine`, `rules` or `dump` |
| best | the engine's move in UCI; null if none was said |
| depth, nodes | of the engine's search; null if not known |
| seen | how often the position occurred |
| white_wins, draws, black_wins | how the games ended in which it occurred; the rest had no result |
| ply | half-moves made, in the occurrence kept |
| played | the move made there; null where the game ended |
| white_elo, black_elo | ratings in that game; null if not given |

Of a position's occurrences the one kept is the first of those with an evaluation, if there are
any, by the hash of its game and its ply. Rows stand in the order of a hash of the position, which
mixes games and phases. Players' names are nowhere.

## Sources and licences
{licences}

## How it was made
{made}

Left out before:
{drops}

Params: `{params}`

## Limits
A score says what one engine thought within its budget, not the truth. Positions of an evaluation
set were kept out where the count above says so; compare by FEN without clocks before you measure
on other sets. There is one split; hold out by your own rule.
"""


def data_card(positions: Artifact, labels: Artifact, label_source: str, rows: int) -> str:
    """The card as Markdown with Hugging Face's front matter; a function of the records alone."""
    record = positions.record
    licences = {**record.licences, **labels.record.licences}
    seen = record.counts.get("rows")
    return TEMPLATE.format(
        licence=_front_licence(licences.values()),
        size=size_of(rows),
        rows=rows,
        occurrences=f"{seen:,} occurrences" if seen else "many occurrences",
        who=WHO[label_source],
        licences=listed(licences),
        made=_made((record, labels.record), label_source),
        drops=listed({k: f"{v:,}" for r in (record, labels.record) for k, v in r.drops.items()}),
        params=_json({"dedup": dict(record.params), "label": dict(labels.record.params)}),
    )


def size_of(rows: int) -> str:
    """Hugging Face's category of a number of rows."""
    return next((name for bound, name in SIZES if rows < bound), LARGEST)


def _front_licence(licences: Any) -> str:
    """`license:` where all sources say one that is known; else `other`, told below."""
    found = {next((v for k, v in SPDX.items() if text.startswith(k)), "other") for text in licences}
    return f"license: {found.pop() if len(found) == 1 else 'other'}\n"


def _made(records: tuple[Record, ...], label_source: str) -> str:
    lines = [
        f"- `{r.name}` by stage `{r.stage}` version {r.version}, content {r.content[:12]}, seed"
        f" {r.seed}: {_counts(r.counts)}"
        for r in records
    ]
    if label_source == "engine":
        lines += [
            f"- {role}: `{_json(identity)}`"
            for r in records
            for role, identity in sorted(r.identities.items())
        ]
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "nothing counted"


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
