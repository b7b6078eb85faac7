"""Does a consumer far behind slow down the producers of its partition? What it reads is on disk, not in memory.

The same steady load three times a round: alone, beside a consumer that reads the log's old records from the page cache,
and beside one whose records the page cache has lost (`posix_fadvise` for each file). The second says what sharing two
cores with a consumer costs, the third what waiting for the disk adds to that. The consumer is a process of its own that
fetches from the start as fast as it can, again and again, until it is ended: `python -m bench.behind URL`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.filled import fill
from bench.processes import Broker, cluster
from bench.raw import RawClient
from bench.tail import latencies
from headrace.http2.blocking_transport import BlockingTransport

TOPIC = "bench-behind"
_READING_TIMEOUT_S = 30.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class BehindRound:
    """Seconds of each record of a steady load, and the bytes a second that the consumer read beside it."""

    alone: list[float]
    cached: list[float]
    cold: list[float]
    cached_rate: float
    cold_rate: float


def measure(folder: Path, size: int, rounds: int, seconds: float, value: bytes) -> list[BehindRound]:
    """`size` bytes are written to `folder`: more than is read in `seconds`, or a consumer meets what it read before."""
    with cluster(folder) as processes:
        broker = processes.start_broker()
        processes.create_topic(TOPIC, 1)
        processes.wait_led(TOPIC)
        broker.stop()
        files = fill(processes.broker_data, {TOPIC: size})[TOPIC]
        os.sync()  # Else the kernel would write beside the first round.
        broker = processes.start_broker()
        latencies(broker.url, TOPIC, value, seconds)  # warms up; not counted
        return [_round(broker, files, seconds, value) for _ in range(rounds)]


def _round(broker: Broker, files: Sequence[Path], seconds: float, value: bytes) -> BehindRound:
    alone = latencies(broker.url, TOPIC, value, seconds)
    for file in files:
        file.read_bytes()
    cached, cached_rate = _beside_consumer(broker, seconds, value)
    _forget(files[:-1])  # What is written to stays in memory, as it does in life.
    cold, cold_rate = _beside_consumer(broker, seconds, value)
    return BehindRound(alone, cached, cold, cached_rate, cold_rate)


def _forget(files: Sequence[Path]) -> None:
    """Take them out of the page cache, which holds nothing of them that is not on disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _beside_consumer(broker: Broker, seconds: float, value: bytes) -> tuple[list[float], float]:
    with _consumer(broker) as progress:
        before, started = _read_bytes(progress), time.perf_counter()
        times = latencies(broker.url, TOPIC, value, seconds)
        return times, (_read_bytes(progress) - before) / (time.perf_counter() - started)


@contextmanager
def _consumer(broker: Broker) -> Iterator[Path]:
    """Reads already when the block begins; the file says how far it is."""
    progress = Path(f"{broker.log}.consumer")
    with progress.open("wb") as output:
        command = [sys.executable, "-m", "bench.behind", broker.url]
        process = subprocess.Popen(command, stdout=output)
        try:
            deadline = time.monotonic() + _READING_TIMEOUT_S
            while _read_bytes(progress) == 0:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError("the consumer does not read")
                time.sleep(_POLL_S)
            yield progress
        finally:
            process.terminate()
            process.wait()


def _read_bytes(progress: Path) -> int:
    lines = progress.read_text().split()
    return int(lines[-1]) if lines else 0


def _consume(url: str) -> None:
    """Print the bytes so far after each answer."""
    with BlockingTransport() as transport:
        total = 0
        while True:
            for size in RawClient(transport, url, TOPIC).answers():
                total += size
                os.write(sys.stdout.fileno(), f"{total}\n".encode())


if __name__ == "__main__":
    _consume(sys.argv[1])
