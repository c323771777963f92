"""Serve a model from a GGUF file: `python tests/local_model FILE.gguf [--port 8765]`."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from local_model.server import LocalServer
from local_model.speaker import gguf_speaker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int, default=8765)
    given = parser.parse_args()
    with LocalServer(gguf_speaker(given.file), port=given.port) as server:
        print(f"base_url {server.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
