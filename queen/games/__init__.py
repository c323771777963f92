"""The rules of the games Queen knows, behind one small protocol."""
