"""Elo, substantiation, verdicts."""
