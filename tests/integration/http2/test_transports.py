"""What both client transports promise, over real sockets: time-outs, cancellation, refusals, threads."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

import pytest

from headrace.core.errors import BrokerUnreachableError, InvalidRequestError
from headrace.http2.async_transport import AsyncConnection, AsyncTransport
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.events import LocalProtocolError
from headrace.http2.origin import Origin
from tests.support.http2_app import Application, serving
from tests.support.patience import patient
from tests.support.waiting import wait_for

MIB = 1 << 20


class ServedElsewhere:
    """An application served from a loop in another thread, for callers that block."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(patient(30))

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.application = Application()
        self._stop = asyncio.Event()
        async with serving(self.application) as server:
            self.url = f"http://127.0.0.1:{server.port}"
            self._ready.set()
            await self._stop.wait()

    def reached(self, name: str, count: int = 1) -> None:
        asyncio.run_coroutine_threadsafe(self.application.reached(name, count), self.loop).result(patient(30))

    def release(self) -> None:
        self.loop.call_soon_threadsafe(self.application.release.set)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patient(30))


@pytest.fixture
def served() -> Iterator[ServedElsewhere]:
    served = ServedElsewhere()
    yield served
    served.stop()


@pytest.fixture
def blocking() -> Iterator[BlockingTransport]:
    with BlockingTransport(connect_timeout_s=patient(30)) as transport:
        yield transport


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full: the kernel drops what else wants to connect."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            queued = stack.enter_context(socket.socket())
            queued.settimeout(0.0)
            queued.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_should_answer_a_blocking_request(served: ServedElsewhere, blocking: BlockingTransport) -> None:
    response = blocking.request("GET", f"{served.url}/hello/x?q=1")
    assert (response.status, response.body, response.headers["x-middleware"]) == (200, b"hello x, 1", "seen")
    assert blocking.request("GET", f"{served.url}/missing").status == 404


def test_should_carry_bodies_larger_than_the_windows_while_many_are_in_flight(
    served: ServedElsewhere, blocking: BlockingTransport
) -> None:
    uploads = [blocking.start("POST", f"{served.url}/upload", body=[bytes([1]) * MIB] * 20) for _ in range(5)]
    downloads = [blocking.start("GET", f"{served.url}/large?mib=20") for _ in range(6)]

    assert all(json.loads(upload.result().body)["bytes"] == 20 * MIB for upload in uploads)
    expected = b"".join(bytes([index]) * MIB for index in range(20))
    assert all(download.result().body == expected for download in downloads)


def test_should_serve_several_threads_on_one_connection(served: ServedElsewhere, blocking: BlockingTransport) -> None:
    def ask(number: int) -> bytes:
        return blocking.request("GET", f"{served.url}/hello/{number}").body

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(400)))
    assert answers == [f"hello {number}, ".encode() for number in range(400)]
    assert len(blocking._connections) == 1


def test_should_reset_only_its_stream_when_a_blocking_request_times_out(
    served: ServedElsewhere, blocking: BlockingTransport
) -> None:
    other = blocking.start("GET", f"{served.url}/hold")
    served.reached("held")
    with pytest.raises(BrokerUnreachableError, match=r"did not answer within 0.5 s \(GET /hold\)") as error:
        blocking.request("GET", f"{served.url}/hold", timeout_s=0.5)
    assert error.value.details["unprocessed"] is False
    served.reached("cancelled")

    served.release()
    assert other.result(patient(30)).body == b"released"


def test_should_cancel_on_the_server_when_a_pending_response_is_cancelled(
    served: ServedElsewhere, blocking: BlockingTransport
) -> None:
    pending = blocking.start("GET", f"{served.url}/endless")
    served.reached("block")
    pending.cancel()
    served.reached("cancelled")
    with pytest.raises(BrokerUnreachableError, match="told to stop"):
        pending.result()


def test_should_fail_what_is_in_flight_when_the_transport_is_closed(served: ServedElsewhere) -> None:
    transport = BlockingTransport()
    pending = transport.start("GET", f"{served.url}/hold")
    served.reached("held")
    transport.close()
    with pytest.raises(BrokerUnreachableError, match="this client closed"):
        pending.result()
    with pytest.raises(LocalProtocolError, match="closed"):
        transport.request("GET", f"{served.url}/hello/x")
    served.reached("cancelled")


