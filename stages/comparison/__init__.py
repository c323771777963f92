"""What `queen compare` does: models scored on the same positions, and their differences."""
