"""A small project of the real shape: the same DVC graph, rounds and verdicts, trivial stages.

Its stages run as a process under the real lock and the real verdict check, write real artifacts
and are driven by the real dvc.yaml machinery; only their work is a few bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]

CONFIG = """\
defaults:
  - _self_
  - engine: plain
  - profile: smoke

seed: 1
flow: {retries: 1, retry_delay_s: 0.1, stop_after_worse: true}
games: {count: 3, source: null, share: 0.5, tags: [a, b]}
pawn1: {steps: 2}
round:
  sample: {roots: 4, skip: 0}
  explain: {candidates: 3}
  recurse: {limits: {depth: 5, budget: 12}}
  consolidate: {consolidator: rules}
  filter: {max_loss: 0.0}
  train: {steps: 2, lr: 1.0e-3, outcome: better}
  evaluate: {games: 2}
"""

DVC = """\
vars:
  - params/rounds.yaml
stages:
  games:
    cmd: python toy.py games
    params: [games, seed]
    outs: [data/games]
  pawn1:
    cmd: python toy.py pawn1
    deps: [data/games]
    params: [pawn1, seed]
    outs: [models/pawn1]
"""

ROUND_STAGE = """\
  {stage}:
    foreach: ${{rounds}}
    do:
      cmd: python toy.py {stage}@${{key}}
      deps: [{deps}]
      params:
        - params/rounds.yaml: ["rounds.${{key}}.{stage}", "rounds.${{key}}.seed"]
      outs:
        - "{out}": {{persist: true}}
"""

ROUND_STAGES = {
    "sample": ('"data/games"', "data/sample/${key}"),
    "filter": ('"data/sample/${key}", "models/${item.parent}"', "data/filter/${key}"),
    "train": ('"data/filter/${key}", "models/${item.parent}"', "models/${key}"),
    "evaluate": ('"models/${key}"', "data/evaluate/${key}"),
}


def make_project(root: Path) -> Path:
    """The toy project as a git and DVC repository, configured, with one round `r1`."""
    (root / "params" / "profile").mkdir(parents=True)
    (root / "params" / "engine").mkdir()
    (root / "params" / "config.yaml").write_text(CONFIG)
    for name in ("smoke", "mini"):
        text = f"# @package _global_\nprofile: {name}\n"
        (root / "params" / "profile" / f"{name}.yaml").write_text(text)
    (root / "params" / "profile" / "mini.yaml").open("a").write("games: {count: 7}\n")
    (root / "params" / "engine" / "plain.yaml").write_text("command: auto\noptions: {}\n")
    (root / "params" / "engine" / "other.yaml").write_text("command: other\noptions: {}\n")
    (root / "params" / "rounds.yaml").write_text("rounds:\n  r1: {parent: pawn1}\n")
    stages = "".join(
        ROUND_STAGE.format(stage=stage, deps=deps, out=out)
        for stage, (deps, out) in ROUND_STAGES.items()
    )
    (root / "dvc.yaml").write_text(DVC + stages)
    (root / "toy.py").write_text((HERE / "stage.py").read_text())
    (root / ".gitignore").write_text(".state/\n__pycache__/\n/data/*/\n/models/*/\n/ran.txt\n")
    _repositories(root)
    return root


def _repositories(root: Path) -> None:
    run(root, "git", "init", "-q", "-b", "main")
    run(root, sys.executable, "-m", "dvc", "init", "-q")
    run(root, sys.executable, "-m", "dvc", "config", "core.analytics", "false")
    run(root, sys.executable, "-m", "dvc", "config", "core.check_update", "false")
    run(root, "git", "add", "-A")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    run(root, "git", *identity, "commit", "-qm", "toy")


def environment(**more: str) -> dict[str, str]:
    """The environment for a command in the project: this interpreter first, no leftovers."""
    dropped = ("QUEEN_", "PREFECT_", "MLFLOW_", "DVC_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    own = {"PATH": path, "PYTHONPATH": str(REPOSITORY), "DVC_NO_ANALYTICS": "1"}
    return {**kept, **own, **more}


def run(
    root: Path, *command: str, check: bool = True, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in the project and return what it said."""
    done = subprocess.run(
        command, cwd=root, env=environment(**more), capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


def dvc(root: Path, *arguments: str, check: bool = True, **more: str) -> str:
    """Run dvc in the project; returns stdout and stderr."""
    done = run(root, sys.executable, "-m", "dvc", *arguments, check=check, **more)
    return done.stdout + done.stderr


def ran(root: Path) -> list[str]:
    """The stages whose work was done, in order, since the last call."""
    log = root / "ran.txt"
    names = log.read_text().split() if log.is_file() else []
    log.unlink(missing_ok=True)
    return names


def snapshot(root: Path) -> dict[str, bytes]:
    """dvc.lock and every data file of the project."""
    paths = [root / "dvc.lock", *root.glob("data/**/*"), *root.glob("models/**/*")]
    return {str(p.relative_to(root)): p.read_bytes() for p in paths if p.is_file()}
