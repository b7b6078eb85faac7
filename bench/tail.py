"""Does somebody who follows a busy topic slow down its producers? The same steady load with and without a follower.

The follower is the real command, `headrace consume --follow`, on the same machine, as a person at a terminal would run
it. Both halves of a round are measured one after the other, so that whatever else the machine does meets both.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace import Producer

RATE = 5_000
"""Records a second: busy, and far below what one producer can, so that what is measured is no queue of its own."""
_TICK_S = 0.001
_WARM_UP_S = 0.5
_FOLLOWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class TailRound:
    """Seconds of each record, from one half of a round and from the other."""

    alone: list[float]
    followed: list[float]


def measure(server: str, topic: str, value: bytes, seconds: float) -> TailRound:
    alone = latencies(server, topic, value, seconds)
    with follower(server, topic, value):
        return TailRound(alone, latencies(server, topic, value, seconds))


def latencies(server: str, topic: str, value: bytes, seconds: float) -> list[float]:
    """Seconds from the call that sends a record to its acknowledgement, of each record of a steady load."""
    times: list[float] = []
    with Producer(server) as producer:
        _send_steadily(producer, topic, value, _WARM_UP_S, [])
        producer.flush()
        _send_steadily(producer, topic, value, seconds, times)
    return times


def _send_steadily(producer: Producer, topic: str, value: bytes, seconds: float, times: list[float]) -> None:
    started = time.perf_counter()
    for number in range(int(seconds * RATE)):
        ahead = started + number / RATE - time.perf_counter()
        if ahead > _TICK_S:
            time.sleep(ahead)
        producer.send(topic, value).add_done_callback(partial(_arrived, times, time.perf_counter()))


def _arrived(times: list[float], sent: float, _: Future[Any]) -> None:
    times.append(time.perf_counter() - sent)


@contextmanager
def follower(server: str, topic: str, value: bytes) -> Iterator[None]:
    """`headrace consume --follow` of what is written from now on, already reading when the block begins."""
    command = [str(Path(sys.executable).with_name("headrace")), "consume", topic, "--from", "latest", "--follow"]
    with TemporaryDirectory(prefix="headrace-bench-") as folder, (Path(folder) / "records").open("wb") as output:
        process = subprocess.Popen([*command, "-o", "value", "--server", server], stdout=output)
        try:
            with Producer(server, linger_ms=0) as producer:
                _wait_until_it_reads(producer, topic, value, Path(output.name))
            yield
        finally:
            process.terminate()
            process.wait()


def _wait_until_it_reads(producer: Producer, topic: str, value: bytes, output: Path) -> None:
    """It begins at the end: records are sent until one of them comes out."""
    deadline = time.monotonic() + _FOLLOWER_TIMEOUT_S
    while os.stat(output).st_size == 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"headrace consume --follow has read nothing within {_FOLLOWER_TIMEOUT_S:g} s")
        producer.send(topic, value).result()
        time.sleep(10 * _TICK_S)
