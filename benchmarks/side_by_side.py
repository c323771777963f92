"""Shards of a stage one after another, with helpers for engine and text, and side by side.

    python benchmarks/side_by_side.py PROJECT explain@r1 consolidate@r1 [--shards 6] [--times 3]

PROJECT is a folder where the stages' inputs are. Each measurement is a process of its own with a
fresh state folder (no cached search, no finished shard) that works the first shards of the stage;
the two ways take turns. `one` is `machine.shards=1` with the project's workers and generators,
`two` is `machine.shards=2`. Prints one JSON line a stage: medians of the seconds, start of
processes included, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from queen.lineage.state import State
from queen.lineage.store import ShardStore
from stages.preparing import make_plan, prepare
from stages.registry import find_stage
from stages.sharing import work_one
from stages.side_by_side import work_side_by_side

WAYS = {"one": 1, "two": 2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("stages", nargs="+")
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help="measure once, in this process")
    options = parser.parse_args()
    if options.way:
        seconds = measured(options.project, options.stages[0], WAYS[options.way], options.shards)
        print(json.dumps(seconds))
        return 0
    for stage in options.stages:
        seconds = {way: [] for way in WAYS}
        for _ in range(options.times):
            for way in WAYS:
                seconds[way].append(apart(options.project, stage, way, options.shards))
        medians = {way: round(median(each), 2) for way, each in seconds.items()}
        told = {"stage": stage, "shards": options.shards, **medians}
        print(json.dumps({**told, "one / two": round(medians["one"] / medians["two"], 2)}))
    return 0


def apart(project: Path, stage: str, way: str, count: int) -> float:
    """Seconds of one measurement in a process of its own."""
    command = [sys.executable, __file__, str(project), stage, "--way", way, "--shards", str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def measured(project: Path, name: str, processes: int, count: int) -> float:
    """Seconds to work the first shards of a stage."""
    spec, key = find_stage(name)
    job = prepare(spec, key, project.resolve())
    with tempfile.TemporaryDirectory(prefix="queen-shards-") as folder:
        machine = replace(job.machine, shards=processes)
        job = replace(job, state=State(Path(folder)), machine=machine)
        plan = make_plan(spec, job)
        plan = replace(plan, shards=plan.shards[:count], keys=plan.keys[:count])
        store, started = ShardStore(job.state.shards), time.monotonic()
        work_side_by_side(spec, job, plan)
        for shard, shard_key in zip(plan.shards, plan.keys, strict=True):
            if store.get(spec.name, shard_key) is None:
                work_one(spec, job, store, shard, shard_key)
        return time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
