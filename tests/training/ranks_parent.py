"""`python ranks_parent.py FOLDER ORDER`: waits for two ranks that carry out an order, to be killed.

Prints the ranks' process ids, then each step they tell of.
"""

from __future__ import annotations

import sys
from pathlib import Path

from queen.training.crew import Crew, CrewSettings


def main(folder: str, order: str) -> None:
    with Crew(CrewSettings(ranks=2, threads=2), Path(folder)) as crew:
        print(*(process.pid for process in crew.processes), flush=True)
        crew._send(Path(order))
        crew._await(
            Path(order),
            lambda step, figures: None,
            lambda done, total, note="": print(done, flush=True),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
