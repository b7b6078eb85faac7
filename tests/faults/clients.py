"""Those who use a cluster while it is being hurt, each with a thread of its own and a pace that leaves room for others.

    SdkWriter   the SDK's idempotent producer: its own retries, one try per record for us
    RawWriter   plain HTTP requests, each with a value that is sent once
    SdkReader   the SDK's consumer, following from the earliest record
    RawReader   plain fetches from a position of its own, and the question where the partition ends, by turns

`hardy_clients` says what happens to what they cannot do.
"""

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from headrace import Consumer, Producer
from headrace.core.errors import HeadraceError, OffsetOutOfRangeError, from_problem
from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.exchange import Response
from tests.faults.history import Look, Outcome, Poll, Row, Write
from tests.faults.journal import Journal, now_s
from tests.support.hardy_clients import KNOCK_S, HardyClient
from tests.support.world import BATCH

DELIVERY_TIMEOUT_MS: Final = 120_000
PACE_S: Final = 0.02
_REQUEST_S: Final = 8.0
WAITING_MAX: Final = 200
"""Records of one partition that an SDK writer has on their way."""
_MAY_BE_WRITTEN: Final = frozenset({"NotLeader", "StorageFailed", "RequestTimedOut", "BrokerUnreachable", "Internal"})
"""`docs/protocol.md`: after these, records may be written or not; after any other problem they are not."""


class Client(HardyClient):
    """Writes down in the run's journal what it asked and was told."""

    def __init__(self, name: str, journal: Journal, servers: str) -> None:
        super().__init__(name, journal)
        self._journal = journal
        self._servers = servers


class SdkWriter(Client):
    """One record to each partition by turns, at most `WAITING_MAX` unanswered."""

    def __init__(self, name: str, journal: Journal, servers: str, **options: Any) -> None:
        super().__init__(name, journal, servers)
        journal.idempotent.add(name)
        self._options = {"delivery_timeout_ms": DELIVERY_TIMEOUT_MS, **options}
        self._number = 0
        self._waiting: list[deque[tuple[int, bytes, float, Any]]] = [deque() for _ in range(journal.partitions)]

    def _work(self) -> None:
        with Producer(server=self._servers, **self._options) as producer:
            while not self._stopped.is_set():
                for partition, waiting in enumerate(self._waiting):
                    if len(waiting) < WAITING_MAX:
                        self._send(producer, partition)
                    self._harvest(partition)
                self._stopped.wait(PACE_S)
            for partition in range(len(self._waiting)):
                for _, _, _, sending in self._waiting[partition]:
                    sending.exception(2 * DELIVERY_TIMEOUT_MS / 1000)
                self._harvest(partition)

    def _send(self, producer: Producer, partition: int) -> None:
        number, value, began_s = self._next(partition)
        sending = producer.send(self._journal.topic, value, partition=partition)
        self._waiting[partition].append((number, value, began_s, sending))

    def _next(self, partition: int) -> tuple[int, bytes, float]:
        self._number += 1
        return self._number, f"{self.name}:{partition}:{self._number}".encode(), now_s()

    def _harvest(self, partition: int) -> None:
        """Write down what is known by now, in the order in which it was sent."""
        waiting = self._waiting[partition]
        while waiting and waiting[0][3].done():
            number, value, began_s, sending = waiting.popleft()
            outcome, offset, why = Outcome.ACKNOWLEDGED, -1, ""
            try:
                offset = sending.result().offset
            except HeadraceError as error:
                outcome, why = Outcome.UNKNOWN, error.code
            write = Write(self.name, number, partition, value, began_s, now_s(), outcome, offset, why)
            self._journal.wrote(write)


class _Raw(Client):
    """Knows who leads, and asks any broker again after whatever went wrong."""

    def __init__(self, name: str, journal: Journal, servers: str, partition: int) -> None:
        super().__init__(name, journal, servers)
        self._partition = partition
        self._urls = deque(servers.split(","))
        self._leader = ""

    def _path(self, what: str) -> str:
        return f"/v1/namespaces/default/topics/{self._journal.topic}/partitions/{self._partition}/{what}"

    def _request(self, transport: BlockingTransport, method: str, what: str, **given: Any) -> Response:
        """To the leader. Raises HeadraceError for any answer that is none."""
        if not self._leader:
            self._leader = self._find(transport)
        try:
            answer = transport.request(method, self._leader + self._path(what), timeout_s=_REQUEST_S, **given)
            if answer.status != 200:
                raise from_problem(json.loads(answer.body), answer.status)
        except HeadraceError:
            self._leader = ""
            raise
        return answer

    def _find(self, transport: BlockingTransport) -> str:
        self._urls.rotate()
        url = f"{self._urls[0]}/v1/namespaces/default/topics/{self._journal.topic}"
        try:
            answer = transport.request("GET", url, timeout_s=2)
            leader = json.loads(answer.body)["partitions"][self._partition]["leader"] if answer.status == 200 else None
        except (KeyError, IndexError):
            leader = None
        except HeadraceError as error:
            raise _NoLeaderError(error.message) from error
        if leader is None:
            raise _NoLeaderError(f"{url} knows of no leader")
        return str(leader["url"])


