"""What processes cost, as Linux counts it: CPU and resident memory, of a server now and of a client at its end."""

import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from bench.peers.errors import PeersError

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_CLIENT_TIMEOUT_S = 300.0
_RESET_PEAK = "5"
_LOOK_S = 0.05
_SAID_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Server:
    """A process that runs, by its id."""

    pid: int

    def cpu_s(self) -> float:
        user, system = self._stat()[11:13]
        return (int(user) + int(system)) / _TICKS_A_SECOND

    def started_s(self) -> float:
        """When it started, by the clock that counts from the machine's start (CLOCK_BOOTTIME)."""
        return int(self._stat()[19]) / _TICKS_A_SECOND

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The most since `reset_peak`, by the kernel's own account: nothing is missed between two looks."""
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text(_RESET_PEAK)

    def _stat(self) -> list[str]:
        """From the state on: the name before it may hold spaces."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        value = next(line for line in lines if line.startswith(f"{name}:"))
        return int(value.split()[1]) * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """A process from its start to its end, the start of its runtime included."""

    output: str
    cpu_s: float
    peak_bytes: int


def run(command: Sequence[str], environment: Mapping[str, str]) -> Finished:
    """Raises PeersError with what it said where it fails or takes too long."""
    with (
        TemporaryFile() as output,
        TemporaryFile() as errors,
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors) as process,
    ):
        watchdog = threading.Timer(_CLIENT_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            peak, used = _watch(process)
        finally:
            watchdog.cancel()
            process.kill()  # Nothing where it has ended; whoever stops the comparison does not wait for a client.
        said, complaints = (_text(file) for file in (output, errors))
    if process.returncode != 0:
        raise PeersError(
            f"a client ended with exit code {process.returncode}: {' '.join(command)[-300:]}\n"
            f"{(said + complaints)[-_SAID_MAX:]}"
        )
    return Finished(said, used.ru_utime + used.ru_stime, peak)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _watch(process: "subprocess.Popen[bytes]") -> tuple[int, resource.struct_rusage]:
    """To its end. Its peak is looked at all the time, because what the kernel keeps for later (`ru_maxrss`) begins with
    the memory of whoever started it."""
    peak = 0
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return peak, used
        peak = max(peak, _peak_or_zero(process.pid))
        time.sleep(_LOOK_S)


def _peak_or_zero(pid: int) -> int:
    """0 of a process that has just ended."""
    try:
        return Server(pid).peak_bytes()
    except (OSError, StopIteration):
        return 0
