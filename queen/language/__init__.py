"""Explanations as data and as text: grammar, questions, teachers, consolidators."""
