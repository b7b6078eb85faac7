"""TLS of a broker: where its certificate comes from, whether it can be used, and how a new one replaces it.

    source ──material──> load ──usable──> new handshakes get it; the way to other brokers trusts its authority
                           ├──unusable──> logged and counted; the one in use stays
                           └──failed────> logged; tried again with the next reading

A source is files, or a Secret of type kubernetes.io/tls as cert-manager writes it. Files are read again and again and
compared by content: a mounted Secret changes by the swap of a symbolic link, which neither the file's own time nor its
inode need to show. A Secret is watched, that one alone; while the API server is away, the first reading waits.

A certificate is judged by what clients will do with it: a whole handshake is rehearsed in memory, so that one which is
expired, or not for servers, never gets in front of a client. OpenSSL reads keys from files alone: the bytes reach it
through files in memory, because what was checked must be what is used, and a Secret's key has no business on a disk.

`server_context` never changes: it has no certificate of its own and gives each handshake the context in use, so that a
key of another type replaces the old one whole. Connections that are open keep what they were made with. `Transports`
makes the connections to other brokers: one is shared by all that is passed on, each replication stream has its own. All
of them trust the same authority, which may change while they are used. One of each per process.
"""

import asyncio
import errno
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from headrace.core.errors import LocalError
from headrace.core.limits import TLS_FILE_BYTES_MAX, TLS_FILES_INTERVAL_MS
from headrace.core.resources.kubernetes_objects import Secret
from headrace.http2.async_transport import AsyncTransport
from headrace.http2.origin import trusting, trusting_bundle, why_untrusted
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, NotFoundError
from headrace.kube.resource import SECRETS
from headrace.kube.watch import Changed, Listed, Removed, watch_one
from headrace_broker.cluster.lease import patiently

_ALPN_PROTOCOLS = ["h2", "http/1.1"]
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers of TLS 1.2 that HTTP/2 allows (RFC 9113, section 9.2.2). TLS 1.3 has its own."""
_MISMATCHES = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""The reasons of mismatch; the last one: there is no certificate for a key of this type."""
_FLIGHTS_MAX = 4
"""The number of flights, more than a handshake of TLS 1.2 or 1.3 takes."""
_log = logging.getLogger(__name__)


class Transports:
    def __init__(self, shared: AsyncTransport) -> None:
        self.shared = shared
        self._ssl_context: ssl.SSLContext | None = None

    def trust(self, ssl_context: ssl.SSLContext) -> None:
        """Verify new connections against this one; those that are open stay."""
        self._ssl_context = ssl_context
        self.shared.trust(ssl_context)

    def make(self) -> AsyncTransport:
        """Return a new transport, which its owner closes."""
        return AsyncTransport(self._ssl_context)


class UnusableTlsError(LocalError):
    """This certificate, key or CA bundle cannot be used; the message names the file or Secret and the remedy."""

    code = "UnusableTls"


@dataclass(frozen=True, slots=True)
class Pem:
    name: str
    """The name for messages: `certificate file /etc/tls/tls.crt`."""
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    certificate: Pem
    """The broker's own certificate first, then those between it and the authority."""
    key: Pem
    authority: Pem | None
    """The authority that this broker trusts when it asks other brokers; None: the system's roots."""


@dataclass(frozen=True, slots=True)
class UnreadableTls:
    """There is no material just now."""

    reason: str


class TlsSource(Protocol):
    """A source of material, at the start and later."""

    async def read(self) -> TlsMaterial | UnreadableTls: ...

    def changes(self) -> AsyncGenerator[TlsMaterial | UnreadableTls, None]:
        """Yield without end what there is now, whenever it may have changed. The same may come again."""


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    certificate: Path
    key: Path
    authority: Path | None

    async def read(self) -> TlsMaterial | UnreadableTls:
        return await asyncio.to_thread(self._read)

    async def changes(self) -> AsyncGenerator[TlsMaterial | UnreadableTls, None]:
        before: TlsMaterial | UnreadableTls | None = None
        while True:
            await asyncio.sleep(TLS_FILES_INTERVAL_MS / 1000)
            now = await self.read()
            # Certificate and key are two files: files that still change are not read yet.
            if now == before:
                yield now
            before = now

    def _read(self) -> TlsMaterial | UnreadableTls:
        try:
            return TlsMaterial(
                Pem(f"certificate file {self.certificate}", _content(self.certificate)),
                Pem(f"key file {self.key}", _content(self.key)),
                Pem(f"CA file {self.authority}", _content(self.authority)) if self.authority else None,
            )
        except OSError as error:
            return UnreadableTls(f"{error.filename} cannot be read: {error.strerror}")


def _content(path: Path) -> bytes:
    """Return the content. Raises OSError, also for a file that is too large for what it should be."""
    with path.open("rb") as file:
        content = file.read(TLS_FILE_BYTES_MAX + 1)
    if len(content) > TLS_FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


