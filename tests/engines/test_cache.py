from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.engines.cache import CacheError, SearchCache
from queen.engines.pool import Analyser, EngineSettings, Limit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "searches.sqlite"


def rows(first: int, last: int) -> dict[str, bytes]:
    return {f"fen {number}": f"answer {number}".encode() for number in range(first, last)}


def test_what_is_put_is_got(path: Path) -> None:
    with SearchCache(path) as cache:
        assert cache.get_many("key", ["fen 1"]) == {}
        cache.put_many("key", rows(0, 1200))
        assert cache.get_many("key", [f"fen {n}" for n in range(1100, 1300)]) == rows(1100, 1200)
        assert cache.get_many("other key", ["fen 1"]) == {}
        assert (cache.statistics.hits, cache.statistics.misses) == (100, 102)
    with SearchCache(path) as cache:
        assert cache.get_many("key", ["fen 7", "fen 7"]) == rows(7, 8)
        assert cache.count() == 1200


def test_the_first_answer_stays(path: Path) -> None:
    with SearchCache(path) as cache:
        cache.put_many("key", {"fen": b"first"})
        cache.put_many("key", {"fen": b"second"})
        assert cache.get_many("key", ["fen"]) == {"fen": b"first"}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(texts, st.dictionaries(texts, st.binary(max_size=30)), max_size=4))
def test_any_text_and_bytes(
    tmp_path_factory: pytest.TempPathFactory, kept: dict[str, dict[str, bytes]]
) -> None:
    with SearchCache(tmp_path_factory.mktemp("cache") / "c") as cache:
        for key, answers in kept.items():
            cache.put_many(key, answers)
        for key, answers in kept.items():
            assert cache.get_many(key, list(answers)) == answers


WRITER = """
    import sys
    from pathlib import Path
    from queen.engines.cache import SearchCache

    path, first, last, size = Path(sys.argv[1]), *map(int, sys.argv[2:])
    with SearchCache(path) as cache, cache.recording(f"writer {first}"):
        print("open", flush=True)
        for start in range(first, last, size):
            some = range(start, min(last, start + size))
            cache.put_many("key", {f"fen {n}": f"answer {n}".encode() for n in some})
            cache.get_many("key", [f"fen {n}" for n in some])
"""


def writer(path: Path, first: int, last: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    return subprocess.Popen(
        [*command, str(first), str(last), str(size)], stdout=subprocess.PIPE, text=True
    )


def test_processes_write_at_once(path: Path) -> None:
    writers = [writer(path, first, first + 600, 20) for first in (0, 300, 600)]
    for process in writers:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with SearchCache(path) as cache:
        assert cache.count() == 1200
        assert cache.get_many("key", [f"fen {n}" for n in range(1200)]) == rows(0, 1200)
        assert cache.labels() == {"writer 0": 600, "writer 300": 600, "writer 600": 600}


def test_kill_9_leaves_whole_transactions(path: Path) -> None:
    for delay in (0.0, 0.03, 0.1):
        process = writer(path, 0, 10**6, 50)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    with SearchCache(path) as cache:
        count = cache.count()
        assert count % 50 == 0
        assert cache.get_many("key", [f"fen {n}" for n in range(count)]) == rows(0, count)
        assert cache._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert sum(cache.labels().values()) == count


def test_threads_share_a_cache(path: Path) -> None:
    with SearchCache(path) as cache:

        def work(first: int) -> None:
            with cache.recording(f"thread {first}"):
                for start in range(first, first + 200, 20):
                    cache.put_many("key", rows(start, start + 20))

        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 200, 400)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cache.count() == 600
        assert cache.labels() == {"thread 0": 200, "thread 200": 200, "thread 400": 200}


def test_a_forked_process_opens_its_own(path: Path) -> None:
    with SearchCache(path) as cache:
        cache.put_many("key", rows(0, 3))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                cache.put_many("key", rows(3, 6))
                code = 0 if len(cache.get_many("key", list(rows(0, 6)))) == 6 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cache.count() == 6


# -- what nobody refers to ------------------------------------------------------------------


def test_pruning_keeps_what_a_kept_label_uses(path: Path) -> None:
    with SearchCache(path) as cache:
        with cache.recording("old shard"):
            cache.put_many("key", rows(0, 10))
        with cache.recording("new shard"):
            cache.get_many("key", list(rows(5, 10)))
            cache.put_many("key", rows(10, 12))
        cache.put_many("other", rows(0, 4))
        assert cache.labels() == {"new shard": 7, "old shard": 10}

        counted = cache.prune(lambda label: label == "new shard", dry_run=True)
        assert (counted.labels, counted.searches) == (1, 9)
        assert cache.count() == 16
        assert cache.labels() == {"new shard": 7, "old shard": 10}

        assert cache.prune(lambda label: label == "new shard") == counted
        assert cache.labels() == {"new shard": 7}
        assert set(cache.get_many("key", list(rows(0, 12)))) == set(rows(5, 12))
        assert cache.get_many("other", list(rows(0, 4))) == {}
        cache.put_many("other", rows(0, 1))
        assert cache.get_many("other", ["fen 0"]) == rows(0, 1)


