"""Brokers take a new certificate without a restart, and keep the old one where the new one cannot be used."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trustme

from headrace.http2.blocking_transport import BlockingTransport
from tests.support.batches import batch_of
from tests.support.certificates import Authority, Mount
from tests.support.cluster import Cluster
from tests.support.tls import certificate_of, handshake, metric, reloads, serial
from tests.support.waiting import wait_for

BATCH = {"content-type": "application/vnd.headrace.batch"}


class Load:
    """Produces to a topic all the time, over a connection that stays and over a new one for each request."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        self._url = url
        self._trust = trust
        self._stopping = threading.Event()
        self.failures: list[str] = []
        self.requests = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=target) for target in (self._over_one, self._over_many)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def _over_one(self) -> None:
        with BlockingTransport(self._trust) as transport:
            while not self._stopping.is_set():
                self._ask(transport)

    def _over_many(self) -> None:
        while not self._stopping.is_set():
            with BlockingTransport(self._trust) as transport:
                self._ask(transport)

    def _ask(self, transport: BlockingTransport) -> None:
        try:
            answer = transport.request("POST", self._url, headers=BATCH, body=batch_of(b"x" * 1000))
            if answer.status != 200:
                self.failures.append(f"{answer.status} {answer.body!r}")
        except Exception as error:
            self.failures.append(str(error))
        self.requests += 1


def test_should_refuse_a_broken_certificate_and_take_a_new_one_without_a_failed_request(
    cluster: Cluster, authority: Authority, mount: Mount, topic: str
) -> None:
    cluster.create_topic(topic)
    url, trust = cluster.leader_url(topic), authority.trust
    load = Load(cluster.records_url(topic), authority.trust)  # A context is for one protocol.
    with handshake(url, trust) as before, load.running():
        old = certificate_of(before)["serialNumber"]
        mount.put(authority.secret() | {"tls.key": authority.secret()["tls.key"]})
        wait_for(lambda: reloads(url, trust, "refused") == 1, "the refusal is counted")
        assert serial(url, trust) == old
        said = f"the new one is refused: key file {mount.path('tls.key')} does not belong to certificate file"
        wait_for(lambda: any(said in program.log for program in cluster.programs.values()), "it says why")

        # Of another type of key: the old one of the other type must not be offered any more.
        mount.put(authority.secret(key_type=trustme.KeyType.RSA, expires="2999-05-01"))
        wait_for(lambda: serial(url, trust) != old, "the new certificate")
        so_far = load.requests
        wait_for(lambda: load.requests > so_far + 20, "requests with the new certificate")
        before.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert before.recv(4096).startswith(b"HTTP/1.1 200 OK")
    assert load.failures == []
    with handshake(url, trust) as after:
        expires = ssl.cert_time_to_seconds(certificate_of(after)["notAfter"])
    assert metric(url, trust, "headrace_broker_tls_certificate_expiry_timestamp_seconds") == expires
    wait_for(lambda: reloads(url, trust, "loaded") == 1, "it is counted")
    assert reloads(url, trust, "refused") == 1
