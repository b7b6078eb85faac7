"""Those who use a cluster during a soak by its plain HTTP API: threads that write, follow, and dawdle.

Writers send every batch once: a batch that is found twice was written twice by the brokers. All of them look their
partition up once (its broker's address never changes) and keep what they saw in lists that only grow.
"""

import json
import random
import socket
import time
from bisect import bisect_left
from typing import Final
from urllib.parse import urlsplit

from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from headrace.http2.blocking_transport import BlockingTransport
from tests.soak.journal import ROWS, DamagedBatchError, KeyedWord, batch_of, entries_of
from tests.soak.member import TIMEOUT_S, Member, Place, edge_of, fetch, post, wall_ms
from tests.support.history import Entry
from tests.support.world import BATCH

KEYS: Final = 300
_KEYS_PER_BATCH: Final = 20
_TOMBSTONES: Final = 0.1
_TRIM_S: Final = 3
_UNTRIMMED: Final = 50 * ROWS
"""Records that followers may still be on their way to."""
_REFUSED: Final = "refused"
_SIP_BYTES: Final = 4096
_SIP_S: Final = 0.05
"""A slow reader takes so little so rarely."""


class Writer(Member):
    """Batches, one request at a time, acks=all."""

    def __init__(self, place: Place, number: int) -> None:
        super().__init__(place)
        self.acknowledged: list[tuple[float, Entry]] = []
        """With the time at which it was sent, by the monotonic clock."""
        self._name = f"w{number}"
        self._sent = 0

    def sent_since(self, at_s: float) -> list[Entry]:
        """What was acknowledged of that which was sent since then."""
        first = bisect_left(self.acknowledged, at_s, key=lambda sent: sent[0])
        return [entry for _, entry in self.acknowledged[first:]]

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.is_set():
                self._sent += 1
                name, sent_s = f"{self._name}-{self._sent}".encode(), time.monotonic()
                answer = post(transport, self.place, batch_of(name, wall_ms()))
                if answer is None:
                    self._refused(_REFUSED)
                    continue
                place, rest = divmod(answer["baseOffset"], ROWS)
                if rest:
                    self.troubles.wrong.append(f"{self.name}: acknowledged at {answer}, within another batch")
                self.acknowledged.append((sent_s, Entry(self.place.number, place, name)))


class KeyedWriter(Member):
    """New values and tombstones for some hundred keys, which nobody else writes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.words = {f"p{place.number}-k{key}".encode(): KeyedWord() for key in range(KEYS)}
        self.batches = 0
        """Acknowledged."""
        self._sent = 0
        self._random = random.Random(place.number)

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.is_set():
                self._write(transport)

    def _write(self, transport: BlockingTransport) -> None:
        self._sent += 1
        keys = self._random.sample(sorted(self.words), _KEYS_PER_BATCH)
        values = [self._value() for _ in keys]
        body = b"".join(encode_batch(record_columns(values, keys, timestamps_ms=wall_ms())))
        answer = None
        try:
            answer = post(transport, self.place, body)
        finally:
            for key, value in zip(keys, values, strict=True):
                self.words[key].written(value, acknowledged=answer is not None)
        if answer is None:
            self._refused(_REFUSED)
        else:
            self.batches += 1

    def _value(self) -> bytes | None:
        return None if self._random.random() < _TOMBSTONES else f"v{self._sent}".encode().ljust(200, b".")


class Follower(Member):
    """Reads everything from the start on, as far as retention lets it; the soak reads on to the end (`read_on`)."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.seen: list[Entry] = []
        self.skipped: list[range] = []
        """Places that were deleted before it came there."""
        self.offset = 0

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.is_set():
                self.read_on(transport)

    def read_on(self, transport: BlockingTransport) -> int:
        """One fetch; the high watermark, or -1 where it was refused."""
        answer = fetch(transport, self.place, self.offset)
        if answer.status == 416:
            start = json.loads(answer.body)["logStartOffset"]
            self.skipped.append(range(self.offset // ROWS, start // ROWS))
            self.offset = start
            return -1
        if answer.status != 200:
            self._refused(str(answer.status))
            return -1
        try:
            for batch in decode_batches(answer.body):
                values = batch.records.column("value").to_pylist()
                self.seen += entries_of(self.place.number, batch.header.base_offset, values)
        except DamagedBatchError as error:
            self.troubles.wrong.append(str(error))
        self.offset = int(answer.headers["headrace-next-offset"])
        return int(answer.headers.get("headrace-high-watermark", -1))


class Trimmer(Member):
    """Deletes records now and then, up to where the start of a batch was a while ago."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.deletions = 0
        self._random = random.Random(place.number)

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.wait(self._random.uniform(0, 2 * _TRIM_S)):
                start, end = edge_of(transport, self.place, "earliest"), edge_of(transport, self.place, "latest")
                if start is None or end is None:
                    continue
                before = self._random.randrange(start, max(start, end - _UNTRIMMED) + 1) // ROWS * ROWS
                url = f"{self.place.url}?beforeOffset={before}"
                self.deletions += transport.request("DELETE", url, timeout_s=TIMEOUT_S).status == 200


class Dawdler(Member):
    """Watches a partition from the start and takes what comes a sip at a time; comes back when it is sent away."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.taken_bytes = 0

    def _work(self) -> None:
        url = urlsplit(self.place.url)
        assert url.hostname is not None
        assert url.port is not None
        with socket.create_connection((url.hostname, url.port), timeout=TIMEOUT_S) as connection:
            head = f"GET {url.path}?watch=true HTTP/1.1\r\nHost: {url.netloc}\r\nAccept: {BATCH}\r\n\r\n"
            connection.sendall(head.encode())
            while not self._stopped.wait(_SIP_S):
                sip = connection.recv(_SIP_BYTES)
                if not sip:
                    return
                self.taken_bytes += len(sip)
