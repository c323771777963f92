"""One rank against two, on a project's own explanations: tokens a second of the small QUEEN.

    python benchmarks/train_ranks.py [PROJECT] [--steps 12] [--packing]

PROJECT as for train_packing.py. Each row trains the same batches of 96: in ranks of one thread
each, or in one rank with two threads. `wall` is real tokens a second, all ranks together; `cpu`
is real tokens for each second of processor time of the busiest rank, which is what `wall` would
be on a machine that does nothing else, but for waiting. Figures leave out the first two steps.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from train_packing import Bench

from queen.training.crew import Crew, CrewSettings
from queen.training.loop import TrainSettings
from queen.training.sft import Part

ROWS = {
    "1 rank, 1 thread": CrewSettings(ranks=1, threads=1),
    "1 rank, 2 threads": CrewSettings(ranks=1, threads=2),
    "2 ranks, 1 thread each": CrewSettings(ranks=2, threads=2),
}
WARM = 2


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(bench: Bench, crew: CrewSettings, settings: TrainSettings) -> dict[str, float]:
    seen: dict[int, tuple[float, list[float]]] = {}
    mixture = [Part("explained", bench.explained, 0.7), Part("questions", bench.questions, 0.3)]
    with tempfile.TemporaryDirectory() as folder, Crew(crew, Path(folder) / "ranks") as ranks:

        def look(done: int, total: int, note: str = "") -> None:
            spent = [processor_seconds(process.pid) for process in ranks.processes]
            seen[done] = time.perf_counter(), spent

        result = ranks.fine_tune(
            bench.model(), bench.expert, mixture, settings,
            work=Path(folder) / "work", table_mb=4096, progress=look,
        )  # fmt: skip
    tokens = result.tokens * (settings.steps - WARM) / settings.steps
    (first, before), (last, after) = seen[WARM], seen[settings.steps]
    busiest = max(b - a for a, b in zip(before, after, strict=True))
    return {
        "wall": round(tokens / (last - first)),
        "cpu": round(tokens / busiest),
        "loss": round(result.final_loss, 6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("project", nargs="?", type=Path, default=Path())
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--packing", action="store_true")
    args = parser.parse_args()
    bench = Bench(args.project, 1, "bf16")
    report: dict[str, Any] = {"load": os.getloadavg()[0], "cores": os.cpu_count()}
    for name, crew in ROWS.items():
        settings = TrainSettings(
            steps=args.steps, packing=args.packing, checkpoint_every_s=0, log_every=args.steps
        )
        report[name] = rate(bench, crew, settings)
    one, two = report["1 rank, 1 thread"], report["2 ranks, 1 thread each"]
    report["two over one"] = {kind: round(two[kind] / one[kind], 2) for kind in ("wall", "cpu")}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