@dataclass(frozen=True, slots=True)
class WatchedSecret:
    client: KubeClient
    namespace: str
    name: str

    async def read(self) -> TlsMaterial | UnreadableTls:
        try:
            get = partial(self.client.get, SECRETS, self.name, self.namespace)
            return self._material(await patiently(get, "to read the certificate"))
        except NotFoundError:
            return self._missing()
        except ApiError as error:
            return UnreadableTls(f"{self._label} cannot be read: {error.message}")

    async def changes(self) -> AsyncGenerator[TlsMaterial | UnreadableTls, None]:
        async with aclosing(watch_one(self.client, SECRETS, self.name, self.namespace)) as events:
            async for event in events:
                match event:
                    case Listed((secret,)) | Changed(secret):
                        yield self._material(secret)
                    case Listed() | Removed():
                        yield self._missing()

    @property
    def _label(self) -> str:
        return f"Secret {self.namespace}/{self.name}"

    def _missing(self) -> UnreadableTls:
        return UnreadableTls(
            f"{self._label} is not there: make it with `kubectl create secret tls`, or by cert-manager"
        )

    def _material(self, secret: Secret) -> TlsMaterial | UnreadableTls:
        missing = [key for key in ("tls.crt", "tls.key") if not secret.data.get(key)]
        if missing:
            return UnreadableTls(
                f"{self._label} has no {' and no '.join(missing)}: it must be of type kubernetes.io/tls"
            )
        certificate, key, authority = (
            Pem(f"{name} of {self._label}", secret.data.get(name, b"")) for name in ("tls.crt", "tls.key", "ca.crt")
        )
        return TlsMaterial(certificate, key, authority if authority.content else None)


@dataclass(frozen=True, slots=True)
class Certificate:
    server: ssl.SSLContext
    trust: ssl.SSLContext
    """The context of this broker as a client of other brokers."""
    expires_s: int
    """The expiry in Unix time."""
    doubt: str
    """The reason why other brokers will not accept it, as the rest of a sentence about this one; empty when they
    will."""


def load_certificate(material: TlsMaterial, host: str) -> Certificate:
    """Load a certificate; `host` is where clients reach this broker. Raises UnusableTlsError."""
    itself = _trust(material.certificate)
    itself.check_hostname = False
    itself.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python 3.13's default; other clients are less strict.
    trust = trusting(None) if material.authority is None else _trust(material.authority)
    server = _server_context(material)
    try:
        seen = _rehearse(server, itself, host)
    except ssl.SSLCertVerificationError as error:
        raise UnusableTlsError(f"{material.certificate.name} cannot be used: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise UnusableTlsError(f"{material.certificate.name} cannot be used: {error.reason}") from None
    return Certificate(server, trust, _expiry(seen), _doubt(server, trust, host))


def new_server_context() -> ssl.SSLContext:
    """Return a server's context without a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_ALPN_PROTOCOLS)
    return context


def _trust(pem: Pem) -> ssl.SSLContext:
    try:
        return trusting_bundle(pem.content, pem.name)
    except LocalError:
        raise UnusableTlsError(f"{pem.name} holds no certificate that can be read: it must be PEM") from None


def _server_context(material: TlsMaterial) -> ssl.SSLContext:
    context = new_server_context()
    with ExitStack() as files:
        certificate, key = (
            files.enter_context(_in_memory(pem.content)) for pem in (material.certificate, material.key)
        )
        try:
            # Without a password of our own OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            raise UnusableTlsError(_why_not_loaded(material, error)) from None
    return context


def _why_not_loaded(material: TlsMaterial, error: ssl.SSLError) -> str:
    certificate, key = material.certificate.name, material.key.name
    if error.reason in _MISMATCHES:
        return f"{key} does not belong to {certificate}: give the key that the certificate was made for"
    if error.reason:
        return f"{certificate} cannot be used: {error.reason}"
    return f"{key} holds no private key that can be read: it must be PEM without a passphrase"


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file that only this process can see, and only during the block."""
    file = os.memfd_create("headrace-tls")
    try:
        os.write(file, content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _rehearse(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Return the client's end of a handshake between the two. Raises ssl.SSLError, on whichever side it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_FLIGHTS_MAX):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0]


def _expiry(seen: ssl.SSLObject) -> int:
    described = seen.getpeercert()
    assert described is not None, "the handshake is over"
    not_after = described["notAfter"]
    assert isinstance(not_after, str), "RFC 5280 dates are text here"
    return int(ssl.cert_time_to_seconds(not_after))


def _doubt(server: ssl.SSLContext, trust: ssl.SSLContext, host: str) -> str:
    try:
        _rehearse(server, trust, host)
    except ssl.SSLCertVerificationError as error:
        return why_untrusted(error, host)
    return ""


class Trusting(Protocol):
    def trust(self, ssl_context: ssl.SSLContext) -> None:
        """Verify others against this one from now on."""


class TlsIdentity:
    def __init__(self, source: TlsSource, host: str, transport: Trusting, registry: CollectorRegistry) -> None:
        """Take `host`, the advertised one, and `transport`, the way to other brokers. `take_on` comes next."""
        self._source = source
        self._host = host
        self._transport = transport
        self._seen: TlsMaterial | UnreadableTls | None = None
        """The material that was judged last."""
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
        """Read what the source has, as soon as it has it. Raises UnusableTlsError."""
        self._seen = await self._source.read()
        self._use(await self._load(self._seen))

    async def keep_fresh(self) -> None:
        """Follow the source without end."""
        async with aclosing(self._source.changes()) as changes:
            async for now in changes:
                if now != self._seen:
                    self._seen = now
                    await self._replace(now)

    async def _replace(self, material: TlsMaterial | UnreadableTls) -> None:
        try:
            certificate = await self._load(material)
        except UnusableTlsError as error:
            self._reloads.labels("refused").inc()
            _log.error("TLS: the certificate in use stays, because the new one is refused: %s", error.message)
        except OSError as error:
            # This process may have too many files open, for example: the certificate is not judged, and read again
            # later.
            self._seen = None
            _log.error("TLS: the certificate in use stays, because the new one cannot be loaded now: %s", error)
        else:
            self._use(certificate)
            self._reloads.labels("loaded").inc()

    async def _load(self, material: TlsMaterial | UnreadableTls) -> Certificate:
        if isinstance(material, UnreadableTls):
            raise UnusableTlsError(material.reason)
        return await asyncio.to_thread(load_certificate, material, self._host)

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
