"""What an engine is, for records and cache keys: its words and its network's digest."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from queen.engines.analysis import EngineIdentity
from queen.engines.uci import EngineOption, EngineProcess, EngineStartError, split_command

_NETWORK_OPTIONS = ("evalfile", "evalfilesmall", "weightsfile")
_NAMED_BY_DIGEST = re.compile(r"nn-([0-9a-f]{12})\.nnue$")
_SILENT = {"uci_showwdl"}  # changes what is printed, not what is searched


def identify(engine: EngineProcess, options: Mapping[str, str | int]) -> EngineIdentity:
    """The identity of a started engine under the options set on it. Source: METHOD section 1.

    Raises EngineStartError if an option names a network file that is not there.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    digests = [
        _network_digest(engine, option, given.get(name))
        for name in _NETWORK_OPTIONS
        if (option := engine.options.get(name)) is not None
    ]
    kept = sorted(
        (engine.options[name].name, value)
        for name, value in given.items()
        if name not in _NETWORK_OPTIONS and name not in _SILENT
    )
    digest = "+".join(x for x in digests if x)
    return EngineIdentity(engine.name, engine.version, digest, tuple(kept))


def _network_digest(engine: EngineProcess, option: EngineOption, given: str | None) -> str:
    """First 12 hex digits of the network's sha256, from its name where the name carries them.

    Stockfish prefers its embedded network where the name is the default one, so a file of that
    name does not count then.
    """
    named = _NAMED_BY_DIGEST.search(option.default)
    if given in (None, option.default) and named:
        return named[1]
    value = option.default if given is None else given
    if value in ("", "<empty>"):
        return ""
    path = _network_file(engine.command, value)
    if path is not None:
        return _file_digest(path)
    if given is None:
        return value
    raise EngineStartError(
        f"network file {value!r} not found",
        where=f"engine {engine.command!r}, option {option.name!r}",
        remedy="give the path of the network, or leave the option out for the engine's own",
    )


def _network_file(command: str, value: str) -> Path | None:
    program = shutil.which(split_command(command)[0])
    folders = [Path()] + ([Path(os.path.realpath(program)).parent] if program else [])
    return next((folder / value for folder in folders if (folder / value).is_file()), None)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]
