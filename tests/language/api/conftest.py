"""The tiny model for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from local_model.fixtures import speaker

__all__ = ["speaker"]
