"""What the pipeline does: a module for each stage, what stages share, and their runner.

`report` writes the project's page, `audit` checks a round; both read artifacts and make none.
"""