class _NoLeaderError(HeadraceError):
    code = "NoLeaderKnown"


class RawWriter(_Raw):
    """One record in a request, one request at a time."""

    def __init__(self, name: str, journal: Journal, servers: str, partition: int, acks: str = "all") -> None:
        super().__init__(name, journal, servers, partition)
        self._acks = acks
        self._number = 0

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.is_set():
                self._write(transport)
                self._stopped.wait(PACE_S)

    def _write(self, transport: BlockingTransport) -> None:
        self._number += 1
        value, began_s = f"{self.name}:{self._partition}:{self._number}".encode(), now_s()
        body = b"".join(encode_batch(record_columns([value], timestamps_ms=1)))
        outcome, offset, why = Outcome.ACKNOWLEDGED, -1, ""
        try:
            answer = self._request(
                transport,
                "POST",
                f"records?acks={self._acks}&timeoutMs=3000",
                headers={"content-type": BATCH},
                body=body,
            )
            offset = json.loads(answer.body)["baseOffset"]
        except HeadraceError as error:
            outcome = Outcome.UNKNOWN if error.code in _MAY_BE_WRITTEN else Outcome.REFUSED
            why = error.code
        write = Write(self.name, self._number, self._partition, value, began_s, now_s(), outcome, offset, why)
        self._journal.wrote(write)
        if why:
            self._stopped.wait(KNOCK_S)


class Reader(Client):
    """`position` is the next offset that it wants, by partition."""

    def __init__(self, name: str, journal: Journal, servers: str) -> None:
        super().__init__(name, journal, servers)
        self.position: dict[int, int] = {}

    def has_read(self, ends: dict[int, int]) -> bool:
        return all(self.position.get(partition, 0) >= end for partition, end in ends.items())


class SdkReader(Reader):
    """All partitions, for ever; where it is told to stop while nothing comes, its thread is left behind."""

    def _work(self) -> None:
        with Consumer(self._journal.topic, server=self._servers, timeout_ms=DELIVERY_TIMEOUT_MS) as consumer:
            for partition, offset in self.position.items():
                consumer.seek(partition, offset)
            for batch in consumer.batches():
                partition, offsets = batch.column("partition")[0].as_py(), batch.column("offset").to_pylist()
                rows = map(Row, offsets, batch.column("value").to_pylist())
                self._journal.polled(Poll(self.name, partition, now_s(), tuple(rows)))
                self.position[partition] = offsets[-1] + 1
                if self._stopped.is_set():
                    return


@dataclass(frozen=True, slots=True)
class Whole:
    """All that can be read of a partition."""

    rows: tuple[Row, ...]
    start: int
    """Where the log begins."""
    end: int
    """The high watermark."""


class RawReader(Reader, _Raw):
    """One partition."""

    def __init__(self, name: str, journal: Journal, servers: str, partition: int) -> None:
        _Raw.__init__(self, name, journal, servers, partition)
        self.position = {partition: 0}

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.is_set():
                self._poll(transport)
                self._look(transport)
                self._stopped.wait(PACE_S)

    def _poll(self, transport: BlockingTransport) -> None:
        offset = self.position[self._partition]
        try:
            answer = self._request(
                transport, "GET", f"records?offset={offset}&maxWaitMs=200", headers={"accept": BATCH}
            )
        except OffsetOutOfRangeError as error:
            # Deleted before it came there; whether it may be is for the verdict to say.
            self.position[self._partition] = max(offset, int(str(error.details["logStartOffset"])))
            raise
        rows = rows_of(answer.body, offset)
        told = int(answer.headers.get("headrace-high-watermark", -1))
        self._journal.polled(Poll(self.name, self._partition, now_s(), rows, told))
        self.position[self._partition] = int(answer.headers["headrace-next-offset"])

    def _look(self, transport: BlockingTransport) -> None:
        answer = self._request(transport, "GET", "offsets?timestamp=latest")
        end = int(json.loads(answer.body)["offset"])
        self._journal.looked(Look(self.name, self._partition, now_s(), end))

    def read_all(self) -> Whole:
        """From the start to the high watermark, in the caller's thread. Raises HeadraceError."""
        rows: list[Row] = []
        with BlockingTransport(connect_timeout_s=1) as transport:
            answer = self._request(transport, "GET", "offsets?timestamp=earliest")
            start, end = int(json.loads(answer.body)["offset"]), -1
            offset = start
            while end < 0 or offset < end:
                answer = self._request(transport, "GET", f"records?offset={offset}", headers={"accept": BATCH})
                rows += rows_of(answer.body, offset)
                offset = int(answer.headers["headrace-next-offset"])
                end = int(answer.headers.get("headrace-high-watermark", -1))
        return Whole(tuple(rows), start, end)


def rows_of(body: bytes, offset: int) -> tuple[Row, ...]:
    """What the batches in `body` hold from `offset` on."""
    return tuple(
        Row(at, record.value or b"", batch.header.leader_epoch)
        for batch in decode_batches(body)
        for at, record in batch.since(offset).rows()
    )
