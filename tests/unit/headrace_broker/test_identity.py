"""A new certificate replaces the one in use, whatever the moment at which it comes."""

import os
import resource
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from headrace.http2.async_transport import AsyncTransport
from headrace_broker.tls import Pem, TlsIdentity, TlsMaterial, UnreadableTls
from tests.support.certificates import Authority

AUTHORITY = Authority()


def material(expires: str) -> TlsMaterial:
    secret = AUTHORITY.secret(expires=expires)
    return TlsMaterial(*(Pem(name, secret[name]) for name in ("tls.crt", "tls.key", "ca.crt")))


@contextmanager
def no_more_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class ShortOfFiles:
    """A source whose new certificate comes while this process can open no more files, and is there afterwards."""

    def __init__(self) -> None:
        self._new = material("2999-05-01")

    async def read(self) -> TlsMaterial | UnreadableTls:
        return material("2998-05-01")

    async def changes(self) -> AsyncGenerator[TlsMaterial | UnreadableTls, None]:
        with no_more_files():
            yield self._new
        yield self._new


async def test_should_take_a_certificate_once_there_are_files_for_it() -> None:
    registry = CollectorRegistry()
    async with AsyncTransport() as transport:
        identity = TlsIdentity(ShortOfFiles(), "localhost", transport, registry)
        await identity.take_on()
        await identity.keep_fresh()
    assert registry.get_sample_value("headrace_broker_tls_certificate_expiry_timestamp_seconds") == 32482512000
    assert registry.get_sample_value("headrace_broker_tls_reloads_total", {"outcome": "loaded"}) == 1
