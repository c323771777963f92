"""Networks: the Lc0 experts, the bridge, and the bridged decoder."""
