"""One stage of the toy project: `python toy.py NAME[@KEY]`; a small runner of the real kind."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from queen.errors import QueenError
from queen.lineage import verdicts
from queen.lineage.artifact import (
    InputEntry,
    Record,
    describe_files,
    digest_of,
    fresh_partial,
    open_artifact,
    publish,
)
from queen.lineage.lock import stage_guard
from queen.lineage.params import read_params
from queen.lineage.rounds import round_values
from queen.lineage.tracking import Input, Output, Tracker

INPUTS = {
    "games": [],
    "pawn1": ["data/games"],
    "sample": ["data/games"],
    "filter": ["data/sample/{key}", "models/{parent}"],
    "train": ["data/filter/{key}", "models/{parent}"],
    "evaluate": ["models/{key}"],
}
OUTPUTS = {
    "games": "data/games",
    "pawn1": "models/pawn1",
    "train": "models/{key}",
}


def main(name: str) -> None:
    root = Path.cwd()
    state = Path(os.environ.get("QUEEN_STATE", root / ".state"))
    stage, _, key = name.partition("@")
    with stage_guard(root, stage=name):
        params, parent = values(root, stage, key)
        final = root / OUTPUTS.get(stage, "data/{stage}/{key}").format(stage=stage, key=key)
        names = [text.format(key=key, parent=parent) for text in INPUTS[stage]]
        inputs = {n: open_artifact(root / n).content for n in names}
        recipe = digest_of([name, params, inputs])
        if not done(final, recipe):
            verdicts.require_open(root, stage=stage, key=key or None)
            entries = [Input(n, c) for n, c in inputs.items()]
            with Tracker(root, state).run(stage, key or None, params=params, inputs=entries) as run:
                misbehave(root, name)
                content = build(root, final, stage, params, parent, inputs, recipe)
                if stage == "evaluate":
                    verdicts.record_artifact(root, key)
                run.log(0, {"size": 1.0})
                run.finish("done", [Output(str(final.relative_to(root)), content)], {"kept": 2.0})
        elif stage == "evaluate":
            verdicts.record_artifact(root, key)


def values(root: Path, stage: str, key: str) -> tuple[dict, str]:
    if not key:
        params = read_params(root)
        return {"own": params[stage], "seed": params["seed"]}, ""
    entry = round_values(root, key)
    return {"own": entry[stage], "seed": entry["seed"]}, entry["parent"]


def done(final: Path, recipe: str) -> bool:
    try:
        return open_artifact(final).record.recipe == recipe
    except QueenError:
        return False


def misbehave(root: Path, name: str) -> None:
    """What the test asks for in `misbehave.json`: sleep, crash once, refuse."""
    with (root / "ran.txt").open("a") as log:
        log.write(f"{name}\n")
    path = root / "misbehave.json"
    wish = json.loads(path.read_text()).get(name) if path.is_file() else None
    if wish == "refuse":
        raise QueenError("the gate failed", where=name, remedy="mend the rows")
    if wish == "crash once":
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if wish and wish.startswith("sleep"):
        (root / "asleep.txt").write_text(str(os.getpid()))
        time.sleep(float(wish.split()[1]))


def build(root, final, stage, params, parent, inputs, recipe) -> str:
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh_partial(final)
    (partial / "rows.json").write_text(json.dumps([stage, params, sorted(inputs.values())]))
    if stage == "evaluate":
        outcome = round_values(root, final.name)["train"]["outcome"]
        found = verdicts.Judgement(
            model=next(iter(inputs.values())), verdict=outcome, reason="toy", parent=parent
        )
        (partial / "verdict.json").write_text(json.dumps(found.as_dict(), sort_keys=True))
    record = Record(
        name=str(final.relative_to(root)),
        stage=stage,
        version=1,
        recipe=recipe,
        seed=params["seed"],
        params=params,
        inputs=tuple(InputEntry(n, n, c) for n, c in inputs.items()),
        shards=(f"{stage}-shard",),
        files=describe_files(partial),
        counts={"rows": 1},
        drops={},
        figures={},
        identities={},
        licences={},
    )
    return publish(partial, final, record).content


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except QueenError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
