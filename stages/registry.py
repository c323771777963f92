"""Every stage by name. What flows where is said once, here; dvc.yaml is tested against it."""

from __future__ import annotations

import difflib
import importlib

from queen.errors import QueenError
from stages.base import StageSpec

ONCE = ("games", "encoder", "positions", "evalset", "questions", "seeds", "tokenizer")
MODELS = ("pawn", "pawn1")
ROUND = ("sample", "explain", "recurse", "consolidate", "filter", "train", "evaluate")
# The bulk data set: a line of its own beside the rounds, walked only when asked for.
DATASET = ("extract", "dedup", "label", "value")
NAMES = (*ONCE, *MODELS, "judge", *ROUND, *DATASET)


def spec_of(name: str) -> StageSpec:
    """The declaration of a stage; its module is imported only now."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise QueenError(
            f"no stage {name!r}",
            where="stage name",
            remedy=(f"did you mean {near[0]!r}? " if near else "") + f"known: {', '.join(NAMES)}",
        )
    module = "evaluate" if name == "judge" else name
    loaded = importlib.import_module(f"stages.{module}")
    spec: StageSpec = loaded.JUDGE if name == "judge" else loaded.SPEC
    return spec


def find_stage(name: str) -> tuple[StageSpec, str | None]:
    """Split `NAME[@KEY]` and check that the stage takes a key, or none."""
    stage, _, key = name.partition("@")
    spec = spec_of(stage)
    if bool(key) != (spec.per != "once"):
        raise QueenError(
            f"stage {stage!r} {'takes no key' if key else 'needs a key'}",
            where=name,
            remedy=f"say {stage}" if key else f"say {stage}@KEY, for instance {stage}@r1",
        )
    return spec, key or None
