"""Fixtures for whoever tests with the toy project."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from queen.lineage import params, rounds
from queen.lineage.dvcio import Pipeline, reproduce
from toy_project import make_project


@pytest.fixture(scope="session")
def toy_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy project, made and configured once."""
    root = make_project(tmp_path_factory.mktemp("toy") / "project")
    params.configure(root)
    rounds.resolve(root)
    return root


@pytest.fixture(scope="session")
def built_template(toy_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy project with everything brought up to date, once."""
    root = tmp_path_factory.mktemp("built") / "project"
    shutil.copytree(toy_template, root)
    with pytest.MonkeyPatch.context() as patch:
        _clean(patch)
        patch.chdir(root)
        for name in Pipeline(root).names():
            reproduce(root, name)
    return root


@pytest.fixture
def built(built_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of the toy project with everything up to date, as working folder."""
    root = tmp_path / "project"
    shutil.copytree(built_template, root)
    for path in (root / ".state" / "runs").glob("*/*/run.json"):
        path.write_text(path.read_text().replace(str(built_template), str(root)))
    _clean(monkeypatch)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def toy(toy_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of the toy project, as working folder, with nothing of ours in the environment.

    No process carries figures to MLflow, unless a test takes QUEEN_SENDER away.
    """
    root = tmp_path / "project"
    shutil.copytree(toy_template, root)
    _clean(monkeypatch)
    monkeypatch.chdir(root)
    return root


def _clean(patch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("QUEEN_", "PREFECT_", "MLFLOW_", "DVC_")):
            patch.delenv(name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"QUEEN_SENDER": "none", "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": path}
    for name, value in own.items():
        patch.setenv(name, value)
