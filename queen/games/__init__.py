"""Chess, and the expected score that engines, labels and networks share."""
