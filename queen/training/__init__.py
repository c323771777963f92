"""One training loop for every network."""
