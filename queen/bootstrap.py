"""Set-up from nothing, with the standard library alone: `python3 -m queen.bootstrap run|test`.

`run` makes a virtual environment with the pinned packages, finds or installs the engines, runs
the smoke pipeline, writes the report and explains a position. `test` makes the same environment
and passes the tests. Both do only what is not done yet.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "queen.stamp"
OLDEST = (3, 11)
POSITION = "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
TABLE_QUESTION = "uci\nposition startpos\neval\nquit\n"
QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


class SetUpError(Exception):
    """A step that failed, and what to do about it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m queen.bootstrap", description=__doc__)
    parser.add_argument("what", choices=["run", "test", "setup"])
    parser.add_argument("--profile", default="smoke", help="profile of `run` (default: smoke)")
    parser.add_argument("--fast", action="store_true", help="`test` without the end-to-end tests")
    options = parser.parse_args(arguments)
    try:
        set_up()
        if options.what == "run":
            run(options.profile)
        elif options.what == "test":
            test(fast=options.fast)
    except SetUpError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"\nfailed: {_told(error.cmd)} (status {error.returncode})", file=sys.stderr)
        return 1
    return 0


def set_up() -> None:
    """Python, packages and engines, each only if it is missing."""
    started = time.monotonic()
    if sys.version_info < OLDEST:
        raise SetUpError(
            f"Python {'.'.join(map(str, OLDEST))} or newer is needed, this is "
            f"{sys.version.split()[0]}.\nInstall one (Debian 12 and Ubuntu 24.04 have it) and "
            "run this with it."
        )
    _packages()
    _engines()
    _say(f"set-up ready ({time.monotonic() - started:.0f} s)")


def run(profile: str) -> None:
    """The whole pipeline, its report, and one explained position."""
    started = time.monotonic()
    _queen("configure", f"profile={profile}")
    _queen("doctor")
    _queen("run")
    _queen("report")
    _queen("explain", POSITION)
    _say(f"done ({time.monotonic() - started:.0f} s); open report.html for the report")


def test(*, fast: bool) -> None:
    """The fast tests, then the end-to-end ones."""
    _call([_python(), "-m", "pytest", "-n", "2", "-m", "not e2e"])
    if not fast:
        _call([_python(), "-m", "pytest", "-m", "e2e"])


def _packages() -> None:
    wanted = _pins_digest()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return
    _say("installing packages into .venv (a few minutes the first time)")
    if not Path(_python()).is_file():
        _make_venv()
    if not (VENV / "bin" / "uv").is_file():
        _call([_python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"])
    _install(_torch_arguments())
    STAMP.write_text(wanted)


def _make_venv() -> None:
    command = [sys.executable, "-m", "venv", str(VENV)]
    if subprocess.run(command, check=False, cwd=ROOT).returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    _apt(["python3-venv"], "Python's venv module is missing")
    _call(command)


def _install(torch_arguments: Sequence[str]) -> None:
    """Install with uv; where the CPU index cannot be reached, the registry's own torch."""
    base = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--python", _python()]
    rest = ["--compile-bytecode", "-c", "constraints.txt", "-e", ".[dev]"]
    environment = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
    first = subprocess.run(
        [*base, *torch_arguments, *rest], cwd=ROOT, env=_environment(environment), check=False
    )
    if first.returncode == 0:
        return
    if not torch_arguments:
        raise SetUpError("the packages could not be installed; see the message above")
    _say("the CPU build of torch could not be had; taking the default build (several GB)")
    _call([*base, *rest], environment)


def _torch_arguments() -> list[str]:
    """Ask for the CPU build where there is no GPU, unless local wheels are offered."""
    if os.environ.get("PIP_FIND_LINKS") or shutil.which("nvidia-smi"):
        return []
    return ["--torch-backend", "cpu"]


def _engines() -> None:
    """A UCI engine to search, and one that prints the classical evaluation table."""
    if _program("stockfish") is None:
        _apt(["stockfish"], "no stockfish found")
    if not any(_prints_table(name) for name in ("stockfish", "fairy-stockfish")):
        _apt(["fairy-stockfish"], "this stockfish prints no classical evaluation table")


def _prints_table(name: str) -> bool:
    path = _program(name)
    if path is None:
        return False
    try:
        answer = subprocess.run(
            [path], input=TABLE_QUESTION, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "King safety" in answer.stdout


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/games:/usr/local/games")


def _apt(names: Sequence[str], why: str) -> None:
    """Install Debian packages if that is allowed here, else say what to do."""
    command = ["apt-get", "install", "-y", "-qq", *names]
    prefix = _privilege()
    if prefix is None or shutil.which("apt-get") is None:
        raise SetUpError(
            f"{why}, and packages may not be installed from here.\n"
            f"Run:  sudo apt-get update && sudo {' '.join(command)}\nthen start again. On another "
            "system install them in its own way, or put the program on PATH."
        )
    _say(f"{why}: installing {', '.join(names)} with apt-get")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _call([*prefix, "apt-get", "update", "-qq"], quiet)
    _call([*prefix, *command], quiet)


def _privilege() -> list[str] | None:
    """What to put before a command that needs root; None if there is no way."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo"):
        asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
        if asked.returncode == 0:
            return ["sudo", "-n"]
    return None


def _queen(*arguments: str) -> None:
    _call([str(VENV / "bin" / "queen"), *arguments])


def _call(command: Sequence[str], more: dict[str, str] | None = None) -> None:
    subprocess.run(list(command), cwd=ROOT, env=_environment(more or {}), check=True)


def _environment(more: dict[str, str]) -> dict[str, str]:
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**QUIET, **kept, "PATH": path, "VIRTUAL_ENV": str(VENV), **more}


def _python() -> str:
    return str(VENV / "bin" / "python")


def _pins_digest() -> str:
    pins = b"".join((ROOT / name).read_bytes() for name in ("constraints.txt", "pyproject.toml"))
    return hashlib.sha256(pins).hexdigest()


def _told(command: object) -> str:
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
