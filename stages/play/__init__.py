"""What `queen explain`, `queen uci` and `queen match` do."""
