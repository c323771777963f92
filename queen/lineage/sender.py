"""The process beside a run that carries the outbox to MLflow: `python -m queen.lineage.sender`.

It works until its stdin ends, drains what is left and goes. Faults of MLflow end in one line on
stderr: whatever could not be sent stays in the outbox.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from pathlib import Path

PAUSE_S = 3.0


def main(root: Path, state: Path) -> int:
    """Send until stdin ends, then let the champion's alias follow; 0 also without MLflow."""
    with contextlib.suppress(OSError):
        os.nice(5)
    from queen.lineage.syncing import follow_verdicts, send_outbox
    from queen.lineage.tracking import announced

    told = last = used = False
    while True:
        used = used or bool(announced(state))
        fault = send_outbox(root, state)
        if fault and not told:
            print(
                f"MLflow did not take the figures ({fault}); they wait in {state / 'outbox'}, "
                "and `queen sync` sends them later",
                file=sys.stderr,
                flush=True,
            )
            told = True
        if last:
            if used and not fault:
                follow_verdicts(root, state)
            return 0
        last = _stdin_ended(PAUSE_S)


def _stdin_ended(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
