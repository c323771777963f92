"""One UCI engine as a raw process: start, options, lines in and out, death with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from queen.engines.analysis import FailureReason
from queen.errors import QueenError

PR_SET_PDEATHSIG = 1
MAX_LINE = 1 << 20
MAX_FRAME = 1 << 24
INSTALL = "install an engine (Debian: apt-get install stockfish) or give the path of one"
_UCI_WORDS = (b"info", b"id ", b"option", b"bestmove", b"readyok", b"uciok")


class EngineStartError(QueenError):
    """An engine that is missing, cannot be run, does not speak UCI or refuses an option."""


class EngineFaultError(Exception):
    """A running engine failed: `reason` is what it did, the message says how."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: FailureReason = reason
        self.detail = detail


@dataclass(frozen=True)
class EngineOption:
    """An option as the engine declares it; bounds only for spins."""

    name: str
    kind: str
    default: str
    low: int | None = None
    high: int | None = None


_VERSION = re.compile(r"v?\d")
_OPTION = re.compile(r"^option name (?P<name>.+?) type (?P<kind>\S+)(?P<rest>.*)$")


def parse_option(line: str) -> EngineOption | None:
    """Read an `option name ... type ...` line; None if it is another line."""
    match = _OPTION.match(line)
    if match is None:
        return None
    rest = match["rest"]
    default = re.search(r" default(?: (.*?))?(?= (?:min|max|var) |$)", rest)
    bound = {key: int(value) for key, value in re.findall(r" (min|max) (-?\d+)", rest)}
    text = (default[1] or "").strip() if default else ""
    return EngineOption(match["name"], match["kind"], text, bound.get("min"), bound.get("max"))


def split_name(text: str) -> tuple[str, str]:
    """An `id name` as name and version: "Fairy-Stockfish", "11.1 LB 64"."""
    words = text.split()
    digits = [number for number, word in enumerate(words) if number and _VERSION.match(word)]
    cut = digits[0] if digits else len(words)
    return " ".join(words[:cut]), " ".join(words[cut:])


def split_command(command: str) -> list[str]:
    """A command as argument list: one path (spaces allowed) or a shell-like line."""
    if os.path.exists(command) or shutil.which(command):
        return [command]
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


# PR_SET_PDEATHSIG fires when the *thread* that forked ends, so every engine is started from
# one thread that lives as long as the process.
_starter: ThreadPoolExecutor | None = None
_starter_lock = threading.Lock()


def _starting_thread() -> ThreadPoolExecutor:
    global _starter
    with _starter_lock:
        if _starter is None:
            _starter = ThreadPoolExecutor(1, thread_name_prefix="engine-starter")
        return _starter


def _forget_starter() -> None:
    global _starter, _starter_lock
    _starter, _starter_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_starter)


