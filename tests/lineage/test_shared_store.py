"""The shared store: what is there is whole, one of several gets a lease, a dead one's ends."""

from __future__ import annotations

import io
import itertools
import secrets
import tarfile
import threading
from pathlib import Path

import pytest

from queen.errors import QueenError
from queen.lineage.artifact import Artifact, Record, describe_files, fresh_partial, publish
from queen.lineage.leases import Leases
from queen.lineage.remote import Remote, StoreError
from queen.lineage.shared import SharedStore
from queen.lineage.store import ShardStore

SECONDS = 1.0


@pytest.fixture(params=["path", "file", "memory"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    path = tmp_path / "shared"
    urls = {
        "path": str(path),
        "file": f"file://{path}",
        "memory": f"memory://{secrets.token_hex(8)}",
    }
    return Remote(urls[request.param])


def machine(remote: Remote, root: Path) -> tuple[ShardStore, SharedStore]:
    store = ShardStore(root)
    return store, SharedStore(Remote(remote.url), store)


def write(text: str) -> object:
    def work(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "rows").write_text(text)

    return work


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_shard_reaches_another_machine_with_the_same_bytes(
    remote: Remote, tmp_path: Path
) -> None:
    (here, sending), (there, taking) = (
        machine(remote, tmp_path / "a"),
        machine(remote, tmp_path / "b"),
    )
    here.put("label", "k", write("abc"))
    assert not taking.pull("label", "k")
    sending.push("label", "k")
    sending.push("label", "k")
    assert taking.finished("label") == {"k"}
    assert taking.finished("other") == set()
    assert taking.pull("label", "k")
    found = there.get("label", "k")
    assert found is not None
    assert (found / "inner" / "rows").read_text() == "abc"
    assert list(there.problems("label", "k")) == []


def test_a_damaged_shard_is_refused_and_makes_way(remote: Remote, tmp_path: Path) -> None:
    (here, sending), (there, taking) = (
        machine(remote, tmp_path / "a"),
        machine(remote, tmp_path / "b"),
    )
    here.put("label", "k", write("abc"))
    for damage in (lambda data: data.replace(b"abc", b"abd"), lambda data: data[:700]):
        sending.push("label", "k")
        whole = remote.read("shards/label/k.tar")
        assert whole is not None
        remote.write("shards/label/k.tar", damage(whole))
        assert not taking.pull("label", "k")
        assert there.get("label", "k") is None
        assert not taking.has("label", "k")
    sending.push("label", "k")
    assert taking.pull("label", "k")


def test_an_input_is_fetched_whole_or_not_at_all(remote: Remote, tmp_path: Path) -> None:
    _, sending = machine(remote, tmp_path / "a")
    _, taking = machine(remote, tmp_path / "b")
    artifact = an_artifact(tmp_path / "data" / "dedup")
    with pytest.raises(QueenError, match="no such input"):
        taking.pull_artifact(artifact.content, tmp_path / "received")
    sending.push_artifact(artifact)
    found = taking.pull_artifact(artifact.content, tmp_path / "received")
    assert (found.record, found.path.name) == (artifact.record, artifact.content)
    assert found.file("rows").read_text() == "abc"
    remote.write(f"artifacts/{artifact.content}/rows", b"abd")
    with pytest.raises(QueenError, match="another hash"):
        taking.pull_artifact(artifact.content, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def an_artifact(final: Path) -> Artifact:
    partial = fresh_partial(final)
    (partial / "rows").write_text("abc")
    record = Record(
        name="data/dedup",
        stage="dedup",
        version=1,
        recipe="r",
        seed=1,
        params={},
        inputs=(),
        shards=(),
        files=describe_files(partial),
        counts={},
        drops={},
        figures={},
        identities={},
        licences={},
    )
    return publish(partial, final, record)


def test_of_many_at_once_one_gets_the_lease(remote: Remote) -> None:
    starting = threading.Barrier(8)
    ending = threading.Barrier(8)
    got: list[bool] = []

    def reach() -> None:
        leases = Leases(remote, "label", SECONDS)
        starting.wait()
        with leases.claimed("k") as ours:
            got.append(ours)
            ending.wait()

    threads = [threading.Thread(target=reach) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]
    assert remote.names("leases/label") == set()


def test_a_lease_that_falls_silent_is_taken_over_once(remote: Remote) -> None:
    remote.write("leases/label/k.1", b"dead")
    clocks = [Clock(), Clock()]
    first, second = (Leases(remote, "label", SECONDS, clock=clock) for clock in clocks)
    for leases, clock in ((first, clocks[0]), (second, clocks[1])):
        leases.look()
        with leases.claimed("k") as ours:
            assert not ours
        clock.now = SECONDS / 2
        with leases.claimed("k") as ours:
            assert not ours
        clock.now = SECONDS
    with first.claimed("k") as ours:
        assert ours
        with second.claimed("k") as theirs:
            assert not theirs
        second.look()
        with second.claimed("k") as theirs:
            assert not theirs
    assert remote.names("leases/label") == set()


def test_a_lease_whose_holder_writes_on_stands(remote: Remote) -> None:
    clock = Clock()
    other = Leases(remote, "label", SECONDS, clock=clock)
    remote.write("leases/label/k.1", b"0")
    other.look()
    for beat in range(1, 6):
        with other.claimed("k") as ours:
            assert not ours
        remote.write("leases/label/k.1", str(beat).encode())
        clock.now += SECONDS


def test_a_holder_beats_while_it_works(remote: Remote) -> None:
    holder = Leases(remote, "label", 0.1)
    with holder.claimed("k") as ours:
        assert ours
        words = set()
        for _ in itertools.takewhile(lambda _: len(words) < 3, range(10_000)):
            words.add(remote.read("leases/label/k.1"))
            threading.Event().wait(0.005)
    assert len(words) >= 3


def test_a_file_that_is_written_again_is_one_or_the_other(remote: Remote) -> None:
    """A reader beside a writer never meets a part of it, nor nothing."""
    whole = [letter * 200_000 for letter in (b"a", b"b")]
    remote.write("offers/x.json", whole[0])
    enough = threading.Event()

    def rewrite() -> None:
        for data in itertools.cycle(whole):
            remote.write("offers/x.json", data)
            if enough.is_set():
                return

    writer = threading.Thread(target=rewrite)
    writer.start()
    reader = Remote(remote.url)
    reads = [reader.read("offers/x.json") for _ in range(200)]
    enough.set()
    writer.join()
    assert all(data in whole for data in reads)
    assert remote.names("offers") == {"x.json"}


def test_a_url_without_a_driver_and_a_folder_that_cannot_be_made_say_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"machine\.store"):
        Remote("nosuch://bucket")
    (tmp_path / "file").write_text("")
    broken = Remote(str(tmp_path / "file" / "below"))
    broken_pauses = pytest.MonkeyPatch()
    with broken_pauses.context() as patch:
        patch.setattr("queen.lineage.remote.PAUSES_S", (0.0,))
        with pytest.raises(StoreError, match="works alone"):
            broken.write("offers/x.json", b"{}")


@pytest.mark.parametrize("name", ["../out", "/tmp/queen-out", "link"])
def test_what_would_lie_outside_a_shard_is_damage(tmp_path: Path, name: str) -> None:
    remote = Remote(str(tmp_path / "shared"))
    store, shared = machine(remote, tmp_path / "here")
    packed = tmp_path / "shard.tar"
    with tarfile.open(packed, "w") as tar:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
            tar.addfile(member)
        else:
            member.size = 2
            tar.addfile(member, io.BytesIO(b"ab"))
    remote.send(packed, "shards/label/k.tar")
    assert not shared.pull("label", "k")
    assert store.get("label", "k") is None
    assert not (tmp_path / "out").exists()
