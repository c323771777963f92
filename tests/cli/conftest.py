"""The toy project for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from toy_project.fixtures import built, built_template, toy, toy_template

__all__ = ["built", "built_template", "toy", "toy_template"]
