"""What a client sees of a broker's TLS."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.support.cluster import http
from tests.support.patience import patient


@contextmanager
def handshake(url: str, trust: ssl.SSLContext, *offers: str) -> Iterator[ssl.SSLSocket]:
    """A connection of its own, with what it negotiated."""
    parts = urlsplit(url)
    trust.set_alpn_protocols(list(offers))
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=patient(30)) as plain,
        trust.wrap_socket(plain, server_hostname=parts.hostname) as secure,
    ):
        yield secure


def serial(url: str, trust: ssl.SSLContext) -> str | None:
    """Of the certificate that a new connection gets; None where that is not trusted."""
    try:
        with handshake(url, trust) as secure:
            return certificate_of(secure)["serialNumber"]
    except ssl.SSLCertVerificationError:
        return None


def certificate_of(secure: ssl.SSLSocket) -> dict[str, str]:
    described = secure.getpeercert()
    assert described is not None
    return {name: value for name, value in described.items() if isinstance(value, str)}


def metric(url: str, trust: ssl.SSLContext, series: str) -> float:
    """One line of /metrics, by all that stands before its value."""
    lines = http("GET", f"{url}/metrics", tls=trust).body.decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == series)


def reloads(url: str, trust: ssl.SSLContext, outcome: str) -> float:
    return metric(url, trust, f'headrace_broker_tls_reloads_total{{outcome="{outcome}"}}')
