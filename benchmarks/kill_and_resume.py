"""Kill stages with kill -9 at random moments; the content must come out the same.

    python benchmarks/kill_and_resume.py PROJECT [--round r1 | --bulk] [--times 3] [--seed 0]

PROJECT is a folder where `queen run` has finished. The stages are those of a judged round; with
`--bulk` those of the bulk data set, made before (`python -m stages extract`, dedup and label). For
each stage and time a fresh state folder is used (the engine cache is left out, so that engines
really search), the stage is started as its own process, killed after a random share of the seconds
its last run took, and run again to the end.
Prints one JSON line for each kill, and exits 1 if any content hash differs or an engine survives.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from queen.lineage.artifact import RECORD, open_artifact
from queen.lineage.tracking import last_run

STAGES = ("explain", "recurse", "filter", "train")
BULK = ("extract", "dedup", "label")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path)
    parser.add_argument("--round", default="r1")
    parser.add_argument("--bulk", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    project, rng = options.project.resolve(), random.Random(options.seed)
    if not options.bulk:
        reopen = [sys.executable, "-m", "queen.cli", "round", "reopen", options.round]
        subprocess.run(reopen, cwd=project, check=False, capture_output=True)
    failed, key = 0, None if options.bulk else options.round
    for stage in BULK if options.bulk else STAGES:
        for _ in range(options.times):
            told = once(project, stage, key, rng)
            failed += not told["same"] or told["survivors"] > 0
            print(json.dumps(told), flush=True)
    return 1 if failed else 0


def once(project: Path, stage: str, key: str | None, rng: random.Random) -> dict[str, Any]:
    """One kill and the run after it."""
    name = f"models/{key}" if stage == "train" else f"data/{stage}" + (f"/{key}" if key else "")
    command = f"{stage}@{key}" if key else stage
    wanted = open_artifact(project / name).content
    run = last_run(project / ".state", stage, key)
    seconds = float(run["wall_s"]) if run else 20.0
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "QUEEN_STATE": state}
        (Path(state) / "downloads").mkdir()
        (project / name / RECORD).unlink()
        after = rng.uniform(0.1, 1.0) * seconds
        survivors = _kill_after(project, command, environment, after)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "stages", command],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        resumed = time.monotonic() - started
        shutil.rmtree(state, ignore_errors=True)
    same = done.returncode == 0 and open_artifact(project / name).content == wanted
    return {
        "stage": stage,
        "killed_after_s": round(after, 1),
        "usual_s": round(seconds, 1),
        "resumed_s": round(resumed, 1),
        "same": same,
        "survivors": survivors,
        "error": "" if done.returncode == 0 else done.stderr[-500:],
    }


def _kill_after(project: Path, name: str, environment: dict[str, str], after: float) -> int:
    """Start a stage, kill it; how many of its children are still alive ten seconds later."""
    running = subprocess.Popen(
        [sys.executable, "-m", "stages", name],
        cwd=project, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    time.sleep(after)
    try:
        children = psutil.Process(running.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    running.send_signal(signal.SIGKILL)
    running.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    return sum(process.status() != psutil.STATUS_ZOMBIE for process in alive)


if __name__ == "__main__":
    sys.exit(main())
