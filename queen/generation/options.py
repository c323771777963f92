"""The UCI options of a player that explains its moves; no torch, so that `queen uci` is quick."""

from __future__ import annotations

from queen.engines.thinking import SEED, SHARED, TEMPERATURE, Option

EXPLAIN = Option("Explain", "check", True)
GUIDED = Option("Guided", "check", True)
LONGEST = Option("MaxTokens", "spin", 256, 16, 4096)
EXPLAINING_OPTIONS = (*SHARED, EXPLAIN, GUIDED, LONGEST, TEMPERATURE, SEED)
