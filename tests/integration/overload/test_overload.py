"""Four times what a broker may hold, of everything at once: some are served, the others told to wait, and it lives on.

One broker process that may use 256 MiB. Whoever takes or sends slowly is played by sockets that stop half-way, so that
what is in flight does not depend on the speed of the machine.
"""

import asyncio
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.core.frames.frame import pack_head
from headrace.core.frames.session_messages import Opened, Produce, SessionKind
from headrace.core.records.columns import encode_batch, record_columns
from headrace.http2.async_transport import AsyncTransport
from headrace_broker.admission import Admission
from tests.support.cluster import Cluster, http, running_cluster
from tests.support.patience import patient
from tests.support.sessions import session_at, to_produce
from tests.support.waiting import eventually, wait_for
from tests.support.world import BATCH

MEMORY_BYTES = 256 << 20
BUDGET_BYTES = Admission.for_memory(MEMORY_BYTES).bodies.limit_bytes
BODY = b"".join(bytes(part) for part in encode_batch(record_columns([bytes(1 << 20)] * 5, timestamps_ms=1)))
TOO_MANY = 4 * BUDGET_BYTES // len(BODY)
"""Connections of which each has one body under way."""
SESSIONS = 40
FLOOD_S = 2.0
_RSS_INTERVAL_S = 0.02


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("overload"), options=["--memory", "256Mi"]) as cluster:
        cluster.create_topic("full", durability="Replicated")
        yield cluster


@pytest.fixture
def records(cluster: Cluster) -> str:
    return cluster.records_url("full")


@pytest.fixture(autouse=True)
def bounded(cluster: Cluster) -> Iterator[None]:
    """Looks at the broker's memory all the time."""
    peaks, over = [0], threading.Event()
    status = Path(f"/proc/{cluster.broker().pid}/status")

    def look() -> None:
        while not over.wait(_RSS_INTERVAL_S):
            found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
            peaks.append(int(found[1]) << 10 if found is not None else 0)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
    assert 0 < max(peaks) < MEMORY_BYTES


