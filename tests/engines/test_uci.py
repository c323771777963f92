from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from queen.engines.uci import (
    EngineFaultError,
    EngineProcess,
    EngineStartError,
    parse_option,
    split_command,
    split_name,
)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("option name Debug Log File type string default ", ("Debug Log File", "string", "")),
        ("option name EvalFile type string default nn-a.nnue", ("EvalFile", "string", "nn-a.nnue")),
        ("option name Clear Hash type button", ("Clear Hash", "button", "")),
        ("option name C type combo default Both var Both var Off", ("C", "combo", "Both")),
    ],
)
def test_options_are_read(line: str, expected: tuple[str, str, str]) -> None:
    option = parse_option(line)
    assert option is not None
    assert (option.name, option.kind, option.default) == expected


def test_spin_bounds_and_other_lines() -> None:
    option = parse_option("option name Skill Level type spin default 20 min -20 max 20")
    assert option is not None
    assert (option.default, option.low, option.high) == ("20", -20, 20)
    assert parse_option("id name Stockfish 15.1") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Stockfish 15.1", ("Stockfish", "15.1")),
        ("Fairy-Stockfish 11.1 LB 64", ("Fairy-Stockfish", "11.1 LB 64")),
        ("Lc0 v0.30.0", ("Lc0", "v0.30.0")),
        ("4ku", ("4ku", "")),
    ],
)
def test_names_are_split(text: str, expected: tuple[str, str]) -> None:
    assert split_name(text) == expected


def test_a_path_with_spaces_is_one_program(tmp_path: Path) -> None:
    program = tmp_path / "my engine"
    program.write_text("")
    assert split_command(str(program)) == [str(program)]
    assert split_command("engine --uci 'a b'") == ["engine", "--uci", "a b"]


def test_a_missing_engine_names_command_and_remedy() -> None:
    with pytest.raises(EngineStartError, match="no-such-engine") as caught:
        EngineProcess("no-such-engine")
    assert "install" in caught.value.remedy


def test_a_file_that_may_not_run(tmp_path: Path) -> None:
    path = tmp_path / "engine"
    path.write_text("text")
    path.chmod(0o644)
    with pytest.raises(EngineStartError) as caught:
        EngineProcess(str(path))
    assert str(path) in caught.value.where
    assert "chmod +x" in caught.value.remedy


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("print('hello')", "exit status 0"),
        ("import sys; sys.exit('libgone.so not found')", "libgone.so not found"),
        ("for line in __import__('sys').stdin: print(line, flush=True)", "uci"),
        ("__import__('time').sleep(60)", "no answer"),
    ],
)
def test_a_program_that_is_no_engine(script: Callable[[str], str], body: str, what: str) -> None:
    with pytest.raises(EngineStartError, match="does not speak UCI") as caught:
        EngineProcess(script(body), start_timeout_s=0.5)
    assert what in caught.value.what


def test_wrong_options_are_named_with_the_nearest(fake: Callable[..., str]) -> None:
    engine = EngineProcess(fake())
    with pytest.raises(EngineStartError) as caught:
        engine.configure({"Hsah": 4})
    assert "'Hash'" in caught.value.remedy
    with pytest.raises(EngineStartError, match="out of range"):
        engine.configure({"Hash": 100_000})
    with pytest.raises(EngineStartError, match="no whole number"):
        engine.configure({"Hash": "much"})
    engine.close()


def test_its_exit_status_is_told(fake: Callable[..., str]) -> None:
    engine = EngineProcess(fake(always="die"))
    engine.send("go nodes 1\n")
    with pytest.raises(EngineFaultError, match="exit status 3") as caught:
        engine.frame(b"bestmove", 5)
    assert caught.value.reason == "crashed"
    with pytest.raises(EngineFaultError):
        engine.send("isready\n")


def test_closing_ends_the_process(fake: Callable[..., str]) -> None:
    engine = EngineProcess(fake())
    engine.close()
    engine.close()
    assert not alive(engine.pid)


def test_a_wrapper_and_its_engine_end_together(
    script: Callable[[str], str], fake: Callable[..., str]
) -> None:
    inner = fake(always="hang")
    wrapper = script(f"import subprocess, sys; sys.exit(subprocess.call([{inner!r}]))")
    engine = EngineProcess(wrapper)
    children = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
    engine.send("go nodes 1\n")
    engine.kill()
    assert children
    assert all(gone_within(int(child), 2) for child in children)


def test_an_engine_outlives_the_thread_that_asked_for_it(fake: Callable[..., str]) -> None:
    engines: list[EngineProcess] = []
    command = fake()
    thread = threading.Thread(target=lambda: engines.append(EngineProcess(command)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    engines[0].wait_ready()
    engines[0].close()


def test_a_long_queue_of_commands_does_not_block(fake: Callable[..., str]) -> None:
    engine = EngineProcess(fake())
    count = 40_000  # more than the pipes of both directions hold
    engine.send("isready\n" * count)
    for _ in range(count):
        engine.frame(b"readyok", 5)
    engine.close()


def test_an_engine_that_reads_nothing_is_hung(fake: Callable[..., str]) -> None:
    engine = EngineProcess(fake(always="hang"), start_timeout_s=1)
    engine.send("go nodes 1\n")
    with pytest.raises(EngineFaultError, match="takes no commands"):
        engine.send("isready\n" * 40_000)
    engine.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs PR_SET_PDEATHSIG")
def test_no_engine_is_left_after_kill_9(fake: Callable[..., str]) -> None:
    program = textwrap.dedent(f"""
        import time
        from queen.engines.uci import EngineProcess
        engine = EngineProcess({fake(always="hang")!r})
        engine.send("go nodes 1\\n")
        print(engine.pid, flush=True)
        time.sleep(60)
    """)
    client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    assert alive(pid)
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    client.stdout.close()
    assert gone_within(pid, 3)


def test_the_last_words_of_one_gone_before_it_is_spoken_to_are_told(
    script: Callable[[str], str],
) -> None:
    body = """
import sys
for line in sys.stdin:
    print('uciok' if line == 'uci\\n' else 'readyok', flush=True)
    if line == 'isready\\n':
        break
print('out of luck', flush=True)
"""
    engine = EngineProcess(script(body))
    time.sleep(0.3)
    with pytest.raises(EngineFaultError, match="out of luck"):
        engine.send("isready\n")
