"""Artifacts, records, rounds, verdicts, MLflow and DVC."""
