"""The tiny model for these tests; the small trained decoder is shared by several folders."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from local_model.fixtures import speaker

__all__ = ["speaker"]
