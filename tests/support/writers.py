"""Writers that keep their word: what they saw acknowledged, through any number of faults, and what a reader finds.

Every record has a value of its own and is sent once, so that what is found twice was written twice by the brokers.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from headrace.core.errors import HeadraceError, from_problem
from headrace.core.records.columns import decode_batches, encode_batch, record_columns
from headrace.http2.blocking_transport import BlockingTransport
from tests.support.history import Entry
from tests.support.world import BATCH

_RECORDS_PER_BATCH = 5
_TIMEOUT_S = 10
_KNOCK_S = 0.02
"""A writer whose broker is down tries again so soon."""


@dataclass(slots=True)
class Writer:
    """One thread, one partition, one request at a time, acks=all."""

    partition: int
    url: str
    """Of the partition's records, at its leader."""
    acknowledged: list[Entry] = field(default_factory=list)
    """Only ever appended to: another thread may copy it."""
    failures: list[HeadraceError] = field(default_factory=list)
    """Why requests failed, each of which was given up."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            for number in count():
                if self._stopped.is_set():
                    return
                self._write(
                    transport, [f"{self.partition}-{number}-{row}".encode() for row in range(_RECORDS_PER_BATCH)]
                )

    def stop(self) -> None:
        self._stopped.set()

    def _write(self, transport: BlockingTransport, values: Sequence[bytes]) -> None:
        body = encode_batch(record_columns(values, timestamps_ms=1))
        try:
            answer = transport.request(
                "POST", f"{self.url}?acks=all", headers={"content-type": BATCH}, body=body, timeout_s=_TIMEOUT_S
            )
            if answer.status != 200:
                raise from_problem(json.loads(answer.body), answer.status)
        except HeadraceError as error:
            self.failures.append(error)
            self._stopped.wait(_KNOCK_S)
            return
        base = json.loads(answer.body)["baseOffset"]
        self.acknowledged += [Entry(self.partition, base + row, value) for row, value in enumerate(values)]


@contextmanager
def writing(writers: Sequence[Writer]) -> Iterator[None]:
    """All of them at once."""
    threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()
        for thread in threads:
            thread.join()


def progress_since_now(writers: Sequence[Writer], records: int) -> Callable[[], bool]:
    """Asks whether each writer has had so many records acknowledged since this call."""
    goals = [len(writer.acknowledged) + records for writer in writers]
    return lambda: all(len(w.acknowledged) >= goal for w, goal in zip(writers, goals, strict=True))


def read_from(writer: Writer, offset: int) -> list[Entry]:
    """What its partition holds from `offset` on, as far as the high watermark; over a connection of its own."""
    found: list[Entry] = []
    end = offset + 1
    with BlockingTransport() as transport:
        while offset < end:
            url = f"{writer.url}?offset={offset}"
            answer = transport.request("GET", url, headers={"accept": BATCH}, timeout_s=_TIMEOUT_S)
            assert answer.status == 200, answer.body
            for batch in decode_batches(answer.body):
                rows = batch.since(offset).rows()
                found += [Entry(writer.partition, position, record.value or b"") for position, record in rows]
            offset = int(answer.headers["headrace-next-offset"])
            end = int(answer.headers.get("headrace-high-watermark", offset + 1))
    return found
