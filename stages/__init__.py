"""What the pipeline does: one module per stage, and the runner."""
