"""What a broker shows of itself over TLS, and whom it trusts, for the life of the process.

    source ──material──> load ──usable──> new handshakes get it; the way to other brokers trusts its authority
                           ├──unusable──> logged and counted; the one in use stays
                           └──failed────> logged; tried again with the next reading

`server_context` never changes: it has no certificate of its own and gives each handshake the context in use, so that a
key of another type replaces the old one whole. Connections that are open keep what they were made with.
"""

import asyncio
import logging
import ssl
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from headrace_broker.tls.certificate import Certificate, load, new_server_context
from headrace_broker.tls.material import Material, Source, Unreadable, UnusableTlsError

_log = logging.getLogger(__name__)


class Trusting(Protocol):
    def trust(self, ssl_context: ssl.SSLContext) -> None:
        """Verify others against this one from now on."""


class Identity:
    def __init__(self, source: Source, host: str, transport: Trusting, registry: CollectorRegistry) -> None:
        """`host` is the one that is advertised, `transport` the way to other brokers. `take_on` comes next."""
        self._source = source
        self._host = host
        self._transport = transport
        self._seen: Material | Unreadable | None = None
        """What was judged last."""
        self._reloads = Counter(
            "headrace_broker_tls_reloads",
            "New certificates that were read, by outcome.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("loaded", "refused"):
            self._reloads.labels(outcome)
        self._expiry = Gauge(
            "headrace_broker_tls_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, as Unix time.",
            registry=registry,
        )
        self.server_context = new_server_context()

    async def take_on(self) -> None:
        """Read what the source has, as soon as it can say. Raises UnusableTlsError."""
        self._seen = await self._source.read()
        self._use(await self._load(self._seen))

    async def keep_fresh(self) -> None:
        """Follow the source for ever."""
        async with aclosing(self._source.changes()) as changes:
            async for now in changes:
                if now != self._seen:
                    self._seen = now
                    await self._replace(now)

    async def _replace(self, material: Material | Unreadable) -> None:
        try:
            certificate = await self._load(material)
        except UnusableTlsError as error:
            self._reloads.labels("refused").inc()
            _log.error("TLS: the certificate in use stays, because the new one is refused: %s", error.message)
        except OSError as error:
            # As where this process has too many files open: nothing is said of the certificate, it is looked at again.
            self._seen = None
            _log.error("TLS: the certificate in use stays, because the new one cannot be loaded now: %s", error)
        else:
            self._use(certificate)
            self._reloads.labels("loaded").inc()

    async def _load(self, material: Material | Unreadable) -> Certificate:
        if isinstance(material, Unreadable):
            raise UnusableTlsError(material.reason)
        return await asyncio.to_thread(load, material, self._host)

    def _use(self, certificate: Certificate) -> None:
        def choose(connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
            connection.context = certificate.server

        self.server_context.sni_callback = choose
        self._transport.trust(certificate.trust)
        self._expiry.set(certificate.expires_s)
        until = datetime.fromtimestamp(certificate.expires_s, UTC)
        _log.info("TLS: new connections get the certificate that is valid until %s", until.isoformat())
        if certificate.doubt:
            _log.warning("TLS: other brokers will not connect to this one: it %s", certificate.doubt)
