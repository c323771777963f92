"""A checkout of the working tree in a folder of its own, and commands run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


@dataclass
class Project:
    """A checkout of the working tree and what is run in it."""

    root: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def call(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the project; its output is shown if it fails."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True
        )
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def queen(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.call(sys.executable, "-m", "queen.cli", *arguments, check=check)

    def dvc(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.call(sys.executable, "-m", "dvc", *arguments, check=check)

    @property
    def environment(self) -> dict[str, str]:
        folder = str(Path(sys.executable).parent)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("QUEEN_", "PREFECT_"))}
        path = f"{folder}{os.pathsep}{kept.get('PATH', '')}"
        return {**kept, **QUIET, "PATH": path, "PYTHONPATH": str(self.root)}


MADE = {"dvc.lock", "verdicts.json", "report.html"}  # by a run in this checkout
CHOSEN = ("params.yaml", "params/rounds.yaml")  # a run's own choices: taken as committed


def copy_tree(root: Path) -> None:
    """The working tree's files, those that git ignores left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in sorted(set(filter(None, listed.split("\0"))) - MADE):
        source, target = ROOT / name, root / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for name in CHOSEN:
        committed = subprocess.run(
            ["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        (root / name).write_bytes(committed)