def test_pruning_spares_recent_searches_if_told_so(path: Path) -> None:
    day = 86_400
    with SearchCache(path) as cache:
        cache.put_many("key", rows(0, 6))
        old = int(time.time()) // day - 40
        cache._connection.execute("UPDATE searches SET day = ?", (old,))
        cache.get_many("key", ["fen 1", "fen 2"])
        pruned = cache.prune(lambda _: True, used_since=time.time() - 30 * day)
        assert pruned.searches == 4
        assert set(cache.get_many("key", list(rows(0, 6)))) == {"fen 1", "fen 2"}


def test_pruning_gives_space_back(path: Path) -> None:
    with SearchCache(path) as cache:
        cache.put_many("key", {f"fen {n}": os.urandom(500) for n in range(2000)})
        cache._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.stat().st_size
        pruned = cache.prune(lambda _: False)
        assert pruned.searches == 2000
        assert pruned.bytes > 1_000_000
        assert path.stat().st_size < before / 10


# -- files that are damaged, foreign or full ------------------------------------------------


def damage(path: Path, first: int, last: int | None) -> bytes:
    """A cache of 3000 answers with noise from one byte to another; what the file then holds."""
    with SearchCache(path) as cache:
        cache.put_many("key", {f"fen {number}": bytes(400) for number in range(3000)})
    data = bytearray(path.read_bytes())
    data[first:last] = os.urandom(len(data[first:last]))
    path.write_bytes(data)
    return bytes(data)


def test_a_damaged_file_is_kept_aside_with_a_warning(path: Path) -> None:
    damaged = damage(path, 16, None)
    with pytest.warns(UserWarning, match="is damaged"):
        cache = SearchCache(path)
    with cache:
        assert cache.count() == 0
        cache.put_many("key", rows(0, 2))
        assert cache.count() == 2
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == damaged


def test_damage_met_later_is_explained(path: Path) -> None:
    damage(path, 200 * 4096, 210 * 4096)
    with SearchCache(path) as cache:
        with pytest.raises(CacheError) as caught:
            cache.get_many("key", [f"fen {n}" for n in range(3000)])
        assert str(path) in caught.value.where
        assert "away" in caught.value.remedy


def test_another_kind_of_file_is_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text('[Event "A game that must not be moved"]\n' * 100)
    before = path.read_bytes()
    with pytest.raises(CacheError, match="not a search cache"):
        SearchCache(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (id)")
    connection.close()
    with pytest.raises(CacheError, match="another program"):
        SearchCache(path)


def test_a_later_format_is_refused(path: Path) -> None:
    with SearchCache(path) as cache:
        cache._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(CacheError, match="format 99"):
        SearchCache(path)


def test_a_full_disk_is_explained_and_loses_nothing(path: Path) -> None:
    with SearchCache(path) as cache:
        cache.put_many("key", rows(0, 10))
        pages = cache._connection.execute("PRAGMA page_count").fetchone()[0]
        cache._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(CacheError, match="full") as caught:
            cache.put_many("key", {f"more {n}": bytes(4096) for n in range(50)})
        assert "disk space" in caught.value.remedy
        assert cache.get_many("key", list(rows(0, 10))) == rows(0, 10)
        assert cache.count() == 10


def test_a_full_disk_stops_an_analysis_with_its_reason(
    fake: Callable[..., str], many_fens: list[str], path: Path
) -> None:
    with SearchCache(path) as cache, Analyser(EngineSettings(fake()), cache) as analyser:
        pages = cache._connection.execute("PRAGMA page_count").fetchone()[0]
        cache._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(CacheError, match="full"):
            analyser.analyse(many_fens, Limit(nodes=10))
        cache._connection.execute("PRAGMA max_page_count = 100000")
        assert len(analyser.analyse(many_fens, Limit(nodes=10))) == len(many_fens)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be made"):
        SearchCache(tmp_path / "file" / "cache")


def test_a_lock_held_too_long_is_explained(path: Path) -> None:
    with SearchCache(path) as holder, SearchCache(path, busy_timeout_s=0.05) as cache:
        holder._connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(CacheError, match="locked") as caught:
            cache.put_many("key", rows(0, 1))
        assert "another process" in caught.value.remedy
        holder._connection.execute("ROLLBACK")
        cache.put_many("key", rows(0, 1))


def test_a_killed_run_keeps_all_but_its_last_searches(
    fake: Callable[..., str], many_fens: list[str], path: Path
) -> None:
    """Written through as answers come: what was written before the end is not searched again."""
    command = fake(on={many_fens[450]: "hang"})
    program = f"""
        from pathlib import Path
        from queen.engines.cache import SearchCache
        from queen.engines.pool import Analyser, EngineSettings, Limit
        with SearchCache(Path({str(path)!r})) as cache:
            with Analyser(EngineSettings({command!r}, workers=1), cache) as analyser:
                analyser.analyse({many_fens!r}, Limit(nodes=10))
    """
    client = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    with SearchCache(path) as cache:
        deadline = time.monotonic() + 30
        while cache.count() < 400 and client.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        client.kill()
        client.wait()
        assert cache.count() == 400
