"""Chess: positions, notation, facts and game files."""
