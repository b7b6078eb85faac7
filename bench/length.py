"""Does a partition cost more the longer its log is? Start, append, fetch by offset and by time, beside a short log.

One broker holds all the logs, and each request goes to each of them in turn: whatever the machine does meets all.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from bench.filled import BATCH_BYTES, BATCH_RECORDS, BEGAN_MS, fill, opened_logs, time_of
from bench.processes import Broker, Cluster, cluster
from bench.raw import require_ok, wait_led
from bench.workload import batch
from headrace.http2.blocking_transport import BlockingTransport
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_log import PartitionLog

FETCH_BYTES = BATCH_BYTES
_BATCH_TYPE = "application/vnd.headrace.batch"
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Lengths:
    """Medians in seconds, by what was done and then by the log's size in bytes."""

    segments: Mapping[int, int]
    empty_start_s: float
    """Process start to ready, before anything was written."""
    full_start_s: float
    """The same with every log at its full length, after a clean stop."""
    open_s: Mapping[int, float]
    """One log's share of that: `PartitionLog.open`."""
    times: Mapping[str, Mapping[int, float]]


def measure(folder: Path, sizes: Sequence[int], requests: int, starts: int) -> Lengths:
    """`folder` takes as many bytes as the sizes together."""
    with cluster(folder) as processes, BlockingTransport() as transport:
        broker = processes.start_broker()
        for size in sizes:
            processes.create_topic(_topic(size), 1)
            processes.wait_led(_topic(size))
        broker.stop()
        empty = _starts(processes, starts)
        files = fill(processes.broker_data, {_topic(size): size for size in sizes})
        full = _starts(processes, starts)
        opened = _open_all(processes.broker_data, sizes, starts)
        broker = processes.start_broker()
        times = _ask_all([_Log(transport, broker, size) for size in sizes], requests)
        broker.stop()
    segments = {size: len(files[_topic(size)]) for size in sizes}
    return Lengths(segments, statistics.median(empty), statistics.median(full), opened, times)


def _topic(size: int) -> str:
    return f"bench-{size}"


def _starts(processes: Cluster, count: int) -> list[float]:
    times = []
    for _ in range(count):
        broker = processes.start_broker()
        times.append(broker.ready_s)
        broker.stop()
    return times


def _open_all(path: Path, sizes: Sequence[int], rounds: int) -> dict[int, float]:
    """Seconds that each log takes to open, as a start after a clean stop does."""
    times: dict[int, list[float]] = {size: [] for size in sizes}
    with opened_logs(path, [_topic(size) for size in sizes]) as (data, logs):
        for _ in range(rounds):
            for size, log in zip(sizes, logs.values(), strict=True):
                log.close()
                times[size].append(_seconds(partial(_open, data, log)))
    return {size: statistics.median(each) for size, each in times.items()}


def _open(data: DataDirectory, log: PartitionLog) -> None:
    PartitionLog.open(log.directory, log.config, threads=data.threads, now_ms=BEGAN_MS)


def _ask_all(logs: Sequence["_Log"], requests: int) -> dict[str, dict[int, float]]:
    asked: dict[str, Callable[[_Log], None]] = {
        "append": _Log.append,
        "fetch by offset": _Log.fetch,
        "fetch by time": _Log.find,
    }
    return {what: _medians(logs, ask, requests) for what, ask in asked.items()}


def _medians(logs: Sequence["_Log"], ask: Callable[["_Log"], None], requests: int) -> dict[int, float]:
    times = {log.size: list[float]() for log in logs}
    for counts in (False, True):
        # Twice for the same places, and only the second is counted: then the page cache has them all, however long the
        # log is, and what is opened once is open.
        for log in logs:
            log.begin_again()
        for _ in range(requests):
            for log in logs:
                seconds = _seconds(partial(ask, log))
                if counts:
                    times[log.size].append(seconds)
    return {size: statistics.median(each) for size, each in times.items()}


def _seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


class _Log:
    """One partition, asked over HTTP/2 as clients do."""

    def __init__(self, transport: BlockingTransport, broker: Broker, size: int) -> None:
        self.size = size
        self._transport = transport
        self._partition = f"{broker.url}/v1/namespaces/default/topics/{_topic(size)}/partitions/0"
        self._single = batch(1).buffers
        self._random = Random()
        self._end = wait_led(transport, self._partition)

    def begin_again(self) -> None:
        """With the offsets and times that were asked for at first."""
        self._random.seed(self.size)

    def append(self) -> None:
        url = f"{self._partition}/records?acks=all"
        headers = {"content-type": _BATCH_TYPE}
        require_ok(self._transport.request("POST", url, headers=headers, body=self._single, timeout_s=_TIMEOUT_S))

    def fetch(self) -> None:
        self._get(f"records?offset={self._random.randrange(self._end)}&maxBytes={FETCH_BYTES}")

    def find(self) -> None:
        self._get(f"offsets?timestamp={time_of(self._random.randrange(self._end // BATCH_RECORDS))}")

    def _get(self, what: str) -> None:
        headers = {"accept": _BATCH_TYPE} if what.startswith("records") else {}
        answer = self._transport.request("GET", f"{self._partition}/{what}", headers=headers, timeout_s=_TIMEOUT_S)
        require_ok(answer)
