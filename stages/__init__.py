"""What the pipeline does: a module for each stage, what stages share, and their runner.

`report` writes the project's page, `audit` checks a round, `comparison`, `release` and `play` stand
behind the commands of those names; they read artifacts. `bulk` is what the stages of the bulk data
set share.
"""