def _die_with_parent() -> Callable[[], None] | None:
    """For preexec_fn: the kernel kills the child when we die, kill -9 included (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return tie


def _spawn(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        process_group=0,
        preexec_fn=_die_with_parent(),
    )


def _signal_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the engine and what it started, unless its number is already free for others."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _kill_group(process: subprocess.Popen[bytes]) -> int | None:
    """Kill, close the pipes and reap; the exit status."""
    _signal_group(process)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    return process.returncode


class EngineProcess:
    """A started UCI engine.

    Args:
        command: path or command line.
        start_timeout_s: seconds it may take to say `uciok` and `readyok`.

    Attributes: `name` and `version` as the engine says them, `options` by lower-case name.
    Raises EngineStartError naming the command, what happened and the remedy.
    """

    def __init__(self, command: str, start_timeout_s: float = 20.0) -> None:
        self.command, self._start_timeout_s = command, start_timeout_s
        self.name, self.version = "", ""
        self.options: dict[str, EngineOption] = {}
        self._lines: deque[bytes] = deque()
        self._tail = b""
        self._heard: deque[bytes] = deque(maxlen=3)
        self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._finalizer = weakref.finalize(self, _kill_group, self._process)
        self._greet()

    @property
    def pid(self) -> int:
        return self._process.pid

    # -- starting ---------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = split_command(self.command)
        if not arguments:
            raise EngineStartError("no engine given", where="engine command", remedy=INSTALL)
        try:
            return _starting_thread().submit(_spawn, arguments).result()
        except FileNotFoundError as error:
            raise self._refusal("no such program", INSTALL) from error
        except PermissionError as error:
            raise self._refusal("not executable", f"chmod +x {arguments[0]}") from error
        except OSError as error:
            raise self._refusal(f"cannot be run: {error}", INSTALL) from error

    def _refusal(self, what: str, remedy: str) -> EngineStartError:
        return EngineStartError(what, where=f"engine {self.command!r}", remedy=remedy)

    def _greet(self) -> None:
        try:
            self.send("uci\n")
            lines = self.frame(b"uciok", self._start_timeout_s)
            self.wait_ready()
        except EngineFaultError as fault:
            self.kill()
            raise self._refusal(
                f"does not speak UCI: {fault.detail}",
                f"try `{self.command}` by hand: it must answer `uci` with `uciok`; or {INSTALL}",
            ) from fault
        for line in lines:
            self._learn(line.decode("utf-8", "replace").strip())

    def _learn(self, line: str) -> None:
        if line.startswith("id name "):
            self.name, self.version = split_name(line[8:])
        option = parse_option(line)
        if option is not None:
            self.options[option.name.lower()] = option

    def configure(self, options: Mapping[str, str | int]) -> None:
        """Set options. Raises EngineStartError for one the engine lacks or a value out of range."""
        for name, value in options.items():
            option = self._known(name)
            self._check_range(option, value)
            self.send(f"setoption name {option.name} value {value}\n")
        try:
            self.wait_ready()
        except EngineFaultError as fault:
            remedy = "check the engine's options"
            raise self._refusal(f"fails on its options: {fault.detail}", remedy) from fault

    def _known(self, name: str) -> EngineOption:
        option = self.options.get(name.lower())
        if option is not None:
            return option
        near = difflib.get_close_matches(name.lower(), self.options, 1)
        hint = f"did you mean {self.options[near[0]].name!r}?" if near else "take it out"
        raise self._refusal(f"has no option {name!r}", hint)

    def _check_range(self, option: EngineOption, value: str | int) -> None:
        if option.kind != "spin":
            return
        try:
            number = int(value)
        except ValueError as error:
            raise self._refusal(
                f"option {option.name!r} = {value!r} is no whole number", "correct the value"
            ) from error
        low = number if option.low is None else option.low
        high = number if option.high is None else option.high
        if not low <= number <= high:
            bounds = f"between {low} and {high}"
            raise self._refusal(
                f"option {option.name!r} = {number} is out of range", f"give a value {bounds}"
            )

    # -- talking ----------------------------------------------------------------------------

    def send(self, text: str) -> None:
        """Write commands, each ended by a newline; read meanwhile what the engine says.

        Raises EngineFaultError if it is gone, or takes nothing in for the start's time limit.
        """
        data, deadline = text.encode(), time.monotonic() + self._start_timeout_s
        self._check_alive()
        while data:
            try:
                data = data[os.write(self._in, data) :]
            except BlockingIOError:
                self._make_room(deadline)
            except OSError as error:
                self._hear_out()
                raise EngineFaultError("crashed", self._epitaph()) from error

    def _hear_out(self) -> None:
        """Take in what an engine that is gone said before it went."""
        with contextlib.suppress(OSError):
            while self._poll.poll(100) and (chunk := os.read(self._out, 1 << 16)):
                *lines, self._tail = (self._tail + chunk).split(b"\n")
                self._heard.extend(lines[-3:])

    def _make_room(self, deadline: float) -> None:
        """An engine that cannot write its answers stops reading: take them, then go on."""
        poll = select.poll()
        poll.register(self._in, select.POLLOUT)
        poll.register(self._out, select.POLLIN)
        ready = poll.poll(max(1.0, (deadline - time.monotonic()) * 1000))
        if not ready or time.monotonic() > deadline:
            raise EngineFaultError("hung", "takes no commands")
        if any(number == self._out for number, _ in ready):
            self._take_in()

    def frame(self, last: bytes, timeout_s: float, nap_s: float = 0.0) -> list[bytes]:
        """Lines up to the first that starts with `last`, that one included.

        With `nap_s` it looks so often for what the engine said, and is not woken by every line.
        Raises EngineFaultError: "crashed" at the end of output, "hung" after `timeout_s`, "rubbish"
        where the output is endless or, at the time limit, mostly no UCI.
        """
        deadline, size = time.monotonic() + timeout_s, 0
        lines: list[bytes] = []
        while True:
            while not self._lines:
                if nap_s > 0:
                    time.sleep(nap_s)
                self._fill(deadline, lines, timeout_s)
            line = self._lines.popleft()
            lines.append(line)
            if line.startswith(last):
                return lines
            size += len(line) + 1
            if size > MAX_FRAME:
                raise EngineFaultError("rubbish", f"more than {MAX_FRAME} bytes with no answer")

    def _fill(self, deadline: float, seen: list[bytes], timeout_s: float) -> None:
        self._check_alive()
        left = deadline - time.monotonic()
        if left <= 0 or not self._poll.poll(max(1.0, left * 1000)):
            raise self._overdue(seen, timeout_s)
        self._take_in()

    def _take_in(self) -> None:
        chunk = os.read(self._out, 1 << 16)
        if not chunk:
            raise EngineFaultError("crashed", self._epitaph())
        *lines, self._tail = (self._tail + chunk).split(b"\n")
        self._lines.extend(lines)
        self._heard.extend(lines[-3:])
        if len(self._tail) > MAX_LINE:
            raise EngineFaultError("rubbish", f"a line of more than {MAX_LINE} bytes")

    def _overdue(self, seen: list[bytes], timeout_s: float) -> EngineFaultError:
        said = [line for line in (*seen, self._tail) if line.strip()]
        sense = sum(line.startswith(_UCI_WORDS) for line in said)
        if 2 * sense < len(said):
            words = self._last_words(said)
            return EngineFaultError("rubbish", f"no answer in {timeout_s:g} s, but {words}")
        return EngineFaultError("hung", f"no answer in {timeout_s:g} s")

    def _check_alive(self) -> None:
        """Its pipes' numbers may belong to others once they are closed."""
        if not self._finalizer.alive:
            raise EngineFaultError("crashed", "already ended")

    def wait_ready(self) -> None:
        """isready, readyok."""
        self.send("isready\n")
        self.frame(b"readyok", self._start_timeout_s)

    @staticmethod
    def _last_words(lines: list[bytes]) -> str:
        return repr(b" / ".join(lines[-3:])[-200:].decode("utf-8", "replace"))

    def _epitaph(self) -> str:
        self._await_end(0.5)
        status = self._finalizer()
        how = f"exit status {status}"
        if status is not None and status < 0:
            how = f"killed by signal {-status}"
        return f"{how}, last words {self._last_words(list(self._heard))}"

    def _await_end(self, seconds: float) -> None:
        """Give a dying process time for its own exit status, without reaping it."""
        deadline = time.monotonic() + seconds
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while self._finalizer.alive and time.monotonic() < deadline:
            if os.waitid(os.P_PID, self._process.pid, flags) is not None:
                return
            time.sleep(0.005)

    # -- ending -----------------------------------------------------------------------------

    def abort(self) -> None:
        """From another thread: end it so that whoever reads from it sees the end of output."""
        _signal_group(self._process)

    def kill(self) -> None:
        """End it at once and release its pipes."""
        self._finalizer()

    def close(self) -> None:
        """Ask it to quit, then make sure."""
        if self._finalizer.alive:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                os.write(self._in, b"quit\n")
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.wait(0.5)
        self.kill()
