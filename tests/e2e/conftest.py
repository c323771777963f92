"""One project that ran the smoke profile from nothing, shared by the end-to-end tests."""

from __future__ import annotations

import time

import pytest
from smoke_project import Project, copy_tree


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The smoke profile, from games to a judged round."""
    root = tmp_path_factory.mktemp("smoke") / "project"
    project = Project(root)
    copy_tree(root)
    project.call("git", "init", "-q")
    project.call("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "start",
                 "--allow-empty")  # fmt: skip
    started = time.monotonic()
    project.queen("configure", "profile=smoke")
    project.queen("run")
    project.seconds["run"] = time.monotonic() - started
    return project
