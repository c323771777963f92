"""The `queen` commands: their arguments, what they find, and how they show it."""