class Slow:
    """One connection of HTTP/1.1 that does one thing at a time, when it is told to."""

    def __init__(self, source: str, url: str, method: str, path_more: str, *headers: str) -> None:
        host, _, path = url.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        self._sock = socket.create_connection((name, int(port)), timeout=patient(30), source_address=(source, 0))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        lines = [f"{method} /{path}{path_more} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
        self._sock.sendall("\r\n".join(lines).encode())
        self._received = b""

    def send(self, body: bytes) -> None:
        self._sock.sendall(body)

    def status(self) -> int:
        """Of its answer, of which no more is read than that."""
        while b"\r\n" not in self._received:
            more = self._sock.recv(256)
            assert more, "closed without an answer"
            self._received += more
        return int(self._received.split(b" ", 2)[1])

    def rest(self) -> bytes:
        while more := self._sock.recv(1 << 20):
            self._received += more
        return self._received.partition(b"\r\n\r\n")[2]

    def close(self) -> None:
        self._sock.close()


@contextmanager
def many(count: int, url: str, method: str, more: str, *headers: str) -> Iterator[list[Slow]]:
    """Each with an address of its own: none is refused for what the others take."""
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            clients.append(Slow(f"127.0.0.{2 + number}", url, method, more, *headers))
            stack.callback(clients[-1].close)
        yield clients


def metric(cluster: Cluster, series: str) -> float:
    text = http("GET", f"{cluster.url()}/metrics").body.decode()
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{series} is not among the metrics"
    return float(found[1])


def held(cluster: Cluster, kind: str) -> float:
    return metric(cluster, f'headrace_broker_bytes_in_flight{{kind="{kind}"}}')


def refused(cluster: Cluster, what: str) -> float:
    return metric(cluster, f'headrace_broker_refused_total{{what="{what}"}}')


def quiet(cluster: Cluster) -> Callable[[], bool]:
    """Whether the broker's process has hardly run since it was asked some times before."""
    stat, ticks = Path(f"/proc/{cluster.broker().pid}/stat"), [0]

    def is_quiet() -> bool:
        ticks.append(int(stat.read_text().rpartition(")")[2].split()[11]))
        return len(ticks) > 20 and ticks[-1] - ticks[-20] <= 1

    return is_quiet


def require_normal_service(cluster: Cluster, records: str) -> None:
    wait_for(lambda: held(cluster, "bodies") + held(cluster, "answers") == 0, "nothing is held any more")
    assert http("POST", records, BODY, {"Content-Type": BATCH}).status == 200
    assert http("GET", f"{records}?offset=latest", headers={"Accept": BATCH}).status == 200


def test_should_refuse_uploads_beyond_the_budget_and_take_those_within(cluster: Cluster, records: str) -> None:
    headers = (f"Content-Type: {BATCH}", f"Content-Length: {len(BODY)}")
    fitting = 2  # A third one would have more than it leaves.
    with many(TOO_MANY, records, "POST", "?acks=all", *headers) as clients:
        taken, others = clients[:fitting], clients[fitting:]
        wait_for(lambda: metric(cluster, "headrace_broker_requests_in_flight") > TOO_MANY, "all are under way")
        assert held(cluster, "bodies") == 0, "nothing has arrived, whatever is announced"
        for client in taken:
            client.send(BODY[:-1])
        wait_for(lambda: held(cluster, "bodies") == fitting * (len(BODY) - 1), "theirs has arrived")
        for client in others:
            client.send(BODY[: 4 << 20])
        assert {client.status() for client in others} == {429}
        assert json.loads(others[-1].rest())["code"] == "Throttled"
        with many(1, records, "POST", "?acks=all", headers[0], f"Content-Length: {7 << 20}") as late:
            assert late[0].status() == 429, "whoever has no room is told before the upload"
        for client in taken:
            client.send(BODY[-1:])
        assert [client.status() for client in taken] == [200] * fitting
    require_normal_service(cluster, records)


def test_should_refuse_fetches_when_too_many_do_not_take_their_answers(cluster: Cluster, records: str) -> None:
    http("POST", records, BODY, {"Content-Type": BATCH})
    with many(TOO_MANY, records, "GET", "?offset=earliest", f"Accept: {BATCH}") as clients:
        answers = [client.status() for client in clients]
        assert set(answers) == {200, 429}
        assert held(cluster, "answers") > BUDGET_BYTES // 2
        assert refused(cluster, "answers") == answers.count(429)
        served = next(client for client, status in zip(clients, answers, strict=True) if status == 200)
        assert served.rest().endswith(BODY[-1000:]), "whoever is served gets whole batches, slowly as it reads"
    require_normal_service(cluster, records)


def test_should_serve_some_and_refuse_others_under_a_flood(cluster: Cluster, records: str) -> None:
    with many(TOO_MANY // 2, records, "GET", "?offset=earliest", f"Accept: {BATCH}"):
        answers = asyncio.run(flood(records))
    assert answers[200] > 0
    assert set(answers) <= {200, 429}
    assert http("GET", f"{cluster.url()}/readyz").status == 200
    require_normal_service(cluster, records)


async def flood(records: str) -> Counter[int]:
    """Large produces and fetches over HTTP/2, over several connections, all the time."""
    answers: Counter[int] = Counter()
    end_s = asyncio.get_running_loop().time() + FLOOD_S

    async def ask(transport: AsyncTransport, method: str, body: Sequence[bytes]) -> None:
        while True:
            headers = {"content-type": BATCH, "accept": BATCH}
            response = await transport.request(method, records, headers=headers, body=body, timeout_s=patient(30))
            await response.read()
            answers[response.status] += 1
            if asyncio.get_running_loop().time() >= end_s:
                return

    async with AsyncTransport() as one, AsyncTransport() as other, asyncio.TaskGroup() as tasks:
        for transport in (one, other):
            for _ in range(TOO_MANY // 4):
                tasks.create_task(ask(transport, "POST", [BODY]))
                tasks.create_task(ask(transport, "GET", []))
    return answers


@pytest.mark.timeout(300)
async def test_should_keep_little_of_what_sessions_push_while_there_is_no_room_for_it(
    cluster: Cluster, records: str
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(patient(240)):
        hog = await stack.enter_async_context(session_at(cluster.url()))
        hog.stream.send(pack_head(SessionKind.PRODUCE, 1, BUDGET_BYTES))  # So much it wants to send, and does not.
        await eventually(lambda: held(cluster, "bodies") == BUDGET_BYTES // 2, "half of the room is taken")
        sessions = [await stack.enter_async_context(session_at(cluster.url())) for _ in range(SESSIONS)]
        for session in sessions:
            session.say(to_produce(1, "full"))
            session.stream.send(b"".join(Produce(1, 7, (BODY, BODY)).buffers()))
        for session in sessions:
            await session.hear(Opened)
        await eventually(quiet(cluster), "the broker has taken what it takes")
        hog.stream.cancel()
        for session in sessions:
            assert [answer.sequence for answer in await session.produced(1)] == [7]
    require_normal_service(cluster, records)
