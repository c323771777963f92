"""Ranks of one training on this machine or several, started and ended with this process.

    local      processes of this machine, started once and given one order after another
    deepspeed  the deepspeed launcher with a host file, started anew for each order; what it is
               given must lie where every host reaches it

A crew is only a way to start: under torchrun, `python -m queen.training.worker ORDER` is a rank.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from torch import nn

from queen.errors import QueenError
from queen.training import checkpoint as ck
from queen.training.loop import Sink, TrainResult
from queen.training.order import ALIVE, Reading, kept_error, take_over
from queen.training.progress import ShowProgress
from queen.training.settings import SettingsError, TrainSettings
from queen.training.world import free_port

if TYPE_CHECKING:
    from queen.networks.expert import Expert
    from queen.networks.queen import QueenModel
    from queen.training.sft import Part

LAUNCHERS = ("local", "deepspeed")
LOOK_S, TOUCH_S, LEAVE_S = 0.1, 5.0, 20.0
LOG_TAIL = 2000
WORKER = "queen.training.worker"

WriteOrder = Callable[[Path, TrainSettings], None]


class RankError(QueenError):
    """A rank that ended in the middle of a training."""


@dataclass(frozen=True)
class CrewSettings:
    """How ranks are started.

    Attributes:
        ranks: processes on this machine; with a host file, its slots count.
        launcher: local or deepspeed.
        hostfile: of the deepspeed launcher: a line `host slots=N` for each machine.
        threads: of all of this machine's ranks together.
    """

    ranks: int = 2
    launcher: str = "local"
    hostfile: str = ""
    threads: int = 2

    def __post_init__(self) -> None:
        for name, fault, remedy in (
            ("launcher", self.launcher not in LAUNCHERS, f"give one of {', '.join(LAUNCHERS)}"),
            ("ranks", self.ranks < 1, "give at least 1"),
            ("hostfile", bool(self.hostfile) and not Path(self.hostfile).is_file(),
             "give a file with a line `host slots=N` for each machine"),
            ("hostfile", bool(self.hostfile) and self.launcher == "local",
             "set machine.launcher=deepspeed, or leave the host file out"),
        ):  # fmt: skip
            if fault:
                what = f"{getattr(self, name)!r} will not do"
                raise SettingsError(what, where=f"machine.{name}", remedy=remedy)

    @property
    def threads_each(self) -> int:
        return max(1, self.threads // self.ranks)


class Crew:
    """Ranks that carry out orders; use it as a context manager.

    Args:
        folder: for orders and logs, emptied first.
    """

    def __init__(self, settings: CrewSettings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[IO[bytes]] = []
        self.count = 0

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.settings.launcher == "local":
            self._start_local()  # now: they import while the caller reads its data
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        deadline = time.monotonic() + LEAVE_S
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fine_tune(
        self,
        model: QueenModel,
        expert: Expert | None,
        mixture: Sequence[Part],
        settings: TrainSettings,
        *,
        work: Path,
        table_mb: int = 1024,
        sink: Sink = lambda step, figures: None,
        progress: ShowProgress = lambda done, total, note="": None,
    ) -> TrainResult:
        """As `sft.fine_tune`, by all ranks; raises as `train` does."""
        from queen.training.sft_order import write_order

        place = work.resolve()
        return self.train(
            model,
            lambda folder, own: write_order(folder, model, expert, mixture, own, place, table_mb),
            settings,
            work=work,
            sink=sink,
            progress=progress,
        )

    def train(
        self,
        model: nn.Module,
        write: WriteOrder,
        settings: TrainSettings,
        *,
        work: Path,
        sink: Sink = lambda step, figures: None,
        progress: ShowProgress = lambda done, total, note="": None,
    ) -> TrainResult:
        """Have an order carried out by all ranks, and put what was trained into `model`.

        Args:
            write: puts the order down in a folder, with a rank's settings.
            work: folder of the order's checkpoints.

        Raises:
            RankError: a rank died; the last checkpoint is whole, and the next run goes on.
            QueenError: what a rank stopped for.
        """
        order = self.folder / f"order-{self.count}"
        self.count += 1
        order.mkdir()
        write(order, replace(settings, threads=self.settings.threads_each))
        self._send(order)
        try:
            result = self._await(order, sink, progress)
        except BaseException:
            self._kill()
            raise
        found = ck.latest(work)
        assert found is not None
        take_over(model, found.model)
        shutil.rmtree(order, ignore_errors=True)
        return result

    def _start_local(self) -> None:
        ranks = self.settings.ranks
        shared = {
            "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": str(self.settings.threads_each),
        }  # fmt: skip
        if sys.platform.startswith("linux"):
            shared["GLOO_SOCKET_IFNAME"] = "lo"
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_SIZE": str(ranks)}
            self._start([sys.executable, "-m", WORKER, "-"], {**shared, **own})

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        log = (self.folder / f"rank-{len(self.processes)}.log").open("wb")
        quiet = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**quiet, **os.environ, **environment},
            start_new_session=True,
        )
        self.logs.append(log)
        self.processes.append(process)

    def _send(self, order: Path) -> None:
        if self.settings.launcher == "deepspeed":
            self.processes.clear()
            self._start(deepspeed_command(self.settings, order), {})
            return
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{order.resolve()}\n".encode())
                process.stdin.flush()

    def _await(self, order: Path, sink: Sink, progress: ShowProgress) -> TrainResult:
        """Pass on what the first rank tells until it tells the result."""
        reading, touched = Reading(order), 0.0
        while True:
            ended = [process.poll() for process in self.processes]
            result = None
            for report in reading.new():
                result = _passed_on(report, sink, progress) or result
            if result is not None:
                return result
            if any(status is not None for status in ended):
                raise self._fault(order, ended)
            if time.monotonic() - touched > TOUCH_S:
                (order / ALIVE).touch()
                touched = time.monotonic()
            time.sleep(LOOK_S)

    def _fault(self, order: Path, ended: Sequence[int | None]) -> QueenError:
        """Why a rank ended: its own error if it kept one, else what it last wrote."""
        error = kept_error(order)
        if error is not None:
            return error
        statuses = {rank: status for rank, status in enumerate(ended) if status is not None}
        rank, status = min(statuses.items(), key=lambda each: each[1])  # the killed one first
        log = self.folder / f"rank-{rank}.log"
        said = log.read_bytes()[-LOG_TAIL:].decode(errors="replace").strip()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return RankError(
            f"rank {rank} {how}" + (f"; it last said:\n{said}" if said else ""),
            where=f"training on {self.settings.ranks} ranks",
            remedy="run again: it goes on from the last checkpoint",
        )

    def _kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for log in self.logs:
            log.close()


def deepspeed_command(settings: CrewSettings, order: Path) -> list[str]:
    """How the deepspeed launcher is called for an order."""
    command = [sys.executable, "-m", "deepspeed.launcher.runner"]
    if settings.hostfile:
        command += ["--hostfile", str(Path(settings.hostfile).resolve())]
        if _hosts(settings.hostfile) <= {"localhost", "127.0.0.1", socket.gethostname()}:
            # This machine alone needs no ssh to itself.
            command += ["--no_ssh_check", "--master_addr", "127.0.0.1"]
    else:
        command += ["--num_gpus", str(settings.ranks)]
    return [*command, "--master_port", str(free_port()), "--module", WORKER, str(order.resolve())]


def _hosts(file: str) -> set[str]:
    lines = [line.split("#")[0].split() for line in Path(file).read_text().splitlines()]
    return {line[0] for line in lines if line}


def _passed_on(report: dict[str, Any], sink: Sink, progress: ShowProgress) -> TrainResult | None:
    kind = report.pop("kind")
    if kind == "figures":
        sink(report["step"], report["figures"])
    elif kind == "progress":
        progress(report["done"], report["total"], report["note"])
    else:
        losses = np.array(report.pop("losses"), np.float64)
        return TrainResult(losses=losses, **report)
    return None
