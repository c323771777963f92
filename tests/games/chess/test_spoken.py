"""Moves as people write them."""

from __future__ import annotations
