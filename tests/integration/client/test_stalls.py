"""A client in which nothing moves any more says so, instead of letting its user wait for ever."""

import ctypes
import threading
from collections.abc import Iterator, Mapping

import pytest

from headrace import Consumer, Producer, Servers
from headrace.core.errors import StalledError
from tests.support.client_bench import Bench
from tests.support.patience import patient
from tests.support.waiting import wait_for


class Hanging(Mapping[str, str]):
    """Headers as of a token that has to be fetched: once told to, nobody gets them until `go_on`."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.go_on.set()

    def __getitem__(self, name: str) -> str:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        self.go_on.wait()
        return iter(())

    def __len__(self) -> int:
        return 0


def end_thread(name: str) -> None:
    """Raises SystemExit in the thread, wherever it is."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


def test_should_raise_when_the_sending_thread_has_died(bench: Bench) -> None:
    bench.create()
    producer = bench.producer(linger_ms=60_000)
    lost = producer.send(bench.topic, "lost")
    end_thread("headrace-sender")
    with pytest.raises(
        StalledError, match=r"the sending thread of this producer ended by SystemExit.*; make a new Producer"
    ):
        lost.result(patient(30))
    with pytest.raises(StalledError, match="make a new Producer"):
        producer.send(bench.topic, "more")
    with pytest.raises(StalledError, match="make a new Producer"):
        producer.close()


async def test_should_raise_when_nothing_moves_on_an_event_loop(bench: Bench) -> None:
    bench.create()
    async with bench.async_consumer() as consumer:
        producer = bench.async_producer(linger_ms=0)
        await (await producer.send(bench.topic, "first"))
        records = aiter(consumer)
        assert (await anext(records)).value == b"first"
        assert consumer._reading is not None
        producer._sender.in_flight.watchdog.patience_ms = consumer._reading.watchdog.patience_ms = 300
        with bench.frozen_brokers():
            lost = await producer.send(bench.topic, "lost")
            with pytest.raises(
                StalledError, match=r"this consumer has stalled: for \d+ s none of its requests has ended"
            ):
                await anext(records)
            with pytest.raises(
                StalledError, match=r"this producer has stalled: \d+ bytes wait, and for \d+ s no request"
            ):
                await producer.flush()
            with pytest.raises(StalledError, match="this producer has stalled"):
                await lost
            with pytest.raises(StalledError):
                await producer.close()


def test_should_raise_when_nothing_moves_for_longer_than_the_time_limits_allow(bench: Bench) -> None:
    bench.create()
    hanging = Hanging()
    servers = Servers((bench.server,), hanging, reaches_leaders=False)  # Each batch a request, with headers of its own.
    with Producer(servers, linger_ms=0) as producer, Consumer(bench.topic, server=servers) as consumer:
        producer.send(bench.topic, "first").result(patient(30))
        records = iter(consumer)
        assert next(records).value == b"first"
        # As if the time limits, minutes together, were over a moment later.
        assert consumer._reading is not None
        producer._sender.in_flight.watchdog.patience_ms = consumer._reading.watchdog.patience_ms = 300
        hanging.go_on.clear()
        lost = producer.send(bench.topic, "lost")
        with pytest.raises(StalledError, match=r"this producer has stalled: \d+ bytes wait, and for \d+ s no request"):
            producer.flush()
        with pytest.raises(StalledError, match="this producer has stalled"):
            lost.result(patient(30))
        with pytest.raises(StalledError, match=r"this consumer has stalled: for \d+ s none of its requests has ended"):
            next(records)
        hanging.go_on.set()
        wait_for(lambda: "lost" in [(r.value or b"").decode() for r in bench.read_all()], "the request goes on")
        with pytest.raises(StalledError):
            producer.close()
