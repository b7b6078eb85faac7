"""Whoever is told to stop reads and waits no more, whenever he is told."""

import pytest

from headrace.client.consumer.fetcher import Between, Fetcher
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.transport.brokers import Brokers


class Told(Between):
    """To stop, by a callback of the group or a signal that comes while there is nothing to read."""

    fetcher: Fetcher
    reading: ReadAhead

    def follow(self) -> None:
        self.reading.handed.stops = True
        self.fetcher.wake()

    def is_settled(self) -> bool:
        return False


def test_should_not_wait_when_it_was_told_to_stop_just_before(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers("http://127.0.0.1:1", None, timeout_ms=1_000, request_timeout_ms=1_000)
    told = Told()
    told.reading = ReadAhead(brokers.directory, {}, brokers.trouble, growing=None, timeout_ms=1_000, prefetch_bytes=1)
    told.fetcher = Fetcher(brokers, told.reading)
    monkeypatch.setattr(ReadAhead, "patience_s", lambda *_: pytest.fail("it waits"))
    try:
        assert list(told.fetcher.batches(told)) == []
    finally:
        told.fetcher.close()