def test_should_replace_the_connection_when_the_server_went_away(blocking: BlockingTransport) -> None:
    served = ServedElsewhere()
    held = blocking.start("GET", f"{served.url}/hold")
    served.reached("held")
    served.stop()
    assert held.result(patient(30)).body == b"released", "the drain lets it finish"
    with pytest.raises(BrokerUnreachableError, match="cannot be reached: Connection refused"):
        blocking.request("GET", f"{served.url}/hello/x")


def test_should_name_host_and_port_when_nobody_listens(blocking: BlockingTransport) -> None:
    port = closed_port()
    with pytest.raises(BrokerUnreachableError, match=f"broker 127.0.0.1:{port} cannot be reached") as error:
        blocking.request("GET", f"http://127.0.0.1:{port}/")
    assert error.value.details["unprocessed"] is True
    assert error.value.retriable


class WatchedLock:
    """The lock of a transport that tells who has had it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: set[int] = set()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.seen.add(threading.get_ident())
        self._lock.release()


def test_should_share_the_failure_when_many_wait_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, attempts = WatchedLock(), list[Origin]()

    def connect(transport: BlockingTransport, origin: Origin) -> socket.socket:
        attempts.append(origin)
        wait_for(lambda: len(lock.seen) == 5, "all wait for the one that connects")
        return really_connect(transport, origin)

    def ask(transport: BlockingTransport, url: str) -> None:
        with pytest.raises(BrokerUnreachableError, match="did not answer within 1 s"):
            transport.request("GET", url)

    really_connect = BlockingTransport._connect
    monkeypatch.setattr(BlockingTransport, "_connect", connect)
    with silent_port() as port, BlockingTransport(connect_timeout_s=1) as transport:
        monkeypatch.setattr(transport, "_lock", lock)
        with ThreadPoolExecutor(5) as threads:
            asked = [threads.submit(ask, transport, f"http://127.0.0.1:{port}/") for _ in range(5)]
        assert [future.exception() for future in asked] == [None] * 5
    assert len(attempts) == 1, "not one after the other"


async def test_should_share_the_failure_when_many_tasks_wait_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts, connect = list[Origin](), AsyncTransport._connect

    async def counted(transport: AsyncTransport, origin: Origin) -> AsyncConnection:
        attempts.append(origin)
        return await connect(transport, origin)

    monkeypatch.setattr(AsyncTransport, "_connect", counted)
    with silent_port() as port:
        async with AsyncTransport(connect_timeout_s=1) as transport:
            asked = [transport.request("GET", f"http://127.0.0.1:{port}/") for _ in range(5)]
            failures = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(failure, BrokerUnreachableError) for failure in failures)
    assert len(attempts) == 1, "not one after the other"


def test_should_refuse_before_sending_when_the_request_is_invalid(blocking: BlockingTransport) -> None:
    with pytest.raises(InvalidRequestError, match="http://host:port"):
        blocking.start("GET", "localhost:9701/x")
    with pytest.raises(LocalProtocolError, match="X Y"):
        blocking.start("GET", "http://127.0.0.1:1/", headers={"X Y": "1"})


def test_should_say_so_when_the_server_speaks_something_else(blocking: BlockingTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pending = blocking.start("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/")
        other, _ = listener.accept()
        with other:
            other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(BrokerUnreachableError, match="does not speak HTTP/2"):
                pending.result(patient(30))


async def test_should_name_host_and_port_when_nobody_listens_async(transport: AsyncTransport) -> None:
    port = closed_port()
    with pytest.raises(BrokerUnreachableError, match=f"broker 127.0.0.1:{port} cannot be reached"):
        await transport.request("GET", f"http://127.0.0.1:{port}/")


async def test_should_give_up_when_the_server_accepts_and_says_nothing(transport: AsyncTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BrokerUnreachableError, match="did not answer within"):
            await transport.request("GET", f"http://127.0.0.1:{port}/", timeout_s=0.05)


async def test_should_reset_only_its_stream_when_an_async_request_times_out(transport: AsyncTransport) -> None:
    application = Application()
    async with serving(application) as server:
        url = f"http://127.0.0.1:{server.port}"
        other = asyncio.ensure_future(transport.request("GET", f"{url}/hold"))
        await application.reached("held")
        with pytest.raises(BrokerUnreachableError, match="did not answer within"):
            await transport.request("GET", f"{url}/hold", timeout_s=0.5)
        await application.reached("cancelled")
        application.release.set()
        assert await (await other).read() == b"released"


async def test_should_hand_out_what_arrives_while_the_reader_is_busy(transport: AsyncTransport) -> None:
    application = Application()
    async with serving(application) as server:
        url = f"http://127.0.0.1:{server.port}"
        response = await transport.request("GET", f"{url}/stream", timeout_s=patient(30))
        body = b""
        async for chunk in response.chunks():
            body += chunk
            await application.reached("streamed")
            await transport.request("GET", f"{url}/hello/x")  # Its answer comes behind the stream's last frame.
        assert body == b"0\n1\n2\n"


async def test_should_connect_once_when_many_ask_at_the_same_time(transport: AsyncTransport) -> None:
    async with serving(Application()) as server:
        url = f"http://127.0.0.1:{server.port}/hello/x"
        responses = await asyncio.gather(*(transport.request("GET", url) for _ in range(20)))
        assert {response.status for response in responses} == {200}
        assert len(server._http2) == 1


async def test_should_refuse_new_requests_when_it_was_closed() -> None:
    async with serving(Application()) as server:
        transport = AsyncTransport()
        await transport.close()
        with pytest.raises(LocalProtocolError, match="closed"):
            await transport.request("GET", f"http://127.0.0.1:{server.port}/hello/x")


def test_should_send_and_receive_side_by_side_on_a_blocking_stream(
    served: ServedElsewhere, blocking: BlockingTransport
) -> None:
    stream = blocking.open("POST", f"{served.url}/echo")
    with pytest.raises(TimeoutError, match="POST /echo: nothing came within"):
        stream.receive(timeout_s=0.01)
    for word in (b"one", b"two"):
        stream.send(word)
        assert stream.receive() == [word]
    assert stream.status == 200
    stream.send(b"th", b"ree", ended=True)
    arrived: list[bytes] = []
    while chunks := stream.receive():
        arrived += chunks
    assert b"".join(arrived) == b"three"
    served.reached("echoed")


def test_should_end_the_blocking_stream_when_the_server_has_said_enough(
    served: ServedElsewhere, blocking: BlockingTransport
) -> None:
    stream = blocking.open("POST", f"{served.url}/echo")
    stream.send(b"enough")
    assert stream.receive() == [b"enough"]
    assert stream.receive() == []
    stream.send(b"dropped")
    assert stream.receive() == []


def test_should_reset_the_blocking_stream_when_it_is_cancelled(
    served: ServedElsewhere, blocking: BlockingTransport
) -> None:
    stream = blocking.open("POST", f"{served.url}/echo")
    stream.send(b"one")
    assert stream.receive() == [b"one"]
    stream.cancel()
    with pytest.raises(BrokerUnreachableError, match="was told to stop"):
        stream.receive()
    served.reached("cancelled")


def test_should_call_the_listener_of_a_stream_for_all_that_happens(served: ServedElsewhere) -> None:
    heard: SimpleQueue[tuple[list[bytes], bool]] = SimpleQueue()
    transport = BlockingTransport()
    stream = transport.open(
        "POST", f"{served.url}/echo", listener=lambda stream: heard.put((stream.take(), stream.is_over))
    )
    stream.send(b"one")
    while (last := heard.get(timeout=patient(30))) == ([], False):
        pass  # The head.
    assert last == ([b"one"], False)
    transport.close()
    assert heard.get(timeout=patient(30)) == ([], True)
    assert isinstance(stream.error, BrokerUnreachableError)


def test_should_receive_what_a_stream_decodes(served: ServedElsewhere, blocking: BlockingTransport) -> None:
    stream = blocking.open("POST", f"{served.url}/echo", decode=bytes)
    stream.send(b"ab", ended=True)
    assert stream.receive() == list(b"ab")
    assert stream.receive() == []


async def test_should_send_and_receive_side_by_side_on_an_async_stream(transport: AsyncTransport) -> None:
    application = Application()
    async with serving(application) as server:
        url = f"http://127.0.0.1:{server.port}"
        stream = await transport.open("POST", f"{url}/echo")
        with pytest.raises(TimeoutError):
            await stream.receive(timeout_s=0.01)
        for word in (b"one", b"two"):
            stream.send(word)
            assert await stream.receive() == [word]
        assert stream.status == 200
        stream.send(ended=True)
        assert await stream.receive() == []
        await application.reached("echoed")

        decoding = await transport.open("POST", f"{url}/echo", decode=bytes)
        decoding.send(b"ab", ended=True)
        assert await decoding.receive() == list(b"ab")

        cancelled = await transport.open("POST", f"{url}/echo")
        cancelled.cancel()
        with pytest.raises(BrokerUnreachableError, match="was told to stop"):
            await cancelled.receive()
