"""What the `queen` commands do; `queen.cli` gives each its arguments."""
