"""Several processes that write: the same texts, whatever their number, and none outlives us."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from generation_parts import generator, requests
from pool_parts import Scribe, asking, dead, scribe, unloadable

from queen.generation.decode import GenerationError, Generator, Request, Sampling
from queen.generation.pool import GeneratorPool
from queen.generation.requests import RUN, runs

SIZE = 8
DRAWN = Sampling(temperature=1.0, max_new_tokens=12)
PARENT = """
import sys, time
from pool_parts import asking, scribe
from queen.generation.pool import GeneratorPool

if __name__ == "__main__":
    pool = GeneratorPool(scribe, 2, 8)
    pool.move_logprobs(asking(16))
    print(*(worker.process.pid for worker in pool.workers.values()), flush=True)
    time.sleep(60)
"""


def make(number: int) -> Generator:
    return generator(SIZE)


@pytest.fixture(scope="module")
def pool() -> Iterator[GeneratorPool]:
    with GeneratorPool(scribe, 2, SIZE) as made:
        yield made


def test_runs_cover_the_list_and_hang_on_nothing_else() -> None:
    for count in (0, 1, RUN, RUN + 1, 5 * RUN - 1, 1000):
        parts = runs(count, 64)
        assert [i for part in parts for i in part] == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert max(map(len, parts)) <= RUN
    assert runs(RUN, 64) == [range(RUN)]
    assert len(runs(1536, 512)) == 1


def test_two_processes_with_a_model_write_what_one_does() -> None:
    asked = requests(RUN + 60)
    asked[7] = Request("illegal", requests(1)[0].position.child("a1a1"), "x", "best ")
    here = make(0)
    with GeneratorPool(make, 2, SIZE) as pool:
        assert pool.generate(asked, DRAWN) == here.generate(asked, DRAWN)
        assert pool.move_logprobs(asked[:7]) == here.move_logprobs(asked[:7])
        assert pool.identity == here.identity
    assert pool.identity["weights"] == here.weights_digest


def test_answers_stand_in_the_order_of_the_requests(pool: GeneratorPool) -> None:
    asked = asking(3 * RUN + 1)
    assert pool.generate(asked, DRAWN) == Scribe().generate(asked, DRAWN)
    assert pool.move_logprobs(asked) == Scribe().move_logprobs(asked)
    assert len(pool.workers) == 2
    assert pool.generate([], DRAWN) == []
    assert pool.move_logprobs([]) == []


def test_an_error_comes_back_as_it_was_and_the_pool_goes_on(pool: GeneratorPool) -> None:
    with pytest.raises(GenerationError, match=r"request unreadable(.|\n)*mend it"):
        pool.move_logprobs(asking(30, unreadable=20))
    assert pool.generate(asking(3), DRAWN) == Scribe().generate(asking(3), DRAWN)


def test_a_process_that_dies_is_replaced_and_its_run_tried_again(tmp_path: Path) -> None:
    asked = asking(RUN + 1, once=2)
    with GeneratorPool(functools.partial(scribe, once=tmp_path / "once"), 2, SIZE) as pool:
        assert pool.generate(asked, DRAWN) == Scribe().generate(asked, DRAWN)
    assert (tmp_path / "once").exists()


def test_a_record_that_kills_every_process_fails_alone() -> None:
    asked = asking(5, deadly=1)
    with GeneratorPool(scribe, 1, SIZE) as pool:
        done = pool.generate(asked, DRAWN)
        assert "signal 9" in str(done[1].error)
        others = [*asked[:1], *asked[2:]]
        assert [*done[:1], *done[2:]] == Scribe().generate(others, DRAWN)


def test_what_cannot_load_is_said() -> None:
    with (
        GeneratorPool(unloadable, 1, SIZE) as pool,
        pytest.raises(GenerationError, match="no weights"),
    ):
        pool.generate(asking(1), DRAWN)
    with (
        GeneratorPool(dead, 1, SIZE) as pool,
        pytest.raises(GenerationError, match=r"loading the model(.|\n)*signal 9(.|\n)*memory"),
    ):
        _ = pool.identity


def test_processes_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(_alive, pids))
        parent.kill()
    until = time.monotonic() + 20
    while any(map(_alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
