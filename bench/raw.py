"""Produce, fetch and latency over the bare transport: batches are encoded before, and not decoded after."""

import json
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus

from bench.dev_cluster import wait
from bench.workload import Batch
from headrace.http2.blocking_transport import BlockingTransport, PendingResponse
from headrace.http2.exchange import Response

_BATCH_TYPE = "application/vnd.headrace.batch"
_IN_FLIGHT = 4
"""Requests on the way at any time, as a producer would have."""
_TIMEOUT_S = 60


class RawClient:
    """One partition, by its leader's URL."""

    def __init__(self, transport: BlockingTransport, broker_url: str, topic: str) -> None:
        """Wait until the broker leads the partition."""
        self._partition_url = f"{broker_url}/v1/namespaces/default/topics/{topic}/partitions/0"
        self._transport = transport
        self._end = wait_led(transport, self._partition_url)
        """The partition's end, as the last answer said."""
        self._url = f"{self._partition_url}/records"

    def produce(self, batch: Batch, count: int) -> float:
        """Records per second of `count` requests, acks=all, until the last is acknowledged."""
        waiting: deque[PendingResponse] = deque()
        started = time.perf_counter()
        for _ in range(count):
            if len(waiting) == _IN_FLIGHT:
                require_ok(waiting.popleft().result(_TIMEOUT_S))
            waiting.append(self._start(batch))
        while waiting:
            require_ok(waiting.popleft().result(_TIMEOUT_S))
        return count * batch.records / (time.perf_counter() - started)

    def produce_times(self, batch: Batch, count: int) -> list[float]:
        """Seconds of each of `count` requests, one at a time, acks=all."""
        times = []
        for _ in range(count):
            started = time.perf_counter()
            require_ok(self._start(batch).result(_TIMEOUT_S))
            times.append(time.perf_counter() - started)
        return times

    def fetch(self) -> float:
        """Records per second from the partition's start to its end."""
        started = time.perf_counter()
        for _ in self.answers():
            pass
        return self._end / (time.perf_counter() - started)

    def answers(self) -> Iterator[int]:
        """The bytes of each answer from the partition's start to its end, which is asked for anew."""
        offset, self._end = 0, wait_led(self._transport, self._partition_url)
        while offset < self._end:
            response = self._transport.request(
                "GET", f"{self._url}?offset={offset}", headers={"accept": _BATCH_TYPE}, timeout_s=_TIMEOUT_S
            )
            require_ok(response)
            offset = int(response.headers["headrace-next-offset"])
            self._end = int(response.headers.get("headrace-high-watermark", self._end))
            yield len(response.body)

    def _start(self, batch: Batch) -> PendingResponse:
        return self._transport.start(
            "POST", f"{self._url}?acks=all", headers={"content-type": _BATCH_TYPE}, body=batch.buffers
        )


def wait_led(transport: BlockingTransport, partition_url: str) -> int:
    """Wait until the broker leads the partition, and return the offset after its last record.

    A broker that has just started is ready before it leads what it led: clients try again, as the answer tells them.
    Raises RuntimeError for any other answer, and where the broker does not lead in time.
    """
    return wait(partial(_end_where_led, transport, partition_url), f"{partition_url} is led")


def _end_where_led(transport: BlockingTransport, partition_url: str) -> int | None:
    response = transport.request("GET", f"{partition_url}/offsets?timestamp=latest", timeout_s=_TIMEOUT_S)
    if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return None
    require_ok(response)
    end: int = json.loads(response.body)["offset"]
    return end


def require_ok(response: Response) -> None:
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}: {response.body[:500]!r}")
