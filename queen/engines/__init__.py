"""UCI engines: processes, cached searches, mistakes, matches."""
