"""Whether a round is what it says it is, and where one of its examples came from."""
