"""The teacher who speaks in a model's place is beside the stages' tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "stages"))
