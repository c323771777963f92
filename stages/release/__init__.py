"""What `queen release` makes, and finding what was released."""
