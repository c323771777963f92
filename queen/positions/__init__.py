"""The bulk data set: every position of large game archives, packed, deduplicated and labelled."""
