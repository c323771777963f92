"""The question bank of the curriculum."""
