"""How a producer ends, also when Ctrl-C strikes while it is closed."""

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.producer.producer import Producer
from headrace.client.producer.sender import Sender
from headrace.client.transport.brokers import Workers


class InterruptedSender(Sender):
    """Is interrupted whenever it waits for what was sent."""

    def __init__(self) -> None:
        self._make_lock()
        self.closed = self.is_parents = self.has_ended = False
        self.broken = None
        self.flushes = 0
        self._workers = Workers("headrace-produce", 1)
        self._brokers: Any = SimpleNamespace(close=lambda: None)

    def flush(self) -> None:
        self.flushes += 1
        raise KeyboardInterrupt


def test_should_wait_for_nothing_that_nobody_sends_when_an_interrupted_close_is_called_again() -> None:
    producer, sender = Producer.__new__(Producer), InterruptedSender()
    producer._sender, producer._finalizer = sender, weakref.finalize(producer, Sender.close, sender)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    waited = sender.flushes
    producer.close()
    producer.close()
    assert sender.flushes == waited
    assert not producer._finalizer.alive
