"""What the stages of the bulk data set share, and what is shown and given out of it."""
