"""Lc0 network files and their forward pass."""
